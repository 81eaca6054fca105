"""Where a page's numbers come from: what code computes, its own question, or somebody's work.

`chapters/numbers/zero.py` vouches for `chapters/zero.md`. Each of its parts is named by a section,
and runs where that section ends, on the names that the page has there. It leaves nothing behind, so
no page needs it. `tests/book/test_chapters.py` holds the prose to what these files say.
"""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import finite, refuse
from dlsys.notebook.book.said import numbers_in


@checked
def says(words: str, *values: float) -> None:
    """The text has these words, and their numbers, in order, are these values: `says("24.5 GB",
    price.bytes_per_rank)`.

    Raises ValueError where a value is not what its number says, to the digit, or there is not one
    for each number.
    """
    if not words.strip():
        refuse("words", words, "a piece of the text")
    numbers = numbers_in(words)
    if len(numbers) != len(values):
        found = ", ".join(number.words for number in numbers) or "none"
        raise ValueError(
            f"words is {words!r}, which has the numbers {found}; there must be a value for each, "
            f"and {len(values)} were given."
        )
    for number, value in zip(numbers, values, strict=True):
        finite("A number that stands in the text", value)
        pairs = zip(number.meanings, number.half, strict=True)
        if not any(abs(value - meant) <= half * (1 + 1e-9) for meant, half in pairs):
            raise ValueError(f"{words!r} says {number.words}, and it is {value:.6g}.")


@checked
def given(*numbers: float) -> None:
    """Numbers that the text chooses, as the sizes of a question: they cannot be wrong.

    Raises ValueError for anything but finite numbers.
    """
    _check(numbers)


@checked
def sourced(*numbers: float, by: str) -> None:
    """Numbers of the world, which somebody published or measured.

    `by` begins with the key of an entry in `chapters/references.bib` ("dao2022, figure 2"), or with
    the file of this project in which the numbers stand ("bench/README.md"). Raises ValueError for
    anything but finite numbers, and where `by` names nobody.
    """
    _check(numbers)
    if not any(map(str.isalpha, by)):
        refuse("by", by, "the name of who published or measured the numbers")


def _check(numbers: tuple[float, ...]) -> None:
    for number in numbers:
        finite("A number that stands in the text", number)
