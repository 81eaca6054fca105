"""An exercise on its page: checks folded away, and in the instructor's book the solutions too."""

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MARKERS = ("### BEGIN ", "### END ")


def fold(app: Sphinx, page: str, content: list[str]) -> None:
    """Fold the checks, and for instructors put the solution under each question (source-read)."""
    folder, _, name = page.partition("/")
    if folder != "exercises":
        return
    answers = {}
    if app.config.book_solutions:
        path = Path(app.srcdir, "solutions", name).with_suffix(".ipynb")
        app.env.note_dependency(str(path))
        cells = json.loads(path.read_text("utf-8"))["cells"]
        answers = {_grading(cell)["grade_id"]: cell for cell in cells if _is(cell, "solution")}
    notebook = json.loads(content[0])
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if answer := answers.get(_grading(cell).get("grade_id")):
            box = {"cell_type": "markdown", "metadata": {}, "source": _box(answer)}
            cells.append(box | ({"id": f"{cell['id']}-solution"[-64:]} if "id" in cell else {}))
        elif cell["cell_type"] == "code" and _is(cell, "grade") and not _is(cell, "solution"):
            # It holds the hints to every mistake, which are for those who have made it.
            prompts = {"code_prompt_show": "Show the check", "code_prompt_hide": "Hide the check"}
            cell["metadata"] |= {"tags": ["hide-input"], "mystnb": prompts}
    notebook["cells"] = cells
    content[0] = json.dumps(notebook)


def _grading(cell: dict[str, Any]) -> dict[str, Any]:
    """Return what nbgrader knows about a cell."""
    known: dict[str, Any] = cell["metadata"].get("nbgrader", {})
    return known


def _is(cell: dict[str, Any], role: str) -> bool:
    return bool(_grading(cell).get(role))


def _box(cell: dict[str, Any]) -> str:
    lines = [
        line
        for line in "".join(cell["source"]).splitlines()
        if not line.strip().startswith(MARKERS)
    ]
    if cell["cell_type"] == "code":
        lines = ["```python", *lines, "```"]
    return "\n".join(["`````{dropdown} Solution", *lines, "`````"])
