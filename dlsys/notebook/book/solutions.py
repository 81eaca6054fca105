"""The instructor's book: the solution of a question, folded under it."""

import json
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MARKERS = ("### BEGIN ", "### END ")


def fold_in(app: Sphinx, page: str, content: list[str]) -> None:
    """Put a closed box with the solution under each question of an exercise (source-read)."""
    parts = page.split("/")
    if not app.config.book_solutions or parts[0] != "exercises":
        return
    path = Path(app.srcdir, "solutions", *parts[1:]).with_suffix(".ipynb")
    app.env.note_dependency(str(path))
    answers = {
        _grade_id(cell): cell
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["metadata"].get("nbgrader", {}).get("solution")
    }
    notebook = json.loads(content[0])
    cells = []
    for cell in notebook["cells"]:
        cells.append(cell)
        if answer := answers.get(_grade_id(cell)):
            box = {"cell_type": "markdown", "metadata": {}, "source": _box(answer)}
            cells.append(box | ({"id": f"{cell['id']}-solution"[-64:]} if "id" in cell else {}))
    notebook["cells"] = cells
    content[0] = json.dumps(notebook)


def _grade_id(cell: dict[str, Any]) -> str:
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))


def _box(cell: dict[str, Any]) -> str:
    lines = [
        line
        for line in "".join(cell["source"]).splitlines()
        if not line.strip().startswith(MARKERS)
    ]
    if cell["cell_type"] == "code":
        lines = ["```python", *lines, "```"]
    return "\n".join(["`````{dropdown} Solution", *lines, "`````"])
