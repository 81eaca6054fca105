"""Which units' weights are whole on this rank, and what autograd keeps in their stead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from dlsys.zero.journal import Journal
from dlsys.zero.plan import FREE_WEIGHTS, GATHER
from dlsys.zero.sharded_flat import ShardedFlat
from dlsys.zero.sharded_unit import ShardedUnit


class Saved(NamedTuple):
    """What autograd keeps of a gathered weight until backward: where it stands, not what it is.

    So the weight can be freed. `use` is the call of the unit that saved it.
    """

    use: Any
    flat: ShardedFlat
    shape: Sequence[int]
    stride: Sequence[int]
    offset: Any


class Gathering:
    """The units of a model, gathered and freed by whoever comes to need them.

    `micro_batch` is the one that actions are noted for.
    """

    def __init__(self, units: Sequence[ShardedUnit], prefetch: int, journal: Journal) -> None:
        self.units, self.prefetch, self.journal = units, prefetch, journal
        self.micro_batch = 0
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

    def belongs_to(self, use: Any, unit: ShardedUnit) -> None:
        """From now on it is this use that saves the unit's weights."""
        for flat in unit.flats:
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
