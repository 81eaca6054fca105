"""The three stages of ZeRO, as one rank runs them. Rajbhandari et al. (2020), arXiv 1910.02054.

Each does the step of data parallelism, in which every rank has a part of the batch, and each keeps
less than the one before. `ShardedOptimizer` and `FullyShardedDataParallel` do the same for any
model, with buckets, prefetch and mixed precision.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call


def flat(tensors: Iterable[Tensor], n: int) -> Tensor:
    """Lay tensors end to end, and pad them to a multiple of n."""
    x = torch.cat([t.detach().reshape(-1) for t in tensors])
    return nn.functional.pad(x, (0, -len(x) % n))


def fill(tensors: list[Tensor], x: Tensor) -> None:
    """Write what `flat` has laid end to end back into the tensors."""
    for t in tensors:
        t.data.copy_(x[: t.numel()].view(t.shape))
        x = x[t.numel() :]


def my_shard(comm, tensors: Iterable[Tensor]) -> nn.Parameter:
    """This rank's part of tensors that all ranks have."""
    parts = flat(tensors, comm.size).chunk(comm.size)
    return nn.Parameter(parts[comm.rank].clone())


class Stage1:
    """Every rank has all weights and gradients, and 1/n of the state."""

    def __init__(self, parameters, optimizer, comm, **options) -> None:
        self.parameters, self.comm = list(parameters), comm
        self.shard = my_shard(comm, self.parameters)
        self.optimizer = optimizer([self.shard], **options)

    def step(self) -> None:
        """Reduce gradients to my shard, update it, gather everybody's."""
        gradients = flat([p.grad for p in self.parameters], self.comm.size)
        self.shard.grad = self.comm.reduce_scatter(gradients, "mean")
        self.optimizer.step()
        fill(self.parameters, self.comm.all_gather(self.shard.detach()))


class Stage2:
    """Every rank has all weights, and 1/n of gradients and state."""

    def __init__(self, parameters, optimizer, comm, **options) -> None:
        self.comm = comm
        self.shards = {p: my_shard(comm, [p]) for p in parameters}
        self.optimizer = optimizer(self.shards.values(), **options)
        for p in self.shards:
            p.register_post_accumulate_grad_hook(self.reduce)

    def reduce(self, p) -> None:
        """Backward has made a gradient: keep my shard of it, and drop it."""
        gradient = flat([p.grad], self.comm.size)
        mine = self.comm.reduce_scatter(gradient, "mean")
        kept, p.grad = self.shards[p].grad, None
        self.shards[p].grad = mine if kept is None else kept + mine

    def step(self) -> None:
        """Update my shards, and gather everybody's."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        for p, shard in self.shards.items():
            fill([p], self.comm.all_gather(shard.detach()))


class Borrow(torch.autograd.Function):
    """A unit of which every rank has 1/n: gather, use, drop, twice."""

    @staticmethod
    def forward(ctx, comm, unit, shard: Tensor, x: Tensor) -> Tensor:
        """Compute with weights that are there for this one call."""
        ctx.comm, ctx.unit = comm, unit
        ctx.save_for_backward(shard, x)
        return functional_call(unit, whole(comm, unit, shard), (x,))

    @staticmethod
    def backward(ctx, dy: Tensor):
        """Gather again, go through the unit again, reduce its gradients."""
        shard, x = ctx.saved_tensors
        weights = whole(ctx.comm, ctx.unit, shard)
        x = x.detach().requires_grad_(x.is_floating_point())
        with torch.enable_grad():
            y = functional_call(ctx.unit, weights, (x,))
        y.backward(dy)  # fills the .grad of the weights and of x
        gradients = flat([w.grad for w in weights.values()], ctx.comm.size)
        mine = ctx.comm.reduce_scatter(gradients, "mean")
        return None, None, mine, x.grad


def whole(comm, unit: nn.Module, shard: Tensor) -> dict:
    """Gather a unit's weights, by name."""
    named = dict(unit.named_parameters())
    weights = [torch.empty(p.shape) for p in named.values()]
    fill(weights, comm.all_gather(shard.detach()))
    kept = [weight.requires_grad_() for weight in weights]
    return dict(zip(named, kept, strict=True))


class Stage3(nn.Module):
    """Units one after the other, of which every rank has 1/n."""

    def __init__(self, units: Iterable[nn.Module], comm) -> None:
        super().__init__()
        self.comm, units = comm, list(units)
        shards = [my_shard(comm, unit.parameters()) for unit in units]
        self.shards = nn.ParameterList(shards)
        self.units = [unit.to("meta") for unit in units]  # shapes alone

    def forward(self, x: Tensor) -> Tensor:
        """Pass x through all units."""
        for unit, shard in zip(self.units, self.shards, strict=True):
            x = Borrow.apply(self.comm, unit, shard, x)
        return x
