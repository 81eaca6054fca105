"""Gradients that fill flat buckets while backward runs, each reduced as soon as it is full.

One engine for all who keep whole weights: DDP averages each bucket on every rank (`AllReduced`);
ZeRO's stages 1 and 2 keep this rank's shard of the mean (`dlsys.zero.sharded_optimizer`).
Source: Li et al. 2020 (PyTorch Distributed, arXiv 2006.15704), section 3.2.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable

from dlsys.tensors import dense
from dlsys.world import Communicator, Handle


class Bucket(ABC):
    """Parameters of one dtype and device, whose gradients lie end to end in `flat`."""

    def __init__(self, parameters: Sequence[Tensor], names: Sequence[str]) -> None:
        self.parameters, self.names = parameters, names
        self.taken: set[int] = set()
        self.used: set[int] = set()

    @abstractmethod
    def view(self, place: int) -> Tensor:
        """Where the gradient of the parameter in this place lies, with its shape."""

    @abstractmethod
    def start(self) -> None:
        """Begin to reduce `flat`."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the result, and put it where the optimizer looks."""

    def take(self, place: int) -> None:
        """Lay the gradient of the parameter in this place into `flat`, or zeros for none."""
        parameter, view = self.parameters[place], self.view(place)
        gradient = parameter.grad
        self.taken.add(place)
        if gradient is None:
            view.zero_()
            return
        self.used.add(place)
        if gradient is not view:  # else autograd has added to it where it is
            dense(f"the gradient of {self.names[place]!r}", gradient)
            view.copy_(gradient.detach())

    def send(self) -> None:
        """Begin to reduce, with zeros for what has no gradient."""
        for place in range(len(self.parameters)):
            if place not in self.taken:
                self.take(place)
        self.start()

    def forget(self) -> None:
        """Be empty again."""
        self.taken.clear()
        self.used.clear()


class AllReduced(Bucket):
    """A bucket whose mean every rank gets; each .grad is a view of `flat` (elements,)."""

    def __init__(self, parameters: Sequence[Tensor], names: Sequence[str], comm: Communicator):
        super().__init__(parameters, names)
        self.comm = comm
        first, sizes = parameters[0], [parameter.numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self._views = [
            _like(piece, parameter)
            for piece, parameter in zip(self.flat.split(sizes), parameters, strict=True)
        ]
        begins = accumulate(sizes[:-1], initial=0)
        places = enumerate(zip(begins, sizes, strict=True))
        self._starts = {place: at for place, (at, elements) in places if elements}
        self._handle: Handle | None = None

    def view(self, place: int) -> Tensor:
        """See `Bucket.view`."""
        return self._views[place]

    def gradients(self) -> list[Tensor]:
        """Views of `flat`, one of each parameter's shape."""
        return self._views

    def take(self, place: int) -> None:
        """See `Bucket.take`; autograd adds to the view from now on."""
        super().take(place)
        if place in self.used:
            self.parameters[place].grad = self._views[place]

    def reduction(self) -> Handle:
        """Begin to average `flat` in place."""
        return self.comm.all_reduce(self.flat, "mean", async_op=True, out=self.flat)

    def start(self) -> None:
        """See `Bucket.start`."""
        self._handle = self.reduction()

    @torch.no_grad()
    def finish(self) -> None:
        """Put the mean where the gradients are; what no rank used has none, as on one device."""
        assert self._handle is not None
        mean, self._handle = self.checked(self._handle.wait()), None
        if mean is not self.flat:
            self.flat.copy_(mean.view_as(self.flat))
        unused = self._unused()
        for place, parameter in enumerate(self.parameters):
            wanted = parameter.requires_grad and place not in unused
            parameter.grad = self._views[place] if wanted else None

    def checked(self, mean: Any) -> Tensor:
        """What a reduction has given, if it is a mean."""
        return mean

    def _unused(self) -> set[int]:
        """The parameters that no rank used.

        Their mean is zero. So is that of some that were used; about those, and only if there are
        any, the ranks ask each other. All see the same mean, so all ask or none.
        """
        if self.flat.is_meta:
            return set()
        firsts = self.flat[list(self._starts.values())].tolist()  # where one is zero, look at all
        maybe = [place for place, first in zip(self._starts, firsts, strict=True) if not first]
        zero = [place for place in maybe if not self._views[place].any()]
        if not zero:
            return set()
        mine = [float(place in self.used) for place in zero]
        used = self.comm.all_reduce(self.flat.new_tensor(mine), "max").tolist()
        return {place for place, is_used in zip(zero, used, strict=True) if not is_used}


def _like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view of `flat` with the shape and strides of `parameter`: optimizers are fastest so."""
    return flat.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())


def has_gradient(was_used: bool, mean: Tensor) -> bool:
    """Whether a rank that has a part of a mean gives it to the optimizer: unless it did not use the
    parameter, and no other rank gave more than zeros, which the part alone can tell."""
    return was_used or mean.is_meta or bool(mean.any())


class Reducer:
    """Sends buckets in their order as backward fills them, and ends with the last.

    Ranks pair collectives off by order, so a bucket that is full waits for the one before it;
    what backward leaves unfilled is sent at its end. `in_flight`: at most so many at a time.
    """

    def __init__(self, buckets: Sequence[Bucket], in_flight: int | None = None) -> None:
        self.buckets, self.syncs, self._in_flight = buckets, True, in_flight or len(buckets)
        self._sent = self._finished = 0
        self._pass = -1  # autograd's number of the backward pass under way

    def watch(self) -> None:
        """Be told by each parameter when its gradient is there, in place of who was before."""
        for index, bucket in enumerate(self.buckets):
            for place, parameter in enumerate(bucket.parameters):
                hooks: dict = parameter._post_accumulate_grad_hooks or {}
                for key in [key for key, hook in hooks.items() if isinstance(hook, _Ready)]:
                    del hooks[key]
                parameter.register_post_accumulate_grad_hook(_Ready(self, index, place))

    def ready(self, index: int, place: int) -> None:
        """The parameter in this place of bucket `index` has its gradient of this pass."""
        if not self.syncs:
            return
        task = torch._C._current_graph_task_id()
        if task != self._pass:
            if self._pass != -1:
                raise RuntimeError(
                    "this backward pass began before another one ended. In checkpoints use "
                    "use_reentrant=False. Where a pass has raised, run forward (or zero_grad()) "
                    "on every rank before the next one."
                )
            self._pass = task
            Variable._execution_engine.queue_callback(self.end)
        self.buckets[index].take(place)  # now, while it is in the cache
        while self._sent < len(self.buckets) and self._is_full(self.buckets[self._sent]):
            self._send()

    def _is_full(self, bucket: Bucket) -> bool:
        return len(bucket.taken) == len(bucket.parameters)

    def _send(self) -> None:
        if self._sent - self._finished == self._in_flight:
            self._finish()
        self.buckets[self._sent].send()
        self._sent += 1

    def _finish(self) -> None:
        bucket = self.buckets[self._finished]
        self._finished += 1
        bucket.finish()
        bucket.forget()

    def end(self) -> None:
        """Send what is left, and wait for all; all ranks call it."""
        while self._sent < len(self.buckets):
            self._send()
        while self._finished < self._sent:
            self._finish()
        self._sent, self._finished, self._pass = 0, 0, -1

    def reset(self) -> None:
        """Give up a pass that raised, on all ranks, and its gradients."""
        if self._pass == -1:
            return
        while self._finished < self._sent:  # handles have to be waited for
            self._finish()
        for bucket in self.buckets:
            bucket.forget()
            for parameter in bucket.parameters:
                parameter.grad = None
        self._sent, self._finished, self._pass = 0, 0, -1


class _Ready:
    """What a parameter calls when its gradient is there. It does not keep the reducer alive."""

    def __init__(self, owner: Reducer, bucket: int, place: int) -> None:
        self.owner, self.bucket, self.place = weakref.ref(owner), bucket, place

    def __call__(self, _: Tensor) -> None:
        owner = self.owner()
        if owner is not None:
            owner.ready(self.bucket, self.place)
