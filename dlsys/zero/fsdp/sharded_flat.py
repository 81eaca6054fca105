"""One flat of a unit: parameters end to end of which this rank keeps a shard.

The whole comes by an all-gather and goes when nobody reads it any more; whole gradients are
laid into one tensor as they come, and go by a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.world import Communicator, Handle
from dlsys.zero.flat import flat
from dlsys.zero.fsdp.membership import Slot
from dlsys.zero.journal import Journal


@dataclass(frozen=True)
class Ranks:
    """Whom this rank shares with: the world, its shard group, and those who hold the same shards
    (None: nobody else does)."""

    world: Communicator
    shard: Communicator
    replica: Communicator | None


class Given:
    """A handle of what is there already."""

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> Tensor:
        """The result."""
        return self._result


class ShardedFlat:
    """Parameters of one dtype, end to end, padded, cut into one equal shard a rank.

    `shard` (elements,) is this rank's; `parameters` are views into it, which stand in the modules.
    Gathers carry `compute` as their dtype, reductions `reduce`.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        ranks: Ranks,
        compute: torch.dtype | None,
        reduce: torch.dtype | None,
        journal: Journal,
    ) -> None:
        self.slots, self.ranks, self.journal = slots, ranks, journal
        self.layout = flat({slot.name: slot.parameter.numel() for slot in slots}, ranks.shard.size)
        first = slots[0].parameter
        is_floating = first.is_floating_point()
        self.dtype, self.device = first.dtype, first.device
        self.compute = compute if compute and is_floating else first.dtype
        self.reduce = reduce if reduce and is_floating else self.compute
        self.shapes = [slot.shape for slot in slots]
        sizes = zip(self.layout.begins, self.layout.parameters, strict=True)
        self.places = [range(begin, begin + elements) for begin, (_, elements) in sizes]
        self.shard = self._shard_of_rank_0()
        self.parameters = [self._parameter(i) for i in range(len(slots))]
        self.full: Tensor | None = None
        self.version = -1  # of the shard, when `full` was gathered
        self._coming: Handle | None = None
        self.whole: Tensor | None = None
        self._filled: set[int] = set()

    # -- construction ----------------------------------------------------------------------------

    @torch.no_grad()
    def _shard_of_rank_0(self) -> Tensor:
        """This rank's part of the values of rank 0: its own group's cut, the others' copies."""
        ranks = self.ranks
        whole = None
        if ranks.world.rank == 0:
            parts = [slot.parameter.detach().reshape(-1) for slot in self.slots]
            padding = self.layout.padded - self.layout.elements
            whole = torch.cat([*parts, parts[0].new_zeros(padding)])
        shard = torch.empty(self.layout.shard, dtype=self.dtype, device=self.device)
        if ranks.world.rank < ranks.shard.size and self.layout.shard:
            shard = ranks.shard.scatter(whole)
        if ranks.replica is not None:
            shard = ranks.replica.broadcast(shard)
        return shard

    def _parameter(self, index: int) -> nn.Parameter:
        piece = self.layout.pieces(self.ranks.shard.rank)[index]
        view = self.shard[piece.place : piece.place + piece.elements]
        parameter = nn.Parameter(view, requires_grad=self.slots[index].parameter.requires_grad)
        parameter.is_shard = True  # type: ignore[attr-defined]
        return parameter

    @property
    def is_trained(self) -> bool:
        """Whether a gradient of it is wanted."""
        return any(parameter.requires_grad for parameter in self.parameters)

    # -- weights ---------------------------------------------------------------------------------

    @property
    def is_gathered(self) -> bool:
        """Whether the whole is here, or on its way."""
        return self.full is not None or self._coming is not None

    @property
    def is_coming(self) -> bool:
        """Whether the whole is on its way."""
        return self._coming is not None

    @torch.no_grad()
    def start_gather(self) -> None:
        """Ask for the whole, in the dtype that is computed in."""
        self.version = self.shard._version
        mine = self.shard.detach().to(self.compute)
        if self.ranks.shard.size == 1 or not self.layout.shard:
            self._coming = Given(mine)
            return
        self.journal.weights.add(self._nbytes)
        self._coming = self.ranks.shard.all_gather(mine, async_op=True)

    @property
    def _nbytes(self) -> int:
        return self.layout.padded * self.compute.itemsize

    def wait(self) -> Tensor:
        """The whole (padded elements,), once it has come."""
        if self._coming is not None:
            handle, self._coming = self._coming, None
            self.full = handle.wait()
            if not isinstance(handle, Given):
                self.journal.weights.until_gone(self.full, self._nbytes)
        assert self.full is not None
        return self.full

    def free(self) -> None:
        """Let go of the whole; what is on its way is waited for, as handles have to be."""
        if self._coming is not None:
            self.wait()
        self.full = None

    def view(self, index: int) -> Tensor:
        """A parameter in its shape, inside the gathered whole.

        `.data` makes it an alias with a history of its own: it may leave an autograd function.
        """
        place = self.places[index]
        return self.wait()[place.start : place.stop].view(self.shapes[index]).data

    # -- gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def take(self, index: int, gradient: Tensor, dtype: torch.dtype) -> None:
        """Lay a whole gradient in its place, added to what may be there; a new tensor for all has
        this dtype."""
        if self.whole is None:
            self.whole = torch.empty(self.layout.padded, dtype=dtype, device=gradient.device)
            self.journal.gradients.add(self.whole.nbytes)
            self.journal.gradients.until_gone(self.whole, self.whole.nbytes)
        place = self.places[index]
        piece = self.whole[place.start : place.stop].view(self.shapes[index])
        (piece.add_ if index in self._filled else piece.copy_)(gradient)
        self._filled.add(index)

    @torch.no_grad()
    def start_reduce(self) -> Reduction:
        """Send the whole gradients for this rank's shard of their mean; what nobody gave is 0."""
        if self.whole is None:
            like = torch.zeros((), dtype=self.reduce, device=self.shard.device)
            self.take(0, like.expand(self.shapes[0]), self.reduce)
        assert self.whole is not None
        for index, place in enumerate(self.places):
            if index not in self._filled:
                self.whole[place.start : place.stop].zero_()
        self.whole[self.layout.elements :].zero_()
        return Reduction(self)

    def forget(self) -> Tensor | None:
        """The whole gradients, which are kept here no longer."""
        whole, self.whole = self.whole, None
        self._filled.clear()
        return whole

    @torch.no_grad()
    def accumulate(self, mean: Tensor) -> None:
        """Add this rank's shard of the mean gradients to .grad of its parameters."""
        mean = mean.to(self.dtype)
        for piece, parameter in zip(
            self.layout.pieces(self.ranks.shard.rank), self.parameters, strict=True
        ):
            if not parameter.requires_grad:
                continue
            gradient = mean[piece.place : piece.place + piece.elements]
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad += gradient


class Reduction:
    """The mean of a flat's gradients, under way: inside the shard group, then across groups."""

    def __init__(self, of: ShardedFlat) -> None:
        self._of = of
        whole = of.forget()
        assert whole is not None
        self._whole: Tensor | None = whole.to(of.reduce)
        if self._whole is not whole:
            of.journal.gradients.add(self._whole.nbytes)
            of.journal.gradients.until_gone(self._whole, self._whole.nbytes)
        group = of.ranks.shard
        if group.size == 1 or not of.layout.shard:
            self._handle: Handle = Given(self._whole)
        else:
            self._handle = group.reduce_scatter(self._whole, "mean", async_op=True)

    def settle(self) -> None:
        """Wait for the shard, and let go of the whole."""
        shard, self._whole = self._handle.wait(), None
        replica = self._of.ranks.replica
        self._handle = Given(shard)
        if replica is not None and self._of.layout.shard:
            self._handle = replica.all_reduce(shard, "mean", async_op=True, out=shard)

    @property
    def is_last(self) -> bool:
        """Whether nothing follows once it has settled."""
        return self._of.ranks.replica is None

    def finish(self) -> None:
        """Wait for the mean over all groups, and add it to what the optimizer reads."""
        self._of.accumulate(self._handle.wait())

    def drop(self) -> Any:
        """Wait, as handles have to be, for what nobody wants any more."""
        return self._handle.wait()
