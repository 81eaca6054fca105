"""A unit of a sharded model: its flats, and how whole weights get into its modules and out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.zero.fsdp.membership import Slot
from dlsys.zero.fsdp.sharded_flat import Ranks, Reduction, ShardedFlat
from dlsys.zero.journal import Journal


class ShardedUnit:
    """Parameters that are gathered and reduced together, in one flat for each dtype, frozen ones
    apart."""

    def __init__(
        self,
        index: int,
        name: str,
        module: nn.Module,
        slots: Sequence[Slot],
        make: Callable[[Sequence[Slot]], ShardedFlat],
    ) -> None:
        self.index, self.name, self.module = index, name, module
        alike: dict[Any, list[Slot]] = {}
        for slot in slots:
            key = (slot.parameter.dtype, slot.parameter.requires_grad)
            alike.setdefault(key, []).append(slot)
        self.flats = [make(each) for each in alike.values()]
        self._recurrent = {o for s in slots for o, _ in s.owners if isinstance(o, nn.RNNBase)}
        for flat in self.flats:
            for slot, parameter in zip(flat.slots, flat.parameters, strict=True):
                for owner, leaf in slot.owners:
                    owner._parameters[leaf] = parameter
            # The whole parameters go here; a slot keeps its name, its owners and the shard.
            flat.slots = [
                slot._replace(parameter=parameter)
                for slot, parameter in zip(flat.slots, flat.parameters, strict=True)
            ]
        self._refresh()

    @property
    def elements(self) -> int:
        """Parameters, without padding."""
        return sum(flat.layout.elements for flat in self.flats)

    @property
    def is_gathered(self) -> bool:
        """Whether the weights are here, or on their way."""
        return any(flat.is_gathered for flat in self.flats)

    @property
    def is_coming(self) -> bool:
        """Whether weights are on their way."""
        return any(flat.is_coming for flat in self.flats)

    @property
    def is_stale(self) -> bool:
        """Whether shards have been written to since the weights were gathered."""
        return any(flat.version != flat.shard._version for flat in self.flats)

    @property
    def versions(self) -> tuple[int, ...]:
        """What changes when somebody writes to the shards."""
        return tuple(flat.shard._version for flat in self.flats)

    @property
    def is_kept(self) -> bool:
        """Whether whole gradients are here that no reduction has taken."""
        return any(flat.whole is not None for flat in self.flats)

    def show(self, weight: Callable[[ShardedFlat, int], Tensor]) -> None:
        """Let every module see whole weights where its parameters are.

        Attributes in a module's __dict__ come before its `_parameters`, which stay as they are.
        """
        for flat in self.flats:
            for index, slot in enumerate(flat.slots):
                whole = weight(flat, index)
                for owner, leaf in slot.owners:
                    owner.__dict__[leaf] = whole
        self._refresh()

    def hide(self) -> None:
        """Let the modules see their shards again."""
        for flat in self.flats:
            for slot in flat.slots:
                for owner, leaf in slot.owners:
                    owner.__dict__.pop(leaf, None)
        self._refresh()

    def _refresh(self) -> None:
        """Recurrent layers of torch keep a list of their weights besides."""
        for layer in self._recurrent:
            layer._flat_weights = [getattr(layer, name) for name in layer._flat_weights_names]

    def free(self) -> None:
        """Give the whole weights back."""
        self.hide()
        for flat in self.flats:
            flat.free()

    def start_reduce(self) -> list[Reduction]:
        """Start to reduce the gradients of what is trained."""
        return [flat.start_reduce() for flat in self.flats if flat.is_trained]

    def check(self) -> None:
        """Raise RuntimeError where a parameter is no longer the one that stands in the shard."""
        for flat in self.flats:
            start = flat.shard.data_ptr()
            for slot in flat.slots:
                is_there = all(o._parameters.get(leaf) is slot.parameter for o, leaf in slot.owners)
                ahead = slot.parameter.data_ptr() - start
                if not is_there or (slot.parameter.numel() and not 0 <= ahead < flat.shard.nbytes):
                    raise RuntimeError(
                        f"{slot.name!r} is not the shard that FullyShardedDataParallel made: move, "
                        "convert and replace parameters before it is built."
                    )


def flats_of(
    ranks: Ranks, compute: torch.dtype | None, reduce: torch.dtype | None, journal: Journal
) -> Callable[[Sequence[Slot]], ShardedFlat]:
    """What makes a flat of some slots, for units that are all sharded alike."""
    return lambda slots: ShardedFlat(slots, ranks, compute, reduce, journal)
