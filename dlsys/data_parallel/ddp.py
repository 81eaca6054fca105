"""DDP: replicas whose gradients are averaged, bucket by bucket, while backward runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.data_parallel.plan import Bucket, BucketPlan, buckets
from dlsys.reducer import AllReduced, Reducer
from dlsys.world import Communicator, Handle
from dlsys.world.alike import check_same, named_tensors, take_over


class GradientBucket(AllReduced):
    """Gradients of one dtype in one flat tensor, averaged by a hook.

    `index` says when it is sent, 0 first; `parameters` are those whose gradients it holds; `flat`
    (elements,) has this rank's gradients one after the other when a hook gets it, and their mean
    over the ranks when backward is done.
    """

    def __init__(
        self, bucket: Bucket, parameters: Sequence[Tensor], comm: Communicator, hook: Hook
    ) -> None:
        super().__init__(parameters, bucket.names, comm)
        self.index, self._hook = bucket.index, hook

    def reduction(self) -> Handle:
        """What the hook has begun."""
        handle = self._hook(self.comm, self)
        if not hasattr(handle, "wait"):
            raise TypeError(
                f"the hook returned {handle!r} for bucket {self.index}; it returns a handle whose "
                "wait() gives the mean gradient."
            )
        return handle

    def checked(self, mean: Any) -> Tensor:
        """Raises TypeError where the hook gave no mean."""
        if not isinstance(mean, Tensor) or mean.numel() != self.flat.numel():
            raise TypeError(
                f"the hook's handle gave {type(mean).__name__} for bucket {self.index}; its wait() "
                f"returns the mean gradient, a tensor of {self.flat.numel()} elements like `flat`."
            )
        return mean


Hook = Callable[[Communicator, GradientBucket], Handle]
"""Starts to average a bucket; `wait()` of what it returns gives the mean, a tensor like `flat`."""


def all_reduce(comm: Communicator, bucket: GradientBucket) -> Handle:
    """The hook that DataParallel uses by default: a sum over the ranks, divided by n at its end."""
    return comm.all_reduce(bucket.flat, "mean", async_op=True, out=bucket.flat)


class DataParallel(nn.Module):
    """A replica of `module` whose gradients are the mean over the ranks when backward() returns.

    Give every rank its part of the batch, and call it as the module. Where parts are equal and
    losses are means, gradients are those of the whole batch on one device.

    - Construction: every rank takes over rank 0's parameters and buffers. A module that is wrapped
      again leaves its old wrapper.
    - Backward: gradients fill buckets, and `hook` (None: `all_reduce`) averages each that is full,
      at `bucket_bytes` bytes, while backward goes on; .grad is then a view of its bucket. None
      fills them as DDP does by default (see `plan.buckets`). One rank alone without a hook has
      nothing to average, and copies nothing.
    - Unused parameters: ranks may use different ones. What another rank has used counts as zeros
      here; what no rank has used has no gradient, so that an optimizer leaves it alone.
    - Frozen ones: one that is frozen later still takes its bytes, as zeros, and gets no gradient;
      one that is thawed or replaced later is refused.
    - Buffers, such as BatchNorm's running statistics, are taken from rank 0 by the first forward
      pass in training mode after one outside of `no_sync`; in evaluation a rank has its own.
    - A backward pass that raised on all ranks: the next forward pass drops its gradients.

    comm=None means the world that the caller is in. Raises ValueError on every rank where modules
    differ. Source: Li et al. 2020 (PyTorch Distributed, arXiv 2006.15704).
    """

    @checked
    def __init__(
        self,
        module: nn.Module,
        comm: Communicator | None = None,
        bucket_bytes: float | None = None,
        hook: Hook | None = None,
    ) -> None:
        super().__init__()
        if bucket_bytes is not None:
            positive("bucket_bytes", bucket_bytes)
        self.module = module
        self.comm = world.current() if comm is None else comm
        check_same(self, self.comm, named_tensors(module), [f"bucket_bytes = {bucket_bytes}"])
        take_over(self.comm, [*module.parameters(), *module.buffers()])
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.plan = plan_of(trained, bucket_bytes)
        self._trained = set(map(id, trained.values()))
        self._has_buffers = any(True for _ in module.buffers())
        self._step_begins = True
        alone = self.comm.size == 1 and hook is None  # nothing to average, so nothing to copy
        self._reducer = Reducer(
            [
                GradientBucket(b, [trained[n] for n in b.names], self.comm, hook or all_reduce)
                for b in (() if alone else self.plan.buckets)
            ]
        )
        self._reducer.watch()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output, whatever it is."""
        # Where a checkpoint calls this again in backward, everything is as it was.
        if torch._C._current_graph_task_id() == -1:
            if torch.is_grad_enabled():
                self._check_parameters()
            self._reducer.reset()
            if self._has_buffers and self.training:
                if self._step_begins:
                    take_over(self.comm, self.module.buffers())
                self._step_begins = self._reducer.syncs
        return self.module(*args, **kwargs)

    def _check_parameters(self) -> None:
        """Raise RuntimeError for one of which no bucket would get the gradient."""
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad and id(parameter) not in self._trained:
                raise RuntimeError(
                    f"{name!r} was frozen, or another parameter, when DataParallel was built, and "
                    "no bucket has a place for its gradient: build DataParallel after "
                    "requires_grad_(True) and after what replaces parameters."
                )

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here only add to this rank's gradients; the first one after reduces
        the sum. All ranks do the same."""
        before, self._reducer.syncs = self._reducer.syncs, False
        try:
            yield
        finally:
            self._reducer.syncs = before

    def average(self) -> None:
        """Average what is in .grad, as the end of backward does; all ranks call it.

        For gradients that come in under `no_sync` from passes that do not end one by one, such as
        those of a pipeline's stages.
        """
        self._reducer.end()


def plan_of(tensors: Mapping[str, Tensor], bucket_bytes: float | None) -> BucketPlan:
    """The bucket plan for tensors like these."""
    sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
    dtypes = {name: str(t.dtype).removeprefix("torch.") for name, t in tensors.items()}
    return buckets(sizes, bucket_bytes, dtypes)
