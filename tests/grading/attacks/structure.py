"""Attacks on the notebook: its tests, ids, roles, metadata and outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.grading.attacks import (
    GUESSED,
    Attack,
    Notebook,
    cell,
    is_answer,
    is_test,
    own_cell,
    position,
)

FREE = "def free_bytes(parameters, memory_gib):\n    return memory_gib * 2**30 - 16 * parameters"


def each_cell(change: Callable[[Notebook], object], only: Callable[[Notebook], bool]) -> Any:
    """Change every cell of a kind."""

    def edit(notebook: Notebook) -> None:
        for one in notebook["cells"]:
            if only(one):
                change(one)

    return edit


def keep(only: Callable[[Notebook], bool]) -> Any:
    def edit(notebook: Notebook) -> None:
        notebook["cells"] = [one for one in notebook["cells"] if only(one)]

    return edit


def role(**changes: Any) -> Callable[[Notebook], object]:
    return lambda one: one["metadata"]["nbgrader"].update(changes)


def trusted(one: Notebook) -> bool:
    known = one["metadata"].get("nbgrader", {})
    return (
        one["cell_type"] == "code" and bool(known) and not known["solution"] and not known["grade"]
    )


def relabel(notebook: Notebook) -> None:
    """Test cells call themselves answers, and answers tests."""
    for one in notebook["cells"]:
        if is_test(one) or is_answer(one):
            known = one["metadata"]["nbgrader"]
            known["grade"], known["solution"] = known["solution"], known["grade"]
            known["points"] = 100


def exchange(notebook: Notebook) -> None:
    """The ids of the answers to two questions are exchanged."""
    one, other = cell(notebook, "free"), cell(notebook, "layer")
    for each, name in ((one, "layer"), (other, "free")):
        each["id"] = each["metadata"]["nbgrader"]["grade_id"] = name


def duplicate(only: Callable[[Notebook], bool]) -> Any:
    def edit(notebook: Notebook) -> None:
        cells = notebook["cells"]
        notebook["cells"] = [copy.deepcopy(c) for one in cells for c in [one] * (1 + only(one))]

    return edit


def second(source: str, before: bool) -> Any:
    """One more cell with the id of an answer."""

    def edit(notebook: Notebook) -> None:
        another = copy.deepcopy(cell(notebook, "free"))
        another["source"] = source
        notebook["cells"].insert(position(notebook, "free") + (not before), another)

    return edit


def kind(name: str) -> Any:
    return lambda notebook: cell(notebook, "free").update(cell_type=name)


def ticks(notebook: Notebook) -> None:
    """Every cell has an output that says it is right."""
    for one in notebook["cells"]:
        if one["cell_type"] == "code":
            text = "\x1b[32m✔\x1b[0m right\nscore: 100 <script>alert('output')</script>"
            data = {"text/html": "<script>alert('output')</script>", "text/plain": "100"}
            one["execution_count"] = 1
            one["outputs"] = [
                {"output_type": "stream", "name": "stdout", "text": text},
                {"output_type": "display_data", "data": data, "metadata": {}},
            ]


def metadata(notebook: Notebook) -> None:
    notebook["metadata"] = {
        "kernelspec": {
            "name": "bash",
            "display_name": "x",
            "language": "bash",
            "argv": ["/bin/sh"],
        },
        "language_info": {"name": "bash"},
        "nbgrader": {"schema_version": 99, "points": 100},
        "celltoolbar": "Create Assignment",
        "execution": {"timeout": -1, "allow_errors": True},
        "papermill": {"exception": None},
        "jupytext": {"text_representation": {"extension": ".sh"}},
        "score": 100,
    }
    for one in notebook["cells"]:
        one["metadata"]["tags"] = ["raises-exception", "skip-execution", "remove-cell"]


GUESSES: dict[str, Any] = {
    "points of 100": each_cell(role(points=100), lambda one: "nbgrader" in one["metadata"]),
    "points below zero": each_cell(role(points=-100, max_points=-1), is_test),
    "points that are text": each_cell(role(points="<b>100</b>"), is_test),
    "edited tests": each_cell(lambda one: one.update(source="print('✔')"), is_test),
    "emptied tests": each_cell(lambda one: one.update(source=""), is_test),
    "tests that return points": each_cell(lambda one: one.update(source="100"), is_test),
    "tests that expect what came": each_cell(lambda one: one.update(source="same(1, 1)"), is_test),
    "deleted tests": keep(lambda one: not is_test(one)),
    "duplicated tests": duplicate(is_test),
    "relabelled cells": relabel,
    "unlocked cells": each_cell(role(locked=False, solution=True), trusted),
    "edited helpers": each_cell(
        lambda one: one.update(
            source="memory_bytes = step_seconds = lambda design: 0.4468355241217121\nsame = print"
        ),
        trusted,
    ),
    "deleted helpers": keep(lambda one: not trusted(one)),
    "forged ticks in outputs": ticks,
}

RIGHT: dict[str, Any] = {
    "tests edited beside right answers": GUESSES["edited tests"],
    "tests deleted beside right answers": GUESSES["deleted tests"],
    "every test twice": duplicate(is_test),
    "every cell twice": duplicate(lambda one: True),
    "every answer twice": duplicate(is_answer),
    "helpers edited beside right answers": GUESSES["edited helpers"],
    "helpers deleted beside right answers": GUESSES["deleted helpers"],
    "tests moved to the top": lambda n: n["cells"].sort(key=lambda one: not is_test(one)),
    "cells in the opposite order": lambda n: n["cells"].reverse(),
    "metadata that point elsewhere": metadata,
    "roles taken away": each_cell(lambda one: one["metadata"].clear(), lambda one: True),
    "ids taken away": each_cell(lambda one: one.pop("id"), lambda one: True),
    "outputs that are forged": ticks,
    "cell metadata that are a list": each_cell(
        lambda one: one.update(metadata=[]), lambda one: one["cell_type"] == "markdown"
    ),
    "a test of one's own": lambda n: n["cells"].append(
        own_cell("same(1, 1)\nassert True", "own-test")
        | {
            "metadata": {
                "nbgrader": {
                    "grade": True,
                    "grade_id": "own",
                    "points": 50,
                    "solution": False,
                    "locked": True,
                    "schema_version": 3,
                }
            }
        }
    ),
}

BANK = [
    *(Attack(name, base=GUESSED, edit=edit) for name, edit in GUESSES.items()),
    *(Attack(name, edit=edit) for name, edit in RIGHT.items()),
    # The second is answered where the first should be, and so in time; the first comes too late.
    Attack("answers under each other's ids", edit=exchange, earns={"free": 0}),
    Attack("an answer in a raw cell", edit=kind("raw")),  # it is run as the code that it is
    Attack("an answer in a markdown cell", edit=kind("markdown")),
    Attack("no cells", edit=keep(lambda one: False), refused="no answer cell"),
    Attack("an answer deleted", edit=keep(lambda one: one["id"] != "free"), earns={"free": 0}),
    Attack(
        "a wrong answer and a second one under its id",
        answers={"free": "def free_bytes(*a):\n    return 1"},
        edit=second("def free_bytes(*a):\n    return 2", before=False),
        earns={"free": 0},
    ),
    Attack("the blank answer after the right one", edit=second("", before=False)),
]
