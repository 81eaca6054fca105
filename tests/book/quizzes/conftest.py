"""Gives the tests of `contract` what their file says and what the quiz of its slug asks."""

import json
from typing import Any

import pytest

from tests.book.quizzes import QUIZZES

# Not a test file by its name: without this its asserts would not say what was compared.
pytest.register_assert_rewrite("tests.book.quizzes.contract")


def pytest_generate_tests(metafunc: Any) -> None:
    slug = metafunc.module.__name__.rpartition(".test_")[2]
    if "slug" in metafunc.fixturenames:
        metafunc.parametrize("slug", [slug])
    if "question" in metafunc.fixturenames:
        questions = json.loads((QUIZZES / f"{slug}.json").read_text(encoding="utf-8"))
        metafunc.parametrize("question", questions, ids=[each["id"] for each in questions])


@pytest.fixture
def numbers(request: Any) -> dict[str, float]:
    return request.module.NUMBERS


@pytest.fixture
def misconceptions(request: Any) -> dict[str, dict[str, float]]:
    return request.module.MISCONCEPTIONS
