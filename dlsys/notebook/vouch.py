"""Where a page's numbers come from: what code computes, its own question, or somebody's work.

`chapters/numbers/zero.py` vouches for `chapters/zero.md`. Each of its parts is named by a section,
and runs where that section ends, on the names that the page has there. It leaves nothing behind, so
no page needs it. `tests/book/test_chapters.py` holds the prose to what these files say.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import finite, refuse

TITLE = re.compile(r"^# %% (.+)$", re.MULTILINE)


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
    """A number of a text: as it stands, how far it reaches, what it may mean (itself, or so many of
    the unit after it), and half of its last digit."""

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


@checked
def says(words: str, *values: float) -> None:
    """The text has these words, and their numbers, in order, are these values: `says("24.5 GB",
    price.bytes_per_rank)`.

    Raises ValueError where a value is not what its number says, to the digit, or there is not one
    for each number.
    """
    numbers = numbers_in(words)
    if not numbers or len(numbers) != len(values):
        found = ", ".join(number.words for number in numbers) or "none"
        raise ValueError(f"{words!r} has the numbers {found}, and {len(values)} values were given.")
    for number, value in zip(numbers, values, strict=True):
        finite("A number that stands in the text", value)
        pairs = zip(number.meanings, number.half, strict=True)
        if not any(abs(value - meant) <= half * (1 + 1e-9) for meant, half in pairs):
            raise ValueError(f"{words!r} says {number.words}, and it is {value:.6g}.")


@checked
def given(*numbers: float) -> None:
    """Numbers that the text chooses, as the sizes of a question: they cannot be wrong.

    Raises ValueError for what is no finite number.
    """
    _check(numbers)


@checked
def sourced(*numbers: float, by: str) -> None:
    """Numbers of the world, which somebody published or measured.

    `by` begins with the key of an entry in `chapters/references.bib` ("dao2022, figure 2"), or with
    the file of this project in which the numbers stand ("bench/README.md"). Raises ValueError for
    what is no finite number, and where `by` names nobody.
    """
    _check(numbers)
    if not any(map(str.isalpha, by)):
        refuse("by", by, "the name of who published or measured the numbers")


def _check(numbers: tuple[float, ...]) -> None:
    for number in numbers:
        finite("A number that stands in the text", number)


class Part(NamedTuple):
    """What vouches for one section: its lines, and how many stand before them."""

    above: int
    source: str


def beside(page: Path) -> Path:
    """Return the file that vouches for a page, which need not exist."""
    return page.parent / "numbers" / f"{page.stem}.py"


def parts(file: Path) -> dict[str, Part]:
    """Return the parts of a file by the titles of their sections; "" is what stands before all."""
    text = file.read_text("utf-8") if file.is_file() else ""
    pieces = TITLE.split(text)
    found = {"": Part(0, pieces[0])}
    line = pieces[0].count("\n")
    for title, source in zip(pieces[1::2], pieces[2::2], strict=True):
        if title in found:
            refuse("A section", title, f"named once in {file.name}")
        found[title] = Part(line, source)
        line += source.count("\n")
    return found


def run(file: str, title: str) -> None:
    """Run a part, after what stands before all, on a copy of the names of the program that runs."""
    found = parts(Path(file))
    names = dict(vars(sys.modules["__main__"]))
    for above, source in (found[""], found[title]):
        exec(compile("\n" * above + source, file, "exec"), names)
