"""A chapter is executed with what vouches for its numbers, at the end of each section."""

import re
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from dlsys.checks import refuse
from dlsys.notebook.vouch import beside, parts

FENCED = re.compile(r"^(```|:::).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)


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
    code = f"from dlsys.notebook import vouch as _vouch\n_vouch.run({str(file)!r}, {title!r})"
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
