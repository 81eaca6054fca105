"""Solutions, released notebooks and wrong answers of every bank, through the real grader."""

from __future__ import annotations

import pytest

from dlsys.grading.result import GRADED, Result
from tests.exercises.notebooks import slugs
from tests.exercises.wrong_answers import bank, right_answers
from tests.grading.attacks import BLANK, EMPTY, SOLVED, Attack, points
from tests.grading.graded import (
    assert_that_wrong_answers_alone_cost_points,
    graded,
    right_notebooks,
    wrong_notebooks,
)

Results = dict[tuple[str, str], Result]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    every = (
        each
        for slug in slugs()
        for each in (
            Attack(SOLVED, slug),
            Attack(BLANK, slug, BLANK),
            *wrong_notebooks(slug),
            *right_notebooks(slug),
        )
    )
    return graded(every, tmp_path_factory.mktemp("banks"))


@pytest.mark.parametrize("slug", slugs())
def test_the_solution_has_full_marks(slug: str, results: Results) -> None:
    found = {each.id: each.earned for each in results[slug, SOLVED].questions}
    assert found == points(slug)


@pytest.mark.parametrize("slug", slugs())
def test_a_right_answer_that_is_not_the_solutions_has_full_marks(
    slug: str, results: Results
) -> None:
    notebooks = right_notebooks(slug)
    for attack in notebooks:
        found = {each.id: each.earned for each in results[slug, attack.name].questions}
        assert found == points(slug), attack.name
    assert sum(len(attack.answers) for attack in notebooks) == sum(
        map(len, right_answers(slug).values())
    )


@pytest.mark.parametrize("slug", slugs())
def test_the_released_notebook_has_no_point(slug: str, results: Results) -> None:
    result = results[slug, BLANK]
    assert result.status == GRADED
    assert {each.earned for each in result.questions} == {0}


@pytest.mark.parametrize("slug", slugs())
def test_a_wrong_answer_has_less_than_full_marks(slug: str, results: Results) -> None:
    notebooks = wrong_notebooks(slug)
    for attack in notebooks:
        assert_that_wrong_answers_alone_cost_points(attack, results[slug, attack.name])
    tried = sum(source != EMPTY for attack in notebooks for source in attack.answers.values())
    assert tried == sum(map(len, bank(slug).values()))
