"""What holds for the explorer of every chapter."""

import dataclasses
import importlib
import math
import re
from typing import Any

import pytest

from tests.exercises.notebooks import ROOT

CHOICES = {
    path.parent.name: importlib.import_module(f"dlsys.{path.parent.name}.explorer").Choice
    for path in sorted((ROOT / "dlsys").glob("*/explorer.py"))
}


def numbers(row: Any) -> list[float]:
    return [value for value in row if isinstance(value, float)]


@pytest.mark.parametrize("slug", CHOICES)
def test_the_ends_of_each_option_have_rows_and_words_without_a_number_that_is_none(
    slug: str,
) -> None:
    start = CHOICES[slug]()
    for name, (_, values) in start.options().items():
        for value in (values[0], values[-1]):
            choice = dataclasses.replace(start, **{name: value})
            rows = choice.rows()
            assert len(rows)
            assert not any(math.isnan(n) for row in rows for n in numbers(row)), (name, value)
            assert not re.search(r"\bnan\b", choice.summary()), (name, value)


@pytest.mark.parametrize("slug", CHOICES)
def test_what_an_explorer_does_not_have_is_refused_by_its_label(slug: str) -> None:
    start = CHOICES[slug]()
    for name, (label, _) in start.options().items():
        with pytest.raises(ValueError, match=rf"^There is no {re.escape(label.lower())} in the"):
            dataclasses.replace(start, **{name: "another"})
