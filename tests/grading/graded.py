"""Notebooks of a bank's answers, through the real grader all at once."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from dlsys.grading.course.records import load_all
from dlsys.grading.course.run import Plan, boxes, grade
from dlsys.grading.result import Result
from tests.exercises.notebooks import ROOT, load, slugs
from tests.exercises.wrong_answers import Wrong, bank, right_answers
from tests.grading.attacks import EMPTY, Attack, points
from tests.grading.boxes import needed

RIGHT_BESIDE = 3


def wrong_notebooks(slug: str) -> list[Attack]:
    """Notebooks that hold wrong answers of an assignment, one to each question.

    A question that has no more of them is answered rightly in three, and then left empty: it would
    be run again for nothing.
    """
    several = bank(slug)
    return [
        replace(
            each,
            answers={
                **each.answers,
                **{q: EMPTY for q, wrong in several.items() if number >= len(wrong) + RIGHT_BESIDE},
            },
        )
        for number, each in enumerate(_notebooks("wrong", slug, several))
    ]


def right_notebooks(slug: str) -> list[Attack]:
    """Notebooks that hold its right answers that are not the solution's, one to each question."""
    return _notebooks("right", slug, right_answers(slug))


def _notebooks(name: str, slug: str, answers: Mapping[str, list[Wrong]]) -> list[Attack]:
    columns = [[(q, w) for w in several] for q, several in answers.items()]
    sources = {cell["id"]: "".join(cell["source"]) for cell in load("solutions", slug)["cells"]}
    return [
        Attack(
            f"{name}-{number}",
            slug,
            answers={q: wrong.cell(sources[q]) for q, wrong in filter(None, row)},
            cells={},
        )
        for number, row in enumerate(zip_longest(*columns))
    ]


def graded(notebooks: Iterable[Attack], base: Path) -> dict[tuple[str, str], Result]:
    """What the grader makes of a class that hands these in, by slug and name."""
    for each in notebooks:
        each.write(base / "submissions")
    try:
        with needed():
            grade(
                ROOT,
                base / "submissions",
                slugs(),
                base / "out",
                plan=Plan(seed=3, jobs=2),
                progress=lambda done, of, what: None,
                opener=boxes,
                finish=lambda done: None,
            )
    finally:
        shutil.rmtree(base / "submissions")
    return {
        (slug, student): record.result
        for slug in slugs()
        for student, record in load_all(base / "out", slug).items()
    }


def assert_that_wrong_answers_alone_cost_points(attack: Attack, result: Result) -> None:
    """A wrong answer has less than full points, each other question all of them."""
    full = points(attack.slug)
    assert attack.answers.keys() <= full.keys() == {each.id for each in result.questions}
    for question in result.questions:
        if question.id in attack.answers:
            assert question.earned < full[question.id], (attack.name, question.id)
        else:
            assert question.earned == full[question.id], (attack.name, question.id)
