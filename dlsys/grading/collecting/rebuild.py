"""Put a student's answers and own cells onto the trusted notebook.

Order, tests and locked cells are always the released notebook's; what is the student's runs where
it was. Which cell is which, `telling` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from dlsys.grading.assignment import ANSWER, FREE, TEST, TEXT, TRUSTED, WRITTEN, Assignment, Cell
from dlsys.grading.collecting.telling import (
    BY_ID,
    Told,
    asked_names,
    lost,
    tell,
    trimmed,
    unchanged,
)
from dlsys.grading.result import LOOK

__all__ = ["Step", "Submission", "rebuild", "unchanged"]

_LOST = (
    "Cells of this notebook have lost the names that they were released with; answers that were "
    f"told by headings and order instead: {{}}. {LOOK}"
)
BEGINNING = ""  # the place of cells before every released one


@dataclass(frozen=True)
class Step:
    """A code cell to run, in order: `kind` is TRUSTED, ANSWER, FREE (any cell of the student's own)
    or TEST (where the question's state is kept; `source` is empty). `id` is the cell's, the
    question's for ANSWER and TEST, and own-1, own-2, ... for cells that were not released."""

    kind: str
    id: str
    source: str


@dataclass(frozen=True)
class Submission:
    """A notebook rebuilt: steps to run, the text of each answer (None where the cell is gone),
    and sentences on what was put right."""

    steps: tuple[Step, ...]
    answers: Mapping[str, str | None]
    written: Mapping[str, str | None]
    notes: tuple[str, ...] = ()


def rebuild(assignment: Assignment, notebook: Mapping[str, Any]) -> Submission:
    """The submission that `notebook` (JSON of nbformat 4, checked by `collect.read`) stands for."""
    versions: dict[str, list[Told]] = defaultdict(list)
    theirs = tell(assignment, notebook)
    for each in theirs:
        if each.released:
            versions[each.released.id].append(each)
    chosen = {place: min(cells, key=_rank) for place, cells in versions.items()}
    own = _own_cells(theirs, chosen)

    titles = {q.id: q.title for q in assignment.questions}
    titles |= {q.id: q.title for q in assignment.written}
    steps = [Step(FREE, "", each.source) for each in own[BEGINNING] if each.is_code]
    notes = [_LOST.format(number)] if (number := lost(theirs)) else []
    answers: dict[str, str | None] = {}
    for cell in assignment.cells:
        mine = chosen.get(cell.id)
        title = titles.get(cell.id.removesuffix("-test"), "")
        steps += _steps(cell, mine)
        steps += [Step(FREE, "", each.source) for each in own[cell.id] if each.is_code]
        notes += _notes(cell, mine, title)
        if cell.kind in (ANSWER, WRITTEN):
            answers[cell.id] = mine.source if mine else None
            different = [each for each in versions[cell.id] if not each.is_as_released]
            if len({trimmed(each.source) for each in different}) > 1:
                notes.append(
                    f"There are several answer cells for {title!r}; one of them counts. {LOOK}"
                )

    # An answer in a new cell, its own left as it was.
    for id, names in asked_names(assignment).items():
        mine = chosen.get(id)
        if mine is None or mine.is_as_released:
            beside = [each for each in _beside(id, assignment, chosen, own) if each.binds(names)]
            if beside:
                answers[id] = "\n\n".join(each.source for each in beside)
                notes.append(
                    f"The answer to {titles[id]!r} was found in a cell beside its own. {LOOK}"
                )
    numbers = count(1)
    return Submission(
        tuple(step if step.id else replace(step, id=f"own-{next(numbers)}") for step in steps),
        {question.id: answers[question.id] for question in assignment.questions},
        {question.id: answers[question.id] for question in assignment.written},
        tuple(notes),
    )


def _rank(cell: Told) -> tuple[bool, ...]:
    """Orders versions of a cell: an answer before the blank one, the cell in its own place before
    copies, and code before text."""
    is_locked = cell.released is not None and cell.released.kind in (TEST, TRUSTED, TEXT)
    return cell.is_as_released and not is_locked, cell.by != BY_ID, not cell.is_code


def _own_cells(theirs: list[Told], chosen: Mapping[str, Told]) -> defaultdict[str, list[Told]]:
    """The student's own cells by the released cell they come after; copies of released ones go."""
    own = defaultdict(list)
    place = BEGINNING
    for cell in theirs:
        if cell.released and chosen[cell.released.id] is cell:
            place = cell.released.id
        elif not cell.is_as_released:
            own[place].append(cell)
    return own


def _steps(cell: Cell, mine: Told | None) -> Iterator[Step]:
    if cell.kind == TEST:
        yield Step(TEST, cell.id.removesuffix("-test"), "")
    elif cell.kind == TRUSTED:
        if mine and mine.is_code and not mine.is_as_released:
            # Names that it adds are kept, and those that it changes are put right.
            yield Step(FREE, "", mine.source)
        yield Step(TRUSTED, cell.id, cell.source)
    elif mine and (cell.kind == ANSWER or (cell.kind == FREE and mine.is_code)):
        yield Step(cell.kind, cell.id, mine.source)


def _notes(cell: Cell, mine: Told | None, title: str) -> Iterator[str]:
    if cell.kind in (ANSWER, WRITTEN):
        if mine is None:
            yield f"The answer cell of {title!r} is missing."
        elif cell.kind == ANSWER and not mine.is_code:
            yield f"The answer cell of {title!r} had been turned into text; it was run as code."
    elif cell.kind in (TEST, TRUSTED):
        what = f"The check of {title!r}" if cell.kind == TEST else f"The cell {cell.id!r}"
        if mine is None:
            yield f"{what} was missing; the original was used."
        elif not mine.is_as_released:
            before = "" if cell.kind == TEST else ", after your version"
            yield f"{what} had been changed; the original was used{before}."


def _beside(
    id: str,
    assignment: Assignment,
    chosen: Mapping[str, Told],
    own: Mapping[str, list[Told]],
) -> list[Told]:
    """The student's own cells between an answer cell, or its question, and its test."""
    places = [cell.id for cell in assignment.cells]
    first = places.index(id if id in chosen else f"{id}-question")
    last = places.index(f"{id}-test" if f"{id}-test" in places else id)
    return [cell for place in places[first : max(last, first + 1)] for cell in own.get(place, ())]
