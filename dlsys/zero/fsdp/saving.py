"""Shards made whole for a checkpoint, and whole parameters cut into shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.zero.fsdp.sharded_unit import ShardedUnit


@torch.no_grad()
def gathered(unit: ShardedUnit) -> dict[str, Tensor]:
    """The parameters of a unit, whole, in the dtype that they are kept in."""
    found = {}
    for flat in unit.flats:
        shard = flat.shard.detach()
        whole = shard.clone()
        if flat.ranks.shard.size > 1 and flat.layout.shard:
            whole = flat.ranks.shard.all_gather(shard)
        for slot, place, shape in zip(flat.slots, flat.places, flat.shapes, strict=True):
            found[slot.name] = whole[place.start : place.stop].view(shape)
    return found


def places_of(units: Sequence[ShardedUnit]) -> dict[str, tuple[Tensor, int, torch.Size]]:
    """By name this rank's part of each parameter, its first element, and the whole shape."""
    found: dict[str, tuple[Tensor, int, torch.Size]] = {}
    for flat in (flat for unit in units for flat in unit.flats):
        pieces = flat.layout.pieces(flat.ranks.shard.rank)
        for mine, piece, shape in zip(flat.parameters, pieces, flat.shapes, strict=True):
            found[piece.name] = mine, piece.start, shape
    return found


def whole_state(
    state: dict[str, Any], module: nn.Module, whole: Mapping[str, Tensor], prefix: str
) -> dict[str, Any]:
    """The state with whole parameters for shards, under every name that one has."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if prefix + name in state:
            state[prefix + name] = whole[names[id(parameter)]]
    return state


def shards_of(
    state: Mapping[str, Any], module: nn.Module, units: Sequence[ShardedUnit]
) -> dict[str, Any]:
    """The state with this rank's shards for whole parameters.

    Raises ValueError for a parameter of another shape.
    """
    cut = dict(state)
    places = {id(place[0]): place for place in places_of(units).values()}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        value = state.get(name)
        if id(parameter) not in places or not isinstance(value, Tensor):
            continue
        mine, start, shape = places[id(parameter)]
        if value.shape != shape:
            raise ValueError(
                f"state_dict has {name!r} of shape {tuple(value.shape)}; the module's is "
                f"{tuple(shape)}."
            )
        cut[name] = value.detach().reshape(-1)[start : start + mine.numel()]
    return cut


def load(module: nn.Module, state: Mapping[str, Any], strict: bool = True) -> Any:
    """Load shards into a module; raises ValueError where they do not fit."""
    try:
        return module.load_state_dict(state, strict)
    except RuntimeError as error:
        raise ValueError(f"state_dict does not fit: {error}") from None
