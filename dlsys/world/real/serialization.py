"""What goes from Python to the ranks of a launch, and what comes back, as bytes."""

from __future__ import annotations

import linecache
import os
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle

from dlsys.checks import refuse_what
from dlsys.world.run import Run
from dlsys.world.span import Span
from dlsys.world.timeline import timeline_of
from dlsys.world.traffic import Traffic


def packed(program: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    """Program and arguments as bytes; raises TypeError that names what cannot be sent."""
    try:
        return cloudpickle.dumps((program, args))
    except Exception as error:
        failure = error
    for name, value in [("program", program), *((f"args[{i}]", a) for i, a in enumerate(args))]:
        _try_to_pack(name, value)
    raise failure


def _try_to_pack(name: str, value: object) -> None:
    try:
        cloudpickle.dumps(value)
        return
    except Exception as error:
        why = f"a {type(value).__name__}, which cannot be sent to another process ({error})"
    made = "of numbers, tensors and text, and the program makes whatever else it needs"
    refuse_what(name, why, made, TypeError)


def source_of(program: Callable[..., Any]) -> tuple[str, list[str]] | None:
    """The text of a notebook's cell, which no file holds, for the processes' tracebacks."""
    code = getattr(program, "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return None
    return code.co_filename, linecache.getlines(code.co_filename)


def gathered(parts: Iterable[bytes]) -> Run:
    """The run whose parts the ranks have sent, in their order."""
    results, seconds, spans = [], [], list[Span]()
    unpacked = [pickle.loads(part) for part in parts]
    traffic = Traffic(len(unpacked))
    for rank, (result, messages, calls, waits, took) in enumerate(unpacked):
        results.append(_result(rank, result))
        traffic.messages += messages
        traffic.calls += calls
        spans += waits
        seconds.append(took)
    traffic.messages.sort(key=lambda m: (m.start, m.end))
    traffic.calls.sort(key=lambda c: (c.start, c.end))
    return Run(results, traffic, max(seconds), timeline_of(traffic, spans))


def _result(rank: int, result: bytes) -> Any:
    try:
        return pickle.loads(result)
    except Exception as error:  # a class may refuse to be made again
        raise TypeError(
            f"rank {rank} returned what cannot be read here ({error}): return tensors, numbers, "
            "lists, dicts"
        ) from None
