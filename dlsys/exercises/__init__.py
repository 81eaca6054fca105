"""What exercise notebooks import: `same(expression, expected)` says whether an answer is right.

Test cells hold calls of `same` and nothing else, and every argument but the expression and its
cost is a literal (or `sealed("...")`), so that a grader can read the expectation from the source
and evaluate the expression elsewhere.
"""

import ast
import linecache
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from dlsys.exercises.judge import difference, kind, likely_mistake, show, unanswered
from dlsys.exercises.plain import NotPlain, plain
from dlsys.exercises.seal import Sealed, seal, sealed
from dlsys.units import format_bytes, format_seconds

__all__ = ["NotPlain", "WrongAnswer", "plain", "same", "seal", "sealed"]

_GREEN_TICK = "\x1b[32m✔\x1b[0m"
_RED_CROSS = "\x1b[31m✘\x1b[0m"


class WrongAnswer(AssertionError):  # noqa: N818  (what it is, to a student who reads it)
    """An answer that differs from what is expected, or cannot be compared with it."""

    def _render_traceback_(self) -> list[str]:
        # IPython shows this in place of a traceback, which would only lead into this file.
        return [f"{_RED_CROSS} {self}"]


def same(
    expression: Any,
    expected: Any,
    *,
    rtol: float = 1e-9,
    atol: float = 0.0,
    hint: str | Mapping[Any, str] | list[tuple[Any, str]] | None = None,
    cost: Any = None,
    best: Mapping[str, float] | None = None,
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
    """
    question = _source_of_expression(sys._getframe(1)) or "the answer"
    try:
        came = plain(expression)
    except NotPlain as error:
        raise WrongAnswer(f"{question} cannot be compared.\n  {error}") from None
    wanted = expected if isinstance(expected, Sealed) else plain(expected)
    wrong = difference(came, wanted, rtol, atol)
    if wrong is None:
        print(f"{_GREEN_TICK} {question}" + _value(question, came) + _cost_line(cost, best))
        return
    if missing := unanswered(came):
        raise WrongAnswer(f"{question}: {missing}")
    lines = [f"{question} is not right.", f"  came:      {show(came)}"]
    lines += [f"  expected:  {show(wanted)}"]
    scalars = type(wanted) in (bool, int, float, str) and kind(came) == kind(wanted)
    if not scalars and not isinstance(wanted, Sealed):
        lines += [f"  where:     {wrong}"]
    mistake = likely_mistake(came, wanted, hint)
    raise WrongAnswer("\n".join([*lines, f"  likely:    {mistake}"] if mistake else lines))


def _value(question: str, came: Any) -> str:
    text = f"{came:.6g}" if type(came) is float else show(came)
    return f" = {text}" if len(text) <= 40 and text != question else ""


def _cost_line(cost: Any, best: Mapping[str, float] | None) -> str:
    if cost is None:
        return ""
    mine = cost if isinstance(cost, Mapping) else _cost_of_run(cost)
    text = f"\n  cost: {_amounts(mine)}"
    return text + (f"   best known: {_amounts(best)}" if best else "")


def _cost_of_run(run: Any) -> dict[str, float]:
    return {
        "bytes": max(run.traffic.sent),
        "messages": len(run.traffic.messages),
        "seconds": run.seconds,
    }


def _amounts(cost: Mapping[str, float]) -> str:
    shown = {"bytes": format_bytes, "seconds": format_seconds}
    parts = [
        shown[name](value) if name in shown else f"{value:,} {name}" for name, value in cost.items()
    ]
    return ", ".join(parts)


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
