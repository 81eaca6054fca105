"""Who is late and what it costs: extensions in the roster, a grace period, policies of one's own."""

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dlsys.grading.collecting.roster import read_roster
from dlsys.grading.commands import cli
from dlsys.grading.commands.display import summary
from dlsys.grading.course import run as course
from dlsys.grading.course.late import LatePenalty, policy
from dlsys.grading.course.plugins import absolute
from dlsys.grading.reports.everything import Reports, write_reports
from dlsys.grading.reports.tables import write_grades
from dlsys.grading.times import extended, parse_span
from tests.grading.test_course import Watched, hand_in, run

DAY = 86400.0
DUE = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()


def class_of(folder: Path, late: dict[str, float], *columns: str) -> None:
    """Students who hand in so many seconds late, and the roster; the others are on it."""
    hand_in(folder / "in", *late)
    for student, seconds in late.items():
        path = folder / "in" / student / "collectives.ipynb"
        os.utime(path, (DUE + seconds, DUE + seconds))
    (folder / "roster.csv").write_text("\n".join(columns or ["student", *late]), "utf-8")


def rows(
    folder: Path, rate: str | None = "10%/day", opener: Watched | None = None, **more: bool
) -> tuple[dict[str, dict[str, str]], course.Class, Reports]:
    """The rows of grades.csv by student, of 3 points each, after a run that records the rate."""
    made: list[Reports] = []
    result = run(
        *(folder, opener or Watched()),
        roster=folder / "roster.csv",
        deadline=rate and (lambda _: (DUE, rate)),
        finish=lambda done: made.append(write_reports(folder / "out", done)),
        **more,
    )
    with (folder / "out" / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}, result, made[0]


def penalties(folder: Path, *more: str | None) -> dict[str, float]:
    return {student: float(row["late_penalty"]) for student, row in rows(folder, *more)[0].items()}


# -- extensions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extension", "seconds"),
    [
        ("", 0),
        ("2 days", 2 * DAY),
        ("36 hours", 1.5 * DAY),
        ("1 Week", 7 * DAY),
        ("90minutes", 5400),
        ("2026-12-02T12:00Z", DAY),
        ("2026-11-01", 0),
    ],
)
def test_an_extension_is_so_long_or_until_a_date_and_never_shortens(extension, seconds):
    assert extended(DUE, extension) == DUE + seconds


def test_an_extension_counts_for_its_student_and_that_of_the_chapter_goes_first(tmp_path):
    table = ["student,Extension,extension_collectives,extension_memory_wall", "ada,,,"]
    table += ["bob,2 days,,", "cy,2 days,1 day,", "dee,,,9 days", "eve,1 hour,,"]
    class_of(tmp_path, dict.fromkeys(("ada", "bob", "cy", "dee", "eve"), 1.5 * DAY), *table)
    taken = penalties(tmp_path)
    assert taken == pytest.approx({"ada": 0.6, "bob": 0, "cy": 0.3, "dee": 0.6, "eve": 0.6})


def test_another_extension_changes_lateness_and_grades_nothing_again(tmp_path):
    class_of(tmp_path, {"ada": 1.5 * DAY}, "student,name,extension", "ada,Ada,")
    watched = Watched()
    row = rows(tmp_path, opener=watched)[0]["ada"]
    assert (row["late_penalty"], row["total"]) == ("0.6", "2.4")
    page = tmp_path / "out" / "feedback" / "ada.html"
    canvas = tmp_path / "out" / "canvas" / "collectives.csv"
    results = tmp_path / "out" / "gradescope" / "collectives" / "ada" / "results.json"
    assert "were taken for being late" in page.read_text("utf-8")
    assert canvas.read_text("utf-8").splitlines()[2].endswith(",2.4")
    assert json.loads(results.read_text("utf-8"))["score"] == 2.4

    (tmp_path / "roster.csv").write_text("student,name,extension\nada,Ada,2 days\n", "utf-8")
    table, result, _ = rows(tmp_path, None, opener=watched)
    assert (table["ada"]["late_penalty"], table["ada"]["total"]) == ("0", "3")
    assert (watched.seen, result.graded) == (["ada"], 0)
    assert "being late" not in page.read_text("utf-8")
    assert canvas.read_text("utf-8").splitlines()[2].endswith(",3")
    assert "score" not in json.loads(results.read_text("utf-8"))


def test_what_canvas_marked_late_is_in_time_where_an_extension_covers_it(tmp_path):
    class_of(tmp_path, {"ada": -1000}, "student,extension", "bob,1 hour", "cy,")
    for student in ("bob", "cy"):
        new = tmp_path / "in" / f"{student}_LATE_12345_67890_collectives.ipynb"
        new.write_bytes((tmp_path / "in" / "ada" / "collectives.ipynb").read_bytes())
        os.utime(new, (DUE - 1000, DUE - 1000))
    taken = penalties(tmp_path)
    assert (taken["bob"], taken["cy"]) == (0, pytest.approx(0.3))


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("Canvas", "Student,ID,SIS Login ID,Extension\nPoints Possible,,,\nDoe,7,jd,2 days\n"),
        ("Moodle", "First name,Surname,Email address,extension\nJane,Doe,j@x.org,2 days\n"),
    ],
)
def test_a_table_of_a_platform_may_have_the_column_too(tmp_path, kind, table):
    (tmp_path / "roster.csv").write_text(table, "utf-8")
    (student,) = read_roster(tmp_path / "roster.csv", ["ring"])
    assert student.extension("ring") == "2 days"
    assert "extension" not in str(student.person())


def test_a_column_of_canvas_that_begins_alike_is_none_of_ours(tmp_path):
    table = "Student,ID,Extension work (123)\nDoe,7,5\n"
    (tmp_path / "roster.csv").write_text(table, "utf-8")
    assert read_roster(tmp_path / "roster.csv")[0].extensions == {}


@pytest.mark.parametrize(
    "extension",
    [
        *("2", "two days", "-2 days", "2 years", "12/03/2026", "1e9 days", "nan days"),
        *("2026-13-01", "0001-01-01"),
    ],
)
def test_an_extension_that_cannot_be_read_names_row_value_and_what_is_allowed(tmp_path, extension):
    (tmp_path / "roster.csv").write_text(
        f"student,extension\nada,\nbob,{extension}\ncy,\n", "utf-8"
    )
    with pytest.raises(ValueError, match=r"roster\.csv, line 3: the extension of 'bob'") as caught:
        read_roster(tmp_path / "roster.csv")
    assert repr(extension) in str(caught.value)
    assert "'36 hours', '2 days'" in str(caught.value)


@pytest.mark.parametrize("column", ["extensions", "extension_rings", "extension_"])
def test_a_column_for_no_chapter_is_refused_with_those_that_there_are(tmp_path, column):
    (tmp_path / "roster.csv").write_text(f"student,{column}\nada,2 days\n", "utf-8")
    with pytest.raises(ValueError, match=f"{column}'; those .* are extension, extension_ring"):
        read_roster(tmp_path / "roster.csv", ["ring"])


# -- nbgrader's timestamps ------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True])
def test_a_timestamp_counts_only_where_it_is_asked_for_and_else_the_run_says_so(tmp_path, asked):
    class_of(tmp_path, {"ada": 1.5 * DAY})
    place = tmp_path / "in" / "ada" / "collectives"
    place.mkdir()
    (tmp_path / "in" / "ada" / "collectives.ipynb").rename(place / "collectives.ipynb")
    (place / "timestamp.txt").write_text("2001-01-01 00:00:00 UTC")
    table, result, reports = rows(tmp_path, timestamps=asked)
    assert table["ada"]["late_penalty"] == ("0" if asked else "0.6")
    summary(tmp_path / "out", result, reports, shown := io.StringIO())
    said = "counts; with --timestamps, where nbgrader collected: ada (collectives).\n"
    assert (said in shown.getvalue()) == (not asked)


# -- the grace period ----------------------------------------------------------------------------


def test_within_the_grace_period_nothing_is_taken_and_later_all_of_it(tmp_path):
    class_of(tmp_path, {"ada": 900, "bob": 901, "cy": 1.1 * DAY})
    taken = penalties(tmp_path, "10%/day after 15 minutes")
    assert taken == pytest.approx({"ada": 0, "bob": 0.3, "cy": 0.6})
    assert LatePenalty(rate="1 point after 1 hour").late_submission_penalty("a", 9, 3600) == 0


def test_who_is_late_is_named_and_by_how_much_and_how_many_lose_points(tmp_path):
    class_of(tmp_path, {"ada": 900, "bob": 901.5, "cy": -5, "dee": 9 * DAY}, "student,extension")
    with (tmp_path / "roster.csv").open("a") as file:
        file.write("\nada,\nbob,\ncy,\ndee,\neve,\nfay,1 hour\n")
    late = tmp_path / "in" / "fay_LATE_12345_67890_collectives.ipynb"
    late.write_bytes((tmp_path / "in" / "ada" / "collectives.ipynb").read_bytes())
    os.utime(late, (DUE + 3600 + 60, DUE + 3600 + 60))
    refused = tmp_path / "in" / "dee" / "collectives.ipynb"
    refused.write_text("{")
    os.utime(refused, (DUE + 3600, DUE + 3600))
    table, result, reports = rows(tmp_path, "10%/day after 15 minutes")
    assert {student: row["seconds_late"] for student, row in table.items()} == {
        **{"ada": "900", "bob": "902", "cy": "0", "dee": "3600", "eve": "", "fay": "60"}
    }
    shown = io.StringIO()
    summary(tmp_path / "out", result, reports, shown)
    assert (
        "Late, by the date of the file or timestamp.txt, or by Canvas's mark: 3, of which 1 "
        "loses points: ada (collectives), bob (collectives), fay (collectives).\n"
    ) in shown.getvalue()
    in_time = course.Class(result.assignments, [], result.run, 0, [])
    early = Reports([each for each in reports.grades if not each.seconds_late], [])
    summary(tmp_path / "out", in_time, early, shown := io.StringIO())
    assert "Late" not in shown.getvalue()
    undated = [replace(each, due=None) for each in reports.grades]
    write_grades(tmp_path / "undated.csv", undated, result.assignments)
    text = (tmp_path / "undated.csv").read_text("utf-8-sig").splitlines()
    assert {row["seconds_late"] for row in csv.DictReader(text)} == {""}


@pytest.mark.parametrize(
    "rate", ["10%/day after", "10% after 15", "after 1 hour", "10%after1week!"]
)
def test_a_grace_period_that_cannot_be_read_is_refused_with_an_example(rate):
    with pytest.raises(ValueError, match="10%/day after 15 minutes"):
        policy(rate)


def test_a_length_of_time_is_a_number_and_a_unit():
    assert [parse_span(text) for text in ("1 minute", "1.5 hours", "2weeks")] == [
        *(60, 5400, 14 * DAY)
    ]
    for text in ("", "5", "1,5 days", "12345 days"):
        with pytest.raises(ValueError, match="no length of time"):
            parse_span(text)


# -- a policy of one's own -----------------------------------------------------------------------


def own(folder: Path, body: str) -> str:
    """A policy in a file."""
    (folder / "late.py").write_text(f"def mine(score, seconds_late):\n    {body}\n", "utf-8")
    return f"{folder / 'late.py'}:mine"


def test_a_policy_is_asked_for_who_is_late_with_score_and_seconds_and_read_at_each_run(tmp_path):
    class_of(tmp_path, {"ada": -5, "bob": 3600})
    mine = own(tmp_path, "assert (score, seconds_late) == (3, 3600)\n    return 1.5")
    assert penalties(tmp_path, mine) == {"ada": 0, "bob": 1.5}
    own(tmp_path, "return 3")
    assert penalties(tmp_path, None) == {"ada": 0, "bob": 3}


FAILS = {
    "bob": ("raise KeyError('x')", "failed: KeyError: 'x'"),
    "cy": ("raise SystemExit(3)", "failed: SystemExit: 3"),
    "dee": ("return 'all'", "returned 'all'"),
    "eve": ("return None", "returned None"),
    "fay": ("return True", "returned True"),
    "gus": ("return float('nan')", "returned nan"),
    "hal": ("return float('inf')", "returned inf"),
    "ivy": ("return score + 0.1", "returned 3.1; it must return the points to take"),
    "jan": ("return -1", "from 0 to the score of 3"),
}
"""What a policy does for somebody, and what is said of it."""


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """The folder and the policy of a class in which the policy fails for all but one, each in
    another way; the rows of grades.csv, the run, its reports, and what was shown of it."""
    folder = tmp_path_factory.mktemp("failing")
    late = {student: 3600 + place for place, student in enumerate(FAILS)}
    names = [f"{student},{student.title()}" for student in ("ada", *late)]
    class_of(folder, {"ada": -5, **late}, "student,name", *names)
    ways = [f"if seconds_late == {late[who]}: {body}" for who, (body, _) in FAILS.items()]
    mine = own(folder, "\n    ".join(ways))
    table, result, reports = rows(folder, mine)
    shown = io.StringIO()
    summary(folder / "out", result, reports, shown)
    return folder, mine, table, reports, shown.getvalue()


@pytest.mark.parametrize("student", FAILS)
def test_a_policy_that_fails_is_named_and_costs_nobody_anything(failing, student):
    folder, mine, table, reports, shown = failing
    (told,) = [each for each in reports.failed if f"{student} (" in each]
    for said in (table[student]["reason"], told):
        assert mine in said
        assert FAILS[student][1] in said
    assert (table[student]["late_penalty"], table[student]["total"]) == ("0", "3")
    for place in ("canvas", "moodle"):  # what would be too many points
        text = (folder / "out" / place / "collectives.csv").read_text("utf-8").lower()
        assert ("ada" in text, student in text) == (True, False)
    assert not (folder / "out" / "gradescope" / "collectives" / student).exists()
    assert (folder / "out" / "feedback" / f"{student}.html").is_file()
    assert f"{student} (collectives): {mine}" in shown


def test_where_a_policy_fails_for_others_nothing_is_said_of_who_was_in_time(failing):
    folder, _, table, reports, _ = failing
    ada = table["ada"]
    assert (ada["late_penalty"], ada["total"], ada["reason"]) == ("0", "3", "")
    assert len(reports.failed) == len(FAILS)
    own(folder, "return 1")
    assert penalties(folder, None) == {"ada": 0, **dict.fromkeys(FAILS, 1)}


def test_a_policy_whose_file_is_gone_is_named_and_no_grade_is_lost(tmp_path):
    class_of(tmp_path, {"ada": -5, "bob": 3600})
    mine = own(tmp_path, "return 1")
    rows(tmp_path, mine)
    (tmp_path / "late.py").unlink()
    table, _, reports = rows(tmp_path, None)
    assert [row["total"] for row in table.values()] == ["3", "3"]
    assert len(reports.failed) == 1
    assert "there is no file" in reports.failed[0]


def test_a_policy_is_recorded_with_its_whole_path(tmp_path, monkeypatch):
    mine = own(tmp_path, "return 1")
    monkeypatch.chdir(tmp_path)
    assert absolute("late.py:mine") == mine
    assert cli._deadline("2026-12-01", "late.py:mine")((None, None))[1] == mine


def test_what_is_not_said_of_a_deadline_stays_as_it_was_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(course, "boxes", Watched())
    class_of(tmp_path, {"ada": 1.5 * DAY})
    command = [str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--assignment", "collectives"]

    def penalty(*more: str) -> float:
        assert cli.main([*command, *more]) == cli.OK
        with (tmp_path / "out" / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
            (row,) = csv.DictReader(file)
        return float(row["late_penalty"])

    due = datetime.fromtimestamp(DUE, UTC).isoformat()
    assert cli.main([*command, "--late", "20%"]) == cli.USAGE
    assert "late after when? No due date is recorded" in capsys.readouterr().err
    assert penalty("--due", due, "--late", "10%/day") == pytest.approx(0.6)
    assert penalty("--due", datetime.fromtimestamp(DUE + DAY, UTC).isoformat()) == pytest.approx(
        0.3
    )
    assert penalty("--late", "50%") == 1.5
    assert penalty() == 1.5
    assert penalty("--due", "none") == 0
    assert penalty("--due", due) == 0


@pytest.mark.parametrize(
    ("option", "text", "content", "words"),
    [
        (option, *case)
        for option in (["--due", "2026-12-01", "--late"], ["--export"])
        for case in (
            ("late.py:", "", "write FILE.py:FUNCTION"),
            ("none.py:mine", "", "there is no file none.py"),
            ("late.py:other", "mine = print", "late.py has no function other"),
            ("late.py:mine", "mine = 5", "late.py has no function mine"),
            ("late.py:mine", "def mine(:", "late.py:mine failed: SyntaxError"),
            ("late.py:mine", "import nothing_of_the_sort", "failed: ModuleNotFoundError"),
            ("late.py:mine", "exit(3)", "failed: SystemExit"),
        )
    ],
)
def test_a_function_that_is_not_there_is_a_sentence_before_anything_is_graded(
    tmp_path, capsys, monkeypatch, option: Sequence[str], text, content, words
):
    hand_in(tmp_path / "in", "ada")
    (tmp_path / "late.py").write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["in", "--out", "out", *option, text]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert words in said
    assert not (tmp_path / "out").exists()
