"""The numbers that a text says, and what each may mean."""

import re
from typing import NamedTuple

UNITS = {"percent": 1e-2, "%": 1e-2, "ms": 1e-3, "µs": 1e-6, "microseconds": 1e-6}
UNITS |= {"million": 1e6, "billion": 1e9, "B": 1e9, "trillion": 1e12, "kB": 1e3, "MB": 1e6}
UNITS |= {"GB": 1e9, "TB": 1e12, "TFLOP": 1e12, "Gb": 1e9}
UNITS |= {"megabytes": 1e6, "gigabytes": 1e9, "gigabits": 1e9}
_UNIT = "|".join(UNITS)
_NUMBER = re.compile(
    r"(?<![\w.-])(\d[\d,]*(?:\.\d+)?)(?![\w.-]*[A-Za-z]\d|-bit|\d)"
    rf"(?:(?=(?:,? (?:and |or |to )?\d[\d,.]*)*\s?({_UNIT})(?!\w)))?"
)


class Said(NamedTuple):
    """A number of a text: as it stands, where it begins, what it may mean (itself, or so many of
    the unit after it), and half of its last digit in either meaning."""

    words: str
    place: int
    meanings: tuple[float, float]
    half: tuple[float, float]


def numbers_in(text: str) -> list[Said]:
    """Return the numbers of a text, of which runs of white space count as one space."""
    found = []
    for match in _NUMBER.finditer(" ".join(text.split())):
        plain, unit = match[1].rstrip(","), UNITS.get(match[2], 1)
        value, half = float(plain.replace(",", "")), 0.5 * 10.0 ** -len(plain.partition(".")[2])
        found.append(Said(plain, match.start(), (value, value * unit), (half, half * unit)))
    return found
