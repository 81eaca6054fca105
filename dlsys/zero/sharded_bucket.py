"""A bucket of ZeRO's stages 1 and 2: whole weights, and this rank's shard of what updates them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dlsys.reducer import Bucket, has_gradient
from dlsys.world import Communicator, Handle
from dlsys.zero.flat import Dealt, Flat


class ShardedBucket(Bucket):
    """Parameters whose gradients this rank keeps a shard of, and whose weights it updates there.

    `weights` (padded,) holds the parameters, which become views of it. `shards` are this rank's
    pieces of them, what its optimizer updates: views of `weights`, or copies in `master_dtype`.
    `frees`: a gradient is given up when it has been laid into the bucket (stage 2).
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        names: Sequence[str],
        comm: Communicator,
        frees: bool,
        whole_tensors: bool,
        master_dtype: torch.dtype | None,
    ) -> None:
        super().__init__(parameters, names)
        self.comm, self.frees = comm, frees
        sizes = tuple((name, p.numel()) for name, p in zip(names, parameters, strict=True))
        self.layout = (Dealt if whole_tensors else Flat)(sizes, comm.size)
        self.pieces = self.layout.pieces(comm.rank)
        # Once: a layout works them out anew, and every gradient of every step asks for them.
        self._begins, self._padded = self.layout.begins, self.layout.padded
        self.weights = self._new()
        for place, parameter in enumerate(parameters):
            view = self._view(self.weights, place)
            view.copy_(parameter.detach())
            parameter.data = view
        self.shards = [
            nn.Parameter(mine.to(master_dtype or mine.dtype)) for mine in self.mine(self.weights)
        ]
        self.gradients: list[Tensor | None] = [None] * len(parameters)  # of the pieces
        self.flat: Tensor | None = None
        self.is_used_up = False  # by a step: the next gradients are not added to what is here
        self._handle: Handle | None = None

    def _new(self) -> Tensor:
        return self.parameters[0].detach().new_zeros(self._padded)

    def _view(self, flat: Tensor, place: int) -> Tensor:
        parameter, begin = self.parameters[place], self._begins[place]
        return flat[begin : begin + parameter.numel()].view(parameter.shape)

    def mine(self, flat: Tensor) -> list[Tensor]:
        """This rank's pieces of a flat tensor of all ranks (padded,)."""
        return self.cut(flat.view(self.comm.size, -1)[self.comm.rank])

    def cut(self, shard: Tensor) -> list[Tensor]:
        """The pieces of this rank's shard; one that is a whole parameter has its shape."""
        pairs = zip(self.pieces, self.parameters, strict=True)
        return [
            shard[p.place : p.place + p.elements].view(
                of.shape if p.elements == of.numel() else p.elements
            )
            for p, of in pairs
        ]

    # -- gradients -------------------------------------------------------------------------------

    def view(self, place: int) -> Tensor:
        """See `Bucket.view`."""
        if self.flat is None:
            self.flat = self._new()
        return self._view(self.flat, place)

    def take(self, place: int) -> None:
        """See `Bucket.take`."""
        super().take(place)
        if self.frees:
            self.parameters[place].grad = None

    def start(self) -> None:
        """See `Bucket.start`."""
        assert self.flat is not None
        self._handle = self.comm.reduce_scatter(self.flat, "mean", async_op=True)

    @torch.no_grad()
    def finish(self) -> None:
        """Add this rank's shard of the mean to the gradients of its pieces, and free the whole.

        What this rank did not use, and no other gave more than zeros for, has none.
        """
        assert self._handle is not None
        mean, self._handle, self.flat = self._handle.wait(), None, None
        if self.is_used_up:
            self.forget_gradients()
        for place, mine in enumerate(self.cut(mean)):
            if has_gradient(place in self.used, mine):
                before = self.gradients[place]
                self.gradients[place] = mine if before is None else before.add_(mine)

    def forget_gradients(self) -> None:
        """Have no gradients of pieces."""
        self.gradients, self.is_used_up = [None] * len(self.parameters), False

    def show_gradients(self) -> None:
        """Let the optimizer find gradients, in the dtype of what it updates."""
        for shard, gradient in zip(self.shards, self.gradients, strict=True):
            shard.grad = None if gradient is None else gradient.to(shard.dtype)

    # -- weights ---------------------------------------------------------------------------------

    @torch.no_grad()
    def start_gather(self) -> None:
        """Ask for every rank's shard of the weights, as the update has left it."""
        for weight, updated in zip(self.mine(self.weights), self.shards, strict=True):
            if updated.dtype != weight.dtype:  # else it is a view of the weight
                weight.copy_(updated)
        shard = self.weights.view(self.comm.size, -1)[self.comm.rank]
        self._handle = self.comm.all_gather(shard, async_op=True)

    @torch.no_grad()
    def finish_gather(self) -> None:
        """Take in the weights of all ranks."""
        assert self._handle is not None
        self.weights.copy_(self._handle.wait())
        self._handle = None

    @torch.no_grad()
    def follow(self) -> None:
        """Take over weights that were loaded into the model since the last step; a copy that rounds
        to the weight as it is stays, bit by bit."""
        for weight, shard in zip(self.mine(self.weights), self.shards, strict=True):
            if shard.dtype != weight.dtype:
                differs = shard.to(weight.dtype) != weight
                shard.copy_(torch.where(differs, weight.to(shard.dtype), shard))
