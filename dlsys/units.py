"""Bytes, bits, FLOPs and seconds: built from named units, read from text, and shown in text.

Every quantity in the package is a plain number in bytes, seconds or FLOPs. The names here keep
two confusions out: GB (10^9 bytes) against GiB (2^30 bytes), and Gb (10^9 bits) against GB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TypeVar

from dlsys.annotated import checked
from dlsys.checks import UnknownNameError, at_least, refuse, unknown

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


class Catalogue(dict[str, Value]):
    """A dict of named things, of one `kind`, in which an unknown name is a helpful sentence."""

    @checked
    def __init__(self, kind: str, entries: Mapping[str, Value]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: object) -> Value:
        raise UnknownNameError(unknown(self.kind, name, self))


@checked
def gigabytes(number: float) -> float:
    """`number` GB in bytes: 1 GB = 10^9 bytes (decimal, as data sheets and networks count)."""
    return _scaled("gigabytes", number, GIGA)


@checked
def gibibytes(number: float) -> float:
    """`number` GiB in bytes: 1 GiB = 2^30 bytes, 7.4 % more than 1 GB."""
    return _scaled("gibibytes", number, GIB)


@checked
def gigabits(number: float) -> float:
    """`number` Gb in bytes: 1 Gb = 10^9 bits = 125,000,000 bytes."""
    return _scaled("gigabits", number, GIGA / BITS_PER_BYTE)


@checked
def gigabits_per_second(number: float) -> float:
    """A network's rate of `number` Gb/s in bytes per second: 100 Gb/s is 12.5 GB/s."""
    return _scaled("gigabits per second", number, GIGA / BITS_PER_BYTE)


@checked
def format_bytes(number: float, binary: bool = False) -> str:
    """Bytes as text with three digits: "1.12 TB", or "1.02 TiB" where `binary` is true.

    Raises ValueError where `number` is negative or not finite.
    """
    return _shown("bytes", number, _BINARY if binary else _DECIMAL)


@checked
def format_bandwidth(bytes_per_second: float) -> str:
    """Bytes per second as text, decimal as links are sold: "450 GB/s"."""
    return _shown("bytes per second", bytes_per_second, _DECIMAL) + "/s"


@checked
def format_flops(number: float) -> str:
    """FLOPs as text: "989 TFLOP"; beyond 1000 ZFLOP as a power of ten, "3.15e+24 FLOP"."""
    at_least("FLOPs", number, 0)
    return f"{number:.3g} FLOP" if number >= 1e24 else _shown("FLOPs", number, _FLOPS)


@checked
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


@checked
def parse_bytes(text: str) -> float:
    """Bytes from text such as "80 GB", "32 GiB", "100 Gb" (bits) or "100 Gb/s" (bytes/s).

    Letters count: B is bytes, b is bits. Raises ValueError where text is not such a quantity.
    """
    return _parsed(text, _BYTE_UNITS, "80 GB, 32 GiB or 100 Gb")


@checked
def parse_seconds(text: str) -> float:
    """Seconds from text such as "13 µs", "3.75 ms", "2 h" or "3 days"; raises ValueError."""
    return _parsed(text, _SECOND_UNITS, "13 µs, 3.75 ms or 2 h")


@checked
def parse_flops(text: str) -> float:
    """FLOPs from text such as "3 TFLOP", or FLOP/s from "989 TFLOP/s"; raises ValueError."""
    return _parsed(text, _FLOP_UNITS, "989 TFLOP/s or 3.1 EFLOP")


def _scaled(name: str, number: float, unit: float) -> float:
    at_least(name, number, 0)
    at_least(f"{name} in bytes", number * unit, 0)  # where they are too many to count
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
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if not match:
        refuse("text", text, f"a number and a unit: {examples}")
    unit = match[2].replace("μ", "µ")  # two code points look the same
    if unit not in units:
        raise ValueError(f"{text!r}: {unknown('unit', unit, units)}")
    try:
        quantity = float(match[1]) * units[unit]
    except ValueError:
        raise ValueError(f"{text!r} does not start with a number; write {examples}.") from None
    if math.isinf(quantity):
        raise ValueError(f"{text!r} is more than can be computed with; write {examples}.")
    return quantity
