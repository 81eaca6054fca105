"""What ran, written down so that it can run again: operations, what they read and drew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dlsys.recomputation.graph import Value


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
    version the other tensors were of, and the random states that it drew from."""

    def __init__(self, function: Any, args: Any) -> None:
        self.function, self.args = function, args
        given = (each for each in tree_leaves(args) if isinstance(each, Tensor))
        self.versions = [(each, each._version) for each in given]
        drawn = torch.Tag.nondeterministic_seeded in function.tags
        self.random = random_states(args) if drawn else None

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
        with drawing(self.random):
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


def address(tensor: Tensor) -> int:
    """Where its storage object lies: on the meta device there is no other address."""
    return tensor.untyped_storage()._cdata


def random_states(args: Any) -> dict[torch.device, Tensor]:
    """The states of the generators that an operation on these may draw from."""
    devices = {each.device for each in tree_leaves(args) if isinstance(each, Tensor)}
    cuda = {each: torch.cuda.get_rng_state(each) for each in devices if each.type == "cuda"}
    return {torch.device("cpu"): torch.get_rng_state(), **cuda}


@contextmanager
def drawing(states: Mapping[torch.device, Tensor] | None) -> Iterator[None]:
    """While open, generators are in these states; then again in those they were in. None: as is."""
    if states is None:
        yield
        return
    with torch.random.fork_rng([each for each in states if each.type == "cuda"]):
        for device, state in states.items():
            if device.type == "cuda":
                torch.cuda.set_rng_state(state, device)
            else:
                torch.set_rng_state(state)
        yield
