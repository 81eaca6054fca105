"""A class and its grades: what is graded again, what is kept, and what every report says."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlsys.grading.assignment import Assignment, load
from dlsys.grading.boxes.sandbox import Limits, libraries_are_open
from dlsys.grading.commands import check, cli, export
from dlsys.grading.commands.display import summary
from dlsys.grading.course.grade import NOT_ISOLATED, Grade
from dlsys.grading.course.late import LatePenalty, parse_rate
from dlsys.grading.course.records import Run, load_all
from dlsys.grading.course.run import Class, Notebook, Opener, Plan, Progress, grade
from dlsys.grading.project import find_root, known
from dlsys.grading.reports import looking, marks, platforms, tables
from dlsys.grading.reports.everything import Reports, write_reports
from dlsys.grading.reports.explain import explain
from dlsys.grading.reports.statistics import items
from dlsys.grading.result import (
    GRADED,
    LOOK,
    MISSING,
    NOT_GRADED,
    PARTLY,
    REFUSED,
    RIGHT,
    UNANSWERED,
    WRONG,
    CheckResult,
    QuestionResult,
    Result,
    WrittenAnswer,
)
from dlsys.grading.times import parse_due
from tests.grading.small_course import answered, make

ROOT = Path(__file__).parents[2]


def question(
    id_: str, earned: float, points: float = 2.0, status: str = "", hint: str | None = None
) -> QuestionResult:
    status = status or (RIGHT if earned == points else PARTLY if earned else WRONG)
    checks = [CheckResult(False, earned == points, f"{id_}()", message=f"{id_}()", hint=hint)]
    return QuestionResult(id_, f"1. {id_}", points, earned, status, checks)


def graded(student: str, *earned: float, slug: str = "collectives", **more) -> Result:
    questions = [question(f"q{i}", each) for i, each in enumerate(earned)]
    return Result(student, slug, GRADED, questions=questions, **more)


def an_assignment() -> Assignment:
    """The real assignment, with two questions that suit `graded` and none to grade by hand."""
    real = load(ROOT, "collectives")
    asked = [replace(real.questions[0], id=f"q{i}", points=2.0) for i in range(2)]
    return replace(real, questions=tuple(asked), written=())


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


# -- lateness ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "seconds", "taken"),
    [
        ("10%/day", 0, 0),
        ("10%/day", -5, 0),
        ("10%/day", 1, 1),
        ("10%/day", 86400, 1),
        ("10%/day", 86401, 2),
        ("10%/day", 86400 * 40, 10),
        ("5%/hour", 3601, 1),
        ("20%", 86400 * 9, 2),
        ("1 point/day", 86400 * 2, 2),
        ("1.5 points per week", 1, 1.5),
        ("3 points", 1, 3),
    ],
)
def test_each_begun_period_of_lateness_costs_and_never_more_than_the_score(rate, seconds, taken):
    assert parse_rate(rate).penalty(10, seconds) == pytest.approx(taken)
    assert LatePenalty(rate=rate).late_submission_penalty("ada", 10, seconds) == pytest.approx(
        taken
    )


@pytest.mark.parametrize("rate", ["", "ten", "10", "%/day", "10%/year", "-5%/day", "110%", "nan%"])
def test_a_rate_that_cannot_be_read_is_refused_with_examples(rate):
    with pytest.raises(ValueError, match=r"write for example|100%"):
        parse_rate(rate)


def test_a_due_date_without_a_zone_is_local_and_a_day_lasts_to_its_end():
    assert parse_due("2026-12-01T23:59+01:00") == datetime(2026, 12, 1, 22, 59, tzinfo=UTC)
    assert parse_due("2026-12-01T23:59") == datetime(2026, 12, 1, 23, 59).astimezone()
    assert parse_due("2026-12-01") > parse_due("2026-12-01T23:59:59")
    with pytest.raises(ValueError, match="2026-12-01T23:59"):
        parse_due("tomorrow")


def test_lateness_is_taken_from_what_was_earned_and_only_where_the_time_is_known():
    rate = parse_rate("50%/day").penalty
    late = Grade(graded("ada", 2, 2), submitted=200.0, due=100.0, penalty_for=rate)
    assert (late.late_penalty, late.total) == (2, 2)
    assert Grade(graded("ada", 2, 2), due=100.0, penalty_for=rate).total == 4
    assert Grade(graded("ada", 2, 2), submitted=100.0, due=100.0, penalty_for=rate).total == 4


# -- grades --------------------------------------------------------------------------------------


def essay(answered: bool = True) -> WrittenAnswer:
    return WrittenAnswer("w0", "9. Why?", 4.0, "Because." if answered else "", answered)


def test_points_given_by_hand_count_and_others_are_waited_for():
    waiting = Grade(graded("ada", 2, 1, written=[essay()]))
    assert (waiting.total, waiting.waiting) == (3, 4)
    done = replace(waiting, by_hand={"w0": 3.5, "q1": 2, "unknown": 9})
    assert (done.total, done.waiting) == (7.5, 0)
    empty = Grade(graded("ada", 2, 1, written=[essay(answered=False)]))
    assert (empty.total, empty.waiting, empty.points()["w0"]) == (3, 0, 0)


@pytest.mark.parametrize("status", [REFUSED, NOT_GRADED])
def test_what_was_not_graded_has_no_number_anywhere(status, tmp_path):
    grade = Grade(Result("ada", "collectives", status, "It is a link."))
    assignment = an_assignment()
    tables.write_grades(tmp_path / "grades.csv", [grade], {"collectives": assignment})
    (row,) = rows_of((tmp_path / "grades.csv").read_text("utf-8"))
    assert (row["status"], row["reason"], row["maximum"]) == (status, "It is a link.", "4")
    assert {row[name] for name in ("q0", "q1", "total", "late_penalty", "to_grade_by_hand")} == {""}
    assert rows_of(platforms.canvas([grade], assignment))[1:] == []
    assert rows_of(platforms.moodle([grade], assignment)) == []
    results = platforms.gradescope(grade)
    assert (results is None) == (status == NOT_GRADED)
    assert results is None or "score" not in results.replace("max_score", "score")


def test_a_row_holds_each_question_and_the_sum_of_what_was_earned(tmp_path):
    grades = [Grade(graded("ada", 2, 2 / 3), {"name": "Ada", "email": "ada@school.example"})]
    tables.write_grades(tmp_path / "grades.csv", grades, {"collectives": an_assignment()})
    (row,) = rows_of((tmp_path / "grades.csv").read_text("utf-8"))
    assert row == {
        **{"student": "ada", "name": "Ada", "email": "ada@school.example"},
        **{"assignment": "collectives", "status": "graded", "reason": "", "q0": "2"},
        **{"q1": "0.6667", "seconds_late": "", "late_penalty": "0", "total": "2.6667"},
        **{"maximum": "4"},
        **{"to_grade_by_hand": "0", "isolation": "isolated"},
    }


def test_grades_of_code_that_was_not_isolated_say_so_in_every_report(tmp_path):
    grade = Grade(graded("ada", 2, 2, isolated=False))
    tables.write_grades(tmp_path / "grades.csv", [grade], {"collectives": an_assignment()})
    tables.write_items(tmp_path / "items.csv", items([grade.result]), NOT_ISOLATED)
    assert rows_of((tmp_path / "grades.csv").read_text("utf-8"))[0]["isolation"] == NOT_ISOLATED
    assert rows_of((tmp_path / "items.csv").read_text("utf-8"))[0]["isolation"] == NOT_ISOLATED
    assert NOT_ISOLATED in json.loads(platforms.gradescope(grade) or "")["output"]


@given(st.text(max_size=40))
def test_no_text_in_a_table_is_a_formula_or_breaks_its_row(text):
    shown = tables.cell(text)
    assert not shown.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert len(shown.splitlines()) <= 1
    assert next(csv.reader(io.StringIO(tables.csv_text([["a", text, 1.5]])))) == ["a", shown, "1.5"]


def test_a_name_that_is_a_formula_does_not_run_in_a_spreadsheet():
    assert tables.cell('=HYPERLINK("http://x","y")').startswith("'=")
    assert tables.cell("  @SUM(A1)").startswith("'")
    assert tables.cell("z;=1+1; -2;x") == "z;'=1+1;' -2;x"  # where semicolons cut a line
    assert [tables.cell(v) for v in (-2.5, -1e-9, 3, None)] == ["-2.5", "0", "3", ""]


def test_reasons_hold_what_was_noted_of_a_notebook_and_of_its_student(tmp_path):
    result = graded("eve", 2, 1, notes=["Not on the roster.", "A check had been changed."])
    tables.write_grades(tmp_path / "grades.csv", [Grade(result)], {"collectives": an_assignment()})
    (row,) = rows_of((tmp_path / "grades.csv").read_text("utf-8"))
    assert (row["status"], row["reason"]) == (
        GRADED,
        "Not on the roster. A check had been changed.",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"w0": 9.0}, ["Given by hand for '9. Why?': 9 of 4 points."]),
        ({"q0": 2.5}, ["Given by hand for '1. q0': 2.5 of 2 points."]),
        ({"q1": -1.0, "w0": 4.0}, ["Given by hand for '1. q1': -1 of 2 points."]),
        ({"w0": 4.0, "q0": 0.0, "unknown": 9.0}, []),
    ],
)
def test_points_beyond_the_maximum_are_flagged_and_counted(given, said, tmp_path):
    grade = Grade(graded("ada", 2, 1, written=[essay()]), by_hand=given)
    assert grade.beyond == said
    tables.write_grades(tmp_path / "grades.csv", [grade], {"collectives": an_assignment()})
    (row,) = rows_of((tmp_path / "grades.csv").read_text("utf-8"))
    assert row["reason"] == " ".join(said)
    shown = shown_summary(tmp_path, [grade])
    assert all(f"ada (collectives): {sentence}" in shown for sentence in said)
    assert ("Given by hand" in shown) == bool(said)


def shown_summary(out: Path, grades: list[Grade], assignment: Assignment | None = None) -> str:
    stream = io.StringIO()
    result = Class({"collectives": assignment or an_assignment()}, [], Run(1), 0, [])
    summary(out, result, Reports(grades, items(each.result for each in grades)), stream)
    return stream.getvalue()


def test_the_mean_is_without_what_waits_for_a_person(tmp_path):
    assignment = replace(an_assignment(), written=load(ROOT, "collectives").written)
    asked = replace(essay(), id=assignment.written[0].id, points=3.0)
    grades = [
        Grade(graded("ada", 2, 2, written=[asked])),
        Grade(graded("bob", 2, 1, written=[asked]), by_hand={asked.id: 3.0}),
        Grade(graded("eve", 1, 1, written=[replace(asked, answered=False)])),
    ]
    said = " ".join(shown_summary(tmp_path, grades, assignment).split())
    assert "collectives 3 0 0 0 3.0 4" in said
    assert "mean and maximum above are without these questions" in said
    grades[0] = replace(grades[0], by_hand={asked.id: 3.0})
    said = " ".join(shown_summary(tmp_path, grades, assignment).split())
    assert "collectives 3 0 0 0 5.0 7" in said  # 7, 6 and 2
    assert "without these" not in said


def test_what_asks_for_a_person_stands_together_at_the_end_and_on_a_page(tmp_path):
    grades = [
        Grade(graded("ada", 2, 1, notes=["A check was put right.", f"Two were alike. {LOOK}"])),
        Grade(Result("<b>", "collectives", REFUSED, "It is a link.")),
        Grade(graded("eve", 2, 2), by_hand={"q0": 9.0}),
        Grade(graded("zoe", 2, 2)),
    ]
    end = shown_summary(tmp_path, grades).partition(
        "To be looked at by a person, see look_at.html:\n"
    )[2]
    assert end.splitlines() == [
        "  ada (collectives): Two were alike.",
        "  <b> (collectives): refused: It is a link.",
        "  eve (collectives): Given by hand for '1. q0': 9 of 2 points.",
    ]
    looking.write(tmp_path, grades, {"collectives": an_assignment()})
    page = (tmp_path / "look_at.html").read_text("utf-8")
    assert all(said in page for said in ("Two were alike.", "It is a link.", "9 of 2 points."))
    assert 'href="feedback/ada.html"' in page
    assert not any(other in page for other in ("zoe", "<b>", "put right"))
    looking.write(tmp_path, grades[3:], {})
    assert "No submission asks for a person." in (tmp_path / "look_at.html").read_text("utf-8")


def test_a_mark_that_changed_is_logged_and_told_from_what_to_what(tmp_path):
    first = [
        Grade(graded("ada", 2, 1, written=[essay()])),
        Grade(graded("bob", 2, 1 / 3)),
        Grade(graded("eve", 2, 2)),
    ]
    assert marks.log(tmp_path, first) == []
    by_hand = [replace(first[0], by_hand={"w0": 3.0}), *first[1:]]
    assert [(c.of, c.before, c.after) for c in marks.log(tmp_path, by_hand)] == [
        ("total", 3, 6),
        ("w0", None, 3),
    ]
    after = [
        replace(by_hand[0], result=graded("ada", 2, 2, written=[essay()])),
        Grade(graded("bob", 2, 1 / 3), submitted=9.0, due=1.0, penalty_for=lambda s, t: 0.5),
        Grade(Result("eve", "collectives", REFUSED, "It is a link.")),
    ]
    changes = marks.log(tmp_path, after)
    rows = [
        list(row.values())[1:] for row in rows_of((tmp_path / "changes.csv").read_text("utf-8"))
    ]
    assert rows[2:] == [
        ["ada", "collectives", "q1", "1", "2"],
        ["ada", "collectives", "total", "6", "7"],
        ["bob", "collectives", "late_penalty", "0", "0.5"],
        ["bob", "collectives", "total", "2.3333", "1.8333"],
        ["eve", "collectives", "late_penalty", "0", ""],
        ["eve", "collectives", "q0", "2", ""],
        ["eve", "collectives", "q1", "2", ""],
        ["eve", "collectives", "total", "4", ""],
    ]
    summary(
        tmp_path,
        Class({}, [], Run(1), 0, []),
        Reports(after, [], (), changes),
        shown := io.StringIO(),
    )
    assert (
        "Marks that changed, see changes.csv: ada (collectives) from 6 to 7, bob (collectives) "
        "from 2.3333 to 1.8333, eve (collectives) from 4 to none.\n"
    ) in shown.getvalue()
    assert marks.log(tmp_path, after) == []
    back = marks.log(tmp_path, [*after[:2], first[2]])
    assert [(c.of, c.before, c.after) for c in back] == [
        ("late_penalty", None, 0), ("q0", None, 2), ("q1", None, 2), ("total", None, 4),
    ]  # fmt: skip
    assert len(rows_of((tmp_path / "changes.csv").read_text("utf-8"))) == 2 + 8 + 4


# -- platforms -----------------------------------------------------------------------------------


def test_platforms_get_whole_grades_and_no_row_for_whoever_has_none():
    assignment = an_assignment()
    person = {"name": "Lovelace, Ada", "canvas_id": "17", "email": "ada@school.example"}
    grades = [
        Grade(graded("ada", 2, 1.5), person),
        Grade(graded("bob", 2, 1.5, written=[essay()])),
        Grade(Result("eve", "collectives", NOT_GRADED, "The disk was full.")),
        Grade(graded("zoe", 2, 2, slug="memory_wall")),
    ]
    points, ada = rows_of(platforms.canvas(grades, assignment))
    assert (points["Student"], points[assignment.title]) == ("Points Possible", "4")
    assert (ada["Student"], ada["ID"], ada[assignment.title]) == ("Lovelace, Ada", "17", "3.5")
    assert list(ada)[:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    (ada,) = rows_of(platforms.moodle(grades, assignment))
    assert (ada["Email address"], ada[assignment.title]) == ("ada@school.example", "3.5")


def test_who_is_not_on_the_roster_is_named_and_in_no_platforms_table(tmp_path):
    assignment = an_assignment()
    grades = [Grade(graded("ada", 2, 1)), Grade(graded("eve", 2, 2), listed=False)]
    assert [row["Student"] for row in rows_of(platforms.canvas(grades, assignment))][1:] == ["ada"]
    assert [row["ID number"] for row in rows_of(platforms.moodle(grades, assignment))] == ["ada"]
    said = "Not on the roster, and so not in canvas/ and moodle/: eve."
    assert said in shown_summary(tmp_path, grades)
    assert "Not on the roster" not in shown_summary(tmp_path, grades[:1])
    grades += [Grade(graded(name, 2, 2), listed=False) for name in ("Doe, Jane", "'zed")]
    assert """moodle/: "'zed", 'Doe, Jane', eve.""" in shown_summary(tmp_path, grades)


def test_what_the_roster_knows_of_a_student_is_what_platforms_find_them_by():
    assignment = an_assignment()
    person = {"login": "ada1", "sis_id": "s7", "moodle_id": "31", "section": "A"}
    (_, row) = rows_of(platforms.canvas([Grade(graded("ada", 2, 1), person)], assignment))
    assert (row["SIS User ID"], row["SIS Login ID"], row["Section"]) == ("s7", "ada1", "A")
    (row,) = rows_of(platforms.moodle([Grade(graded("ada", 2, 1), person)], assignment))
    assert (row["ID number"], row["Username"]) == ("s7", "ada1")
    assert row["Identifier"] == "Participant 31"


def test_gradescope_shows_what_students_wrote_as_text():
    wrong = question("q0", 0, hint="Bits and bytes are mixed up.")
    wrong = replace(wrong, error="<script>alert(1)</script>\x1b[31m")
    result = Result("ada", "collectives", GRADED, questions=[wrong], written=[essay()])
    content = json.loads(platforms.gradescope(Grade(result)) or "")
    formats = {content[f"{name}output_format"] for name in ("", "test_")}
    assert formats | {content["test_name_format"]} == {"text"}
    assert (content["tests"][0]["score"], content["tests"][0]["max_score"]) == (0, 2)
    assert "score" not in content["tests"][1]  # a person grades it
    assert "\x1b" not in json.dumps(content["tests"], ensure_ascii=False)


def test_hidden_checks_are_counted_and_never_shown():
    hidden = CheckResult(True, False, "f(7)", message="f(7) is not right", hint="Round up.")
    lines = "\n".join(explain(replace(question("q0", 1.0), checks=[hidden])))
    assert "0 of 1 hidden checks" in lines
    assert "Round up." in lines
    assert "f(7)" not in lines


# -- statistics ----------------------------------------------------------------------------------


def test_items_say_how_hard_a_question_is_and_whether_it_tells_students_apart():
    results = [graded("a", 2, 2, 2), graded("b", 2, 1, 0), graded("c", 2, 0, 1)]
    results += [Result("d", "collectives", REFUSED, "x"), Result("e", "collectives", NOT_GRADED)]
    first, second, third = items(results)
    assert (first.students, first.difficulty, first.discrimination) == (3, 1, None)
    assert second.difficulty == third.difficulty == 0.5
    # (2, 1, 0) with (4, 2, 3): means 1 and 3, so (1 * 1 + 0 * -1 + -1 * 0) / (sqrt(2) * sqrt(2)).
    assert second.discrimination == pytest.approx(0.5)


def test_items_are_of_the_points_that_count_and_so_of_those_given_by_hand():
    results = [graded("a", 2, 2), graded("b", 0, 1), graded("c", 0, 0)]
    results = [replace(each, written=[essay()]) for each in results]
    given = {(student, "collectives"): {"w0": 1.0} for student in "abc"}
    assert items(results, given)[0].difficulty == pytest.approx(1 / 3)
    given["c", "collectives"] = {"q0": 2.0, "w0": 4.0}
    first, second, written = items(results, given)
    assert (first.difficulty, second.difficulty) == (pytest.approx(2 / 3), 0.5)
    # (2, 0, 2) with (2, 1, 0): the first is alike at both ends of the second.
    assert first.discrimination == second.discrimination == pytest.approx(0)
    # (1, 1, 4) with (4, 1, 2): deviations (-1, -1, 2) and (5, -4, -1) / 3, so -1 / sqrt(6 * 14 / 3).
    assert written.discrimination == pytest.approx(-1 / 28**0.5)


def test_the_commonest_mistakes_count_students_and_not_checks():
    failed = CheckResult(False, False, hint="Forgot the master weights.")
    other = CheckResult(False, False, hint="GB for GiB.")
    both = [
        replace(question("q0", 0), checks=[failed, failed]),
        replace(question("q0", 0), checks=[failed, other]),
        replace(question("q0", 0, status=UNANSWERED), checks=[]),
    ]
    results = [Result(str(i), "x", GRADED, questions=[each]) for i, each in enumerate(both)]
    (item,) = items(results)
    assert item.mistakes == (("Forgot the master weights.", 2), ("GB for GiB.", 1))
    assert (item.unanswered, item.discrimination) == (1, None)


def test_the_commonest_mistake_is_told_to_its_end(tmp_path):
    hint = "The sum has to come back, too, so that every rank but the first one " * 2 + "has it."
    said = shown_summary(
        tmp_path, [Grade(Result("a", "x", GRADED, questions=[question("q0", 0, hint=hint)]))]
    )
    assert f"  x q0: 1 x {hint}\n" in said


def test_a_written_question_has_statistics_once_nobody_waits(tmp_path):
    answers = [essay(), essay(), essay(), essay(answered=False)]
    results = [
        graded(student, earned, written=[answer])
        for student, earned, answer in zip("abcd", (2, 1, 2, 0), answers, strict=True)
    ]
    given = {("a", "collectives"): {"w0": 4.0}, ("b", "collectives"): {"w0": 2.0}}
    waiting = items(results, given)[-1]
    assert (waiting.id, waiting.students, waiting.unanswered) == ("w0", 4, 1)
    assert (waiting.difficulty, waiting.discrimination) == (None, None)
    given[("c", "collectives")] = {"w0": 4.0}
    judged = items(results, given)[-1]
    assert judged.difficulty == pytest.approx(10 / 16)  # 4, 2, 4 and 0 of 4
    assert judged.discrimination == pytest.approx(1)  # (4, 2, 4, 0) is twice (2, 1, 2, 0)
    tables.write_items(tmp_path / "items.csv", [waiting, judged], "isolated")
    first, second = rows_of((tmp_path / "items.csv").read_text("utf-8"))
    assert (first["question"], first["difficulty"], first["not_answered"]) == ("w0", "", "1")
    assert (second["points"], second["difficulty"]) == ("4", "0.625")


# -- a class -------------------------------------------------------------------------------------


class Watched:
    """Examines by a plain function, and remembers whom."""

    def __init__(self, examine: Callable[[str], None] = lambda student: None) -> None:
        self.examine = examine
        self.seen: list[str] = []

    @contextmanager
    def __call__(self, plan: Plan, assignments: Sequence[Assignment], progress: Progress):
        def examiner(assignment: Assignment, student: str, notebook: Notebook) -> Result:
            self.seen.append(student)
            self.examine(student)
            return graded(student, 2, 1, slug=assignment.slug)

        yield examiner


def hand_in(folder: Path, *students: str, slug: str = "collectives", text: str = "") -> None:
    """Put a blank notebook, with `text` in its last cell, in the folder of each student."""
    notebook = json.loads((ROOT / "exercises" / slug / f"{slug}.ipynb").read_text("utf-8"))
    notebook["cells"].append(
        {"id": "mine", "cell_type": "code", "metadata": {}, "source": text, "outputs": []}
    )
    for student in students:
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / f"{slug}.ipynb").write_text(json.dumps(notebook), "utf-8")


def run(folder: Path, opener: Opener, slug: str = "collectives", **more) -> Class:
    plan = more.pop("plan", Plan())
    quiet = {"progress": lambda *_: None, "finish": lambda _: None, **more}
    return grade(ROOT, folder / "in", [slug], folder / "out", plan=plan, opener=opener, **quiet)


def statuses(result: Class) -> dict[str, str]:
    return {record.result.student: record.result.status for record in result.records}


def test_only_what_changed_is_graded_again(tmp_path):
    hand_in(tmp_path / "in", "ada", "bob")
    watched = Watched()
    assert run(tmp_path, watched).graded == 2
    assert run(tmp_path, watched).graded == 0
    hand_in(tmp_path / "in", "bob", text="print(1)")
    hand_in(tmp_path / "in", "zoe")
    result = run(tmp_path, watched)
    assert watched.seen == ["ada", "bob", "bob", "zoe"]
    assert statuses(result) == {"ada": GRADED, "bob": GRADED, "zoe": GRADED}


def test_another_seed_limit_or_trust_grades_everyone_again_and_the_seed_is_kept(tmp_path):
    hand_in(tmp_path / "in", "ada")
    drawn = run(tmp_path, Watched()).run.seed
    assert run(tmp_path, Watched()).run.seed == drawn
    for plan in (Plan(drawn + 1), Plan(limits=Limits(cell_seconds=59)), Plan(trust=True)):
        assert run(tmp_path, Watched(), plan=plan).graded == 1
        assert run(tmp_path, Watched(), plan=plan).graded == 0
    assert json.loads((tmp_path / "out" / "run.json").read_text())["seed"] == drawn + 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_interrupted_run_keeps_what_it_finished_and_goes_on_from_there(tmp_path, jobs):
    students = [f"s{number}" for number in range(6)]
    hand_in(tmp_path / "in", *students)

    def interrupt(student: str) -> None:
        if student == "s2":
            raise KeyboardInterrupt

    first = Watched(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first, plan=Plan(jobs=jobs))
    kept = set(load_all(tmp_path / "out", "collectives"))
    assert "s2" not in kept
    assert jobs > 1 or first.seen == ["s0", "s1", "s2"]
    second = Watched()
    assert set(statuses(run(tmp_path, second))) == set(students)
    assert set(second.seen) == set(students) - kept


def test_what_fails_to_be_graded_has_a_reason_stops_nobody_and_is_tried_again(tmp_path):
    hand_in(tmp_path / "in", "ada", "bob", "zoe")

    def fail(student: str) -> None:
        if student == "bob":
            raise RuntimeError("the disk is full")

    result = run(tmp_path, Watched(fail))
    assert statuses(result) == {"ada": GRADED, "bob": NOT_GRADED, "zoe": GRADED}
    assert {record.result.reason for record in result.records} == {
        *{"", "RuntimeError: the disk is full"}
    }
    again = Watched()
    run(tmp_path, again)
    assert again.seen == ["bob"]


def test_what_cannot_be_read_is_refused_without_opening_a_box(tmp_path):
    (tmp_path / "in" / "eve").mkdir(parents=True)
    (tmp_path / "in" / "eve" / "collectives.ipynb").write_text("{", "utf-8")
    (record,) = run(tmp_path, Watched()).records
    assert (record.result.status, record.result.earned) == (REFUSED, None)
    assert record.result.reason
    assert run(tmp_path, Watched()).graded == 0


def test_who_handed_in_nothing_is_missing_and_graded_as_soon_as_there_is_something(tmp_path):
    hand_in(tmp_path / "in", "ada")
    roster = tmp_path / "roster.csv"
    roster.write_text("student,name,email\nada,Ada,ada@school.example\nbob,Bob,\n", "utf-8")
    result = run(tmp_path, Watched(), roster=roster)
    assert statuses(result) == {"ada": GRADED, "bob": MISSING}
    assert {record.person.get("email") for record in result.records} == {"ada@school.example", None}
    hand_in(tmp_path / "in", "eve")
    strangers = run(tmp_path, Watched(), roster=roster).records
    assert {each.result.student for each in strangers if not each.listed} == {"eve"}
    shutil.rmtree(tmp_path / "in" / "eve")
    hand_in(tmp_path / "in", "bob")
    assert statuses(run(tmp_path, Watched(), roster=roster)) == {"ada": GRADED, "bob": GRADED}


def test_who_comes_on_the_roster_or_leaves_it_keeps_the_result(tmp_path):
    hand_in(tmp_path / "in", "ada", "eve")
    roster, watched = tmp_path / "roster.csv", Watched()

    def eve(*lines: str) -> tuple[bool, str, dict[str, str]]:
        roster.write_text("\n".join(["student,name", "ada,Ada", *lines]), "utf-8")
        out = tmp_path / "out"
        finish = {"finish": lambda done: write_reports(out, done)}
        records = run(tmp_path, watched, roster=roster, **finish).records
        (one,) = [each for each in records if each.result.student == "eve"]
        (row,) = [r for r in rows_of((out / "grades.csv").read_text("utf-8")) if r["name"] != "Ada"]
        return one.listed, row["reason"], dict(one.person)

    said = "No student on the roster goes by this name, or more than one."
    assert eve() == (False, said, {"name": "eve"})
    assert eve("eve,Eve") == (True, "", {"name": "Eve"})
    assert eve() == (False, said, {"name": "eve"})
    assert watched.seen == ["ada", "eve"]


@pytest.mark.parametrize("students", ["", "ada"])
def test_a_zip_file_of_the_whole_class_is_named_to_be_unpacked(tmp_path, students):
    (tmp_path / "in").mkdir()
    roster = {"roster": tmp_path / "roster.csv"} if students else {}
    (tmp_path / "roster.csv").write_text(f"student\n{students}\n")
    if not students:
        with pytest.raises(ValueError, match=r"no file of a student\.$"):
            run(tmp_path, Watched())
    for name in ("week 1.zip", "Week 2.ZIP"):
        with zipfile.ZipFile(tmp_path / "in" / name, "w") as archive:
            archive.writestr("bob/collectives.ipynb", "{}")
    said = r"no file of a student\. Unpack what holds the class: 'Week 2\.ZIP', 'week 1\.zip'\.$"
    with pytest.raises(ValueError, match=said):
        run(tmp_path, Watched(), **roster)
    hand_in(tmp_path / "in", "ada")
    assert run(tmp_path, Watched(), **roster).graded == 1


def test_a_notebook_of_a_chapter_that_is_not_asked_for_is_missing_and_not_graded(tmp_path):
    hand_in(tmp_path / "in", "ada")
    hand_in(tmp_path / "in", "bob", slug="data_parallel")
    watched = Watched()
    result = run(tmp_path, watched, slug="data_parallel")
    assert (statuses(result), watched.seen) == ({"ada": MISSING, "bob": GRADED}, ["bob"])
    reasons = {record.result.student: record.result.reason for record in result.records}
    assert reasons["ada"] == "Nothing was handed in for this, only for collectives."


def test_a_chapter_that_is_broken_does_not_stop_the_others(tmp_path):
    course = tmp_path / "course"
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder / "collectives", course / folder / "collectives")
    (course / "exercises" / "broken").mkdir()
    (course / "exercises" / "broken" / "broken.ipynb").write_text("{")
    hand_in(tmp_path / "in", "ada")
    quiet = {"progress": lambda *_: None, "finish": lambda _: None}
    paths = course, tmp_path / "in", ["collectives"], tmp_path / "out"
    assert grade(*paths, plan=Plan(), opener=Watched(), **quiet).graded == 1


def test_a_notebook_in_a_zip_file_is_graded_and_graded_again_when_it_changes(tmp_path):
    hand_in(tmp_path / "work", "ada")
    (tmp_path / "in" / "ada").mkdir(parents=True)
    for graded_now in (1, 0):
        with zipfile.ZipFile(tmp_path / "in" / "ada" / "a.zip", "w") as archive:
            archive.write(tmp_path / "work" / "ada" / "collectives.ipynb", "b/c.ipynb")
        assert run(tmp_path, Watched()).graded == graded_now
    hand_in(tmp_path / "work", "ada", text="print(1)")
    with zipfile.ZipFile(tmp_path / "in" / "ada" / "a.zip", "w") as archive:
        archive.write(tmp_path / "work" / "ada" / "collectives.ipynb", "b/c.ipynb")
    assert run(tmp_path, Watched()).graded == 1


def test_a_submission_that_is_gone_is_set_aside_and_nothing_else_is_touched(tmp_path):
    hand_in(tmp_path / "in", "ada", "bob")
    run(tmp_path, Watched())
    shutil.rmtree(tmp_path / "in" / "bob")
    result = run(tmp_path, Watched())
    assert (set(statuses(result)), result.gone) == ({"ada"}, ["bob (collectives)"])
    assert (tmp_path / "out" / "gone" / "records" / "collectives" / "bob.json").is_file()
    shutil.rmtree(tmp_path / "in")
    hand_in(tmp_path / "in", "ada", slug="memory_wall")  # the folder of another assignment
    result = run(tmp_path, Watched(), slug="memory_wall")
    assert {record.result.slug for record in result.records} == {"collectives", "memory_wall"}
    assert result.gone == []


def test_a_record_that_was_damaged_is_graded_again(tmp_path):
    hand_in(tmp_path / "in", "ada")
    run(tmp_path, Watched())
    (tmp_path / "out" / "records" / "collectives" / "ada.json").write_text('{"key": 1', "utf-8")
    assert run(tmp_path, Watched()).graded == 1


def test_a_deadline_belongs_to_its_assignment(tmp_path):
    hand_in(tmp_path / "in", "ada")
    due = datetime(2026, 1, 1, tzinfo=UTC)
    run(tmp_path, Watched(), deadline=lambda _: (due.timestamp(), "10%/day"))
    shutil.rmtree(tmp_path / "in")
    hand_in(tmp_path / "in", "ada", slug="memory_wall")
    result = run(tmp_path, Watched(), slug="memory_wall")
    assert result.run.deadlines == {"collectives": (due.timestamp(), "10%/day")}


def test_a_deadline_holds_until_another_is_named_and_canvas_says_who_was_late(tmp_path):
    hand_in(tmp_path / "in", "ada")
    found = tmp_path / "in" / "ada" / "collectives.ipynb"
    due = found.stat().st_mtime + 1000
    late = (tmp_path / "in").joinpath("bob_LATE_12345_67890_collectives.ipynb")
    shutil.copy2(found, late)
    run(tmp_path, Watched(), deadline=lambda _: (due, "20%"))
    again = run(tmp_path, Watched())
    assert again.run.deadlines == {"collectives": (due, "20%")}
    submitted = {record.result.student: record.submitted for record in again.records}
    assert submitted["ada"] < due < submitted["bob_12345"]
    assert (
        run(tmp_path, Watched(), deadline=lambda _: (None, None)).run.deadlines["collectives"][0]
        is None
    )


def test_a_second_run_at_the_same_time_is_refused_and_a_left_over_lock_is_not(tmp_path):
    hand_in(tmp_path / "in", "ada")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").write_text("99999")
    hold = "import sys; from pathlib import Path; from dlsys.grading.course.records import locked\n"
    hold += "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(out)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=rf"process {other.pid}\b"):
            run(tmp_path, Watched())
        other.kill()
    assert run(tmp_path, Watched()).graded == 1


def test_folders_in_one_another_or_of_somebody_else_are_refused(tmp_path):
    hand_in(tmp_path / "in", "ada")
    for inside, outside in (("in", "in/out"), ("in/ada", "in"), ("in", "in")):
        with pytest.raises(ValueError, match="in one another"):
            grade(
                *(ROOT, tmp_path / inside, ["collectives"], tmp_path / outside),
                plan=Plan(),
                progress=lambda *_: None,
                opener=Watched(),
                finish=lambda _: None,
            )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds other files \(thesis\.txt\)"):
        run(tmp_path, Watched())


def test_every_report_takes_points_given_by_hand_and_a_second_run_keeps_them(tmp_path):
    pytest.importorskip("nbgrader", reason="nbgrader is not installed")
    from nbgrader.api import Gradebook

    out, real = tmp_path / "out", load(ROOT, "collectives")
    (asked,) = real.written

    @contextmanager
    def opener(plan: Plan, assignments: Sequence[Assignment], progress: Progress):
        def examiner(assignment: Assignment, student: str, notebook: Notebook) -> Result:
            full = [question(q.id, q.points, q.points) for q in assignment.questions]
            answer = WrittenAnswer(asked.id, asked.title, asked.points, "Because.", True)
            return Result(student, assignment.slug, GRADED, questions=full, written=[answer])

        yield examiner

    def again() -> tuple[Reports, str, str]:
        made: list[Reports] = []
        run(tmp_path, opener, finish=lambda done: made.append(write_reports(out, done)))
        canvas = (out / "canvas" / "collectives.csv").read_text("utf-8")
        return made[0], canvas, (out / "grades.csv").read_text("utf-8")

    hand_in(tmp_path / "in", "ada")
    reports, canvas, _ = again()
    by_running = real.points - asked.points
    assert (reports.grades[0].total, reports.grades[0].waiting) == (by_running, asked.points)
    assert "ada" not in canvas
    with Gradebook(f"sqlite:///{out / 'nbgrader' / 'gradebook.db'}", course_id="dlsys") as book:
        grade_ = book.find_grade(asked.id, "collectives", "collectives", "ada")
        grade_.manual_score, grade_.needs_manual_grade = 2.5, False
        book.db.commit()
    for _ in range(2):
        reports, canvas, table = again()
        assert (reports.grades[0].total, reports.grades[0].waiting) == (by_running + 2.5, 0)
        assert rows_of(canvas)[1][real.title] == tables.cell(by_running + 2.5)
        assert rows_of(table)[0][asked.id] == "2.5"
    for place in ("feedback/ada.html", "gradescope/collectives/ada/results.json", "items.csv"):
        assert (out / place).is_file()


# -- the commands --------------------------------------------------------------------------------


def test_a_command_with_a_wrong_argument_gets_a_sentence_and_2(tmp_path, capsys):
    hand_in(tmp_path / "in", "ada")
    common = [str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    for more, words in (
        (["--assignment", "colectives"], "Did you mean 'collectives'"),
        (["--due", "tomorrow"], "is no date"),
        (["--due", "2026-12-01", "--late", "lots"], "is no rate"),
        (["--roster", str(tmp_path / "none.csv")], "none.csv"),
        (["--course", str(tmp_path)], "does not hold exercises/"),
    ):
        assert cli.main([*common, *more]) == 2
        assert words in capsys.readouterr().err
    for option, value, words in (
        ("--memory-gib", "0.001", "argument --memory-gib: 0.001 is less than 0.5"),
        ("--cell-seconds", "soon", "argument --cell-seconds: 'soon' is no number above 0"),
        ("--check-seconds", "nan", "argument --check-seconds: 'nan' is no number above 0"),
        ("--jobs", "half", "argument --jobs: 'half' is no whole number from 1"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main([*common, option, value])
        assert ended.value.code == 2
        assert words in capsys.readouterr().err
    (tmp_path / "roster.csv").write_text("student\nada\n")
    assert cli.main([str(tmp_path / "roster.csv"), *common[1:]]) == 2
    assert "roster.csv is no folder of submissions, and no notebook" in capsys.readouterr().err
    for submissions, out in (("nothing", "out"), ("in", "in/ada/collectives.ipynb/out")):
        assert cli.main([str(tmp_path / submissions), "--out", str(tmp_path / out)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


TWICE = {
    "twice": (
        "def twice(n):\n    ...",
        "def twice(n):\n    return 2 * n",
        "same(twice(3), 6)",
        "same(twice(7), 14, vary={7: [11, 12]})",
    ),
    "word": ("word = ...", "word = 'ring'", "same(word, 'ring')", ""),
}


@pytest.fixture
def small(tmp_path):
    """The folder of a course of one small assignment, "small", which is quick to grade."""
    make(tmp_path / "course", "from dlsys.exercises import same", TWICE)
    return tmp_path / "course"


def hand_in_small(folder: Path, course: Path, **more: str) -> Path:
    """Put a notebook with the right answers, but for `more`, into a folder; its path."""
    right = {name: solution for name, (_, solution, *_) in TWICE.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.ipynb").write_text(json.dumps(answered(course, right | more)), "utf-8")
    return folder / "small.ipynb"


def test_a_run_that_is_ended_keeps_what_it_has_says_how_to_go_on_and_leaves_no_process(
    tmp_path, small
):
    hand_in_small(tmp_path / "in" / "ada", small)
    hand_in_small(tmp_path / "in" / "bob", small, word="while True: pass")
    command = [
        sys.executable,
        "-m",
        "dlsys.grading.commands.cli",
        str(tmp_path / "in"),
        "--trust-students",
    ]
    command += ["--course", str(small), "--out", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as grading:
        assert grading.stderr
        while "ada" not in grading.stderr.readline():
            assert grading.poll() is None
        family = psutil.Process(grading.pid).children(recursive=True)
        grading.terminate()
        rest = grading.stderr.read()
    assert (grading.returncode, rest.count("\n")) == (130, 1)
    assert "the same command goes on" in rest
    assert set(load_all(tmp_path / "out", "small")) == {"ada"}
    assert family
    assert psutil.wait_procs(family, timeout=60)[1] == []


def test_a_hostile_notebook_is_refused_unrun_where_there_are_no_boxes(
    tmp_path, small, monkeypatch, capsys
):
    command = [str(tmp_path / "in"), "--course", str(small), "--out", str(tmp_path / "out")]
    monkeypatch.setenv("PATH", "")
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)  # whoever the notebook runs as could leave its trace there
        trace = Path(folder, "it-ran")
        hand_in_small(tmp_path / "in" / "eve", small, word=f"open({str(trace)!r}, 'w').close()")
        assert cli.main(command) == cli.NO_SANDBOX
        assert "apt install bubblewrap" in capsys.readouterr().err
        assert not trace.exists()
        assert load_all(tmp_path / "out", "small") == {}
        assert cli.main([*command, "--trust-students"]) == 0
        assert trace.exists()


def test_help_is_quick_for_it_loads_neither_torch_nor_nbgrader():
    program = "import sys, dlsys.grading.commands.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    program += "print({'torch', 'nbgrader', 'IPython', 'rich', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("set()\n"), done.stdout + done.stderr


def test_a_students_own_check_says_of_each_answer_what_the_notebook_says(tmp_path, capsys):
    notebook = json.loads((ROOT / "solutions/collectives/collectives.ipynb").read_text("utf-8"))
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    released = ROOT / "exercises/collectives/collectives.ipynb"
    blank = {cell["id"]: cell for cell in json.loads(released.read_text("utf-8"))["cells"]}
    cells["seconds"]["source"] = blank["seconds"]["source"]
    cells["sent"]["source"] = "def large_broadcast(comm, x):\n    return 8 * comm.broadcast(x)"
    mine = tmp_path / "homework.ipynb"
    mine.write_text(json.dumps(notebook), "utf-8")
    assert check.main([str(mine), "--course", str(ROOT)]) == 1
    said = capsys.readouterr().out
    assert ("Not answered." in said, "is not right." in said) == (True, True)
    assert "18 of 22 points" in said
    assert "best known:" in said
    assert "\x1b" not in said


def test_a_notebook_that_is_answered_where_it_was_released_is_checked_and_graded(tmp_path, capsys):
    slug = "collectives"
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder / slug, tmp_path / "course" / folder / slug)
    solved = json.loads((ROOT / f"solutions/{slug}/{slug}.ipynb").read_text("utf-8"))["cells"]
    [right] = [cell["source"] for cell in solved if cell["id"] == "mean"]
    place = tmp_path / f"course/exercises/{slug}/{slug}.ipynb"
    notebook = json.loads(place.read_text("utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = right if cell["id"] == "mean" else cell["source"]
    place.write_text(json.dumps(notebook), "utf-8")
    assert check.main([str(place)]) == 1
    said = capsys.readouterr().out
    answers = dict(re.findall(r"^(\d)\. .*\n(.*)", said, re.MULTILINE))
    assert [number for number, line in answers.items() if line != "Not answered."] == ["3"]
    assert load(tmp_path / "course", slug) == load(ROOT, slug)


def test_trust_is_not_to_be_had_by_an_abbreviation(tmp_path, capsys, small):
    command = [str(tmp_path / "in"), "--course", str(small), "--out", str(tmp_path / "out")]
    hand_in_small(tmp_path / "in" / "eve", small)
    for short in ("--trust", "--t", "--trust-student"):
        with pytest.raises(SystemExit):
            cli.main([*command, short])
        assert f"unrecognized arguments: {short}" in capsys.readouterr().err


def test_a_students_own_check_ends_with_0_where_all_is_right(tmp_path, capsys, small):
    mine = hand_in_small(tmp_path / "work", small).rename(tmp_path / "homework.ipynb")
    assert check.main([str(mine), "--course", str(small)]) == 0
    said = capsys.readouterr().out
    assert ("Not answered." in said, "is not right." in said) == (False, False)
    assert "4 of 4 points" in said
    assert "\x1b" not in said


def test_what_cannot_be_checked_gets_a_sentence_and_2(tmp_path, capsys):
    broken, foreign = tmp_path / "collectives.ipynb", tmp_path / "other.ipynb"
    broken.write_text("{", "utf-8")
    foreign.write_text('{"nbformat": 4, "cells": []}', "utf-8")
    for path, words in (
        (broken, "collectives.ipynb is "),
        (foreign, "no answer cell of any exercise"),
    ):
        assert check.main([str(path), "--course", str(ROOT)]) == 2
        assert words in capsys.readouterr().err


# -- other places --------------------------------------------------------------------------------


def test_a_slug_that_is_not_known_gets_the_nearest_one():
    assert known("zero", ["zero", "mesh"]) == "zero"
    with pytest.raises(ValueError, match="Did you mean 'collectives'"):
        known("colectives", ["collectives", "memory_wall"])


def test_the_course_is_found_from_a_folder_in_it_and_told_where_it_is_not(tmp_path):
    assert find_root(None, ["exercises", "solutions"], ROOT / "tests") == ROOT
    with pytest.raises(ValueError, match="does not hold exercises/"):
        find_root(tmp_path, ["exercises"])


def test_the_autograder_is_the_same_bytes_each_time_and_holds_one_assignment():
    made = export.gradescope(ROOT, "collectives")
    assert made == export.gradescope(ROOT, "collectives")
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        names = archive.namelist()
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in archive.infolist()}
        script = archive.read("run_autograder").decode()
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert "course/exercises/collectives/collectives.ipynb" in names
    assert "course/solutions/collectives/collectives.ipynb" in names
    others = [name for name in names if "memory_wall/memory_wall" in name or "__pycache__" in name]
    assert others == ["course/exercises/memory_wall/memory_wall.ipynb"]  # to be told apart by
    assert len(names) == len(set(names))
    assert "@" not in script.replace('"$@"', "")


def test_the_autograder_writes_results_and_keeps_solutions_from_code_that_cannot_be_isolated(
    tmp_path, small
):
    for name in ("dlsys", "pyproject.toml"):  # what is exported beside the assignment
        (small / name).symlink_to(ROOT / name)
    source = tmp_path / "source"
    with zipfile.ZipFile(io.BytesIO(export.gradescope(small, "small", seed=1))) as archive:
        archive.extractall(source)
    solution = source / "course" / "solutions" / "small" / "small.ipynb"
    reads = f"raise RuntimeError(open({str(solution)!r}).read()[:20])"
    mine = hand_in_small(tmp_path / "submission", small, twice=reads)
    mine.rename(mine.with_name("my answers.ipynb"))
    programs = tmp_path / "bin"  # all that the script needs, and no bubblewrap
    programs.mkdir()
    for name in ("bash", "chmod", "cp", "mkdir", "mktemp", "rm"):
        (programs / name).symlink_to(shutil.which(name) or name)

    def run():
        return subprocess.run(
            ["/usr/bin/env", "bash", str(source / "run_autograder")],
            env={
                "AUTOGRADER": str(tmp_path),
                "AUTOGRADER_PYTHON": sys.executable,
                "PATH": str(programs),
            },
            capture_output=True,
            text=True,
        )

    results = tmp_path / "results" / "results.json"
    refused = run()  # as on a computer that is no container made for it
    assert (refused.returncode, results.exists()) == (1, False)
    assert "apt install bubblewrap" in refused.stderr
    marked = re.findall(r'^touch "\$home/(\S+)"', (source / "setup.sh").read_text(), re.M)
    (tmp_path / marked[0]).touch()
    done = run()
    assert done.returncode == 0, done.stderr
    content = json.loads(results.read_text("utf-8"))
    assert NOT_ISOLATED in content["output"]
    scores = [test["score"] for test in content["tests"] if "score" in test]
    assert scores.count(0) == 1
    # Only root can run it as somebody else, and only where somebody else can load Python.
    if os.geteuid() == 0 and libraries_are_open():
        assert "PermissionError" in content["tests"][1]["output"]


def test_the_workflow_for_classrooms_checks_the_notebook_and_knows_no_solution():
    text = export.github(ROOT, "collectives", "https://git.school.example/course.git")
    steps = yaml.safe_load(text)["jobs"]["check"]["steps"]
    commands = "\n".join(step.get("run", "") for step in steps)
    assert "dlsys-check" in commands
    assert "https://git.school.example/course.git" in commands
    assert "solutions" not in text
    with pytest.raises(ValueError, match="no address of a repository"):
        export.github(ROOT, "collectives", "x; rm -rf /")
