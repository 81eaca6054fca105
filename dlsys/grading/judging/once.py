"""In the referee's box: what a call gave, kept for whoever makes the same call again.

A question's checks may say one call in many places, and a student's process keeps its state: were
the call made twice, the result could be of the one and the cost of the other.
"""

from __future__ import annotations

import contextlib
import functools
import json
import types
from collections.abc import Callable, Iterable
from typing import Any

from dlsys.grading.judging.packing import Packer
from dlsys.grading.judging.remote import Remote
from dlsys.grading.judging.wire import Garbled

ONCE = "_once"  # the name under which checks find the calls of their question


class Once:
    """Makes calls, each once: `made` has by call what it gave, or the exception it ended with."""

    def __init__(self) -> None:
        self.made: dict[tuple[str, bytes], tuple[Any, Exception | None]] = {}
        self._alive: list[Any] = []  # else the number of one in a call would be another's later

    def __call__(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What `function` gives for these arguments, or gave."""
        call = self._call(function, args, options)
        if call not in self.made:
            try:
                self.made[call] = function(*args, **options), None
            except Exception as error:
                self.made[call] = None, error
        value, failed = self.made[call]
        if failed is not None:
            raise failed
        return value

    def _call(
        self, function: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[str, bytes]:
        """The same for the same function and equal plain values; other things are what they are."""
        packer = Packer(self._refer)
        parts = len(args), function, *args, *options, *options.values()
        packed = [self._packed(packer, part) for part in parts]
        return json.dumps(packed), b"".join(packer.arrays)

    def _packed(self, packer: Packer, value: Any) -> Any:
        try:
            return packer.pack(value)
        except Garbled:
            return self._refer(value)

    def _refer(self, value: Any) -> dict[str, Any]:
        self._alive.append(value)
        if isinstance(value, Remote):
            return {"remote": value.place}
        if isinstance(value, types.MethodType | types.BuiltinMethodType):
            return {"method": [id(value.__self__), value.__name__]}  # one is made at each look
        return {"id": id(value)}


def reaches(roots: Iterable[Any], value: Any) -> bool:
    """Whether a list, a dictionary, or a part of an array's memory, is in these values, or in what
    they hold."""
    wanted, seen, left = _memory(value), set[int](), list(roots)
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        memory = _memory(each)
        if max(memory.start, wanted.start) < min(memory.stop, wanted.stop):
            return True
        if isinstance(each, list | tuple | set | frozenset):
            left += each
        elif isinstance(each, dict):
            left += each.values()
        left += _attributes(each)
    return False


# From these one comes to the whole process, or to what is the student's.
_CLOSED = (
    *(types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinMethodType),
    *(Remote, Once),
)


def _attributes(value: Any) -> list[Any]:
    """What an object holds by a name or in a slot, and a class that a cell has defined."""
    if isinstance(value, _CLOSED):
        return []
    if isinstance(value, type):
        return [*vars(value).values()] if value.__module__ == "__main__" else []
    held = [type(value), *getattr(value, "__dict__", {}).values()]
    for slot in _slots(type(value)):  # type: ignore[arg-type]
        with contextlib.suppress(AttributeError):  # nothing is in it
            held.append(slot.__get__(value))
    return held


@functools.cache
def _slots(kind: type) -> list[types.MemberDescriptorType]:
    members = [member for one in kind.__mro__ for member in vars(one).values()]
    return [member for member in members if isinstance(member, types.MemberDescriptorType)]


def _memory(value: Any) -> range:
    """Where in memory it is that a change of a value is seen in others."""
    import numpy
    import torch

    arrays = numpy.ndarray | torch.Tensor
    while isinstance(value, numpy.ndarray) and isinstance(value.base, arrays):
        value = value.base
    start, size = id(value), 1
    if isinstance(value, numpy.ndarray):
        start, size = value.ctypes.data, value.nbytes
    elif isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta:
        storage = value.untyped_storage()
        start, size = storage.data_ptr(), storage.nbytes()
    return range(start, start + size)
