"""`dlsys-check NOTEBOOK`: check all your answers at once, as the cells of the notebook do."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from dlsys.grading.assignment import Assignment, load, slugs
from dlsys.grading.project import find_root
from dlsys.grading.result import RIGHT, UNANSWERED, Result

_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def main(argv: Sequence[str] | None = None) -> int:
    """Check a notebook; 0 if every answer is right, 1 if one is not, 2 if it cannot be read."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="dlsys-check",
        description="Check every answer of an exercise notebook, as its own cells do. "
        "The notebook runs on this machine, as you, from a copy with nothing but its answers; "
        "your file stays as it is.",
        epilog="Ends with 0 where every answer is right, 1 where one is not, 2 where the notebook "
        "cannot be read.",
    )
    parser.add_argument("notebook", type=Path, help="the notebook with your answers")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--course", type=Path, help="the folder that holds exercises/ (found where left out)"
    )
    options = parser.parse_args(argv)
    try:
        root = find_root(options.course, ["exercises"], options.notebook.parent)
        result = check(root, options.notebook)
    except (OSError, ValueError) as error:
        print(f"dlsys-check: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if options.json:
        print(json.dumps(result.as_json(), indent=1))
    else:
        show(result, sys.stdout)
    return 0 if all(each.status == RIGHT for each in result.questions) else 1


def check(root: Path, notebook: Path) -> Result:
    """The result of a notebook by the checks that it shows; raises ValueError where it is none."""
    from dlsys.grading.assignment import preload
    from dlsys.grading.boxes.warm import Boxes
    from dlsys.grading.collecting.collect import read
    from dlsys.grading.collecting.rebuild import rebuild
    from dlsys.grading.judging.examine import examine, prepare

    content = read(notebook)
    assignment = load(root, _slug(root, notebook, content), solutions=False)
    print(f"Running {notebook} on this machine, as you.", file=sys.stderr)
    with Boxes(trust_students=True, preload=preload([assignment])) as boxes:
        return examine(prepare(assignment, boxes, seed=0), rebuild(assignment, content), boxes)


def _slug(root: Path, notebook: Path, content: Mapping[str, Any]) -> str:
    """The assignment of a notebook, by its name, else by the ids of its cells."""
    here = slugs(root)
    if notebook.stem in here:
        return notebook.stem
    ids = {str(cell.get("id")) for cell in content["cells"]}
    shared = {slug: len(ids & _answers(load(root, slug, solutions=False))) for slug in here}
    best = max(shared, key=shared.__getitem__, default=None)
    if best is None or not shared[best]:
        raise ValueError(
            f"{notebook} has no answer cell of any exercise notebook; name the file as the "
            f"exercise is named ({', '.join(here) or 'there is none'})."
        )
    return best


def _answers(assignment: Assignment) -> set[str]:
    return {question.id for question in assignment.questions}


def show(result: Result, file: TextIO) -> None:
    """Print a result: each question with what its checks say, and what is not answered."""
    from dlsys.grading.reports.explain import CROSS, TICK, explain, headline
    from dlsys.grading.reports.tables import cell

    colours = file.isatty() and not os.environ.get("NO_COLOR")
    colour = {TICK: f"{_GREEN}{TICK}{_PLAIN}", CROSS: f"{_RED}{CROSS}{_PLAIN}"}

    def say(line: str) -> None:
        marked = colours and line[:1] in colour
        print(colour[line[0]] + line[1:] if marked else line, file=file)

    for note in result.notes:
        say(note)
    for question in result.questions:
        say(f"\n{headline(question)}")
        for line in explain(question):
            say(line)
    earned, points = result.earned or 0, sum(each.points for each in result.questions)
    open_ones = [each.title for each in result.questions if each.status == UNANSWERED]
    open_ones += [each.title for each in result.written if not each.answered]
    say(f"\n{cell(earned)} of {cell(points)} points, as far as the checks of the notebook tell.")
    by_hand = sum(each.points for each in result.written)
    if by_hand:
        say(f"{cell(by_hand)} more points are given by a person.")
    if open_ones:
        say(f"Not answered: {', '.join(open_ones)}.")
