"""A bad argument is called by its name, with what is allowed: the kinds of bad ones, and the check."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest

NO_NUMBERS = (True, False, math.nan, math.inf, -math.inf, "4", None)
IS = "^{called} is {bad}; "
IT_MUST_BE = IS + "it must be "


class Kind(NamedTuple):
    """What is refused, and a pattern of the sentence that says so, with {called}, {bad}, {function}."""

    refused: tuple[Any, ...]
    sentence: str

    def or_none(self) -> Kind:
        """The same where None is a right value."""
        return self._replace(refused=tuple(bad for bad in self.refused if bad is not None))


COUNT = Kind(
    (*NO_NUMBERS, 0, -1, 1.0, 1.5, 2.0, 2.5), IT_MUST_BE + r"a whole number of at least 1\."
)
COUNT_FROM_0 = Kind(
    (*NO_NUMBERS, -1, 0.5, 1.0, 2.0), IT_MUST_BE + r"a whole number of at least 0\."
)
AT_LEAST_0 = Kind((*NO_NUMBERS, -1, -0.5, -1.5), IT_MUST_BE + r"a finite number of at least 0\.")
ABOVE_ZERO = Kind((*NO_NUMBERS, -1, -1.5, 0, 0.0), IT_MUST_BE + r"a finite number above zero\.")
AT_MOST_1 = Kind((1.5, 2), IS + r"it (is a fraction,|must be) at most 1\b")


class Case(NamedTuple):
    """A function of which one argument is replaced by a bad value."""

    function: str
    called: str
    kind: Kind
    call: Callable[[Any], object]

    def check(self) -> None:
        """Assert that each bad value is refused with the sentence of its kind."""
        for bad in self.kind.refused:
            words = {"function": self.function, "called": self.called, "bad": repr(bad)}
            sentence = self.kind.sentence.format_map({k: re.escape(w) for k, w in words.items()})
            with pytest.raises(ValueError, match=sentence):
                self.call(bad)


def cases_of(function: str, call: Callable[..., object], /, **arguments: Any) -> list[Case]:
    """A case for each argument, given as (right value, kind), or with what it is called third."""
    right = {name: value for name, (value, *_) in arguments.items()}
    return [
        Case(function, (*called, name)[0], kind, lambda bad, name=name: call(**right | {name: bad}))
        for name, (_, kind, *called) in arguments.items()
    ]


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """Run a test on each case, known by its function and argument."""
    return pytest.mark.parametrize(
        "case", cases, ids=lambda case: f"{case.function}-{case.called}".replace(" ", "_")
    )
