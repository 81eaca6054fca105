"""A course of one small assignment, written for a test: its folders, as a project has them."""

import json
from pathlib import Path
from typing import Any

import nbformat

from dlsys.grading.assignment import Assignment, load

STUB = "# YOUR ANSWER HERE"


def _role(name: str, **roles: Any) -> dict[str, Any]:
    default = {
        "schema_version": 3,
        "grade": False,
        "solution": False,
        "locked": True,
        "task": False,
    }
    return {"nbgrader": default | {"grade_id": name} | roles}


def _code(name: str, source: str, **roles: Any) -> Any:
    return nbformat.v4.new_code_cell(source, id=name, metadata=_role(name, **roles))


def _text(name: str, source: str) -> Any:
    return nbformat.v4.new_markdown_cell(source, id=name, metadata=_role(name))


def make(
    root: Path, trusted: str, questions: dict[str, tuple[str, str, str, str]], slug: str = "small"
) -> Assignment:
    """An assignment: trusted source, and per question blank answer, solution, visible and hidden
    checks."""
    solved = [_text("title", "# Small"), _code("imports", trusted)]
    released = list(solved)
    for name, (blank, solution, visible, hidden) in questions.items():
        text = _text(f"{name}-question", f"## {name}\n\nSolve it.")
        answer = {"locked": False, "solution": True}
        test = {"grade": True, "points": 2}
        marked = f"{visible}\n### BEGIN HIDDEN TESTS\n{hidden}\n### END HIDDEN TESTS"
        solved += [
            text,
            _code(name, solution, **answer),
            _code(f"{name}-test", marked if hidden else visible, **test),
        ]
        released += [
            text,
            _code(name, blank, **answer),
            _code(f"{name}-test", visible, **test),
        ]
    for folder, cells in (("solutions", solved), ("exercises", released)):
        path = root / folder / slug / f"{slug}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return load(root, slug)


def answered(root: Path, answers: dict[str, str], slug: str = "small") -> dict[str, Any]:
    """The released notebook with these answer cells; a name that is no cell's is a new cell at the
    end, and "before X" one before cell X."""
    notebook = json.loads((root / "exercises" / slug / f"{slug}.ipynb").read_text())
    cells = notebook["cells"]
    for name, source in answers.items():
        ids = [cell["id"] for cell in cells]
        if name in ids:
            cells[ids.index(name)]["source"] = source
            continue
        new = {"cell_type": "code", "id": "own", "metadata": {}, "source": source, "outputs": []}
        place = ids.index(name.removeprefix("before ")) if name.startswith("before ") else len(ids)
        cells.insert(place, new)
    return notebook
