"""Run an exercise notebook's cells in this process, one namespace for a notebook."""

import contextlib
import io
import json
import linecache
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cell:
    """A code cell: its id, its source and its nbgrader metadata (empty where it has none)."""

    id: str
    source: str
    role: dict[str, Any]

    @property
    def is_answer(self) -> bool:
        return bool(self.role.get("solution"))

    @property
    def is_test(self) -> bool:
        return bool(self.role.get("grade")) and not self.is_answer

    @property
    def points(self) -> float:
        return float(self.role.get("points", 0))


def slugs() -> list[str]:
    return sorted(path.parent.name for path in (ROOT / "solutions").glob("*/*.ipynb"))


def load(folder: str, slug: str) -> dict[str, Any]:
    return json.loads((ROOT / folder / slug / f"{slug}.ipynb").read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    return [
        Cell(cell["id"], "".join(cell["source"]), cell["metadata"].get("nbgrader", {}))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def execute(cell: Cell, namespace: dict[str, Any]) -> str:
    """Run a cell as a kernel would, its source known to tracebacks; returns what it printed."""
    name = f"<cell {cell.id}>"
    linecache.cache[name] = (len(cell.source), None, cell.source.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(cell.source, name, "exec"), namespace)
    return printed.getvalue()


def new_namespace() -> dict[str, Any]:
    return {"__name__": "__main__"}


@dataclass(frozen=True)
class Solved:
    """A whole solution after it has run once: the names that exist then, those that existed when
    each answer cell was about to run, and what each cell printed."""

    names: dict[str, Any]
    before: dict[str, dict[str, Any]]
    printed: dict[str, str]


@cache
def run_of(slug: str) -> Solved:
    """One run of the solution, for all tests."""
    run = Solved(new_namespace(), {}, {})
    for cell in code_cells(load("solutions", slug)):
        if cell.is_answer:
            run.before[cell.id] = dict(run.names)
        run.printed[cell.id] = execute(cell, run.names)
    return run


def solved(slug: str) -> dict[str, Any]:
    """The names that exist when the whole solution has run."""
    return run_of(slug).names


def model_answer(slug: str) -> str:
    return " ".join("".join(load("solutions", slug)["cells"][-1]["source"]).split())
