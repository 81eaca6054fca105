"""This rank's part of a parameter and of all that its optimizer keeps for it, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dlsys.checks import refuse, refuse_what, shown
from dlsys.tensors import alike, whole_or_not

WEIGHT = "weight"
"""The name of a parameter itself beside its optimizer's state."""
Place = tuple[Tensor, int, torch.Size]
"""This rank's part of a tensor, the first element that it has, and the shape of the whole."""
States = dict[str, dict[str, Any]]
"""By a parameter's name: its weight and its optimizer's state, each a LocalShard or for all."""


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


@torch.no_grad()
def take_back(
    states: Mapping[str, Any],
    mine: Mapping[str, Place],
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Copy each weight into this rank's part of it, and give an optimizer its state.

    Raises ValueError, before anything changes, unless `states` has the weights that this rank
    holds, and no others, and each part in them is of as many elements of such numbers, from the
    same place on.
    """
    if states.keys() != mine.keys():
        different = shown(sorted(map(str, states.keys() ^ mine.keys())))
        allowed = "what local_shards() of as many ranks gives, part for part"
        refuse_what("states", f"other than this rank's in {different}", allowed)
    for name, (tensor, offset, shape) in mine.items():
        values = states[name] if isinstance(states[name], Mapping) else {}
        parts = {key for key, value in values.items() if _part(value) is not None}
        for key in {WEIGHT, *parts}:
            part: Any = values.get(key)
            fits = key in parts and part.tensor.numel() == tensor.numel()
            if isinstance(part, LocalShard):  # another's places were looked at as it was read
                fits = fits and (part.offset, tuple(part.shape)) == (offset, tuple(shape))
            if not fits:
                what = f"a part of {tensor.numel()} elements, from {offset} on of {tuple(shape)}"
                refuse(f"states[{name!r}][{key!r}]", part, what)
    weights: list[tuple[Tensor, Tensor]] = []
    taken: dict[Tensor, dict[str, Any]] = {}
    for name, (tensor, *_) in mine.items():
        pairs = ((key, value, _part(value)) for key, value in states[name].items())
        found = {k: v if part is None else part.reshape(tensor.shape) for k, v, part in pairs}
        weight = found.pop(WEIGHT)
        alike(f"states[{name!r}][{WEIGHT!r}]", weight, tensor)
        weights.append((tensor, weight))
        taken[tensor] = found
    if optimizer is not None:
        every = [p for group in optimizer.param_groups for p in group["params"]]
        state = {number: taken[p] for number, p in enumerate(every) if taken.get(p)}
        groups = optimizer.state_dict()["param_groups"]
        # It puts values into the type and onto the device of their parameter.
        with whole_or_not(optimizer):
            optimizer.load_state_dict({"state": state, "param_groups": groups})
    for tensor, weight in weights:  # last, for it cannot fail
        tensor.copy_(weight)


def _part(value: Any) -> Tensor | None:
    """The tensor of whatever knows its place."""
    part = getattr(value, "tensor", None)
    return part if isinstance(part, Tensor) else None
