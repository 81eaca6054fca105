"""Everything that a run writes for people and platforms, from the records of a class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dlsys.grading.course.grade import NOT_ISOLATED, Grade, Penalty
from dlsys.grading.course.records import Record
from dlsys.grading.course.run import Class
from dlsys.grading.reports import exporting, feedback, gradebook, looking, marks, platforms, tables
from dlsys.grading.reports.exporting import Exporter
from dlsys.grading.reports.marks import Change
from dlsys.grading.reports.statistics import Item, items
from dlsys.grading.times import extended


@dataclass(frozen=True)
class Reports:
    """What the reports say: every grade, and how every question did; `failed` are sentences on
    what could not be written or taken into account, `changes` the marks that were others before."""

    grades: Sequence[Grade]
    items: Sequence[Item]
    failed: Sequence[str] = ()
    changes: Sequence[Change] = ()


def write_reports(
    out: Path, result: Class, exporters: Mapping[str, Exporter] | None = None
) -> Reports:
    """Bring the gradebook up to date, take what people entered there, and write every report:
    grades.csv and items.csv (see `tables`), changes.csv (see `marks`), look_at.html (see
    `looking`), canvas/SLUG.csv, moodle/SLUG.csv and gradescope/SLUG/STUDENT/results.json (see
    `platforms`), feedback/STUDENT.html (see `feedback`).

    exporters: more of them, by name; see `exporting`
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
    policies = {late: _penalty(late) for _, late in result.run.deadlines.values() if late}
    grades = [_grade(result, record, given, policies) for record in result.records]
    statistics = items(results, given)

    isolation = NOT_ISOLATED if any(g.isolation == NOT_ISOLATED for g in grades) else "isolated"
    tables.write_grades(out / "grades.csv", grades, result.assignments)
    tables.write_items(out / "items.csv", statistics, isolation)
    changes = marks.log(out, grades)
    looking.write(out, grades, result.assignments)
    comments = {key: comment for key, (_, comment) in scores.items()}
    by_student: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        by_student[grade.result.student].append(grade)
    for own in by_student.values():
        feedback.write(out, own, result.assignments, comments)
    failed = [
        f"{grade.result.student} ({grade.result.slug}): {grade.policy_failed}"
        for grade in grades
        if grade.policy_failed
    ]
    for name, exporter in {**platforms.EXPORTERS, **(exporters or {})}.items():
        failed += exporting.export(out, name, exporter, grades, result.assignments)
    return Reports(grades, statistics, failed, changes)


def _by_due(result: Class) -> Mapping[float | None, list[str]]:
    found: dict[float | None, list[str]] = {}
    for slug in result.assignments:
        found.setdefault(result.run.deadlines.get(slug, (None, None))[0], []).append(slug)
    return found


def _grade(
    result: Class,
    record: Record,
    given: Mapping[tuple[str, str], Mapping[str, float]],
    policies: Mapping[str, Penalty],
) -> Grade:
    student, slug = record.result.student, record.result.slug
    due, late = result.run.deadlines.get(slug, (None, None))
    by_hand = given.get((student, slug), {})
    times = record.submitted, None if due is None else extended(due, record.extension)
    return Grade(
        record.result, record.person, *times, by_hand, policies.get(late or ""), record.listed
    )


def _penalty(late: str) -> Penalty:
    from dlsys.grading.course.late import policy

    try:
        return policy(late)
    except ValueError as error:
        return partial(_fail, str(error))  # of a file that was there when it was named


def _fail(sentence: str, score: float, seconds_late: float) -> float:
    if seconds_late > 0:
        raise ValueError(sentence)
    return 0.0
