"""What every world asks of the arguments of a run, in the same sentences."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

from dlsys.checks import count
from dlsys.units import format_bytes

_UNRUN: dict[Callable[[object], bool], str] = {
    inspect.isgeneratorfunction: "a generator: its body holds yield",
    inspect.iscoroutinefunction: "asynchronous: it begins with async def",
    inspect.isasyncgenfunction: "an asynchronous generator: it begins with async def",
}
_SEEDS = 2**63


def check_program(world: str, program: Callable[..., object], args: Sequence[Any]) -> tuple:
    """`args` as a tuple, if `program(comm, *args)` can be called; `world` is who will do so.

    Raises TypeError otherwise, and for a program whose call would run nothing.
    """
    if not callable(program):
        raise TypeError(f"{world} got {program!r}; it takes a function program(comm, ...)")
    name = getattr(program, "__name__", "program")
    for is_unrun, words in _UNRUN.items():
        if is_unrun(program) or is_unrun(type(program).__call__):
            raise TypeError(
                f"{world} got {name}, which is {words}. Its call would run nothing of it; write a "
                "function that returns its result"
            )
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise TypeError(
            f"{world} got args={args!r}; it takes what follows comm as a tuple or a list, "
            "args=(x,) for one"
        )
    _check_call(world, program, name, args)
    return tuple(args)


def _check_call(
    world: str, program: Callable[..., object], name: str, args: Sequence[object]
) -> None:
    try:
        signature = inspect.signature(program)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(None, *args)
    except TypeError as error:
        given = ", ".join(["comm", *(f"args[{i}]" for i in range(len(args)))])
        raise TypeError(f"{world} cannot call {name}({given}): {error}") from None


def check_result(rank: int, result: object) -> None:
    """Raise TypeError where a program returned something that still has to run."""
    if inspect.isgenerator(result) or inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # or Python warns that nobody awaited it
        raise TypeError(
            f"rank {rank} returned a {type(result).__name__}, of which nothing has run yet: return "
            "the numbers themselves, in a list"
        )


def check_seed(world: str, seed: int) -> int:
    """`seed`, of any integer type, as an int; ValueError where torch's generators take it not."""
    if not hasattr(seed, "__index__") or isinstance(seed, bool) or not 0 <= int(seed) < _SEEDS:
        raise ValueError(f"{world} got seed={seed!r}; it takes a whole number from 0 to 2**63 - 1")
    return int(seed)


def check_ranks(world: str, ranks: int, nbytes: int) -> int:
    """`ranks` as an int, if so many fit into half of this machine's memory at `nbytes` each.

    Raises ValueError otherwise.
    """
    ranks = count("ranks", ranks)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks > (most := memory // 2 // nbytes):
        raise ValueError(
            f"{world} got {ranks:,} ranks; each takes about {format_bytes(nbytes, binary=True)}, "
            f"and half of this machine's {format_bytes(memory, binary=True)} holds {most:,}"
        )
    return ranks
