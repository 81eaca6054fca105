"""An exercise on its page: checks and helpers folded, for instructors with the solutions too."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

from dlsys.notebook.fold import fold

MARKERS = ("### BEGIN ", "### END ")
# What there is to raise where a file is missing, or is no notebook.
UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError)
LOGGER = logging.getLogger(__name__)


def prepare(app: Sphinx, page: str, content: list[str]) -> None:
    """Fold what is not the question, and for instructors add the solutions (source-read)."""
    folder, _, name = page.partition("/")
    if folder != "exercises":
        return
    path = Path(app.srcdir, "solutions", name).with_suffix(".ipynb")
    answers = {}
    try:
        if app.config.book_solutions:
            app.env.note_dependency(str(path))
            answers = _answers(path.read_text("utf-8"))
    except UNREADABLE as error:
        LOGGER.warning("Its solutions cannot be read: %r", error, location=page)
    with suppress(*UNREADABLE):  # of which the page will tell (dlsys.notebook.book.failures)
        content[0] = _prepared(content[0], answers)


def _answers(text: str) -> dict[str, dict[str, Any]]:
    cells = json.loads(text)["cells"]
    return {_grading(cell)["grade_id"]: cell for cell in cells if _is_answer(cell)}


def _prepared(text: str, answers: dict[str, dict[str, Any]]) -> str:
    notebook = json.loads(text)
    cells = []
    for cell in notebook["cells"]:
        fold(cell)
        cells.append(cell)
        if answer := answers.get(_grading(cell).get("grade_id", "")):
            box = {"cell_type": "markdown", "metadata": {}, "source": _box(answer)}
            cells.append(box | ({"id": f"{cell['id']}-solution"[-64:]} if "id" in cell else {}))
    return json.dumps(notebook | {"cells": cells})


def _grading(cell: dict[str, Any]) -> dict[str, Any]:
    """Return what nbgrader knows about a cell."""
    known: dict[str, Any] = cell["metadata"].get("nbgrader", {})
    return known


def _is_answer(cell: dict[str, Any]) -> bool:
    return bool(_grading(cell).get("solution"))


def _box(cell: dict[str, Any]) -> str:
    lines = [
        line
        for line in "".join(cell["source"]).splitlines()
        if not line.strip().startswith(MARKERS)
    ]
    if cell["cell_type"] == "code":
        lines = ["```python", *lines, "```"]
    return "\n".join(["`````{dropdown} Solution", *lines, "`````"])
