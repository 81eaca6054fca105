"""The page for instructors: its commands, tables and numbers are those of the grader, and its example works."""

import contextlib
import csv
import io
import itertools
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import nbformat
import pytest

from dlsys.exercises import same
from dlsys.exercises.judge import HINT_RTOL
from dlsys.grading import assignment as assignments
from dlsys.grading import result
from dlsys.grading.assignment import Assignment
from dlsys.grading.boxes import sandbox, selftest
from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.checks import checks_of
from dlsys.grading.collecting import reading
from dlsys.grading.collecting.rebuild import rebuild
from dlsys.grading.collecting.roster import Student, read_roster
from dlsys.grading.commands import check, cli
from dlsys.grading.course import run as course_run
from dlsys.grading.course.grade import Grade
from dlsys.grading.course.run import Notebook, Plan, Progress
from dlsys.grading.course.run import grade as grade_class
from dlsys.grading.judging.examine import examine, prepare
from dlsys.grading.reports.everything import write_reports
from dlsys.grading.times import extended, parse_due
from dlsys.notebook import release
from tests.exercises.notebooks import ROOT, load, slugs
from tests.exercises.wrong_answers import Wrong, in_place_of_solution
from tests.grading.boxes import opened
from tests.grading.small_course import answered, make
from tests.grading.test_course import Watched
from tests.grading.test_lateness import class_of

PAGE = (ROOT / "chapters" / "instructors.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.S | re.M)
COMMANDS = [
    line
    for kind, text in BLOCKS
    if kind == "shell"
    for line in text.replace("\\\n", "").split("\n")
]
CODE = [text for kind, text in BLOCKS if kind == "python"]
EXAMPLE = [text for text in CODE if "leader" in text]  # solution, checks, wrong answers


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading row that begins so, backticks left out."""
    table = PAGE[PAGE.index(f"| {heading}") :].split("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").replace("`", "").split("|")]
        for line in table.splitlines()[2:]
    ]


def help_of(main: Any, *command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return printed.getvalue()


# -- what it says of commands --------------------------------------------------------------------


@pytest.mark.parametrize("command", [line for line in COMMANDS if "--" in line])
def test_every_option_of_a_command_exists(command: str) -> None:
    known = {
        "dlsys-grade export": help_of(cli.main, "export"),
        "dlsys-grade": help_of(cli.main),
        "dlsys-check": help_of(check.main),
        "python -m dlsys.notebook.release": help_of(release.main),
        "docker run": selftest.advice("") + " --cap-add --security-opt",
    }
    said = next((text for start, text in known.items() if command.startswith(start)), None)
    for option in re.findall(r"--[a-z-]+", command) if said else ():
        assert option in said, f"{option} of {command!r}"


def test_the_table_of_options_names_every_option_and_no_other() -> None:
    options = {word for row in rows("Option") for word in re.findall(r"--[a-z-]+", row[0])}
    there = set(re.findall(r"--[a-z-]+", help_of(cli.main)))
    assert options == there - {"--help", "--out"}


def test_every_make_target_and_every_file_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)(?=[`\n])", PAGE):
        assert re.search(rf"^{target}:", makefile, re.M), target
    named = re.findall(r"(?:chapters|dlsys|exercises|solutions|tests)/[\w./]*", PAGE)
    for path in named:
        places = [path.replace("SLUG", slug) for slug in slugs()]
        assert all((ROOT / place).exists() for place in places), path


def test_the_options_that_a_container_needs_are_those_that_the_grader_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selftest.sys, "platform", "linux")
    monkeypatch.setattr(selftest.shutil, "which", lambda name: name)
    monkeypatch.setattr(selftest.Path, "exists", lambda self: self == Path("/.dockerenv"))
    (docker,) = [line for line in COMMANDS if line.startswith("docker")]
    options = re.search(r"Start the container with: (.*?)\.", selftest.advice("trouble"))
    assert options
    assert " ".join(options[1].split()) in " ".join(docker.split())


def test_statuses_of_the_command_are_those_that_it_ends_with() -> None:
    said = re.search(r"\*\*The command ends\*\*.*?\n\n", PAGE, re.S)
    assert said
    codes = (cli.OK, cli.SOME_NOT_GRADED, cli.USAGE, cli.NO_SANDBOX, cli.INTERRUPTED)
    assert [int(number) for number in re.findall(r"\d+", said[0])] == [*codes]
    assert codes == (0, 1, 2, 3, 130)


# -- what it says of numbers and files -----------------------------------------------------------


def test_limits_are_the_defaults() -> None:
    units = {"s": 1, "GiB": 2**30, "MiB": 2**20, "": 1}
    parts = {name: default.partition(" ") for name, default, _ in rows("Limit")}
    said = {name: float(number) * units[unit] for name, (number, _, unit) in parts.items()}
    assert said == {each.name: getattr(Limits(), each.name) for each in fields(Limits)}
    assert f"larger than {reading.MOST_BYTES / 1e6:g} MB without" in PAGE
    assert f"{reading.MOST_STORED / 1e6:g} MB with them" in PAGE
    assert f"memory-gib` is at least {cli.LEAST_GIB:g}" in PAGE
    assert "recognized to three digits" in PAGE
    assert HINT_RTOL == 1e-3


def test_the_statuses_are_those_that_a_result_has() -> None:
    assert [row[0] for row in rows("Status")] == [
        result.GRADED,
        result.REFUSED,
        result.NOT_GRADED,
        result.MISSING,
    ]
    text = " ".join(PAGE.split())
    for word in (result.RIGHT, result.PARTLY, result.WRONG, result.UNANSWERED, result.BROKE):
        assert f"`{word}`" in text


def test_the_files_are_those_that_a_run_writes(tmp_path: Path) -> None:
    @contextmanager
    def nobody(plan: Plan, several: Sequence[Assignment], progress: Progress) -> Iterator[Any]:
        def examiner(each: Assignment, student: str, notebook: Notebook) -> result.Result:
            return result.Result(student, each.slug, result.GRADED)

        yield examiner

    slug = slugs()[0]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.ipynb").write_bytes(
        (ROOT / "exercises" / slug / f"{slug}.ipynb").read_bytes()
    )
    out = tmp_path / "out"
    grade_class(
        ROOT,
        tmp_path / "in",
        [slug],
        out,
        plan=Plan(),
        progress=lambda *_: None,
        opener=nobody,
        finish=lambda done: write_reports(out, done),
    )
    said = [name for row in rows("In GRADES") for name in row[0].split(", ")]
    for name in said:
        assert (out / name.replace("SLUG", slug).replace("STUDENT", "ada")).exists(), name
    written = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert written == {Path(name).parts[0] for name in said}
    heads = [(out / f"{n}.csv").read_text("utf-8-sig").split("\n")[0] for n in ("grades", "items")]
    columns = {column for head in heads for column in head.strip().split(",")}
    for column in (
        *("total", "late_penalty", "maximum", "to_grade_by_hand", "status", "reason"),
        "seconds_late",
    ):
        assert f"`{column}`" in PAGE
        assert column in columns
    for column in ("difficulty", "discrimination", "not_answered", "commonest_mistakes"):
        assert f"- `{column}`" in PAGE
        assert column in columns


def test_the_settings_for_plain_nbgrader_are_those_of_the_provisioner() -> None:
    from dlsys.grading.boxes import provisioner

    for setting in (
        "JUPYTER_DEFAULT_PROVISIONER_NAME=dlsys-sandbox",
        "KernelManager.transport=ipc",
    ):
        assert setting in PAGE
        assert setting in str(provisioner.__doc__)
    assert 'c.KernelManager.transport = "ipc"' in PAGE


def test_each_chapter_has_one_question_in_words_as_is_said() -> None:
    for slug in slugs():
        assert len(assignments.load(ROOT, slug).written) == 1
        assert "### BEGIN SOLUTION" not in str(load("exercises", slug))


def test_a_day_that_is_due_lasts_to_its_end_as_is_said() -> None:
    (day,) = re.findall(r"`([\d-]+)` being the end of that day", PAGE)
    begins = datetime.fromisoformat(day).astimezone()
    assert timedelta() < begins + timedelta(days=1) - parse_due(day) < timedelta(seconds=1)


def test_the_columns_of_a_roster_are_those_that_are_read(tmp_path: Path) -> None:
    own = {name.strip(): what for names, what in rows("Column") for name in names.split(",")}
    known = {each.name for each in fields(Student)} - {"id", "extensions"}
    assert set(own) == {"student", "extension", "extension_SLUG"} | known
    path = tmp_path / "roster.csv"
    path.write_text(f"{','.join(['student', *known])}\n{','.join(['ada', *known])}\n")
    assert read_roster(path) == [Student("ada", **{name: name for name in known})]
    for platform, needed in (("Canvas", "Student,ID"), ("Moodle", "Email address")):
        for name in ("login", "sis_id"):
            (heading,) = re.findall(rf"\*([\w ]+)\* in {platform}", own[name])
            path.write_text(f"{heading},{needed}\nx,{needed}\n")
            (student,) = read_roster(path)
            assert getattr(student, name) == "x"


# -- its policy and its exporter -----------------------------------------------------------------


def code_with(name: str, folder: Path) -> str:
    """The file that the page calls `name` with the code that it shows, as the command is told."""
    (said,) = set(re.findall(rf"{name}\.py:\w+", PAGE))
    function = said.partition(":")[2]
    (code,) = [text for text in CODE if f"def {function}(" in text]
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return str(folder / said)


def two_late(folder: Path, *options: str) -> list[dict[str, str]]:
    """The rows of grades.csv after the command, of two with 3 points: an hour and two days late."""
    table = ["student,sis_id,extension", "ada,17,", "bob,18,1 hour"]
    class_of(folder, {"ada": 3600, "bob": 2 * 86400}, *table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course_run, "boxes", Watched())
        command = [str(folder / "in"), "--out", str(folder / "out"), "--assignment", "collectives"]
        command += ["--roster", str(folder / "roster.csv"), "--due", "2026-12-01T12:00Z", *options]
        assert cli.main(command) == cli.OK
    with (folder / "out" / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_policy_of_the_page_takes_what_it_says(tmp_path: Path) -> None:
    ada, bob = two_late(tmp_path, "--late", code_with("late", tmp_path))
    assert (ada["late_penalty"], bob["late_penalty"]) == ("0", "1.5")


def test_the_exporter_of_the_page_writes_the_file_that_it_says(tmp_path: Path) -> None:
    two_late(tmp_path, "--late", "50%", "--export", code_with("registrar", tmp_path))
    (said,) = re.findall(r"`GRADES/(marks/.*?)`", PAGE)
    most = assignments.load(ROOT, "collectives").points
    lines = (tmp_path / "out" / said.replace("SLUG", "collectives")).read_text().splitlines()
    assert lines == [f"17;{6 - 5 * 1.5 / most:.1f}", f"18;{6 - 5 * 1.5 / most:.1f}"]


def test_the_attributes_in_the_table_are_there() -> None:
    there = {"grade": Grade(result.Result("ada", "one", result.GRADED))}
    there |= {"assignment": assignments.load(ROOT, "collectives")}
    named = [name for row in rows("Attribute") for name in row[0].split(", ")]
    assert len(named) == 12
    for name in named:
        eval(name, there)


def test_the_roster_with_extensions_is_one(tmp_path: Path) -> None:
    (text,) = [text for kind, text in BLOCKS if kind == "text" and "extension" in text]
    (tmp_path / "roster.csv").write_text(text)
    ada, bob = read_roster(tmp_path / "roster.csv", slugs())
    assert (ada.extensions, bob.extension("memory_wall")) == ({}, "2 days")
    assert bob.extension("collectives") == "2026-12-09T12:00"
    spans = re.search(r"how long after the due date \((.*?)\),", PAGE, re.S)
    assert spans
    for span in re.findall(r"`(.*?)`", spans[1]):
        assert extended(0.0, span) > 0


# -- its example ---------------------------------------------------------------------------------

KINDS = {
    "Read-only": {"locked": True},
    "Autograded answer": {"solution": True},
    "Autograded tests": {"grade": True, "locked": True, "points": 3},
}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Grades an answer to the question of the page, made as the page says."""
    question = next(text for kind, text in BLOCKS if kind == "markdown")
    solution, checks = EXAMPLE[:2]
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    cells = [
        ("title", "Read-only", text("# An exercise")),
        ("imports", "Read-only", code("from dlsys.exercises import same")),
        ("leader-question", "Read-only", text(question)),
        ("leader", "Autograded answer", code(solution)),
        ("leader-test", "Autograded tests", code(checks)),
    ]
    for name, kind, cell in cells:
        role = {"schema_version": 3, "grade": False, "solution": False, "locked": False}
        cell["metadata"]["nbgrader"] = role | {"task": False, "grade_id": name} | KINDS[kind]
        cell["id"] = secrets.token_hex(4)  # as JupyterLab gives it
    root = tmp_path_factory.mktemp("course")
    path = root / "solutions" / "one" / "one.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell for *_, cell in cells]), path)
    assert release.main(["--root", str(root)]) == 0

    with opened(Limits()) as boxes:
        prepared = prepare(assignments.load(root, "one"), boxes, seed=7)

        def grade(body: str) -> result.QuestionResult:
            source = in_place_of_solution(solution.rstrip(), body)
            notebook = answered(root, {"leader": source}, slug="one")
            return examine(prepared, rebuild(prepared.assignment, notebook), boxes).questions[0]

        yield grade


@pytest.mark.parametrize(
    ("body", "earned", "words"),
    [
        ("return 2 * (ranks - 1)", 3, ""),
        ("return 14", 0, ""),
        ("return 2 * ranks", 0, "Rank 0 sends nothing to itself."),
        ("return ranks - 1", 1, "The sum has to come back, too."),
        ("", 0, "not answered yet"),
    ],
)
def test_the_example_earns_what_is_said_of_it(
    example: Any, body: str, earned: float, words: str
) -> None:
    said = example(body)
    assert said.earned == earned
    assert words in said.checks[0].message


def test_the_examples_wrong_answers_are_told_the_hints_that_they_name(example: Any) -> None:
    bank = next(text for kind, text in BLOCKS if kind == "python" and "Wrong(" in text)
    entries = eval(f"{{{bank}}}", {"Wrong": Wrong})["leader"]
    assert len(entries) == 3
    for wrong in entries:
        said = example(wrong.source)
        assert wrong.hint in said.checks[0].message
        assert said.earned < said.points


def test_a_call_that_stands_in_two_checks_is_made_once_as_is_said(tmp_path: Path) -> None:
    said = re.search(r"made once: .*? as `(.*?)`\s+in `(.*?)` and in `(.*?)`,", PAGE, re.S)
    assert said
    call, came, cost = said.groups()
    assert call in came
    assert call in cost
    helpers = """import torch
from dlsys import world
from dlsys.exercises import same

def run(program, ranks):
    return world.simulate(program, ranks)

def verdict(run):
    return sum(run.traffic.sent)
"""
    honest = "def program(comm):\n    return comm.all_reduce(torch.ones(1))"
    kept = """kept = {}
def program(comm):
    first = comm.rank not in kept
    kept[comm.rank] = comm.all_reduce(torch.ones(1)) if first else kept[comm.rank]
    return kept[comm.rank]
"""
    checks = f"same({came}, [[4.0], [4.0], [4.0], [4.0]])\nsame({cost}, 24)"
    course = make(tmp_path, helpers, {"program": ("program = ...", honest, checks, "")})
    with opened(Limits()) as boxes:
        prepared = prepare(course, boxes, seed=7)
        submission = rebuild(course, answered(tmp_path, {"program": kept}))
        (question,) = examine(prepared, submission, boxes).questions
    assert [check.message for check in question.checks] == ["", ""]


def test_the_arguments_of_same_in_the_table_are_all_that_it_has() -> None:
    named = {name.strip() for row in rows("Argument") for name in row[0].split(",")}
    assert named == set(same.__kwdefaults__)


def test_a_check_of_the_page_is_read_as_it_is_explained() -> None:
    checks = checks_of(EXAMPLE[1])
    assert [one.hidden for one in checks] == [False, True, True]


def test_a_box_has_no_folder_of_this_computer_but_those_that_are_said() -> None:
    command = sandbox.command("bwrap", Limits())
    bound = [path for option, path in itertools.pairwise(command) if option == "--ro-bind"]
    own = {str(path) for path in sandbox.libraries()}
    system = (
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/etc/ld.so.cache",
        "/etc/alternatives",
        "/etc/fonts",
    )
    assert [path for path in bound if path not in own and not path.startswith(system)] == []
