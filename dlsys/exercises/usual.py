"""The usual form of values that say the same as a number or a list, and are of another type."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

LONGEST = 100_000  # values of a range; a longer one stays what it is
_EMPTY: dict[Any, Any] = {}
_DICTIONARIES = (Counter, OrderedDict, defaultdict, MappingProxyType)
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))


def usual(value: Any) -> Any:
    """A fraction or a decimal as an int where it is whole and else a float, a complex number
    without an imaginary part as a float, a member of an enumeration of text or whole numbers as
    that; a range or a view of a dictionary as a list, the standard library's other dictionaries as
    one; anything else as it is. Exact types alone: others have their own methods.
    """
    kind = type(value)
    if issubclass(kind, Enum) and issubclass(kind, str | int):  # by no method of the class
        return str.__str__(value) if issubclass(kind, str) else int.__int__(value)
    if kind is complex and value.imag == 0:
        return value.real
    if kind in _DICTIONARIES:
        return dict(value)
    if kind is Fraction:
        try:
            return value.numerator if value.denominator == 1 else float(value)
        except OverflowError:  # beyond every float
            return value
    if kind is Decimal:
        if value.is_nan():
            return float("nan")
        is_whole = abs(value.adjusted()) < 400 and value == value.to_integral_value()
        return int(value) if is_whole and value.is_finite() else float(value)
    if kind in _VIEWS or (kind is range and value[LONGEST:] == range(0)):
        return list(value)
    return value
