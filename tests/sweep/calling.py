"""How what is public is called: in its place, within limits; and whether a refusal names what it refuses."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import math
import re
import resource
import signal
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from dlsys import hardware, network, world
from tests.public_api import IN_A_WORLD, WORDS, Public, matches, public

# Names of annotations that a module has for type checkers alone.
KNOWN: dict[str, Any] = {
    **{name: getattr(hardware, name) for name in ("Link", "Cluster", "Device")},
    **dict.fromkeys(("Figure", "Overlap", "Price"), object),
    **{"Tensor": torch.Tensor, "torch": torch, "Where": network.Where},
    "Communicator": world.Communicator,
}


class TooLongError(Exception):
    """A call took more processor time than it may."""


@contextlib.contextmanager
def limits(memory: int = 2**30, seconds: float = 1.0) -> Iterator[None]:
    """Processor time and memory that a call may take; time only where signals arrive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TooLongError(f"takes more than {seconds:g} s")

    before, old = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGVTALRM, stop)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, old)
        resource.setrlimit(resource.RLIMIT_AS, before)


def hints_of(each: Public) -> dict[str, Any]:
    """The annotations of its parameters."""
    call = each.call
    if inspect.isclass(call):
        call = call.__new__ if issubclass(call, tuple) else call.__init__
    function = inspect.unwrap(getattr(call, "__func__", call))
    classes = {one.call.__name__: one.call for one in public() if inspect.isclass(one.call)}
    return typing.get_type_hints(function, None, KNOWN | classes)


def admits(hint: Any, value: Any) -> bool:
    """Whether a value is of what an annotation says, and finite; True is no number."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Any, object) or isinstance(hint, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(admits(part, value) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is type:
        return isinstance(value, type) and issubclass(value, parts[0])
    if hint in (int, typing.SupportsIndex):
        return type(value) is int
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin in (tuple, list, collections.abc.Sequence, collections.abc.Iterable):
        return isinstance(value, list | tuple) and all(admits(parts[0], part) for part in value)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, dict) and all(admits(parts[1], part) for part in value.values())
    return isinstance(value, hint)


def in_its_place(each: Public, run: Callable[[Public], Any]) -> Any:
    """run(each), in a world of one rank where a communicator is needed."""
    if matches(each.name, IN_A_WORLD):
        ranks = 2 if each.name == "data_parallel.NoiseMeter.estimate" else 1
        return world.simulate(lambda comm: run(each), ranks).results[0]
    if each.name.startswith("world.TorchCommunicator"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            return run(each)
        finally:
            dist.destroy_process_group()
    return run(each)


def names(name: str, error: Exception) -> bool:
    """Whether an error speaks of the parameter of this name."""
    spoken = [name, name.replace("_", " "), name.replace("_", "-"), *WORDS.get(name, ())]
    # As it is written, or as a sentence begins.
    first = (w[0] if len(w) == 1 else f"(?i:{re.escape(w[0])})" for w in spoken)
    words = "|".join(a + re.escape(w[1:]) for a, w in zip(first, spoken, strict=True))
    return bool(re.search(rf"(?<![A-Za-z])({words})(?![A-Za-z])", str(error)))
