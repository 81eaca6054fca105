"""This rank's part of a parameter and of all that its optimizer keeps for it, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dlsys.checks import refuse, refuse_what, shown

WEIGHT = "weight"
"""The name of a parameter itself beside its optimizer's state."""
States = dict[str, dict[str, Any]]
"""By a parameter's name: its weight and its optimizer's state, each a LocalShard or for all."""
_ALLOWED = "what local_shards() of as many ranks gives, part for part"


@dataclass(frozen=True, eq=False)
class LocalShard:
    """Of a tensor of `shape`, flattened, what this rank holds: `tensor` (elements,) from element
    `offset` on. It is no copy: the next step changes it."""

    tensor: Tensor
    offset: int
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of the whole tensor, over all ranks."""
        return torch.Size(self.shape).numel()


def placed(
    mine: Tensor, offset: int, shape: tuple[int, ...], state: Mapping[str, Any]
) -> dict[str, Any]:
    """A part of a parameter, and of its state all that has a number for each of its elements."""
    weight = LocalShard(mine.detach().reshape(-1), offset, tuple(shape))
    parts = {
        key: replace(weight, tensor=value.detach().reshape(-1))
        for key, value in state.items()
        if isinstance(value, Tensor) and value.shape == mine.shape
    }
    return {WEIGHT: weight, **state, **parts}


def check_states(states: Mapping[str, Any], mine: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless `states` has the weights that this rank holds, and no others, and
    each part in them is of as many elements."""
    if states.keys() != mine.keys():
        different = sorted(map(str, states.keys() ^ mine.keys()))
        refuse_what("states", f"other than this rank's in {shown(different)}", _ALLOWED)
    for name, tensor in mine.items():
        values = states[name] if isinstance(states[name], Mapping) else {}
        parts = {key: part for key, value in values.items() if (part := _part(value)) is not None}
        for key in {WEIGHT, *parts}:
            if key not in parts or parts[key].numel() != tensor.numel():
                what = f"a part of {tensor.numel()} elements, with its place"
                refuse(f"states[{name!r}][{key!r}]", values.get(key), what)


@torch.no_grad()
def taken(values: Mapping[str, Any], mine: Tensor) -> dict[str, Any]:
    """Copy the weight into `mine`; returns the rest as the optimizer of `mine` has it."""
    parts = ((key, value, _part(value)) for key, value in values.items())
    found = {key: value if part is None else part.reshape(mine.shape) for key, value, part in parts}
    mine.copy_(found.pop(WEIGHT))
    return found


def _part(value: Any) -> Tensor | None:
    """The tensor of whatever knows its place."""
    part = getattr(value, "tensor", None)
    return part if isinstance(part, Tensor) else None


def load_states(
    optimizer: torch.optim.Optimizer, states: Mapping[Tensor, Mapping[str, Any]]
) -> None:
    """Give each parameter of an optimizer its state; it has none where that is empty.

    Its own load_state_dict puts values into the type and onto the device of their parameter.
    """
    every = [p for group in optimizer.param_groups for p in group["params"]]
    state = {number: states[p] for number, p in enumerate(every) if states[p]}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
