"""A training state as data: nested dictionaries, lists and tuples of tensors and plain values.

A state is taken apart into tensors by name and a tree of plain JSON that says where each was: what
is written holds no code, and nothing that is read is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what
from dlsys.resilience.plan import Region, TensorEntry
from dlsys.resilience.tree import DEEPEST, PLAIN, at
from dlsys.tensors import strided

DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8},
    **{"C64": torch.complex64, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn},
    **{"F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu},
}
"""torch's types by the names that safetensors has for them."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_MOST_BITS = 14_000
_KINDS = (
    "a tensor, a Shard, a PerRank, a dictionary, a list, a tuple, a NumPy array, a number, text, "
    "bytes or None"
)


@checked
@dataclass(frozen=True, eq=False)
class Shard:
    """This rank's part of a tensor that is cut over ranks, along one axis or several.

    tensor: the part; it lies at `offsets` in a tensor of the global `shape`. The same part may be
    held by several ranks. `tensor` may be on the device meta where a shard only says what to read.
    Raises ValueError where the part reaches beyond the shape.
    """

    tensor: Tensor
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("offsets", "shape"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple):
                refuse(name, value, "a sequence of whole numbers, one for each axis")
            whole = tuple(count(f"A number of {name}", each, 0) for each in value)
            object.__setattr__(self, name, whole)
            if len(whole) != self.tensor.dim():
                axes = f"of {self.tensor.dim()} numbers, as the tensor has axes"
                refuse(name, whole, axes)
        ends = [o + s for o, s in zip(self.offsets, self.tensor.shape, strict=True)]
        if any(end > size for end, size in zip(ends, self.shape, strict=True)):
            part = f"a tensor of shape {tuple(self.tensor.shape)}"
            refuse("offsets", self.offsets, f"such that {part} lies within the shape {self.shape}")


@checked
@dataclass(frozen=True, eq=False)
class PerRank:
    """A value that every rank has of its own, such as the state of its random numbers."""

    value: Any


class State:
    """A state taken apart: `tree` is JSON, `entries` are tensors by name, `parts` what is held."""

    def __init__(self, state: Any, rank: int) -> None:
        self.entries: dict[str, TensorEntry] = {}
        self.parts: dict[Region, Tensor] = {}
        self._rank, self._inside = rank, False
        self.tree = self._take(state, ())

    def _take(self, value: Any, path: tuple[str, ...]) -> Any:
        """The tree of a value; every list in it begins with what it stands for."""
        if type(value) in PLAIN:
            return _written(f"state{at(path)}", value)
        if len(path) > DEEPEST:
            raise ValueError(f"state is more than {DEEPEST} deep, or without end: make it flatter.")
        if isinstance(value, Shard):
            return ["shard", self._keep(path, value.tensor, value.offsets, value.shape)]
        if isinstance(value, Tensor):
            return ["tensor", self._keep(path, value)]
        if isinstance(value, np.ndarray):
            return ["array", self._take(_of_array(value, path), path)[1]]
        if isinstance(value, PerRank):
            return self._own(value.value, path)
        if isinstance(value, bytes):
            return ["bytes", value.hex()]
        if isinstance(value, Mapping):
            pairs = [
                [_key(key, path), self._take(v, (*path, str(key)))] for key, v in value.items()
            ]
            return ["dict", pairs]
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, *(self._take(v, (*path, str(i))) for i, v in enumerate(value))]
        if isinstance(value, np.generic) and type(value.item()) in PLAIN:
            return value.item()
        refuse(f"state{at(path)}", value, _KINDS)

    def _own(self, value: Any, path: tuple[str, ...]) -> Any:
        """What is this rank's alone, under names of its own."""
        if self._inside:
            refuse_what(f"state{at(path)}", "a PerRank within a PerRank", "within one alone")
        self._inside = True
        mine = self._take(value, (*path, f"rank {self._rank}"))
        self._inside = False
        return ["per rank", [[self._rank, mine]]]

    def _keep(
        self,
        path: tuple[str, ...],
        tensor: Tensor,
        offsets: tuple[int, ...] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> str:
        """The name of a tensor, or of its part from `offsets` on; None: it is whole."""
        name = "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)
        where = f"state{at(path)}"
        strided(where, tensor)
        if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            plain = "a plain tensor; of a DTensor, its to_local() in a Shard"
            refuse_what(where, f"a {type(tensor).__name__}", plain)
        sizes = tuple(tensor.shape)
        if tensor.is_meta:
            refuse_what(where, "on the device meta", "on a device that holds numbers")
        if tensor.dtype not in _NAMES:
            view = "torch.view_as_real(it)" if tensor.is_complex() else "it in another type"
            refuse_what(where, f"of {tensor.dtype}", f"of a type that safetensors has: pass {view}")
        if name in self.entries:
            refuse_what(where, "a key that another one equals as text", "a key of its own")
        self.entries[name] = TensorEntry(
            name, sizes if shape is None else shape, _NAMES[tensor.dtype]
        )
        region = Region(name, (0,) * len(sizes) if offsets is None else offsets, sizes)
        self.parts[region] = tensor.detach().resolve_conj().resolve_neg()
        return name


def _written(name: str, value: Any) -> Any:
    """A plain value; raises ValueError for a number that Python does not write."""
    if type(value) is int and value.bit_length() > _MOST_BITS:
        refuse(name, value, f"a number of at most {_MOST_BITS:,} bits")
    return value


def _of_array(array: np.ndarray, path: tuple[str, ...]) -> Tensor:
    if isinstance(array, np.ma.MaskedArray):
        refuse_what(f"state{at(path)}", "a masked array", "its .data and its .mask")
    try:
        return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
    except (TypeError, ValueError):
        refuse_what(f"state{at(path)}", f"an array of {array.dtype}", "of a type that torch has")


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if type(key) not in (str, int):
        refuse(f"A key of state{at(path)}", key, "text or a whole number", TypeError)
    return _written(f"A key of state{at(path)}", key)
