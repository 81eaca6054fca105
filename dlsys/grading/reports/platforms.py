"""Files that learning platforms read: Canvas and Moodle tables, Gradescope results.

A grade goes into a platform's table once it is whole. Whoever has none yet, because nothing was
graded or a written answer waits for a person, has no row, so that the platform's own grade stays.
Nor has who is not on the roster: the platform could take them for somebody else. Nor has whoever
was late where the policy for lateness failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlsys.grading.assignment import Assignment
from dlsys.grading.course.grade import NOT_ISOLATED, Grade
from dlsys.grading.reports.explain import explain
from dlsys.grading.reports.exporting import Exporter
from dlsys.grading.reports.tables import Cell, csv_text
from dlsys.grading.result import GRADED, NOT_GRADED, QuestionResult
from dlsys.grading.text import file_name, visible


def _whole(grades: Iterable[Grade], assignment: Assignment) -> list[tuple[Grade, float]]:
    """The grades of an assignment that nothing is missing from, with their totals."""
    own = [each for each in grades if each.listed and each.result.slug == assignment.slug]
    whole = [each for each in own if not each.waiting and not each.policy_failed]
    return [(each, each.total) for each in whole if each.total is not None]


def canvas(grades: Iterable[Grade], assignment: Assignment) -> str:
    """The CSV file for Canvas: Grades, Import.

    Canvas finds a student by its own ID, else by SIS ids, else by name; the column's heading has
    to be the assignment's name in Canvas, and becomes a new assignment where there is none.
    """
    ids = ["ID", "SIS User ID", "SIS Login ID", "Section"]
    rows: list[list[Cell]] = [["Student", *ids, assignment.title]]
    rows.append(["Points Possible", "", "", "", "", assignment.points])
    for grade, total in _whole(grades, assignment):
        keys = ("canvas_id", "sis_id", "login", "section")
        person = [grade.person.get(key, "") for key in keys]
        name = grade.person.get("name") or grade.result.student
        rows.append([name, *person, round(total, 2)])
    return csv_text(rows)


def moodle(grades: Iterable[Grade], assignment: Assignment) -> str:
    """The CSV file for Moodle: Grades, Import.

    `Email address`, `ID number` or `Username` is to be mapped to the user; `Identifier` is how the
    assignment's own grading worksheet calls them.
    """
    heading: list[Cell] = ["ID number", "Email address", "Username", "Identifier", assignment.title]
    rows = [heading]
    for grade, total in _whole(grades, assignment):
        person = grade.person
        known = [person.get(key, "") for key in ("email", "login")]
        number = person.get("moodle_id", "")
        identifier = f"Participant {number}" if number else ""
        ids = [person.get("sis_id") or grade.result.student, *known, identifier]
        rows.append([*ids, round(total, 2)])
    return csv_text(rows)


def gradescope(grade: Grade) -> str | None:
    """A student's `results.json` for Gradescope, all text in it as text; None for NOT_GRADED, where
    Gradescope shall say that the autograder failed, and give no points, and for a failed policy."""
    result = grade.result
    if result.status == NOT_GRADED or grade.policy_failed:
        return None
    notes = [*([result.reason] if result.reason else []), *grade.notes]
    if grade.isolation == NOT_ISOLATED:
        notes.insert(0, f"{NOT_ISOLATED}: the code ran with limits on resources alone.")
    if grade.late_penalty:
        notes.append(f"Late: {grade.late_penalty:.2f} points are taken.")
    points = grade.points()
    content: dict[str, Any] = {
        "output": visible("\n".join(notes)),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [_test(question, points[question.id]) for question in result.questions],
    }
    if result.status != GRADED:  # no score anywhere, and the reason where tests stand
        content["tests"] = [{"name": "Reading the notebook", "status": "failed"}]
        content["tests"][0]["output"] = visible(result.reason)
    elif grade.late_penalty and grade.total is not None:
        content["score"] = round(grade.total, 4)
    for written in result.written:
        test: dict[str, Any] = {"name": written.title, "output": "A person grades this answer."}
        if written.id in points:
            test |= {"score": points[written.id], "max_score": written.points}
        content["tests"].append(test)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _test(question: QuestionResult, points: float) -> dict[str, Any]:
    return {
        "name": question.title,
        "score": round(points, 4),
        "max_score": question.points,
        "output": "\n".join(explain(question)),
        "visibility": "visible",
    }


def _results(grades: Sequence[Grade], assignment: Assignment) -> dict[str, str]:
    made = {grade.result.student: gradescope(grade) for grade in grades}
    return {
        f"{assignment.slug}/{file_name(student)}/results.json": content
        for student, content in made.items()
        if content is not None
    }


EXPORTERS: Mapping[str, Exporter] = {
    "canvas": lambda grades, each: {f"{each.slug}.csv": canvas(grades, each)},
    "moodle": lambda grades, each: {f"{each.slug}.csv": moodle(grades, each)},
    "gradescope": _results,
}
