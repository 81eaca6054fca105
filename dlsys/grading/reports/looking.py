"""What a person has to look at: sentences on a class, and a page of them, `look_at.html`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dlsys.files import write as write_file
from dlsys.grading.assignment import Assignment
from dlsys.grading.course.grade import Grade
from dlsys.grading.reports.feedback import environment
from dlsys.grading.result import LOOK, NOT_GRADED, REFUSED
from dlsys.grading.text import file_name

PAGE = "look_at.html"


def asking(grade: Grade) -> list[str]:
    """The sentences on a grade that ask for a person: that nothing was graded and why, the notes
    that end with `LOOK`, and points beyond what a question has."""
    result = grade.result
    without = result.status in (REFUSED, NOT_GRADED)
    return [
        *([f"{result.status}: {result.reason}"] if without else []),
        *(note.removesuffix(LOOK).strip() for note in result.notes if note.endswith(LOOK)),
        *grade.beyond,
    ]


def write(out: Path, grades: Sequence[Grade], assignments: Mapping[str, Assignment]) -> None:
    """Write `look_at.html` in `out`, with a link to the feedback of each student on it."""
    rows = [
        (grade, file_name(grade.result.student), said)
        for grade in grades
        if (said := asking(grade))
    ]
    template = environment().get_template("look_at.html")
    titles = {slug: each.title for slug, each in assignments.items()}
    write_file(out / PAGE, template.render(rows=rows, titles=titles))
