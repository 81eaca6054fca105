"""Where a page's numbers come from: what the page computes, its own question, or somebody's work.

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
