"""Where a page's numbers come from that nothing computes: its own question, or somebody's work.

A chapter calls these in the cells that check it, and nothing happens where the arguments are right:
`tests/book/test_chapters.py` reads the calls, and holds the prose to them.
"""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import finite, refuse


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
