"""Gradients on their way from whole ones on every rank to one shard of their mean on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from dlsys.tensors import dense
from dlsys.world import Communicator, Handle
from dlsys.zero.clipping import clip
from dlsys.zero.journal import Journal
from dlsys.zero.optimizer.bucket import Bucket, Part
from dlsys.zero.plan import FREE_GRADIENTS, REDUCE, WAIT


class GradientShard:
    """One bucket's gradients: whole ones in `flat` (padded,) until they are reduced, then this
    rank's `shard` (shard,) of their mean, to which later micro-batches add.

    `frees`: what was taken into `flat` is given up; `host`: where the shard lies, None: as it is.
    """

    def __init__(
        self, bucket: Bucket, journal: Journal, frees: bool, host: torch.device | None
    ) -> None:
        self.bucket, self.missing = bucket, len(bucket.parameters)
        self.shard: Tensor | None = None
        self._journal, self._frees, self._host = journal, frees, host
        self._flat: Tensor | None = None
        self._handle: Handle | None = None
        self._taken: set[int] = set()
        self._counted: dict[int, int] = {}

    def keep(self, place: int) -> None:
        """Count a whole gradient that stays; one that more is added to stays one."""
        gradient = self.bucket.parameters[place].grad
        if gradient is not None and place not in self._counted:
            self._counted[place] = gradient.nbytes
            self._journal.gradients.add(gradient.nbytes)

    def take(self, place: int) -> None:
        """Bring a parameter's whole gradient, or zeros where it has none, into the flat tensor."""
        gradient, view = self.bucket.parameters[place].grad, self.bucket.view(self._whole(), place)
        self._taken.add(place)
        if gradient is None:
            view.zero_()
            return
        dense(f"the gradient of {self.bucket.names[place]!r}", gradient)
        view.copy_(gradient.detach())
        if self._frees:
            self._free(place)

    def send(self, comm: Communicator) -> None:
        """Start to reduce, with what had not been taken by now."""
        for place in range(len(self.bucket.parameters)):
            if place not in self._taken:
                self.take(place)
        self._handle = comm.reduce_scatter(self._whole(), "mean", async_op=True)

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for this rank's shard of the mean, add it to what there is, and free the whole."""
        assert self._handle is not None
        mean, self._handle = self._handle.wait(), None
        self.missing = len(self.bucket.parameters)
        self._drop_flat()
        if self._host is not None:
            self._journal.move("to host", mean.nbytes)
            mean = mean.to(self._host)
        self.shard = mean if self.shard is None else self.shard.add_(mean)

    def forget(self) -> None:
        """Give up what has not been sent."""
        for place in range(len(self.bucket.parameters)):
            self._free(place)
        self._drop_flat()

    def _whole(self) -> Tensor:
        if self._flat is None:
            self._flat = self.bucket.flat()
            self._hold(self._flat.nbytes)
        return self._flat

    def _drop_flat(self) -> None:
        if self._flat is not None:
            self._hold(-self._flat.nbytes)
            self._flat = None
        self._taken.clear()

    def _hold(self, nbytes: int) -> None:
        if self._frees:  # else whole gradients are at rest, and this is a copy on its way
            self._journal.gradients.add(nbytes)

    def _free(self, place: int) -> None:
        self._journal.gradients.add(-self._counted.pop(place, 0))
        self.bucket.parameters[place].grad = None


class GradientShards:
    """Stage 1: whole gradients stay on every rank, and are reduced when a step asks for them."""

    frees = False
    syncs = True

    def __init__(self, comm: Communicator, journal: Journal, host: torch.device | None) -> None:
        self.comm, self.journal, self._host = comm, journal, host
        self.shards: list[GradientShard] = []
        self._reduced: list[tuple[int, int]] | None = None
        self._before: GradientShard | None = None

    def watch(self, buckets: Sequence[Bucket]) -> None:
        """Take on the buckets of an optimizer, in the order of their indices."""
        old = {id(one.bucket): one for one in self.shards}
        self.shards = [
            old.get(id(each)) or GradientShard(each, self.journal, self.frees, self._host)
            for each in buckets
        ]

    def reduce(self) -> None:
        """Have the shards of this step's gradients; all ranks call it."""
        if self._reduced is None:
            self._reduce_all()
            self._reduced = self._written()
        elif self._reduced != self._written():
            raise RuntimeError(
                "gradients were changed after clip_grad_norm_() had reduced them: accumulate and "
                "unscale first, then clip, then step."
            )

    def of(self, bucket: Bucket, part: Part) -> Tensor | None:
        """The mean gradient of a part, in the dtype it was sent in; None: nothing to update."""
        shard = self.shards[bucket.index].shard
        return None if shard is None else part.place_in(shard)

    def clip(self, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
        """Scale the shards so that the norm of all gradients is `max_norm` at most; return it."""
        self.reduce()
        shards, device = list(self.tensors()), self._device()
        return clip(self.comm, shards, [], device, max_norm, norm_type, error_if_nonfinite)

    def stepped(self) -> None:
        """The update is done: what stays are the whole gradients."""
        self.forget()

    def left_whole(self) -> None:
        """Passes under `no_sync` are over; whole gradients stay here anyway."""

    def forget(self, to_zero: bool = False) -> None:
        """Give up the shards, or set them to zero."""
        self._reduced = None
        for one in self.shards:
            one.shard = one.shard.zero_() if to_zero and one.shard is not None else None

    def tensors(self) -> Iterator[Tensor]:
        """The shards that there are."""
        return (one.shard for one in self.shards if one.shard is not None)

    def _reduce_all(self) -> None:
        for one in reversed(self.shards):
            self._send(one)
        self._finish()
        self.journal.note(WAIT, -1)

    def _send(self, one: GradientShard) -> None:
        """Reduce a bucket, once the one before it is through: so there are two at most."""
        self._finish()
        self.journal.note(REDUCE, one.bucket.index)
        one.send(self.comm)
        self._before = one

    def _finish(self) -> None:
        if self._before is not None:
            self._before.finish()
            if self.frees:
                self.journal.note(FREE_GRADIENTS, self._before.bucket.index)
            self._before = None

    def _written(self) -> list[tuple[int, int]]:
        """Which gradients there are, and how often they were written to."""
        gradients = (p.grad for one in self.shards for p in one.bucket.parameters)
        return [(id(g), g._version) for g in gradients if g is not None]

    def _device(self) -> torch.device:
        return self.shards[0].bucket.parameters[0].device if self.shards else torch.device("cpu")


class AveragedGradients(GradientShards):
    """Gradients that are the mean on every rank already: a rank takes its part of each."""

    def reduce(self) -> None:
        """Nothing."""

    def of(self, bucket: Bucket, part: Part) -> Tensor | None:
        """The part of the parameter's own gradient, None where it has none."""
        gradient = part.parameter.grad
        return None if gradient is None else part.of(gradient.detach())

    def clip(self, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
        """What torch does, for every rank has all gradients."""
        everything = [p for one in self.shards for p in one.bucket.parameters]
        return clip_grad_norm_(everything, max_norm, norm_type, error_if_nonfinite)
