"""Marks that are others than those of the run before, told from what to what and logged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlsys.files import write
from dlsys.grading.course.grade import Grade
from dlsys.grading.reports.tables import Cell, csv_text
from dlsys.grading.result import GRADED

LOG = "changes.csv"
_MARKS = "marks.json"  # what the run before gave
TOTAL, _LATE = "total", "late_penalty"
_Marks = Mapping[str, float | None]


@dataclass(frozen=True)
class Change:
    """A mark that changed: of a question by its id, of `late_penalty`, or the `total`; None where
    nothing is graded any more."""

    student: str
    slug: str
    of: str
    before: float | None
    after: float | None


def log(out: Path, grades: Sequence[Grade]) -> list[Change]:
    """The marks that changed since the run before, which are appended to `changes.csv` in `out`.

    What a submission gets when it is first seen is no change; what a person gives later is.
    """
    before = _read(out / _MARKS)
    now = {(g.result.slug, g.result.student): _marks(g) for g in grades}
    changes = [
        Change(student, slug, of, *pair)
        for (slug, student), marks in now.items()
        for of, pair in _changed(before.get(slug, {}).get(student, {}), marks).items()
    ]
    head: list[Cell] = ["when", "student", "assignment", "mark", "before", "after"]
    there = (out / LOG).exists()
    logged = (out / LOG).read_bytes().decode() if there else "\ufeff" + csv_text([head])
    when = datetime.now(UTC).isoformat(timespec="seconds")
    rows: list[list[Cell]] = [[when, c.student, c.slug, c.of, c.before, c.after] for c in changes]
    write(out / LOG, logged + csv_text(rows))
    kept = {slug: dict(of_slug) for slug, of_slug in before.items()}
    for (slug, student), marks in now.items():
        kept.setdefault(slug, {})[student] = marks
    write(out / _MARKS, json.dumps(kept, indent=1) + "\n")
    return changes


def _marks(grade: Grade) -> dict[str, float | None]:
    """The marks of a grade by what they are of, to the digits that tables show."""
    if grade.result.status != GRADED:
        return {TOTAL: None}
    marks = {**grade.points(), _LATE: grade.late_penalty, TOTAL: grade.total}
    return {of: None if mark is None else round(mark, 4) for of, mark in marks.items()}


def _changed(before: _Marks, now: _Marks) -> dict[str, tuple[float | None, float | None]]:
    """The marks that differ, where there were any before; None is for one that is not there."""
    differing = [of for of in sorted({*before, *now}) if before.get(of) != now.get(of)]
    return {of: (before.get(of), now.get(of)) for of in differing if before}


def _read(path: Path) -> Mapping[str, Mapping[str, _Marks]]:
    """The marks of the run before, by assignment and student; none where they cannot be read."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
