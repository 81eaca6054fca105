"""One notebook of wrong answers to every question of a slug, through the real grader.

The solutions, the released notebooks and all wrong answers go through it in `test_banks`, which
takes longer.
"""

from __future__ import annotations

import pytest

from dlsys.grading.result import Result
from tests.exercises.notebooks import slugs
from tests.grading.attacks import points
from tests.grading.graded import (
    assert_that_wrong_answers_alone_cost_points,
    graded,
    wrong_notebooks,
)

Results = dict[tuple[str, str], Result]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    every = (wrong_notebooks(slug)[0] for slug in slugs())
    return graded(every, tmp_path_factory.mktemp("notebooks"))


@pytest.mark.parametrize("slug", slugs())
def test_a_wrong_answer_to_every_question_has_less_than_full_marks(
    slug: str, results: Results
) -> None:
    first, *_ = wrong_notebooks(slug)
    assert first.answers.keys() == points(slug).keys()
    assert_that_wrong_answers_alone_cost_points(first, results[slug, first.name])
