"""Arguments checked where they come in: every refusal is one sentence, and all are written here.

`<name> is <value>; it must be <what is allowed>.` A check takes the name that its caller's reader
knows, and raises ValueError; TypeError where its caller says so.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sized
from numbers import Rational, Real
from sys import float_info
from typing import NoReturn, SupportsIndex

_LARGEST = int(float_info.max)
_MOST = f"at most {float_info.max:.2g}, the largest number that is computed with"
_NEAR = 10_000  # how far from a number of parts others are looked for


class UnknownNameError(KeyError, ValueError):
    """A name that a catalogue does not hold; its text is a sentence with the nearest names."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would put quotes round the sentence.
        return str(self.args[0])


def refuse(name: str, value: object, allowed: str, error: type[Exception] = ValueError) -> NoReturn:
    """Raise the error that says what came as `name`, and what must."""
    refuse_what(name, shown(value), allowed, error)


def refuse_what(
    name: str, what: str, allowed: str, error: type[Exception] = ValueError
) -> NoReturn:
    """`refuse` for a value that is told in words, as a tensor is."""
    raise error(f"{name} is {what}; it must be {allowed}.")


def shown(value: object, most: int = 80) -> str:
    """The repr of whatever came, in a line of at most `most` letters."""
    try:
        text = " ".join(repr(value).split())
    except (
        Exception
    ):  # Python writes no number of 4,300 digits, and a class may fail to write itself
        text = f"a {type(value).__name__} too long to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def at_least(name: str, value: float, least: float) -> None:
    """Check that `value` is a finite number of at least `least`."""
    if not (_finite(value) and value >= least):
        _refuse_number(name, value, f"a finite number of at least {least:g}")


def finite(name: str, value: float) -> None:
    """Check that `value` is a finite number, of any sign."""
    if not _finite(value):
        _refuse_number(name, value, "a finite number")


def positive(name: str, value: float) -> None:
    """Check that `value` is a finite number above zero."""
    if not (_finite(value) and value > 0):
        _refuse_number(name, value, "a finite number above zero")


def plain(value: object) -> object:
    """Python's own number, where `value` is NumPy's, or an array or a tensor of no dimension.

    NumPy's would round or overflow in what is computed with it. Anything else is given back as it
    is, as is a tensor that a gradient is asked for, and one that holds no number.
    """
    if type(value) in (int, float) or getattr(value, "shape", None) != ():
        return value
    if getattr(value, "requires_grad", False):
        return value
    try:
        number: object = value.item()  # type: ignore[attr-defined]
    except Exception:  # it is no array, or on torch's device meta
        return value
    return number if type(number) in (int, float) else value


def index_of(value: object) -> int | None:
    """`value`, of any integer type, as an int; None where it is no whole number, or a bool."""
    value = plain(value)
    if type(value) is int:
        return value
    if isinstance(value, bool) or hasattr(value, "shape"):  # a list of one is no number
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def count(name: str, value: SupportsIndex, least: int = 1, most: int | None = None) -> int:
    """`value`, of any integer type, as an int, unless it is below `least` or above `most`.

    Where there is no `most`, it is the largest number that a float can be.
    """
    number = index_of(value)
    if number is None or number < least:
        refuse(name, value, f"a whole number of at least {least}")
    if number > (_LARGEST if most is None else most):
        refuse(name, value, _MOST if most is None else f"at most {most:,}")
    return number


def counts(holder: object, *names: str, least: int = 1, most: int | None = None) -> None:
    """`count` for these fields of a frozen dataclass, which holds them as ints afterwards."""
    for name in names:
        # The way to set a field of a frozen class, whose own __setattr__ refuses.
        object.__setattr__(holder, name, count(name, getattr(holder, name), least, most))


def whole(name: str, value: SupportsIndex) -> int:
    """`value`, of any integer type and any sign, as an int."""
    number = index_of(value)
    if number is None or abs(number) > _LARGEST:
        refuse(name, value, f"a whole number{'' if number is None else f' of {_MOST}'}")
    return number


def fraction(name: str, value: float) -> None:
    """Check that `value` is a number from 0 to 1."""
    if not (_finite(value) and 0 <= value <= 1):
        refuse(name, value, "a fraction, from 0 to 1")


def some(name: str, values: object) -> None:
    """Check that a sequence, a dictionary or an array is not empty."""
    if not (_length(values) if isinstance(values, Sized) else values):
        raise ValueError(f"{name} is {shown(values)}; it must have at least one.")


def flag(name: str, value: object) -> None:
    """Check that `value` is True or False, Python's or NumPy's."""
    if type(value).__name__ != "bool":
        refuse(name, value, "True or False")


def text(name: str, value: object) -> None:
    """Check that `value` is text."""
    if not isinstance(value, str):
        refuse(name, value, "text")


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence that says `name` is no known `kind`, with the nearest known names."""
    names = list(known)
    near = difflib.get_close_matches(shown(name).strip("'").lower(), names, n=3, cutoff=0.5)
    advice = (
        f"did you mean {' or '.join(map(repr, near))}?" if near else "no known name is near it."
    )
    return f"There is no {kind} {shown(name)}; {advice} Known: {', '.join(names)}."


def divisor(
    name: str,
    value: SupportsIndex,
    split: Mapping[str, int],
    shared: Mapping[str, int] | None = None,
) -> int:
    """`value` as an int, a number of parts that everything in `split` divides into evenly.

    `split` maps what is split ("heads") to its number; in `shared` stands what may also be copied
    where there are more parts than pieces (key-value heads): the number of parts divides it or is a
    multiple of it. Raises ValueError, naming both numbers and the nearest number of parts that
    work.
    """
    parts, shared = count(name, value), shared or {}

    def works(d: int) -> bool:
        cut = all(number % d == 0 for number in split.values())
        return cut and all(number % d == 0 or d % number == 0 for number in shared.values())

    if works(parts):
        return parts
    numbers, largest = {**split, **shared}, math.gcd(*split.values())
    what = next(what for what, number in numbers.items() if number % parts)
    # 1 always works; above, no further than the eye would look.
    downward = range(min(parts - 1, largest), max(0, parts - _NEAR), -1)
    below = next(filter(works, downward), 1)
    above = next(filter(works, range(parts + 1, min(largest, parts + _NEAR) + 1)), below)
    nearest = f"{below} and {above}" if above != below else str(below)
    named = f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    raise ValueError(
        f"{numbers[what]} {what} do not divide by {named} of {parts}; the nearest that work: "
        f"{nearest}."
    )


def multiples_around(number: int, unit: int) -> str:
    """The multiples of `unit` on both sides of a number that is none: "8 and 16", or "8" below 8.

    For sentences that say what would divide.
    """
    below = number // unit * unit
    return f"{below} and {below + unit}" if below else str(unit)


def _length(values: Sized) -> int:
    try:
        return len(values)
    except TypeError:  # of an array of no dimension
        return 0


def _refuse_number(name: str, value: object, allowed: str) -> NoReturn:
    exact = isinstance(value, Rational) and not isinstance(value, bool)
    if exact and value > _LARGEST:  # type: ignore[operator]
        allowed = _MOST
    refuse(name, value, allowed)


def _finite(value: object) -> bool:
    kind = type(value)
    if kind is float:  # almost always a float or an int, and asking Real takes longer
        return math.isfinite(value)  # type: ignore[arg-type]
    if kind is int:
        return -_LARGEST <= value <= _LARGEST  # type: ignore[operator]
    try:
        # True is 1 to Python, and never what was meant.
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a fraction beyond every float
        return False
