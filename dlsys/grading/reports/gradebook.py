"""nbgrader's gradebook, in which a person grades the written answers: GRADES/nbgrader.

The folder is a course of nbgrader's. To grade by hand, where `dlsys[book,grading]` is installed:

    cd GRADES/nbgrader
    jupyter lab

and in JupyterLab choose Nbgrader > Formgrader, or open the address that it prints with /formgrader
in the place of /lab: Manual Grading, the exercise, the notebook, a submission. Type points beside
an answer and a comment below it; both are saved when the field is left. A score typed beside a
question that was graded by running takes the place of the automatic one. `dlsys-grade`, run again,
takes scores and comments into its files and leaves them here as they are. End Jupyter before that:
a formgrader that is open keeps what it has read, and may write it back.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dlsys.files import write
from dlsys.grading.assignment import Assignment
from dlsys.grading.reports.handgrading import notebook
from dlsys.grading.result import GRADED, Result
from dlsys.grading.text import file_name

COURSE = "dlsys"
_CONFIG = f"""\
from pathlib import Path

here = str(Path(__file__).resolve().parent)
c = get_config()
c.CourseDirectory.root = here
c.CourseDirectory.course_id = "{COURSE}"
c.Exchange.root = here  # unused, but nbgrader complains of a folder that it cannot write to
c.FormgradeExtension.debug = False
"""


def update(
    folder: Path,
    assignments: Mapping[str, Assignment],
    results: Sequence[Result],
    due: datetime | None = None,
) -> None:
    """Write the results that are graded to the gradebook of `folder`, and the notebooks to grade.

    What a person entered stays; where the answer has changed since, it waits to be graded again
    with the old score shown. Nothing is removed, and a result that is not graded adds nothing.
    `due` is in UTC where it names no time zone. Raises ValueError where the gradebook is unusable.
    """
    from dlsys.grading.reports.gradebook_rows import enter_assignment, enter_results, enter_students

    course = folder / "nbgrader"
    write(course / "nbgrader_config.py", _CONFIG)
    for slug, assignment in assignments.items():
        # The formgrader offers what it finds in source/.
        write(course / "source" / slug / f"{slug}.ipynb", notebook(assignment, None))
    pages = {
        course / "autograded" / file_name(result.student) / result.slug / f"{result.slug}.ipynb": (
            result,
            notebook(assignments[result.slug], result),
        )
        for result in results
        if result.status == GRADED and result.slug in assignments
    }
    with _session(course) as session:
        enter_students(session, {result.student for result, _ in pages.values()})
        for slug, assignment in assignments.items():
            cells = enter_assignment(session, assignment, COURSE, due)
            enter_results(
                session,
                cells,
                [(r, _read(page), new) for page, (r, new) in pages.items() if r.slug == slug],
            )
        session.commit()
    # After the database: a run that ends in between will find the changed answers changed still.
    for page, (_, new) in pages.items():
        write(page, new)


def manual_scores(folder: Path) -> dict[tuple[str, str, str], tuple[float | None, str]]:
    """The score and comment by (student, slug, question) of what a person grades, or has graded.

    These are the written answers, those left empty apart, and each question graded by running to
    which a person gave other points or a comment. The score is None until there is one for the
    answer as it is now. Raises ValueError where the gradebook is unusable.
    """
    course = folder / "nbgrader"
    if not (course / "gradebook.db").is_file():
        return {}
    from nbgrader.api import Comment, Grade, GradeCell, SolutionCell

    found: dict[tuple[str, str, str], tuple[float | None, str]] = {}
    outdated = set()  # a comment on an answer that is no more
    with _session(course) as session:
        scores = (Grade.auto_score, Grade.manual_score, Grade.extra_credit)
        grades = _of_students(Grade, GradeCell, *scores, Grade.needs_manual_grade)
        for student, slug, cell, auto, manual, extra, waits in session.execute(grades):
            key = (_name(student), slug, cell)
            if waits and manual is not None:
                outdated.add(key)
            if waits:
                found[key] = (None, "")
            elif manual is not None or extra:
                found[key] = ((auto if manual is None else manual) + (extra or 0.0), "")
        comments = _of_students(Comment, SolutionCell, Comment.manual_comment)
        for student, slug, cell, comment in session.execute(comments):
            key = (_name(student), slug, cell)
            if comment and key not in outdated:
                found[key] = (found.get(key, (None, ""))[0], comment)
    return found


def _of_students(table: Any, cell: Any, *columns: Any) -> Any:
    """The query for `columns` of grades or comments, after whose they are and of which cell."""
    from nbgrader.api import Assignment, Student, SubmittedAssignment, SubmittedNotebook
    from sqlalchemy import func, select

    return (
        select(func.coalesce(Student.lms_user_id, Student.id), Assignment.name, cell.name, *columns)
        .select_from(table)
        .join(cell, cell.id == table.cell_id)
        .join(SubmittedNotebook, SubmittedNotebook.id == table.notebook_id)
        .join(SubmittedAssignment, SubmittedAssignment.id == SubmittedNotebook.assignment_id)
        .join(Assignment, Assignment.id == SubmittedAssignment.assignment_id)
        .join(Student, Student.id == SubmittedAssignment.student_id)
    )


def _name(student: str) -> str:
    """The student's name, which `enter_students` keeps in JSON where it is not the id."""
    return str(json.loads(student)) if student.startswith('"') else student


@contextlib.contextmanager
def _session(course: Path) -> Iterator[Any]:
    """A session of the gradebook, which is made where there is none."""
    import sqlite3

    from alembic.script import ScriptDirectory
    from nbgrader.api import Gradebook
    from nbgrader.dbutil import ALEMBIC_DIR
    from sqlalchemy import URL
    from sqlalchemy.exc import SQLAlchemyError

    database = (course / "gradebook.db").absolute()
    try:
        with contextlib.closing(sqlite3.connect(database)) as made, made:
            # nbgrader would ask a command of alembic's, which need not be on the PATH.
            if not made.execute("SELECT 1 FROM sqlite_master").fetchone():
                made.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
                head = ScriptDirectory(ALEMBIC_DIR).get_current_head()
                made.execute("INSERT INTO alembic_version VALUES (?)", [head])
        with Gradebook(URL.create("sqlite", database=str(database)), course_id=COURSE) as gradebook:
            yield gradebook.db
    except (SQLAlchemyError, sqlite3.Error) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(
            f"The gradebook {database} cannot be used: {reason}. Close the formgrader if it is "
            "open, or move the gradebook's folder away to begin a new one."
        ) from error


def _read(page: Path) -> str:
    try:
        return page.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
