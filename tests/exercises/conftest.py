"""Gives the tests of `contract` the slug that their file is named after, and its wrong answers."""

from typing import Any

import pytest

from tests.exercises.wrong_answers import Wrong, bank, module

# Not a test file by its name: without this its asserts would not say what was compared.
pytest.register_assert_rewrite("tests.exercises.contract")


def pytest_generate_tests(metafunc: Any) -> None:
    slug = metafunc.module.__name__.rpartition(".test_")[2]
    if "slug" in metafunc.fixturenames:
        metafunc.parametrize("slug", [slug])
    if "wrong" in metafunc.fixturenames:
        several = [(answer, wrong) for answer, each in bank(slug).items() for wrong in each]
        names = [f"{answer}-{wrong.misconception}" for answer, wrong in several]
        metafunc.parametrize(("answer", "wrong"), several, ids=names)
    if "otherwise" in metafunc.fixturenames:
        cases = [(answer, c) for answer, each in module(slug).OTHERWISE.items() for c in each]
        metafunc.parametrize(
            ("answer", "otherwise", "words"),
            [
                (answer, Wrong(name, source, "", *find), words)
                for answer, (name, source, words, *find) in cases
            ],
            ids=[f"{answer}-{case[0]}" for answer, case in cases],
        )
