"""What a sharded optimizer holds on this rank, counted from its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dlsys.tensors import storage_bytes
from dlsys.zero.price import Held


@dataclass(frozen=True)
class Resident(Held):
    """`Held`, counted from real storages, each once and in full, on the parameters' device.

    `host` are the bytes of what is offloaded, `steps` those of the counters of steps, one number
    for each piece of a parameter, which the formulas leave out. `unreduced` counts since the last
    step began, and `gathered` is 0: whole weights are at rest.
    """

    host: int = 0
    steps: int = 0


def resident(
    weights: Sequence[Tensor],
    shards: Sequence[Tensor],
    copies: Sequence[Tensor],
    state: Sequence[Tensor],
    unreduced: int,
    is_offloaded: bool,
) -> Resident:
    """What these tensors take: the parameters, and this rank's shards of gradients, master copies
    and state of the optimizer, beside a peak of `unreduced` bytes."""
    whole = [parameter.grad for parameter in weights if parameter.grad is not None]
    numbers = [each for each in state if each.dim()] + list(copies)
    return Resident(
        weights=storage_bytes(weights),
        gradients=storage_bytes(whole if is_offloaded else [*whole, *shards]),
        optimizer=0 if is_offloaded else storage_bytes(numbers),
        gathered=0,
        unreduced=unreduced,
        host=storage_bytes([*shards, *numbers]) if is_offloaded else 0,
        steps=storage_bytes(each for each in state if not each.dim()),
    )
