"""Each solution, each released notebook and one of wrong answers, through the real grader.

All wrong answers go through it in `test_banks`, which takes longer.
"""

from __future__ import annotations

import pytest

from dlsys.grading.result import GRADED, Result
from tests.exercises.notebooks import slugs
from tests.grading.attacks import BLANK, SOLVED, Attack, points
from tests.grading.graded import (
    assert_that_wrong_answers_alone_cost_points,
    graded,
    wrong_notebooks,
)

Results = dict[tuple[str, str], Result]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    every = (
        each
        for slug in slugs()
        for each in (Attack(SOLVED, slug), Attack(BLANK, slug, BLANK), wrong_notebooks(slug)[0])
    )
    return graded(every, tmp_path_factory.mktemp("notebooks"))


@pytest.mark.parametrize("slug", slugs())
def test_the_solution_has_full_marks(slug: str, results: Results) -> None:
    found = {each.id: each.earned for each in results[slug, SOLVED].questions}
    assert found == points(slug)


@pytest.mark.parametrize("slug", slugs())
def test_the_released_notebook_has_no_point(slug: str, results: Results) -> None:
    result = results[slug, BLANK]
    assert result.status == GRADED
    assert {each.earned for each in result.questions} == {0}


@pytest.mark.parametrize("slug", slugs())
def test_a_wrong_answer_to_every_question_has_less_than_full_marks(
    slug: str, results: Results
) -> None:
    first, *_ = wrong_notebooks(slug)
    assert first.answers.keys() == points(slug).keys()
    assert_that_wrong_answers_alone_cost_points(first, results[slug, first.name])
