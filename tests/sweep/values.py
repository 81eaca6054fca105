"""Forty kinds of value that somebody passes: each is made anew, some out of the right value."""

from __future__ import annotations

import decimal
import enum
import fractions
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from dlsys import world


class Value(NamedTuple):
    """What is passed, and the plain value that it is equal to, where there is one."""

    passed: Any
    plain: Any = None
    has_plain: bool = False


class Unwritable:
    """What fails to write itself."""

    def __repr__(self) -> str:
        raise RuntimeError("no words for it")


class Three(enum.IntEnum):
    """A whole number with a name."""

    three = 3


class MyFloat(float):
    """A float of one's own."""


def _as_number(kind: Callable[[Any], Any]) -> Callable[[Any], Value]:
    """The right value, or 3 where it is no number that fits, as a number of another kind."""

    def make(right: Any) -> Value:
        for number in (right, 3):
            if type(number) not in (int, float):
                continue
            try:
                passed = kind(number)
                plain = int(passed) if type(number) is int else float(passed)
            except (ValueError, TypeError, OverflowError, RuntimeError):
                continue
            if passed == plain and math.isfinite(plain):
                return Value(passed, plain, True)
        return Value(kind(3), 3, True)

    return make


def _whole(kind: Callable[[int], Any]) -> Callable[[Any], Any]:
    def make(number: Any) -> Any:
        if type(number) is not int:
            raise TypeError
        return kind(number)

    return make


def _as_sequence(kind: Callable[[list[Any]], Any]) -> Callable[[Any], Value]:
    """The right value, or [1, 2] where it is no list of numbers, as a sequence of another kind."""

    def make(right: Any) -> Value:
        if isinstance(right, list | tuple) and right:
            try:
                passed = kind(list(right))
                return Value(passed, passed.tolist() if hasattr(passed, "tolist") else right, True)
            except (ValueError, TypeError, RuntimeError):
                pass
        return Value(kind([1, 2]))

    return make


def _always(make: Callable[[], Any]) -> Callable[[Any], Value]:
    return lambda right: Value(make())


# Of a world that has ended, of another rank than any call is made in.
ANOTHER = world.simulate(lambda comm: comm, 2).results[1]

KINDS: dict[str, Callable[[Any], Value]] = {
    "None": _always(lambda: None),
    "True": _always(lambda: True),
    "NumPy's True": _always(lambda: np.True_),
    "0": _always(lambda: 0),
    "-1": _always(lambda: -1),
    "0.5": _always(lambda: 0.5),
    "1e308": _always(lambda: 1e308),
    "5e-324": _always(lambda: 5e-324),
    "10**12": _always(lambda: 10**12),
    "10**400": _always(lambda: 10**400),
    "NaN": _always(lambda: math.nan),
    "inf": _always(lambda: math.inf),
    "-inf": _always(lambda: -math.inf),
    "NumPy's NaN": _always(lambda: np.float32("nan")),
    "an int8": _as_number(_whole(np.int8)),
    "a uint8": _as_number(_whole(np.uint8)),
    "an int64": _as_number(_whole(np.int64)),
    "a float16": _as_number(np.float16),
    "a float32": _as_number(np.float32),
    "a float64": _as_number(np.float64),
    "a tensor of no dimension": _as_number(torch.tensor),
    "an array of no dimension": _as_number(np.array),
    "a tensor of one": _always(lambda: torch.tensor([3])),
    "an array of one": _always(lambda: np.array([3])),
    "an empty tensor": _always(lambda: torch.ones(0)),
    "an empty array": _always(lambda: np.ones(0)),
    "a tensor of true": _always(lambda: torch.tensor(True)),
    "a tensor without numbers": _always(lambda: torch.ones(2, 3, device="meta")),
    "a sparse tensor": _always(lambda: torch.ones(2, 3).to_sparse()),
    "a fraction": _as_number(fractions.Fraction),
    "a third": _always(lambda: fractions.Fraction(1, 3)),
    "a decimal": _as_number(decimal.Decimal),
    "a complex number": _always(lambda: 3 + 0j),
    "a whole number with a name": lambda right: Value(Three.three, 3, True),
    "a float of one's own": _as_number(MyFloat),
    "text": _always(lambda: "4"),
    "no text": _always(lambda: ""),
    "long text": _always(lambda: "a" * 100_000),
    "text that no file holds": _always(lambda: "\ud800\0"),
    "bytes": _always(lambda: b"4"),
    "an object": _always(object),
    "what fails to write itself": _always(Unwritable),
    "a function": _always(lambda: abs),
    "a class": _always(lambda: int),
    "[]": _always(list),
    "{}": _always(dict),
    "a set": _always(lambda: {1, 2}),
    "[None]": _always(lambda: [None]),
    "[-1]": _always(lambda: [-1]),
    "[NaN]": _always(lambda: [math.nan]),
    "a list in itself": _always(lambda: _in_itself()),
    "the same as a tuple": _as_sequence(tuple),
    "the same as an array": _as_sequence(np.array),
    "the same as a tensor": _as_sequence(torch.tensor),
    "the same, once": _as_sequence(iter),
    "another rank's communicator": _always(lambda: ANOTHER),
}
CALLABLE = {"a function", "a class"}


def _in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found
