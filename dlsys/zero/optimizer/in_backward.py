"""Stage 2: gradients that are reduced while backward goes on, and freed as soon as they are."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd import Variable

from dlsys.zero.optimizer.bucket import Bucket
from dlsys.zero.optimizer.gradient_shards import GradientShards


class InBackward(GradientShards):
    """Hooks of the parameters fill buckets, and what is full is reduced into this rank's shard.

    Collectives pair off by order, so buckets are sent in one order on all ranks, the last layers
    first; what this rank did not use follows, as zeros, at the end of the pass.
    """

    frees = True
    _is_used = False

    def watch(self, buckets: Sequence[Bucket]) -> None:
        """See `GradientShards.watch`; a parameter leaves the optimizer that it had before."""
        super().watch(buckets)
        self._unsent, self._task, self._is_open, self._kept = len(self.shards), -1, False, False
        for bucket in buckets:
            _leave_old(bucket.parameters)
            for place, parameter in enumerate(bucket.parameters):
                parameter.register_post_accumulate_grad_hook(_Ready(self, bucket.index, place))

    def reduce(self) -> None:
        """Reduce what passes under `no_sync` have left whole; all ranks call it."""
        if self._is_open:
            raise RuntimeError(
                "the last backward pass raised before its end: call zero_grad() on every rank, "
                "then run the step again."
            )
        parameters = (p for one in self.shards for p in one.bucket.parameters)
        if self._kept or any(p.grad is not None for p in parameters):
            self._end()

    def stepped(self) -> None:
        """The shards stay, as gradients do, but are used up: the next pass begins anew, for nobody
        can see whether a model's own zero_grad() was called in between."""
        self._is_used = True

    def forget(self, to_zero: bool = False) -> None:
        """Give up the shards, after the end of a pass that raised: this rank sends zeros for what
        it had not sent, so ranks stay in step."""
        for one in self.shards[: self._unsent]:
            one.forget()
        if self._is_open:
            self._end()
        self._kept = False
        super().forget(to_zero)

    def left_whole(self) -> None:
        """Passes under `no_sync` are over."""
        self._kept = True

    def ready(self, index: int, place: int) -> None:
        """The parameter in this place of bucket `index` has its gradient of this pass."""
        self._enter(torch._C._current_graph_task_id())
        one = self.shards[index]
        if not self.syncs:
            one.keep(place)
            return
        one.take(place)
        one.missing -= 1
        while self._unsent and not self.shards[self._unsent - 1].missing:
            self._send_next()

    def _enter(self, task: int) -> None:
        """Note the first gradient of a pass, and have the last one followed by `_end`."""
        if task == self._task:
            return
        if self._is_open:
            raise RuntimeError(
                "this backward pass began before another one ended: where that one raised, call "
                "zero_grad() first; in checkpoints use use_reentrant=False."
            )
        self._task = task
        if self._is_used:
            super().forget()
        self._is_used = False
        self.journal.begin_pass()
        if self.syncs:
            self._is_open = True
            Variable._execution_engine.queue_callback(self._end)

    def _send_next(self) -> None:
        self._unsent -= 1
        self._send(self.shards[self._unsent])

    def _end(self) -> None:
        """Send what waited for unused parameters, and wait for all."""
        while self._unsent:
            self._send_next()
        self._finish()
        self._unsent, self._is_open, self._kept = len(self.shards), False, False


class _Ready:
    """What a parameter calls when its gradient is there. It does not keep the optimizer alive."""

    def __init__(self, owner: InBackward, bucket: int, place: int) -> None:
        self.owner, self.bucket, self.place = weakref.ref(owner), bucket, place

    def __call__(self, parameter: Tensor) -> None:
        owner = self.owner()
        if owner is not None:
            owner.ready(self.bucket, self.place)


def _leave_old(parameters: Iterable[Tensor]) -> None:
    """Take the hooks of an earlier optimizer off these parameters."""
    for parameter in parameters:
        hooks = parameter._post_accumulate_grad_hooks or {}
        for key in [key for key, hook in hooks.items() if isinstance(hook, _Ready)]:
            del hooks[key]
