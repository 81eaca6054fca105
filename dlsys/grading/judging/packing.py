"""Values that cross the border of a box: out of it as JSON and bytes, into it as a pickle.

Floats cross exactly, arrays and tensors as their bytes, plans as the fields of classes that offer
themselves (`dlsys.plain_data`). What comes out is checked piece by piece; what goes in comes from
trusted code.
"""

from __future__ import annotations

import importlib
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

from dlsys.exercises.plain import Array
from dlsys.exercises.usual import usual
from dlsys.grading.boxes.sandbox import PACKAGE
from dlsys.grading.judging.wire import Garbled
from dlsys.plain_data import Unfit, as_data, from_data, offered_as

DEEPEST = 40
_LONGEST_SHAPE = 32
_ALIKE = 50  # keys of one hash; of equal ones the last counts, as in a dictionary


def prepare() -> None:
    """Have every mechanism offer its plans; done on both sides before anything is said."""
    for plan in sorted(PACKAGE.glob("*/plan.py")):
        importlib.import_module(f"dlsys.{plan.parent.name}.plan")


class Packer:
    """Values as JSON and bytes. `refer(value)` gives a name for what is no plain value."""

    def __init__(self, refer: Callable[[Any], dict[str, Any]]) -> None:
        self.arrays: list[bytes] = []
        self._size, self._refer = 0, refer

    def pack(self, value: Any, depth: int = 0) -> Any:
        """`value` as JSON. Of a subclass of a container goes what it holds; other subclasses stay,
        for their methods are their author's."""
        value = usual(value)
        kind = type(value)
        if value is None or kind in (bool, str, float):
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {"int": hex(value)}
        if depth > DEEPEST:
            raise Garbled(f"a value nested more than {DEEPEST} levels deep")
        if kind is list:
            return [self.pack(item, depth + 1) for item in value]
        if kind in (tuple, set, frozenset):
            return {kind.__name__: [self.pack(item, depth + 1) for item in value]}
        if kind is dict:
            pairs = [[self.pack(k, depth + 1), self.pack(v, depth + 1)] for k, v in value.items()]
            return {"dict": pairs}
        if value is ...:
            return {"ellipsis": None}
        if kind is complex:
            return {"complex": [value.real, value.imag]}
        if kind is Array:
            return {"plain": [value.kind, list(value.shape), value.values]}
        if name := offered_as(kind):
            return {"data": [name, _fields(value)]}
        if packed := self._library(value, kind):
            return packed
        # A defaultdict, a Counter, a named tuple: the other end does not know such classes.
        base = next((each for each in (dict, list, tuple) if each in kind.__mro__), None)
        return {"remote": self._refer(value)} if base is None else self.pack(base(value), depth)

    def _library(self, value: Any, kind: type) -> dict[str, Any] | None:
        import numpy
        import torch

        from dlsys.world.memory import as_bytes

        is_tensor = kind in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
        if is_tensor and not value.is_nested:
            flat = None if value.is_meta else as_bytes(value.cpu())
            at = None if flat is None else self._keep(flat.numpy().tobytes())
            dtype = str(value.dtype).removeprefix("torch.")
            return {"tensor": [dtype, list(value.shape), at, kind is torch.nn.Parameter]}
        scalar = issubclass(kind, numpy.generic) and kind.__module__ == "numpy"
        if (kind is numpy.ndarray or scalar) and value.dtype.kind in "biufcU":
            array = numpy.asarray(value, order="C")
            return {
                "scalar" if scalar else "array": [
                    array.dtype.str,
                    list(array.shape),
                    self._keep(array.tobytes()),
                ]
            }
        if kind is torch.dtype:
            return {"dtype": str(value).removeprefix("torch.")}
        return None

    def _keep(self, data: bytes) -> list[int]:
        place = [self._size, len(data)]
        self.arrays.append(data)
        self._size += len(data)
        return place


def _fields(value: Any) -> list[Any]:
    """The fields of a value whose class is offered; what is wrong with one becomes a sentence."""
    try:
        return as_data(value)
    except Exception as error:
        raise Garbled(str(error)) from None


def unpack(packed: Any, arrays: memoryview, remote: Callable[[Any], Any], depth: int = 0) -> Any:
    """The value that a box packed; raises Garbled for anything else. Safe for whatever came."""
    if packed is None or type(packed) in (bool, int, float, str):
        return packed
    if depth > DEEPEST + 2:
        raise Garbled("a value nested too deep")

    def inner(part: Any) -> Any:
        return unpack(part, arrays, remote, depth + 1)

    if type(packed) is list:
        return [inner(item) for item in packed]
    if type(packed) is not dict or len(packed) != 1:
        raise Garbled("an unknown form of value")
    [(kind, body)] = packed.items()
    try:
        if kind == "remote":
            return remote(body)
        if kind == "ellipsis":
            return ...
        if kind == "int":
            return int(body, 16)
        if kind == "complex":
            return complex(*map(float, body))
        if kind == "dict":
            pairs = [(inner(key), inner(value)) for key, value in body]
            return dict(zip(_unlike([key for key, _ in pairs]), (v for _, v in pairs), strict=True))
        if kind in ("set", "frozenset"):
            return {"set": set, "frozenset": frozenset}[kind](_unlike([*map(inner, body)]))
        if kind == "tuple":
            return tuple(map(inner, body))
        if kind == "plain":
            return Array(str(body[0]), tuple(map(int, body[1])), body[2])
        if kind == "data":
            return from_data(*body)
        return _library(kind, body, arrays)
    except Garbled:
        raise
    except Unfit as error:
        raise Garbled(str(error)) from None
    except Exception as error:
        raise Garbled(f"a {kind!r:.40} that is none: {type(error).__name__}") from None


def _unlike(keys: list[Any]) -> list[Any]:
    """The keys of a dictionary, unless they were made to collide: each would be compared with all
    before it."""
    hashes = sorted(map(hash, keys))
    if any(one == other for one, other in zip(hashes, hashes[_ALIKE:], strict=False)):
        raise Garbled("keys that were made to collide")
    return keys


def _library(kind: str, body: Any, arrays: memoryview) -> Any:
    import numpy
    import torch

    if kind == "dtype":
        return _torch_dtype(body)
    if kind not in ("tensor", "array", "scalar"):
        raise Garbled(f"an unknown kind of value, {kind!r:.40}")
    dtype, shape, place, *more = body
    if len(shape) > _LONGEST_SHAPE or any(type(n) is not int or n < 0 for n in shape):
        raise Garbled("a shape that is none")
    if kind == "tensor":
        real = _torch_dtype(dtype)
        if place is None:
            return torch.empty(shape, dtype=real, device="meta")
        data = _part(arrays, place, math.prod(shape) * real.itemsize)
        if real is torch.bool:  # a byte that is neither 0 nor 1 is no boolean
            tensor = torch.from_numpy(numpy.frombuffer(data, numpy.uint8).copy()) != 0
        else:
            tensor = torch.frombuffer(data, dtype=real) if data else torch.empty(0, dtype=real)
        tensor = tensor.reshape(shape)
        return torch.nn.Parameter(tensor, requires_grad=False) if more == [True] else tensor
    form = numpy.dtype(str(dtype))
    if form.kind not in "biufcU" or form.fields is not None:
        raise Garbled("an array of objects")
    data = _part(arrays, place, math.prod(shape) * form.itemsize)
    if form.kind == "b":
        array = (numpy.frombuffer(data, numpy.uint8) != 0).reshape(shape)
    else:
        array = numpy.frombuffer(data, form).reshape(shape)
    return array[()] if kind == "scalar" else array


def _torch_dtype(name: Any) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise Garbled("a dtype that is none")
    return dtype


def _part(arrays: memoryview, place: Any, size: int) -> bytearray:
    first, length = place
    if type(first) is not int or length != size or not 0 <= first <= len(arrays) - size:
        raise Garbled("bytes that are not there")
    return bytearray(arrays[first : first + size])


class Pickler(pickle.Pickler):
    """Pickles values for a box; `refer(value)` gives what stands for a value that stays here, or
    None for one that goes."""

    def __init__(self, file: io.BytesIO, refer: Callable[[Any], Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._refer = refer

    def persistent_id(self, value: Any) -> Any:
        """What stands for a value that stays here."""
        return self._refer(value)

    def reducer_override(self, value: Any) -> Any:
        """How a value goes: a tensor that is a part of some memory without the rest, which torch
        would send along. Arrays do so anyway, and a parameter's tensor comes here as well."""
        import torch

        if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
            return NotImplemented
        if value.layout is not torch.strided or value.is_meta or _is_whole(value):
            return NotImplemented
        part = value.detach().clone().requires_grad_(value.requires_grad)
        vars(part).update(vars(value))
        return part.__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor has each byte of its memory, and each once."""
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return tensor.untyped_storage().nbytes() == step * tensor.itemsize


class Unpickler(pickle.Unpickler):
    """In a box: the values, with `resolve(reference)` for each that stayed behind."""

    def __init__(self, file: io.BytesIO, resolve: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._resolve = resolve

    def persistent_load(self, reference: Any) -> Any:
        """What a reference stands for here."""
        return self._resolve(reference)
