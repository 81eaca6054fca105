"""Everything that a run writes for people and platforms, from the records of a class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlsys.grading.course.grade import NOT_ISOLATED, Grade, Penalty
from dlsys.grading.course.records import Record
from dlsys.grading.course.run import Class
from dlsys.grading.files import write
from dlsys.grading.reports import feedback, gradebook, platforms, tables
from dlsys.grading.reports.statistics import Item, items
from dlsys.grading.text import file_name


@dataclass(frozen=True)
class Reports:
    """What the reports say: every grade, and how every question did."""

    grades: Sequence[Grade]
    items: Sequence[Item]


def write_reports(out: Path, result: Class) -> Reports:
    """Bring the gradebook up to date, take what people entered there, and write every report:
    grades.csv and items.csv (see `tables`), canvas/SLUG.csv, moodle/SLUG.csv and
    gradescope/SLUG/STUDENT/results.json (see `platforms`), feedback/STUDENT.html (see `feedback`).
    """
    results = [record.result for record in result.records]
    for due, slugs in _by_due(result).items():
        assignments = {slug: result.assignments[slug] for slug in slugs}
        moment = None if due is None else datetime.fromtimestamp(due, UTC)
        gradebook.update(out, assignments, results, moment)
    scores = gradebook.manual_scores(out)
    given: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (student, slug, question), (score, _) in scores.items():
        if score is not None:
            given[student, slug][question] = score
    grades = [_grade(result, record, given) for record in result.records]
    reports = Reports(grades, items(results, given))

    isolation = NOT_ISOLATED if any(g.isolation == NOT_ISOLATED for g in grades) else "isolated"
    tables.write_grades(out / "grades.csv", grades, result.assignments)
    tables.write_items(out / "items.csv", reports.items, isolation)
    for slug, assignment in result.assignments.items():
        write(out / "canvas" / f"{slug}.csv", platforms.canvas(grades, assignment))
        write(out / "moodle" / f"{slug}.csv", platforms.moodle(grades, assignment))
    for grade in grades:
        place = Path(grade.result.slug, file_name(grade.result.student), "results.json")
        content = platforms.gradescope(grade)
        if content is not None:
            write(out / "gradescope" / place, content)
    comments = {key: comment for key, (_, comment) in scores.items()}
    by_student: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        by_student[grade.result.student].append(grade)
    for own in by_student.values():
        feedback.write(out, own, result.assignments, comments)
    return reports


def _by_due(result: Class) -> Mapping[float | None, list[str]]:
    found: dict[float | None, list[str]] = {}
    for slug in result.assignments:
        found.setdefault(result.run.deadlines.get(slug, (None, None))[0], []).append(slug)
    return found


def _grade(
    result: Class, record: Record, given: Mapping[tuple[str, str], Mapping[str, float]]
) -> Grade:
    student, slug = record.result.student, record.result.slug
    due, late = result.run.deadlines.get(slug, (None, None))
    by_hand = given.get((student, slug), {})
    times = record.submitted, due
    return Grade(record.result, record.person, *times, by_hand, _penalty(late), record.listed)


def _penalty(late: str | None) -> Penalty | None:
    if late is None:
        return None
    from dlsys.grading.course.late import parse_rate

    return parse_rate(late).penalty
