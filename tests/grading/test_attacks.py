"""Every attack on the grader, handed in by a class of its own and graded as any class is.

None earns a point, sees what it should not, leaves anything behind or stops the class; and odd
notebooks of honest students keep all their points.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import socket
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.course.records import load_all
from dlsys.grading.course.run import Class, Plan, boxes, grade
from dlsys.grading.reports.everything import write_reports
from dlsys.grading.result import GRADED, MISSING, REFUSED, Result
from tests.exercises.notebooks import ROOT, slugs
from tests.grading.attacks import KEPT, SOLVED, SPARSE, Attack, Places, hidden, in_one, points
from tests.grading.boxes import needed

CLASSES = (
    *("honest", "structure", "resource", "patching", "knowing", "twice"),
    *("ranks", "leaks", "escapes", "malformed", "marks", "outside"),
)
BANKS = {name: importlib.import_module(f"tests.grading.attacks.{name}").BANK for name in CLASSES}
HARDLY = importlib.import_module("tests.grading.attacks.malformed").HARDLY
EVERY = [*(each for bank in BANKS.values() for each in bank), *HARDLY]
SECRET = "same-secret-of-the-class"
NEIGHBOR = "neighbor"
# What ends by itself has the time that it needs on a busy machine, and what does not has little.
PATIENT = Limits(
    cell_seconds=20,
    check_seconds=5,
    submission_seconds=120,
    memory_bytes=1 << 30,
    processes=100,
    restarts=6,
)
SHORT = replace(PATIENT, cell_seconds=2, check_seconds=1, submission_seconds=60)


@dataclass(frozen=True)
class Graded:
    """The classes of all attacks after grading: results by attack, and where things are."""

    results: dict[str, Result]
    notebooks: dict[str, Attack]  # those that attacks are in
    neighbors: list[Result]
    places: Places
    classes: list[Class]
    processes: list[str]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    base = tmp_path_factory.mktemp("class")
    for name in ("home", "submissions", "out"):
        (base / name).mkdir()
    (base / "home" / "secret.txt").write_text(SECRET)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        pytest.MonkeyPatch.context() as patch,
    ):
        port = server.getsockname()[1]
        abstract.bind(f"\0dlsys-attack-{port}")
        abstract.listen()
        patch.setenv("HOME", str(base / "home"))
        patch.setenv("CLASS_TOKEN", SECRET)
        places = Places(base / "home", base / "submissions", base / "out", ROOT, port)
        results: dict[str, Result] = {}
        every: dict[str, Attack] = {}
        neighbors, classes = [], []
        for name, limits in (("patient", PATIENT), ("short", SHORT)):
            submissions, out = places.submissions / name, places.out / name
            its = replace(places, submissions=submissions, out=out)
            every |= (
                notebooks := in_one(each for each in EVERY if each.endless == (limits is SHORT))
            )
            for each in {each.student: each for each in notebooks.values()}.values():
                each.write(submissions, its)
            Attack(NEIGHBOR, cells={"imports": f"# {SECRET}"}).write(submissions, its)
            with needed():
                classes.append(_grade(submissions, out, limits))
            records = {slug: load_all(out, slug) for slug in slugs()}
            neighbors.append(records["memory_wall"][NEIGHBOR].result)
            results |= {
                name: records[each.slug][each.student].result for name, each in notebooks.items()
            }
        return Graded(results, every, neighbors, places, classes, _processes())


def _grade(submissions: Path, out: Path, limits: Limits) -> Class:
    return grade(
        ROOT,
        submissions,
        slugs(),
        out,
        plan=Plan(seed=7, limits=limits, jobs=2),
        progress=lambda done, of, what: None,
        opener=boxes,
        finish=lambda done: write_reports(out, done),
    )


def _processes() -> list[str]:
    """The command lines of all processes of this machine."""
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


def ids(bank: list[Attack]) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in bank]


def earned(result: Result) -> dict[str, float]:
    return {question.id: question.earned for question in result.questions}


def check(attack: Attack, graded: Graded) -> None:
    """Fail where a question has other points than the attack has to earn."""
    full = points(attack.slug)
    result = graded.results[attack.name]
    # Those of others that it is in one notebook with are looked at in their turn.
    own = {*attack.answers, *attack.earns} | set(full) - {*graded.notebooks[attack.name].answers}
    mistakes = []
    for question in result.questions:
        right = attack.base == SOLVED
        right |= attack.base == SPARSE and question.id in KEPT[attack.slug]
        most = full[question.id] if right else 0.0
        wanted = attack.earns.get(question.id, most)
        if question.id not in own:
            continue
        if question.id in attack.earns and wanted is None:
            right = question.earned < full[question.id]
        elif question.id not in attack.earns and attack.spoils:
            right = question.earned <= most
        else:
            right = question.earned == pytest.approx(wanted)
        if not right:
            said = [one.message for one in question.checks if not one.passed]
            mistakes.append(
                f"{question.id}: {question.earned} and not {wanted}; {question.error}; {said}"
            )
    assert not mistakes, "\n".join([*mistakes, *result.notes])


@pytest.mark.parametrize("attack", ids(BANKS["honest"]))
def test_an_odd_notebook_of_an_honest_student_keeps_its_points(
    attack: Attack, graded: Graded
) -> None:
    result = graded.results[attack.name]
    assert result.status == GRADED, result.reason
    check(attack, graded)


@pytest.mark.parametrize(
    "attack", ids([e for name in CLASSES[1:] for e in BANKS[name] if not e.refused])
)
def test_an_attack_earns_nothing_and_costs_no_right_answer_its_points(
    attack: Attack, graded: Graded
) -> None:
    result = graded.results[attack.name]
    assert result.status == GRADED, result.reason
    check(attack, graded)


@pytest.mark.parametrize("attack", ids([each for each in EVERY if each.refused]))
def test_what_is_no_notebook_is_refused_with_a_reason(attack: Attack, graded: Graded) -> None:
    result = graded.results[attack.name]
    assert result.status == REFUSED
    assert re.search(attack.refused, result.reason), result.reason
    assert not result.questions
    assert result.earned is None


@pytest.mark.parametrize("attack", ids(HARDLY))
def test_what_is_hardly_a_notebook_is_refused_or_graded_for_what_it_is(
    attack: Attack, graded: Graded
) -> None:
    result = graded.results[attack.name]
    assert result.status in (GRADED, REFUSED)
    assert result.reason if result.status == REFUSED else not result.reason
    check(attack, graded)


def test_every_class_has_attacks_and_no_two_have_one_name() -> None:
    assert len(EVERY) > 200
    assert len({each.student for each in EVERY}) == len(EVERY)
    assert all(len(bank) >= 12 for bank in BANKS.values())
    assert len(hidden()) > 10


def test_nobody_fails_for_another_ones_attack(graded: Graded) -> None:
    for done in graded.classes:
        assert all(record.result.status in (GRADED, REFUSED, MISSING) for record in done.records)
    for neighbor in graded.neighbors:
        assert earned(neighbor) == points("memory_wall")


def test_no_file_of_the_grades_tells_a_secret_or_a_hidden_check(graded: Graded) -> None:
    for path in graded.places.out.rglob("*"):
        if path.is_file():
            text = path.read_bytes()
            assert SECRET.encode() not in text, path
            for piece in hidden():
                forms = piece, json.dumps(piece)[1:-1], _escaped(piece)
                assert not any(form.encode() in text for form in forms), (path, piece)


def test_no_file_of_the_grades_tells_what_a_cell_found_after_hidden_checks(graded: Graded) -> None:
    for path in graded.places.out.rglob("*"):
        assert not path.is_file() or b"found-what-was-hidden" not in path.read_bytes(), path


def _escaped(text: str) -> str:
    return text.replace('"', "&#34;")


def test_nothing_is_left_where_attacks_tried_to_write(graded: Graded) -> None:
    import site
    import sysconfig

    import dlsys

    folders = [
        *(graded.places.home, graded.places.out, graded.places.submissions, ROOT, Path("/etc")),
        *(Path(dlsys.__file__).parent, ROOT / "solutions", Path("/tmp"), Path("/dev/shm")),
        *map(Path, [*site.getsitepackages(), site.getusersitepackages()]),
        *(Path(sysconfig.get_path("stdlib")), Path("/usr/bin"), Path("/")),
    ]
    left = [
        entry.path
        for folder in folders
        if folder.is_dir()
        for entry in os.scandir(folder)
        if "PWNED" in entry.name or entry.name == "note-of-a-neighbor"
    ]
    left += [str(path) for path in graded.places.home.rglob("*PWNED*")]
    assert not left
    assert (graded.places.home / "secret.txt").read_text() == SECRET


def test_no_process_outlives_its_box(graded: Graded) -> None:
    assert not [line for line in graded.processes if "sleep-PWNED" in line]


class Scripts(HTMLParser):
    """What of a page a browser would run that an attack has written."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or "javascript:" in (value or "").replace("\n", "").lower():
                self.found.append(f"{tag} {name}={value}")
        if tag in ("script", "iframe", "object", "embed", "base", "form", "svg"):
            self.found.append(tag)


def test_feedback_holds_no_script_of_a_student(graded: Graded) -> None:
    pages = list(graded.places.out.glob("*/feedback/*.html"))
    assert len(pages) >= len({each.student for each in in_one(EVERY).values()})
    for page in pages:
        scripts = Scripts()
        scripts.feed(page.read_text(encoding="utf-8"))
        assert not scripts.found, page


def test_tables_hold_no_formula_and_no_control_character(graded: Graded) -> None:
    for path in graded.places.out.rglob("*.csv"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(^|,)\"?[=@]", text, re.MULTILINE), path
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text), path
