"""Data parallelism on real tensors: replicas whose gradients are averaged while backward runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.data_parallel.plan import Bucket, BucketPlan, buckets
from dlsys.world import Communicator, Handle
from dlsys.world.alike import check_same, take_over


class GradientBucket:
    """Gradients of one dtype in one flat tensor.

    `index` says when it is sent, 0 first; `parameters` are those whose gradients it holds; `flat`
    (elements,) has this rank's gradients one after the other when a hook gets it, and their mean
    over the ranks when backward is done.
    """

    def __init__(self, bucket: Bucket, parameters: Sequence[nn.Parameter]) -> None:
        self.index, self.parameters = bucket.index, parameters
        first = parameters[0]
        sizes = [parameter.numel() for parameter in parameters]
        self.flat = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        pieces = self.flat.split(sizes)
        self._views = [_like(*pair) for pair in zip(pieces, parameters, strict=True)]
        self.missing = len(sizes)
        self.handle: Handle | None = None

    def gradients(self) -> list[Tensor]:
        """Views of `flat`, one of each parameter's shape."""
        return self._views

    def take(self, place: int) -> None:
        """Bring one parameter's gradient into `flat`, or zeros where it has none."""
        parameter, view = self.parameters[place], self._views[place]
        gradient = parameter.grad
        if gradient is view:  # autograd has added to it where it is
            return
        if gradient is None:
            view.zero_()
        else:
            view.copy_(gradient.detach())
        if parameter.requires_grad:
            parameter.grad = view

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for the mean, and put it where the gradients are."""
        handle, self.handle, self.missing = self.handle, None, len(self.parameters)
        if handle is None:  # of a pass whose end has raised before
            return
        mean = handle.wait()
        if not isinstance(mean, Tensor) or mean.numel() != self.flat.numel():
            raise TypeError(
                f"the hook's handle gave {type(mean).__name__} for bucket {self.index}; its wait() "
                f"returns the mean gradient, a tensor of {self.flat.numel()} elements like `flat`."
            )
        if mean is not self.flat:
            self.flat.copy_(mean.view_as(self.flat))


def _like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view of `flat` with the shape and the order of strides of `parameter`, in which autograd
    lays gradients out: optimizers are fastest where both are alike."""
    return flat.as_strided(parameter.shape, torch.empty_like(parameter, device="meta").stride())


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
    - Unused parameters count as zeros, so ranks may use different ones; what no rank used, be it
      one rank or many, has a gradient of zeros too, not None, and weight decay shrinks it.
    - Frozen ones: one that is frozen later still takes its bytes, as zeros, and gets no gradient;
      one that is thawed or replaced later is refused.
    - Buffers, such as BatchNorm's running statistics, are taken from rank 0 by the first forward
      pass in training mode after one outside of `no_sync`; in evaluation a rank has its own.
    - A backward pass that raised: its gradients are dropped by the next forward pass, which sends
      zeros for what this rank had not sent; so ranks stay in step.

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
        self.hook = hook or all_reduce
        check_same(self, self.comm, module, [f"bucket_bytes = {bucket_bytes}"])
        take_over(self.comm, [*module.parameters(), *module.buffers()])
        named = dict(module.named_parameters())
        trained = {name: p for name, p in named.items() if p.requires_grad}
        self._frozen = {name: p for name, p in named.items() if not p.requires_grad}
        self._places = [
            (owner._parameters, leaf, f"{path}.{leaf}".lstrip("."), parameter)
            for path, owner in module.named_modules()
            for leaf, parameter in owner._parameters.items()
        ]
        self._has_buffers = any(True for _ in module.buffers())
        self.plan = plan_of(trained, bucket_bytes)
        self._trained = list(trained.values())
        self._buckets: list[GradientBucket] = []
        self._sent, self._pass, self._syncs, self._step_begins = 0, -1, True, True
        _leave_old_wrappers(trained)
        alone = self.comm.size == 1 and hook is None  # nothing to average, so nothing to copy
        for bucket in self.plan.buckets:
            parameters = [trained[name] for name in bucket.names]
            if not alone:
                self._buckets.append(GradientBucket(bucket, parameters))
            for place, parameter in enumerate(parameters):
                parameter.register_post_accumulate_grad_hook(_Ready(self, bucket.index, place))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output, whatever it is."""
        # Where a checkpoint calls this again in backward, everything is as it was.
        if torch._C._current_graph_task_id() == -1:
            if torch.is_grad_enabled():
                self._check_parameters()
            self._drop_unfinished()
            if self._has_buffers and self.training:
                if self._step_begins:
                    take_over(self.comm, self.module.buffers())
                self._step_begins = self._syncs
        return self.module(*args, **kwargs)

    def _check_parameters(self) -> None:
        """Raise RuntimeError for one of which no bucket would get the gradient."""
        for name, parameter in self._frozen.items():
            if parameter.requires_grad:
                raise RuntimeError(
                    f"{name!r} was frozen when DataParallel was built and no bucket has a place "
                    "for its gradient: build DataParallel after requires_grad_(True)."
                )
        for table, leaf, name, parameter in self._places:
            if table.get(leaf) is not parameter:
                raise RuntimeError(
                    f"{name!r} is not the parameter that DataParallel was built with: build it "
                    "after what replaces parameters, such as to_empty() or "
                    "load_state_dict(assign=True)."
                )

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here only add to this rank's gradients; the first one after reduces
        the sum. All ranks do the same."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def average(self) -> None:
        """Average what is in .grad, as the end of backward does; all ranks call it.

        For gradients that come in under `no_sync` from passes that do not end one by one, such as
        those of a pipeline's stages.
        """
        self._drop_unfinished()
        self._finish()

    def _ready(self, index: int, place: int) -> None:
        """The parameter in this place of bucket `index` has its gradient of this pass."""
        if not self._syncs:
            return
        if self._pass != (task := torch._C._current_graph_task_id()):
            if self._pass != -1 and self._buckets:
                raise RuntimeError(
                    "this backward pass began before another one ended: where that one raised, run "
                    "forward again first; in checkpoints use use_reentrant=False."
                )
            self._pass = task
            Variable._execution_engine.queue_callback(self._finish)
        if not self._buckets:
            return
        self._buckets[index].take(place)  # now, as it is still in the cache
        self._buckets[index].missing -= 1
        # In the plan's order, whatever order gradients come in: collectives pair off by order.
        while self._sent < len(self._buckets) and not self._buckets[self._sent].missing:
            self._send()

    def _send(self) -> None:
        """Start to average the next bucket."""
        bucket = self._buckets[self._sent]
        for place in range(len(bucket.parameters)):
            bucket.take(place)
        bucket.handle = self.hook(self.comm, bucket)
        if not hasattr(bucket.handle, "wait"):
            raise TypeError(
                f"the hook returned {bucket.handle!r} for bucket {bucket.index}; it returns a "
                "handle whose wait() gives the mean gradient."
            )
        self._sent += 1

    def _finish(self) -> None:
        """At the end of backward: send what waited for unused parameters, and wait for all."""
        while self._sent < len(self._buckets):
            self._send()
        for bucket in self._buckets:
            bucket.finish()
        if not self._buckets:
            self._fill_in()
        self._sent, self._pass = 0, -1

    def _fill_in(self) -> None:
        """Give what a rank alone did not use the zeros that it would find in a bucket."""
        for parameter in self._trained:
            if parameter.grad is None and parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    def _drop_unfinished(self) -> None:
        """End a pass that raised: its hooks were told of some parameters and of no end."""
        if self._pass == -1:
            return
        self._forget()
        self._finish()
        self._forget()

    def _forget(self) -> None:
        for parameter in self._trained:
            parameter.grad = None


class _Ready:
    """What a parameter calls when its gradient is there. It does not keep the wrapper alive."""

    def __init__(self, owner: DataParallel, bucket: int, place: int) -> None:
        self.owner, self.bucket, self.place = weakref.ref(owner), bucket, place

    def __call__(self, parameter: Tensor) -> None:
        owner = self.owner()
        if owner is not None:
            owner._ready(self.bucket, self.place)


def _leave_old_wrappers(trained: Mapping[str, nn.Parameter]) -> None:
    """Take the hooks of an earlier DataParallel off these parameters.

    Raises ValueError where that one averages others, too, which nobody would then.
    """
    mine = {id(parameter) for parameter in trained.values()}
    for name, parameter in trained.items():
        hooks = parameter._post_accumulate_grad_hooks or {}
        for key, hook in list(hooks.items()):
            if not isinstance(hook, _Ready):
                continue
            old = hook.owner()
            if old and any(id(p) not in mine for p in old._trained):
                raise ValueError(
                    f"{name!r} belongs to a larger module that is in a DataParallel already: "
                    "wrap the whole module, once."
                )
            del hooks[key]


def plan_of(tensors: Mapping[str, Tensor], bucket_bytes: float | None) -> BucketPlan:
    """The bucket plan for tensors like these."""
    return buckets(
        {name: t.numel() * t.itemsize for name, t in tensors.items()},
        bucket_bytes,
        {name: str(t.dtype).removeprefix("torch.") for name, t in tensors.items()},
    )
