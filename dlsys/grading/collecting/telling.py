"""Which released cell each cell of a student's notebook is a version of.

By its id, or by nbgrader's name where an editor has given it another id. Where both are gone, by
what it says: a question is known by its heading, what is locked by its text, and an answer by its
place between its question and what was released after it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dlsys.grading.assignment import ANSWER, TEXT, WRITTEN, Assignment, Cell

BY_ID, BY_NAME, BY_PLACE = range(3)


@dataclass(frozen=True)
class Told:
    """A cell of the student's; `released` is the cell that it is a version of, known `by` BY_ID,
    BY_NAME or BY_PLACE."""

    source: str
    is_code: bool
    released: Cell | None = None
    by: int = BY_ID

    @property
    def is_as_released(self) -> bool:
        """Whether nothing of a released cell was changed."""
        return self.released is not None and unchanged(self.source, self.released.source)

    def binds(self, names: Sequence[str]) -> bool:
        """Whether it is code that binds one of the names; read line by line, as nothing of a
        student's is parsed here. Without names, whether it is a text."""
        if not names:
            return not self.is_code and bool(self.source.strip())
        for line in self.source.split("\n") if self.is_code else ():
            head, equals, _ = line.partition("=")
            words = re.findall(r"\w+", head)
            if words[:1] in (["def"], ["class"]):
                words = words[1:2]
            elif not equals or "(" in head:
                continue
            if not line[0].isspace() and set(words) & set(names):
                return True
        return False


def unchanged(source: str, released: str) -> bool:
    """Whether a cell says what was released; space at the ends of lines does not count."""
    return trimmed(source) == trimmed(released)


@lru_cache(maxsize=2048)  # every assignment looks at the same cells
def trimmed(source: str) -> str:
    """`source` without space at the ends of lines, and without empty lines around it."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def tell(assignment: Assignment, notebook: Mapping[str, Any]) -> list[Told]:
    """The cells of `notebook` (JSON of nbformat 4, checked by `collect.read`), in its order."""
    released = {cell.id: cell for cell in assignment.cells}
    cells = [_named(cell, released) for cell in notebook["cells"]]
    missing = {cell.id: cell for cell in assignment.cells}
    for each in cells:
        if each.released:
            missing.pop(each.released.id, None)
    _tell_by_text(cells, missing)
    order = {cell.id: number for number, cell in enumerate(assignment.cells)}
    for id, names in asked_names(assignment).items():
        if id in missing:
            _tell_by_place(cells, missing[id], names, order)
    return cells


def asked_names(assignment: Assignment) -> dict[str, tuple[str, ...]]:
    """The names that make up each answer; none for an answer in words."""
    names: dict[str, tuple[str, ...]] = {q.id: q.names for q in assignment.questions}
    return names | {question.id: () for question in assignment.written}


def _named(cell: Mapping[str, Any], released: Mapping[str, Cell]) -> Told:
    name = cell["metadata"].get("nbgrader", {}).get("grade_id")
    by = BY_ID if cell.get("id") in released else BY_NAME
    place = released.get(cell.get("id", "")) or released.get(name)
    return Told("".join(cell["source"]), cell["cell_type"] == "code", place, by)


def _tell_by_text(cells: list[Told], missing: dict[str, Cell]) -> None:
    """Tell cells that say what was released, or begin with its heading; each takes one away.

    Not blank answers: what they say is no mark of theirs.
    """
    others = [cell for cell in missing.values() if cell.kind not in (ANSWER, WRITTEN)]
    by_text = {_key(cell.source, False): cell for cell in others}
    by_text |= {_key(cell.source, True): cell for cell in others if cell.kind == TEXT}
    for number, each in enumerate(cells):
        keys = [] if each.released else [_key(each.source, False)]
        keys += [] if each.released or each.is_code else [_key(each.source, True)]
        cell = next((by_text[key] for key in keys if key in by_text), None)
        if cell and missing.pop(cell.id, None):
            cells[number] = replace(each, released=cell, by=BY_PLACE)


def _key(source: str, is_heading: bool) -> tuple[bool, str]:
    text = trimmed(source)
    return is_heading, text.partition("\n")[0] if is_heading else text


def _tell_by_place(
    cells: list[Told], answer: Cell, names: Sequence[str], order: Mapping[str, int]
) -> None:
    """Tell the answer below a question that was told by its text; one that binds a name first."""
    question = f"{answer.id}-question"
    places = (n for n, c in enumerate(cells) if c.released and c.released.id == question)
    first = next((n for n in places if cells[n].by == BY_PLACE), len(cells))
    own = []
    for number in range(first + 1, len(cells)):
        each = cells[number]
        if each.released and order[each.released.id] > order[answer.id]:
            break
        if not each.released and each.is_code == (answer.kind == ANSWER):
            own.append(number)
    if own:
        taken = min(own, key=lambda number: not cells[number].binds(names))
        cells[taken] = replace(cells[taken], released=answer, by=BY_PLACE)


def lost(cells: Sequence[Told]) -> int:
    """How many answers were told by their place."""
    kinds = [each.released.kind for each in cells if each.released and each.by == BY_PLACE]
    return sum(kind in (ANSWER, WRITTEN) for kind in kinds)
