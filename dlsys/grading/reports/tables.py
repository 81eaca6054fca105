"""The class as tables: `grades.csv`, a row for each student and assignment, and `items.csv`.

Both begin with a byte-order mark, by which spreadsheets know UTF-8: read them in Python with
`encoding="utf-8-sig"`. A cell stays empty where nothing was graded. Text that a spreadsheet would
take for a formula has an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path

from dlsys.files import write
from dlsys.grading.assignment import Assignment
from dlsys.grading.course.grade import Grade
from dlsys.grading.reports.statistics import Item
from dlsys.grading.result import GRADED
from dlsys.grading.text import visible

Cell = str | float | None

# What spreadsheets begin a formula with; the wide forms count in East Asian versions.
_FORMULA = re.compile(r"\s*[=+\-@\t\r＝＋－＠]")
_AFTER_A_CUT = re.compile(r";(?=\s*[=+\-@＝＋－＠])")  # where it cuts a line at semicolons
_LONGEST = 2000  # characters in a cell


def cell(value: Cell) -> str:
    """A value as a cell: numbers to four digits after the point, text as one harmless line."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"{round(value, 4) + 0:.4f}".rstrip("0").rstrip(".")  # + 0: no minus zero
    line = _AFTER_A_CUT.sub(";'", " ".join(visible(value, _LONGEST).split()))
    return f"'{line}" if _FORMULA.match(value) else line


def csv_text(rows: Iterable[Sequence[Cell]]) -> str:
    """Rows as the text of a CSV file."""
    file = io.StringIO()
    csv.writer(file).writerows([cell(value) for value in row] for row in rows)
    return file.getvalue()


def write_grades(
    path: Path, grades: Sequence[Grade], assignments: Mapping[str, Assignment]
) -> None:
    """Write `grades.csv`: a row for each student and assignment, a column for each question.

    `reason` says why nothing was graded, and what was noted about the notebook, the student and the
    points. `seconds_late` is empty where nothing was due or handed in. `total` is what was earned
    so far less `late_penalty`; of `maximum` points, `to_grade_by_hand` wait for a person.
    `isolation` says how the student's code ran.
    """
    questions = list(dict.fromkeys(id_ for each in assignments.values() for id_ in _ids(each)))
    before = ["student", "name", "email", "assignment", "status", "reason"]
    after = ["seconds_late", "late_penalty", "total", "maximum", "to_grade_by_hand", "isolation"]
    rows: list[list[Cell]] = [[*before, *questions, *after]]
    for grade in grades:
        result, points = grade.result, grade.points()
        graded, timed = result.status == GRADED, None not in (grade.submitted, grade.due)
        person = [grade.person.get("name", ""), grade.person.get("email", "")]
        said = [result.reason, *grade.notes, *grade.beyond, grade.policy_failed]
        reason = " ".join(filter(None, said))
        rows.append(
            [result.student, *person, result.slug, result.status, reason]
            + [points.get(id_) for id_ in questions]
            + [ceil(grade.seconds_late) if timed else None]
            + [grade.late_penalty if graded else None, grade.total]
            + [assignments[result.slug].points]
            + [grade.waiting if graded else None, grade.isolation]
        )
    write(path, "\ufeff" + csv_text(rows))


def _ids(assignment: Assignment) -> list[str]:
    return [each.id for each in assignment.questions] + [each.id for each in assignment.written]


def write_items(path: Path, items: Sequence[Item], isolation: str) -> None:
    """Write `items.csv`: a row for each question, with its difficulty and commonest mistakes."""
    head = ["assignment", "question", "title", "points", "students", "difficulty"]
    head += ["discrimination", "not_answered", "commonest_mistakes", "isolation"]
    rows: list[list[Cell]] = [[*head]]
    for item in items:
        mistakes = " | ".join(f"{count} x {hint}" for hint, count in item.mistakes)
        row: list[Cell] = [item.slug, item.id, item.title, item.points, item.students]
        row += [item.difficulty, item.discrimination, item.unanswered, mistakes, isolation]
        rows.append(row)
    write(path, "\ufeff" + csv_text(rows))
