"""An exercise on its page: checks and helpers folded, for instructors with the solutions too."""

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from dlsys.notebook.fold import fold

MARKERS = ("### BEGIN ", "### END ")


def prepare(app: Sphinx, page: str, content: list[str]) -> None:
    """Fold what is not the question, and for instructors add the solutions (source-read)."""
    folder, _, name = page.partition("/")
    if folder != "exercises":
        return
    answers = {}
    if app.config.book_solutions:
        path = Path(app.srcdir, "solutions", name).with_suffix(".ipynb")
        app.env.note_dependency(str(path))
        known = json.loads(path.read_text("utf-8"))["cells"]
        answers = {_grading(cell)["grade_id"]: cell for cell in known if _is_answer(cell)}
    notebook = json.loads(content[0])
    cells = []
    for cell in notebook["cells"]:
        fold(cell)
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
