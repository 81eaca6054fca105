"""A chapter is executed with what vouches for its numbers, at the end of each section."""

import re
import sys
from pathlib import Path
from typing import NamedTuple

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from dlsys.checks import refuse

FENCED = re.compile(r"^(```|:::).*?^\1", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^# %% (.+)$", re.MULTILINE)
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)


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


def with_numbers(page: Path, notebook: NotebookNode) -> NotebookNode:
    """Return a notebook of the page's own cells, which get the outputs, and of cells for the parts.

    A part that fails does not stop the page. Raises ValueError for a part that is named by no
    section of the page.
    """
    waiting = parts(file := beside(page))
    del waiting[""]
    cells: list[NotebookNode] = []
    section = ""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for heading in HEADING.findall(FENCED.sub("", cell.source)):
                cells += [_cell(file, section)] if waiting.pop(section, None) else []
                section = heading.strip()
        cells.append(cell)
    cells += [_cell(file, section)] if waiting.pop(section, None) else []
    if waiting:
        refuse(f"A part of {file.name}", next(iter(waiting)), f"named by a section of {page.name}")
    return NotebookNode({**notebook, "cells": cells})


def _cell(file: Path, title: str) -> NotebookNode:
    call = f"_numbers.run({str(file)!r}, {title!r})"
    code = f"from dlsys.notebook.book import numbers as _numbers\n{call}"
    return new_code_cell(code, metadata={"tags": ["raises-exception"], "vouches": title})


def wrong(notebook: NotebookNode) -> list[tuple[str, NotebookNode]]:
    """Return each part that failed, and its error, of a notebook that was executed."""
    return [
        (cell.metadata.vouches, output)
        for cell in notebook.cells
        if "vouches" in cell.metadata
        for output in cell.outputs
        if output.output_type == "error"
    ]
