"""A step on any mesh: what a rank does, in the order in which it does it.

Inside a layer the tensor, context and expert axes communicate, between stages the pipeline does,
and after backward the ranks that hold the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from dlsys.context_parallel import layout
from dlsys.mesh import Axes


class Parts:
    """What a step is done with; `Trainer` makes it."""

    axes: Axes
    pipeline: Any  # my stages
    groups: dict[int, Any]  # my parameters, by who else holds them
    optimizer: Any  # of my shards
    last: int  # the pipeline rank that has the loss
    loss_dtype: torch.dtype
    max_norm: float | None

    def shards(self) -> Iterator[tuple[Any, Tensor]]:
        """What I update, and the share in which each number is mine to count."""
        for group in self.groups.values():
            yield from zip(group.shards, group.shares, strict=True)


def mine(axes: Axes, whole: Tensor) -> Tensor:
    """Of tokens (b, s) my replica's rows, and of these the columns of my context rank."""
    columns = layout(whole.shape[1], axes.cp.size).positions(axes.cp.rank)
    return whole.chunk(axes.dp.size)[axes.dp.rank][:, columns]


def clip(axes: Axes, shards: Iterable[tuple[Any, Tensor]], max_norm: float) -> None:
    """Scale all gradients alike, so that their norm over all ranks is at most this.

    A shard comes with 1/(ranks that hold it) for each number, so that each counts once.
    """
    held = list(shards)
    squares = [(share * shard.grad.square()).sum().double() for shard, share in held]
    norm = axes.world.all_reduce(torch.stack(squares).sum()).sqrt()
    for shard, _ in held:
        shard.grad *= (max_norm / (norm + 1e-6)).clamp(max=1)


class Step(Parts):
    """A step of one rank, on any mesh."""

    def backward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Give my shards the gradient of the mean loss over (b, s); returns the loss."""
        self.optimizer.zero_grad()
        loss = self.pipeline.step(mine(self.axes, tokens), mine(self.axes, targets))
        for group in self.groups.values():
            group.reduce()  # over the ranks that hold the same weights
        if loss is not None:  # I have the last stage
            loss = self.axes.data.all_reduce(loss, "mean")
        else:
            loss = torch.empty((), dtype=self.loss_dtype, device=tokens.device)
        return self.axes.pp.broadcast(loss, self.last)

    @torch.no_grad()
    def update(self) -> None:
        """Clip, update my shards, and gather what others have updated."""
        if self.max_norm is not None:
            clip(self.axes, self.shards(), self.max_norm)
        self.optimizer.step()
        for group in self.groups.values():
            group.gather()

    def step(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """One step on a batch (b, s) of the whole mesh; returns its loss."""
        loss = self.backward(tokens, targets)
        self.update()
        return loss
