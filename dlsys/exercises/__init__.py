"""What exercise notebooks import: `same(expression, expected)` says whether an answer is right.

Test cells hold calls of `same` and nothing else, and every argument but the expression and its
cost is a literal (or `sealed("...")`), so that a grader can read the expectation from the source
and evaluate the expression elsewhere.
"""

import ast
import linecache
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from dlsys.exercises.cost import amounts, cost_line, cost_of
from dlsys.exercises.judge import approval, complaint, difference
from dlsys.exercises.options import check_options
from dlsys.exercises.plain import NotPlain, plain
from dlsys.exercises.seal import Sealed, seal, sealed
from dlsys.exercises.wrong import GREEN_TICK, OtherStructure, WrongAnswer

__all__ = [
    "NotPlain",
    "OtherStructure",
    "Sealed",
    "WrongAnswer",
    "amounts",
    "cost_line",
    "cost_of",
    "plain",
    "same",
    "seal",
    "sealed",
]


def same(
    expression: Any,
    expected: Any,
    *,
    rtol: float = 1e-9,
    atol: float = 0.0,
    hint: str | Mapping[Any, str] | list[tuple[Any, str]] | None = None,
    cost: Any = None,
    best: Mapping[str, float] | None = None,
    vary: Mapping[Any, Sequence[Any]] | None = None,
    weight: float = 1,
    needed: bool = False,
) -> None:
    """Print a green tick where the expression is what is expected; raise WrongAnswer otherwise.

    expression: the answer, of plain values: numbers, booleans, text, None, lists, tuples,
        dictionaries, NumPy arrays, torch tensors
    expected: plain too, or `sealed("...")`; whole numbers and text are compared exactly
    rtol, atol: tolerance for floats, as in math.isclose
    hint: what the mistake probably is: one text, or {wrong value: text} with None for any other
        (see `judge.likely_mistake`)
    cost: what the answer cost, a run of a world or {"bytes": ..., "messages": ..., "seconds":
        ...}; shown beside `best`, the cost of the best answer known
    vary: {a literal of the expression: [others to put in its place]}, for a grader, which draws one
        and expects what the solution then gives; without effect here
    weight, needed: for a grader: how much of the question's points the check is worth beside the
        others, and whether an answer that fails it earns none of them
    """
    check_options(
        rtol=rtol, atol=atol, hint=hint, best=best, vary=vary, weight=weight, needed=needed
    )
    paid = None if cost is None else cost_of(cost)
    question = _source_of_expression(sys._getframe(1)) or "the answer"
    try:
        came = plain(expression)
    except NotPlain as error:
        raise WrongAnswer(f"{question} cannot be compared.\n  {error}") from None
    wanted = expected if isinstance(expected, Sealed) else plain(expected, "expected")
    wrong = difference(came, wanted, rtol, atol)
    if wrong is not None:
        raise WrongAnswer(complaint(question, came, wanted, wrong, hint, rtol))
    lines = [f"{GREEN_TICK} {approval(question, came, rtol)}"]
    print("\n".join(lines if paid is None else [*lines, cost_line(paid, best)]))


def _source_of_expression(frame: FrameType) -> str | None:
    """The text of the first argument of the call that `frame` is in; None where it has no source.

    The interpreter keeps the position of every call (PEP 657), so this works for calls over
    several lines and for several calls in one.
    """
    try:
        first, last, begin, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if first is None:
            return None
        lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last]
        encoded = [line.encode() for line in lines]
        encoded[-1] = encoded[-1][:end]  # before the beginning is cut: they may be one line
        encoded[0] = encoded[0][begin:]
        text = b"".join(encoded).decode()
        call = ast.parse(text, mode="eval").body
        source = ast.get_source_segment(text, call.args[0]) if isinstance(call, ast.Call) else None
    except (IndexError, SyntaxError, TypeError, UnicodeDecodeError):
        return None
    return " ".join(source.split()) if source else None
