"""In the referee's box: what it does when the student's code asks it to, and no more than this."""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable
from typing import Any

from dlsys.grading.judging.wire import Garbled
from dlsys.world.communicator import Communicator

_METHODS = {"send", "recv", "isend", "irecv", "barrier", "compute"}
_NO_SPLIT = (
    "split is not offered where answers are graded: by its group a rank would hear what others "
    "chose, and no message is counted. Use the ranks of the communicator that you were given"
)
# Collectives are those methods of a communicator that take a plan; beside it, what their words are.
_COLLECTIVES = {
    name: words
    for name, method in inspect.getmembers(Communicator, inspect.isfunction)
    if not name.startswith("_") and "plan" in (words := inspect.signature(method).parameters)
}


class Underway:
    """The handle of what a communicator has started."""

    def __init__(self, handle: Any) -> None:
        self.wait: Callable[[], Any] = handle.wait


def act(thing: Any, method: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What the student's code asks to be done with something that is here: no more than this."""
    if isinstance(thing, Underway) and method == "wait":
        return thing.wait()
    if isinstance(thing, types.FunctionType | types.MethodType) and method == "__call__":
        return thing(*args, **options)
    if isinstance(thing, Communicator) and method == "seconds":
        return thing.seconds
    if isinstance(thing, Communicator) and method == "collective":
        return Underway(_collective(thing, *args))
    if isinstance(thing, Communicator) and method == "split":
        raise ValueError(_NO_SPLIT)
    if not isinstance(thing, Communicator) or method not in _METHODS:
        raise Garbled("a call of what cannot be called")
    result = getattr(thing, method)(*args)
    return Underway(result) if method in ("isend", "irecv") else result


def _collective(
    comm: Communicator, kind: Any, tensor: Any, plan: Any, op: Any, root: Any, length: Any
) -> Any:
    if kind not in _COLLECTIVES:
        raise ValueError(f"there is no collective {kind!r}")
    given = {"src": root, "dst": root, "op": op, "length": length}
    options = {name: given[name] for name in _COLLECTIVES[kind] if name in given}
    return getattr(comm, kind)(tensor, plan=plan, async_op=True, **options)


def at_line(line: Any) -> Callable[[Callable[[], Any]], Any]:
    """Call a function from this line of a cell, so that a world's report names it."""
    return _calling(line if type(line) is int and 0 < line < 5_000 else 1)


@functools.lru_cache(maxsize=500)
def _calling(line: int) -> Callable[[Callable[[], Any]], Any]:
    names: dict[str, Any] = {}
    code = "\n" * (line - 1) + "def call(act): return act()"
    exec(compile(code, f"ipykernel{os.sep}cell", "exec"), names)
    return names["call"]
