"""What every world asks of the arguments of a run, in the same sentences."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from dlsys.checks import count, refuse, refuse_what, text, whole
from dlsys.units import format_bytes

_UNRUN: dict[Callable[[object], bool], str] = {
    inspect.isgeneratorfunction: "a generator (its body holds yield)",
    inspect.iscoroutinefunction: "asynchronous (it begins with async def)",
    inspect.isasyncgenfunction: "an asynchronous generator (it begins with async def)",
}
_SEEDS = 2**63  # that torch's generators take


def check_program(program: Callable[..., object], args: Sequence[Any]) -> tuple:
    """`args` as a tuple, if `program(comm, *args)` can be called.

    Raises TypeError otherwise, and for a program whose call would run nothing.
    """
    if not callable(program):
        refuse("program", program, "a function program(comm, ...)", TypeError)
    name = getattr(program, "__name__", "program")
    for is_unrun, words in _UNRUN.items():
        if is_unrun(program) or is_unrun(type(program).__call__):
            nothing = f"{name}, {words}: its call would run nothing of it"
            refuse_what("program", nothing, "a function that returns its result", TypeError)
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        allowed = "a tuple or a list of what follows comm: args=(x,) for one"
        refuse("args", args, allowed, TypeError)
    _check_call(program, name, args)
    return tuple(args)


def _check_call(program: Callable[..., object], name: str, args: Sequence[object]) -> None:
    try:
        signature = inspect.signature(program)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(None, *args)
        return
    except TypeError as error:
        taken = f"what {name}{signature} takes after comm: {error}"
    refuse("args", args, taken, TypeError)


def check_result(rank: int, result: object) -> None:
    """Raise TypeError where a program returned something that still has to run."""
    if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaited it
        raise TypeError(
            f"rank {rank} returned a {type(result).__name__}, of which nothing has run yet: return "
            "the numbers themselves, in a list"
        )


def check_seed(seed: int) -> int:
    """`seed`, of any integer type, as an int; ValueError where torch's generators take it not."""
    return count("seed", seed, 0, _SEEDS - 1)


def check_split(color: Hashable, key: int | None, axis: str) -> None:
    """Raise ValueError for what a communicator cannot be split by."""
    if not isinstance(color, Hashable):
        refuse("color", color, "a number, text, or a tuple of them; or None")
    if key is not None:
        whole("key", key)
    text("axis", axis)


def check_ranks(ranks: int, nbytes: int) -> int:
    """`ranks` as an int, if so many fit into half of this machine's memory at `nbytes` each.

    Raises ValueError otherwise.
    """
    ranks = count("ranks", ranks)
    if not hasattr(os, "sysconf"):  # Windows, where nobody says it without a package more
        return ranks
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks > (most := memory // 2 // nbytes):
        each, half = format_bytes(nbytes, binary=True), format_bytes(memory // 2, binary=True)
        most_ranks = f"at most {most:,}: each takes about {each}, and half of this machine's memory"
        refuse_what("ranks", f"{ranks:,}", f"{most_ranks} is {half}")
    return ranks
