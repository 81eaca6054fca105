"""An exercise on its page: in the instructor's book with the solutions folded under it."""

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MARKERS = ("### BEGIN ", "### END ")


def add_solutions(app: Sphinx, page: str, content: list[str]) -> None:
    """Put the solution under each question, for instructors (source-read)."""
    folder, _, name = page.partition("/")
    if folder != "exercises" or not app.config.book_solutions:
        return
    path = Path(app.srcdir, "solutions", name).with_suffix(".ipynb")
    app.env.note_dependency(str(path))
    cells = json.loads(path.read_text("utf-8"))["cells"]
    answers = {_grading(cell)["grade_id"]: cell for cell in cells if _grading(cell).get("solution")}
    notebook = json.loads(content[0])
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if answer := answers.get(_grading(cell).get("grade_id")):
            box = {"cell_type": "markdown", "metadata": {}, "source": _box(answer)}
            cells.append(box | ({"id": f"{cell['id']}-solution"[-64:]} if "id" in cell else {}))
    notebook["cells"] = cells
    content[0] = json.dumps(notebook)


def _grading(cell: dict[str, Any]) -> dict[str, Any]:
    """Return what nbgrader knows about a cell."""
    known: dict[str, Any] = cell["metadata"].get("nbgrader", {})
    return known


def _box(cell: dict[str, Any]) -> str:
    lines = [
        line
        for line in "".join(cell["source"]).splitlines()
        if not line.strip().startswith(MARKERS)
    ]
    if cell["cell_type"] == "code":
        lines = ["```python", *lines, "```"]
    return "\n".join(["`````{dropdown} Solution", *lines, "`````"])
