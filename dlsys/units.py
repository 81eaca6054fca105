"""Bytes, bits, FLOPs and seconds: built from named units, read from text, and shown in text.

Every quantity in the package is a plain number in bytes, seconds or FLOPs. The names here keep
two confusions out: GB (10^9 bytes) against GiB (2^30 bytes), and Gb (10^9 bits) against GB.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import SupportsIndex, TypeVar

KILO, MEGA, GIGA, TERA, PETA, EXA = 1e3, 1e6, 1e9, 1e12, 1e15, 1e18
KIB, MIB, GIB, TIB, PIB = 2**10, 2**20, 2**30, 2**40, 2**50
BITS_PER_BYTE = 8
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
YEAR = 365.25 * DAY

_DECIMAL = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15, "EB": 10**18}
_BINARY = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB}
_BITS = {"bit": 0.125, "kb": 125.0, "Mb": 125e3, "Gb": 125e6, "Tb": 125e9}
_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": MINUTE, "h": HOUR, "days": DAY}
_FLOPS = {  # FLOP, kFLOP, ... ZFLOP: a prefix is three powers of ten more than the last
    f"{p}FLOP": 10.0 ** (3 * i) for i, p in enumerate(["", "k", "M", "G", "T", "P", "E", "Z"])
}

_BYTE_UNITS = {**_DECIMAL, "KB": 10**3, **_BINARY, **_BITS}
_SECOND_UNITS = {**_SECONDS, "us": 1e-6, "d": DAY, "day": DAY, "years": YEAR, "year": YEAR}
_FLOP_UNITS = {**_FLOPS, **{f"{unit}s": size for unit, size in _FLOPS.items()}}
# A number, a unit, and perhaps "/s".
_QUANTITY = re.compile(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµμ]+)\s*(/\s*s)?\s*")

Value = TypeVar("Value")


class UnknownNameError(KeyError):
    """A name that a catalogue does not hold; its text is a sentence with the nearest names."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would put quotes round the sentence.
        return str(self.args[0])


class Catalogue(dict[str, Value]):
    """A dict of named things, of one `kind`, in which an unknown name is a helpful sentence."""

    def __init__(self, kind: str, entries: Mapping[str, Value]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: object) -> Value:
        raise UnknownNameError(unknown(self.kind, name, self))


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence that says `name` is no known `kind`, with the nearest known names."""
    names = list(known)
    near = difflib.get_close_matches(str(name).lower(), names, n=3, cutoff=0.5)
    advice = (
        f"did you mean {' or '.join(map(repr, near))}?" if near else "no known name is near it."
    )
    return f"There is no {kind} {name!r}; {advice} Known: {', '.join(names)}."


def at_least(name: str, value: float, least: float) -> None:
    """Check that `value` is a finite number of at least `least`; raises ValueError."""
    if not (_finite(value) and value >= least):
        raise ValueError(f"{name} is {value!r}; it must be at least {least:g}, and finite.")


def positive(name: str, value: float) -> None:
    """Check that `value` is a finite number above zero; raises ValueError."""
    if not (_finite(value) and value > 0):
        raise ValueError(f"{name} is {value!r}; it must be above zero, and finite.")


def count(name: str, value: SupportsIndex, least: int = 1) -> int:
    """`value`, of any integer type, as an int; raises ValueError unless it is at least `least`."""
    if not hasattr(value, "__index__") or isinstance(value, bool) or value.__index__() < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}.")
    return value.__index__()


def counts(holder: object, *names: str, least: int = 1) -> None:
    """`count` for these fields of a frozen dataclass, which holds them as ints afterwards."""
    for name in names:
        # The way to set a field of a frozen class, whose own __setattr__ refuses.
        object.__setattr__(holder, name, count(name, getattr(holder, name), least))


def gigabytes(number: float) -> float:
    """`number` GB in bytes: 1 GB = 10^9 bytes (decimal, as data sheets and networks count)."""
    return _scaled("gigabytes", number, GIGA)


def gibibytes(number: float) -> float:
    """`number` GiB in bytes: 1 GiB = 2^30 bytes, 7.4 % more than 1 GB."""
    return _scaled("gibibytes", number, GIB)


def gigabits(number: float) -> float:
    """`number` Gb in bytes: 1 Gb = 10^9 bits = 125,000,000 bytes."""
    return _scaled("gigabits", number, GIGA / BITS_PER_BYTE)


def gigabits_per_second(number: float) -> float:
    """A network's rate of `number` Gb/s in bytes per second: 100 Gb/s is 12.5 GB/s."""
    return _scaled("gigabits per second", number, GIGA / BITS_PER_BYTE)


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
    common = math.gcd(*split.values())  # its divisors divide everything that is split
    works = [
        d
        for d in range(1, common + 1)
        if common % d == 0 and all(n % d == 0 or d % n == 0 for n in shared.values())
    ]
    if parts in works:
        return parts
    numbers = {**split, **shared}
    what = next(what for what, number in numbers.items() if number % parts)
    below = max(d for d in works if d < parts)
    above = min((d for d in works if d > parts), default=below)
    nearest = f"{below} and {above}" if above != below else str(below)
    raise ValueError(
        f"{numbers[what]} {what} do not divide by a {name} of {parts}; the nearest that work: "
        f"{nearest}."
    )


def multiples_around(number: int, unit: int) -> str:
    """The multiples of `unit` on both sides of a number that is none: "8 and 16", or "8" below 8.

    For sentences that say what would divide.
    """
    below = number // unit * unit
    return f"{below} and {below + unit}" if below else str(unit)


def format_bytes(number: float, binary: bool = False) -> str:
    """Bytes as text with three digits: "1.12 TB", or "1.02 TiB" where `binary` is true.

    Raises ValueError where `number` is negative or not finite.
    """
    return _shown("bytes", number, _BINARY if binary else _DECIMAL)


def format_bandwidth(bytes_per_second: float) -> str:
    """Bytes per second as text, decimal as links are sold: "450 GB/s"."""
    return _shown("bytes per second", bytes_per_second, _DECIMAL) + "/s"


def format_flops(number: float) -> str:
    """FLOPs as text: "989 TFLOP"; beyond 1000 ZFLOP as a power of ten, "3.15e+24 FLOP"."""
    at_least("FLOPs", number, 0)
    return f"{number:.3g} FLOP" if number >= 1e24 else _shown("FLOPs", number, _FLOPS)


def format_seconds(number: float) -> str:
    """Seconds as text in the unit that suits: "13 µs", "3.75 ms", "19.7 days", "10.1 years"."""
    at_least("seconds", number, 0)
    if number == 0:
        return "0 s"
    if number >= YEAR:
        return f"{_three_digits(number / YEAR)} years"
    # Two minutes still read well in seconds, and two days in hours.
    scale = {u: s for u, s in _SECONDS.items() if s <= 1 or number >= 2 * s}
    return _shown("seconds", number, scale)


def parse_bytes(text: str) -> float:
    """Bytes from text such as "80 GB", "32 GiB", "100 Gb" (bits) or "100 Gb/s" (bytes/s).

    Letters count: B is bytes, b is bits. Raises ValueError where text is not such a quantity.
    """
    return _parsed(text, _BYTE_UNITS, "80 GB, 32 GiB or 100 Gb")


def parse_seconds(text: str) -> float:
    """Seconds from text such as "13 µs", "3.75 ms", "2 h" or "3 days"; raises ValueError."""
    return _parsed(text, _SECOND_UNITS, "13 µs, 3.75 ms or 2 h")


def parse_flops(text: str) -> float:
    """FLOPs from text such as "3 TFLOP", or FLOP/s from "989 TFLOP/s"; raises ValueError."""
    return _parsed(text, _FLOP_UNITS, "989 TFLOP/s or 3.1 EFLOP")


def _finite(value: object) -> bool:
    if type(value) is float or type(value) is int:  # almost always, and asking Real takes longer
        return math.isfinite(value)
    # True is 1 to Python, and never what was meant.
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _scaled(name: str, number: float, unit: float) -> float:
    at_least(name, number, 0)
    return number * unit


def _three_digits(number: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(number))) if number > 0 else 0
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _shown(name: str, number: float, units: Mapping[str, float]) -> str:
    at_least(name, number, 0)
    fitting = [unit for unit, size in units.items() if number >= size]
    unit = max(fitting, key=units.__getitem__) if fitting else min(units, key=units.__getitem__)
    larger = [other for other, size in units.items() if size > units[unit]]
    following = min(larger, key=units.__getitem__) if larger else None
    # 999.9 GB rounds to "1000 GB", which is better shown as "1 TB".
    if following and float(_three_digits(number / units[unit])) * units[unit] >= units[following]:
        unit = following
    return f"{_three_digits(number / units[unit])} {unit}"


def _parsed(text: str, units: Mapping[str, float], examples: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a quantity; write a number and a unit: {examples}.")
    unit = match[2].replace("μ", "µ")  # two code points look the same
    if unit not in units:
        raise ValueError(f"{text!r}: {unknown('unit', unit, units)}")
    try:
        return float(match[1]) * units[unit]
    except ValueError:
        raise ValueError(f"{text!r} does not start with a number; write {examples}.") from None
