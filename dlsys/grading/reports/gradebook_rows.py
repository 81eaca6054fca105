"""Rows of nbgrader's database: a class's results entered in a few statements.

nbgrader's own methods commit after each row, which takes seconds for every submission.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nbgrader import api
from sqlalchemy import insert, select, update

from dlsys.grading.assignment import Assignment
from dlsys.grading.reports.handgrading import answer_digests
from dlsys.grading.result import Result
from dlsys.grading.text import file_name


@dataclass(frozen=True)
class Cells:
    """An assignment's rows: ids, those of the cells that hold points and comments by question."""

    assignment: str
    notebook: str
    graded: dict[str, str]
    answers: dict[str, str]


def enter_students(session: Any, students: set[str]) -> None:
    """Enter those who are not there.

    nbgrader's ids are part of paths and addresses; the name of a student for whom it is another is
    kept beside it, in JSON as it may hold anything.
    """
    known = set(session.scalars(select(api.Student.id)))
    for student in students:
        name = file_name(student)
        if name not in known:
            full = None if name == student else json.dumps(student)
            session.add(api.Student(id=name, lms_user_id=full))


def enter_assignment(
    session: Any, assignment: Assignment, course: str, due: datetime | None
) -> Cells:
    """The rows of an assignment, made where they are not there."""
    found = session.query(api.Assignment).filter_by(name=assignment.slug).one_or_none()
    if found is None:
        found = api.Assignment(name=assignment.slug, course_id=course)
        found.notebooks.append(api.Notebook(name=assignment.slug))
        session.add(found)
    if due is not None:
        # nbgrader keeps times in UTC, without saying so.
        found.duedate = due.astimezone(UTC).replace(tzinfo=None) if due.tzinfo else due
    book = next(each for each in found.notebooks if each.name == assignment.slug)
    known = {(type(cell), cell.name): cell for cell in book._base_cells}

    def cell(kind: Any, name: str, **values: Any) -> Any:
        made = known.get((kind, name)) or kind(name=name, notebook=book)
        for field, value in values.items():
            setattr(made, field, value)
        return made

    graded, answers = {}, {}
    for kind, questions in (("code", assignment.questions), ("markdown", assignment.written)):
        for each in questions:
            score = {"max_score": each.points, "cell_type": kind}
            graded[each.id] = cell(api.GradeCell, each.id, **score)
            answers[each.id] = cell(api.SolutionCell, each.id)
    session.add_all([*graded.values(), *answers.values()])
    session.flush()
    return Cells(
        assignment=found.id,
        notebook=book.id,
        graded={name: each.id for name, each in graded.items()},
        answers={name: each.id for name, each in answers.items()},
    )


def enter_results(session: Any, cells: Cells, results: Sequence[tuple[Result, str, str]]) -> None:
    """Enter results of an assignment, each with the notebook that showed it before and the new."""
    books = _books(session, cells, [file_name(result.student) for result, _, _ in results])
    columns = ("id", "notebook_id", "cell_id", "manual_score", "needs_manual_grade")
    of_cells = api.Grade.cell_id.in_(cells.graded.values())
    known = session.execute(select(*(getattr(api.Grade, c) for c in columns)).where(of_cells))
    grades = {(row.notebook_id, row.cell_id): row for row in known}
    new, changed = [], []
    for result, before, now in results:
        book = books[file_name(result.student)]
        old, current = answer_digests(before), answer_digests(now)
        automatic: dict[str, float | None] = {each.id: each.earned for each in result.questions}
        # Nobody need look at an answer that is not there.
        automatic |= {each.id: None if each.answered else 0.0 for each in result.written}
        for question in automatic.keys() & cells.graded.keys():
            auto, cell = automatic[question], cells.graded[question]
            row = grades.get((book, cell))
            if row is None:
                waits = auto is None
                keys = {"notebook_id": book, "cell_id": cell}
                new.append({**keys, "auto_score": auto, "needs_manual_grade": waits})
                continue
            if old.get(question) == current.get(question):
                waits = row.needs_manual_grade
            else:
                waits = auto is None or row.manual_score is not None
            changed.append({"id": row.id, "auto_score": auto, "needs_manual_grade": waits})
    if new:
        session.execute(insert(api.Grade), new)
    if changed:
        session.execute(update(api.Grade), changed)


def _books(session: Any, cells: Cells, students: Sequence[str]) -> dict[str, str]:
    """The ids of the students' notebooks, made where they are not there; with room for comments."""
    known = session.execute(
        select(api.SubmittedAssignment.student_id, api.SubmittedNotebook.id)
        .join(
            api.SubmittedNotebook,
            api.SubmittedNotebook.assignment_id == api.SubmittedAssignment.id,
        )
        .where(api.SubmittedNotebook.notebook_id == cells.notebook)
    )
    books: dict[str, str] = {row[0]: row[1] for row in known}
    for student in students:
        if student not in books:
            submission = api.SubmittedAssignment(
                id=api.new_uuid(), assignment_id=cells.assignment, student_id=student
            )
            books[student] = api.new_uuid()
            book = api.SubmittedNotebook(
                id=books[student], notebook_id=cells.notebook, assignment=submission
            )
            session.add_all([submission, book])
    session.flush()
    of_cells = api.Comment.cell_id.in_(cells.answers.values())
    comments = select(api.Comment.notebook_id, api.Comment.cell_id).where(of_cells)
    there = {tuple(row) for row in session.execute(comments)}
    new = [
        {"notebook_id": books[student], "cell_id": cell}
        for student in students
        for cell in cells.answers.values()
        if (books[student], cell) not in there
    ]
    if new:
        session.execute(insert(api.Comment), new)
    return books
