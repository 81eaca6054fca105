"""Which units' weights are whole on this rank, and what autograd keeps in their stead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dlsys.zero.fsdp.sharded_flat import ShardedFlat
from dlsys.zero.fsdp.sharded_unit import ShardedUnit
from dlsys.zero.journal import Journal
from dlsys.zero.plan import FREE_WEIGHTS, GATHER


class Saved(NamedTuple):
    """What autograd keeps of a gathered weight until backward: where it stands, not what it is.

    So the weight can be freed. `use` is the call of the unit that saved it.
    """

    use: Any
    flat: ShardedFlat
    shape: Sequence[int]
    stride: Sequence[int]
    offset: Any


class Weight(torch.autograd.Function):
    """A whole weight; backward lays its gradient into the unit's flat, and ends there."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, use: Any, flat: ShardedFlat, index: int) -> Tensor:
        """`anchor` requires gradients, so that the weight does."""
        ctx.use, ctx.flat, ctx.index = use, flat, index
        return flat.view(index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        """Nothing goes further: a reduction brings the gradient to the shard."""
        ctx.use.take(ctx.flat, ctx.index, gradient)
        return None, None, None, None


class Gathering:
    """The units of a model, gathered and freed by whoever comes to need them.

    `micro_batch` is the one that actions are noted for.
    """

    def __init__(
        self, units: Sequence[ShardedUnit], prefetch: int, journal: Journal, device: torch.device
    ) -> None:
        self.units, self.prefetch, self.journal = units, prefetch, journal
        self.micro_batch = 0
        self._anchor = torch.empty(0, device=device, requires_grad=True)
        self._by_storage: dict[int, tuple[Any, ShardedFlat]] = {}

    def note(self, kind: str, unit: ShardedUnit) -> None:
        """Write down what is done."""
        self.journal.note(kind, unit.index, self.micro_batch)

    def ask_for(self, units: Iterable[ShardedUnit]) -> None:
        """Begin to gather those that are not here, or that have been written to since."""
        for unit in units:
            if unit.is_gathered and unit.is_stale:
                self.free([unit])
            if not unit.is_gathered:
                self.note(GATHER, unit)
                for flat in unit.flats:
                    flat.start_gather()

    def wait(self, unit: ShardedUnit) -> None:
        """Return when the weights of a unit that was asked for have come."""
        for flat in unit.flats:
            flat.wait()

    def free(self, units: Iterable[ShardedUnit]) -> None:
        """Give weights back that are here."""
        for unit in units:
            if unit.is_gathered:
                self.note(FREE_WEIGHTS, unit)
            for flat in unit.flats:
                if flat.full is not None:
                    self._by_storage.pop(flat.full.untyped_storage()._cdata, None)
            unit.free()

    def show(self, use: Any) -> None:
        """Let the modules of a unit that is here compute with its weights, in this use of it."""
        use.unit.show(lambda flat, index: self._weight(use, flat, index))

    def _weight(self, use: Any, flat: ShardedFlat, index: int) -> Tensor:
        if not torch.is_grad_enabled() or not flat.parameters[index].requires_grad:
            return flat.view(index)
        weight = Weight.apply(self._anchor, use, flat, index)
        # The node's turn in backward comes at once, as that of a leaf does: whole gradients would
        # pile up if it came, by its age, when the rest of the unit is through.
        weight.grad_fn._set_sequence_nr(2**63 - 1)
        return weight

    def belongs_to(self, use: Any) -> None:
        """From now on it is this use that saves its unit's weights."""
        for flat in use.unit.flats:
            self._by_storage[flat.wait().untyped_storage()._cdata] = (use, flat)

    def pack(self, tensor: Tensor) -> Any:
        """What to keep of a tensor that backward will read."""
        found = self._by_storage.get(tensor.untyped_storage()._cdata)
        if found is None or tensor.dtype != found[1].compute:
            return tensor
        use, flat = found
        return Saved(use, flat, tensor.shape, tensor.stride(), tensor.storage_offset())

    def unpack(self, kept: Any) -> Tensor:
        """The tensor again, gathered where it is not here."""
        if not isinstance(kept, Saved):
            return kept
        kept.use.enter()
        return kept.flat.wait().as_strided(kept.shape, kept.stride, kept.offset)
