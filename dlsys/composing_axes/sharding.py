"""ZeRO's stages for a group of parameters: what of their update each rank does that has them all.

Each makes `shards`, which the optimizer updates in the precision that weights have as it is built;
`reduce` gives them the mean of all ranks' gradients, and `gather` brings the weights up to date.
`shares` has for each number of the shards 1/(ranks of the whole mesh that hold it), so that the
norm of all gradients counts each once. Rajbhandari et al. (2020), arXiv 1910.02054; its stages
alone are in dlsys.zero.stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from dlsys.composing_axes.gpt import RoutedExperts
from dlsys.mesh import Axes
from dlsys.model import Block
from dlsys.pipeline_parallel import Stage
from dlsys.world import Communicator
from dlsys.zero import FullyShardedDataParallel
from dlsys.zero.stages import fill, flat, my_shard

Holders = Mapping[nn.Parameter, int]
"""Parameters, and how many ranks hold the same numbers of each, along all axes but the group's."""


def shares(holders: Holders) -> list[Tensor]:
    """1/holders, for each number of the parameters."""
    return [torch.full_like(p, 1 / number) for p, number in holders.items()]


def taken(parameters: list[nn.Parameter]) -> list[Any]:
    """Their gradients, of which the next backward pass will find none."""
    gradients = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return gradients


class Replicated:
    """Stage 0, data parallelism: every rank has all gradients and all state."""

    def __init__(self, holders: Holders, comm: Communicator) -> None:
        self.parameters: list[Any] = list(holders)
        self.comm = comm
        self.shards = [nn.Parameter(flat(self.parameters, 1))]
        self.shares = [flat(shares(holders), 1) / comm.size]

    def reduce(self) -> None:
        """All-reduce the gradients, in the precision of the weights."""
        (shard,) = self.shards
        gradients = flat(taken(self.parameters), 1)
        shard.grad = self.comm.all_reduce(gradients, "mean").to(shard.dtype)

    def gather(self) -> None:
        """Every rank has updated them all."""
        fill(self.parameters, self.shards[0].detach())


class ShardedState:
    """Stage 1: every rank has all gradients, and 1/n of the state."""

    def __init__(self, holders: Holders, comm: Communicator) -> None:
        self.parameters: list[Any] = list(holders)
        self.comm = comm
        self.shards = [my_shard(comm, self.parameters)]
        self.shares = [my_shard(comm, shares(holders))]

    def reduce(self) -> None:
        """Reduce the gradients to my shard."""
        (shard,) = self.shards
        gradients = flat(taken(self.parameters), self.comm.size)
        shard.grad = self.comm.reduce_scatter(gradients, "mean").to(shard.dtype)

    def gather(self) -> None:
        """Gather everybody's shard, rounded to the precision of the weights."""
        mine = self.shards[0].detach().to(self.parameters[0].dtype)
        fill(self.parameters, self.comm.all_gather(mine))


class ShardedGradients:
    """Stage 2: every rank has 1/n of gradients and state, and reduces those of each micro-batch."""

    def __init__(self, holders: Holders, comm: Communicator) -> None:
        self.comm = comm
        self.of = {p: my_shard(comm, [p]) for p in holders}
        self.shards = list(self.of.values())
        self.shares = [my_shard(comm, [share]) for share in shares(holders)]
        for p in self.of:
            p.register_post_accumulate_grad_hook(self.take)

    def take(self, p: Any) -> None:
        """Backward has made a gradient: keep my shard of it, and drop it."""
        gradient, shard = flat([p.grad], self.comm.size), self.of[p]
        mine = self.comm.reduce_scatter(gradient, "mean").to(shard.dtype)
        shard.grad = mine if shard.grad is None else shard.grad + mine
        p.grad = None

    def reduce(self) -> None:
        """Backward has reduced them all."""

    def gather(self) -> None:
        """Gather everybody's shards."""
        for p, shard in self.of.items():
            fill([p], self.comm.all_gather(shard.detach().to(p.dtype)))


class ShardedWeights:
    """Stage 3: weights are whole only while they are used, a unit at a time, and in `dtype`.

    Experts are shared by those who hold the same ones, all else by the data ranks. A tied matrix,
    of which first and last stage add up whole gradients, stays whole, with what is in no block.
    """

    def __init__(self, stage: Stage, holders: Holders, axes: Axes, dtype: torch.dtype) -> None:
        named = [(name, holders[p]) for name, p in stage.named_parameters()]
        units = [Block, RoutedExperts, *([Stage] if stage.tied is None else [])]
        experts: Any = {RoutedExperts: axes.holders}
        module = FullyShardedDataParallel(stage, axes.data, units, dtype, over=experts)
        self.module = cast(Any, module)
        self.module.message = lambda tokens: stage.message(tokens).to(dtype)
        self.shards = [stage.get_parameter(name) for name, _ in named]
        # Each number of a shard is on one of its ranks, and of what stays whole on all of them.
        among = [1 if hasattr(p, "is_shard") else axes.data.size for p in self.shards]
        numbers = zip(named, among, strict=True)
        self.shares = [torch.tensor(1 / (number * ranks)) for (_, number), ranks in numbers]

    def reduce(self) -> None:
        """Backward has reduced them all."""

    def gather(self) -> None:
        """Forward will gather them."""


STAGES = {0: Replicated, 1: ShardedState, 2: ShardedGradients}
"""ZeRO's stages that keep weights whole, by number."""
