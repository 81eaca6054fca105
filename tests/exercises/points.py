"""What an answer earns of a question, judged in this process as the grader judges it in boxes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

from dlsys.exercises import Sealed, plain
from dlsys.exercises.judge import bare, difference
from dlsys.grading.checks import Check, checks_of, drawn
from tests.exercises.notebooks import Cell, code_cells, execute, load, run_of, solved

# What a function may give that has done nothing; the second half needs an argument.
IDLE = {
    "None": "None",
    "0": "0",
    "an empty list": "[]",
    "its argument": "given[0]",
    "zeros like an argument": "next(each * 0 for each in given if hasattr(each, 'shape'))",
}


@cache
def asked(slug: str, answer: str) -> tuple[Check, ...]:
    """The checks of a question, each hidden one drawn once, with what the solution gives for it."""
    [test] = [c for c in code_cells(load("solutions", slug)) if c.id == f"{answer}-test"]
    return tuple(_drawn(check, slug) for check in checks_of(test.source))


def _drawn(check: Check, slug: str) -> Check:
    one = drawn(check, Random(0))
    if one is check:
        return check
    came = bare(plain(eval(one.expression, solved(slug))))  # as a literal would be
    return Check(one.expression, came, one.rtol, one.atol, hidden=True)


def passed(slug: str, answer: str, changed: Callable[[str], str]) -> set[int]:
    """Which of its checks an answer passes, where this stands in the place of the solution."""
    namespace = dict(run_of(slug).before[answer])
    for cell in cells_of(slug, answer, changed)[:-1]:  # without its test
        try:
            execute(cell, namespace)
        except Exception:  # a locked cell may fail on it, as it would in the grader
            continue
    return {i for i, check in enumerate(asked(slug, answer)) if _passes(check, namespace)}


def _passes(check: Check, namespace: dict[str, Any]) -> bool:
    try:
        came = plain(eval(check.expression, namespace))
        right = check.expected if isinstance(check.expected, Sealed) else plain(check.expected)
        return difference(came, right, check.rtol, check.atol) is None
    except Exception:  # whatever a wrong answer ends with
        return False


def earns(slug: str, answer: str, changed: Callable[[str], str]) -> bool:
    """Whether an answer earns anything: it passes a hidden check that the blank one does not.

    Where the question has none, a visible one will do.
    """
    checks, found = asked(slug, answer), passed(slug, answer, changed)
    if any(check.needed and i not in found for i, check in enumerate(checks)):
        return False
    failed = set(range(len(checks))) - _passed_by_blank(slug, answer)
    return bool(found & ({i for i in failed if checks[i].hidden} or failed))


@cache
def _passed_by_blank(slug: str, answer: str) -> frozenset[int]:
    return frozenset(passed(slug, answer, lambda source: blank(slug, answer)))


def blank(slug: str, answer: str) -> str:
    """The answer cell as it is released."""
    [cell] = [c for c in code_cells(load("exercises", slug)) if c.id == answer]
    return cell.source


def functions_of(slug: str, answer: str) -> list[str]:
    """The functions that a question asks for."""
    body = ast.parse(blank(slug, answer)).body
    return [one.name for one in body if isinstance(one, ast.FunctionDef)]


def idle_answers(slug: str, answer: str) -> Iterator[tuple[str, str]]:
    """Answers that took no work: the blank cell, and all that it binds being one and the same."""
    source, functions = blank(slug, answer), functions_of(slug, answer)
    yield "untouched", source
    stores = (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Name))
    values = [one.id for one in stores if isinstance(one.ctx, ast.Store)]
    for name, given in IDLE.items():
        lines = [f"{each} = lambda *given, **named: {given}" for each in functions]
        lines += [f"{each} = {given}" for each in values if "given" not in given]
        if lines:
            yield name, "\n".join([source, *lines])


def cells_of(slug: str, answer: str, changed: Callable[[str], str]) -> list[Cell]:
    """The cells from an answer's to its test's, where this stands in the place of its solution."""
    cells = code_cells(load("solutions", slug))
    ids = [cell.id for cell in cells]
    first, last = ids.index(answer), ids.index(f"{answer}-test")
    return [Cell(answer, changed(cells[first].source), {}), *cells[first + 1 : last + 1]]
