"""What ran, written down so that it can run again: operations, what they read and drew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dlsys.recomputation.graph import Value
from dlsys.recomputation.states import State
from dlsys.tensors import address


@dataclass(frozen=True)
class Part:
    """A tensor as a part of a value: which numbers of its storage, in which order."""

    value: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, whole: Tensor) -> Tensor:
        """This part of any tensor that lies in the value's storage."""
        return whole.as_strided(self.size, self.stride, self.offset)


class Call:
    """An operation as it ran: `args` with a `Part` for each tensor that an operation made, what
    version the other tensors were of, and the random states of all `given` that it drew from."""

    def __init__(self, function: Any, args: Any, given: Iterable[Tensor]) -> None:
        self.function, self.args = function, args
        others = (each for each in tree_leaves(args) if isinstance(each, Tensor))
        self.versions = [(each, each._version) for each in others]
        drawn = torch.Tag.nondeterministic_seeded in function.tags
        self.state = State(given) if drawn else None

    def again(self, values: Mapping[str, Tensor]) -> Any:
        """Run it on the values that its parts are of; raises RuntimeError where another tensor
        that it read was changed since."""
        for tensor, version in self.versions:
            if tensor._version != version:
                raise RuntimeError(
                    f"{self.function} is to run again in backward, and a tensor of shape "
                    f"{tuple(tensor.shape)} that it read was changed in place since it first ran."
                )
        args, kwargs = tree_map_only(Part, lambda part: part.of(values[part.value]), self.args)
        with self.state.restored() if self.state else nullcontext():
            return self.function(*args, **kwargs)


@dataclass
class Recipe:
    """How the storages of an operation came to be: its call, and those that wrote to them later."""

    name: str
    outputs: tuple[Value, ...]
    calls: list[Call] = field(default_factory=list)
    inputs: dict[str, None] = field(default_factory=dict)
    flops: int = 0

    def again(self, held: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The outputs, made once more of what is held."""
        first, *later = self.calls
        made = storages(first.again(held))
        own = dict(zip((value.name for value in self.outputs), made, strict=True))
        for call in later:
            call.again({**held, **own})
        return own


def storages(result: Any) -> list[Tensor]:
    """A tensor for each storage of what an operation gave."""
    tensors = (each for each in tree_leaves(result) if isinstance(each, Tensor))
    return [*{address(each): each for each in reversed([*tensors])}.values()][::-1]
