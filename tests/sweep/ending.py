"""How one call ends in which one argument is of another kind: told from the call with the plain value."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch

from dlsys import world
from dlsys.exercises import WrongAnswer
from tests.public_api import Public
from tests.sweep.calling import TooLongError, limits, names
from tests.sweep.values import KINDS

REFUSED, RIGHT, TAKEN = "refused by name", "taken, and right", "taken"
UNNAMED, WRONG, CRASHED = "refused without a name", "taken, and wrong", "another exception"
HUNG, KILLED = "hung", "killed the process"
ENDINGS = (REFUSED, RIGHT, TAKEN, UNNAMED, CRASHED, WRONG, HUNG, KILLED)
# Whose results nobody can compare: they hold times, or tell one kind of value from another.
UNTOLD = ("exercises.plain", "roofline.autotune", "roofline.best_seconds", "roofline.under_roof")
SECONDS = 10.0  # of processor time


class Untold(Exception):  # noqa: N818  (it is no error)
    """A result of which nobody can say whether it is another one."""


class Ending(NamedTuple):
    """What came of a call, and the words of it."""

    kind: str
    words: str = ""


def ending(each: Public, name: str, kind: str) -> Ending:
    """How `each` ends with a value of this kind as `name`, and right ones for the rest."""
    value = KINDS[kind](each.said.get(name))
    try:
        result = _called(each, name, value.passed)
        written = repr(result)
    except WrongAnswer as answer:
        return Ending(REFUSED, str(answer))  # what `same` is for
    except (ValueError, TypeError) as error:
        return Ending(REFUSED if names(name, error) else UNNAMED, str(error))
    except TooLongError as error:
        return Ending(HUNG, str(error))
    except (Exception, MemoryError) as error:
        if documented(error):
            return Ending(REFUSED, str(error))
        return Ending(CRASHED, f"{type(error).__name__}: {error}")
    if not value.has_plain or each.name in UNTOLD:
        return Ending(TAKEN, written[:80])
    try:
        told, plain, again = (
            told_of(r) for r in (result, *(_called(each, name, value.plain) for _ in "12"))
        )
    except (Untold, Exception):
        return Ending(TAKEN)
    if not alike(plain, again):
        return Ending(TAKEN)  # another one each time
    return Ending(RIGHT) if alike(told, plain) else Ending(WRONG, f"{told} is not {plain}")


def documented(error: BaseException) -> bool:
    """Whether docstrings speak of it: a file that is not to be had, a world that has ended, ranks
    whose calls do not meet."""
    ended = "belongs to a run that has ended" in str(error)
    return ended or isinstance(error, OSError | world.DeadlockError)


def _called(each: Public, name: str, value: Any) -> Any:
    torch.manual_seed(0)  # so that a model is the same each time
    arguments = {**each.arguments(), name: value}
    with limits(seconds=SECONDS), contextlib.redirect_stdout(io.StringIO()):
        return each.call(**arguments)


def told_of(result: Any, depth: int = 8) -> Any:
    """A result as lists and numbers; raises Untold for what is neither."""
    if not depth:
        raise Untold
    if isinstance(result, torch.Tensor | np.ndarray | np.generic):
        if isinstance(result, torch.Tensor):
            if result.is_meta:
                return [str(result.dtype), list(result.shape)]
            result = result.detach().float().numpy()
        return told_of(result.tolist(), depth - 1)
    if result is None or isinstance(result, str | bytes | Real):
        return result
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return [type(result).__name__, told_of(vars(result), depth - 1)]
    if isinstance(result, Mapping):
        return [[told_of(key, 2), told_of(part, depth - 1)] for key, part in result.items()]
    if isinstance(result, list | tuple | range):
        return [told_of(part, depth - 1) for part in result]
    raise Untold


def alike(one: Any, other: Any) -> bool:
    """Whether two results are the same, but for the last bits of their numbers."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, Real) and isinstance(other, Real):
        return math.isclose(one, other, rel_tol=1e-9) or (one != one and other != other)
    return type(one) is type(other) and one == other
