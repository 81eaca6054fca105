"""Tensor parallelism, as one rank runs it: both ends of a branch, and the two branches.

The modules that grew out of it, with biases, dropout and pieces, are `linear.py` and `gpt.py`.
Shoeybi et al. (2019), Korthikanti et al. (2022).
"""

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention


class Copy(torch.autograd.Function):
    """Every rank reads x, so gradients are summed: Megatron's f."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.comm.all_reduce(gradient), None


class Reduce(torch.autograd.Function):
    """The sum of all ranks' addends: Megatron's g."""

    @staticmethod
    def forward(ctx, x, comm):
        return comm.all_reduce(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Gather(torch.autograd.Function):
    """All tokens (dimension 0), of which each rank has a part."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return comm.all_gather(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.comm.reduce_scatter(gradient), None


class Scatter(torch.autograd.Function):
    """The sum of all ranks' addends, of which each keeps the tokens that are its own."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return comm.reduce_scatter(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.comm.all_gather(gradient), None


class FeedForward(nn.Module):
    """Tokens x (s, b, h) through a rank's columns of `up` (h, f) and rows of `down` (f, h)."""

    def __init__(self, comm, up, down, enter=Copy, leave=Reduce):
        super().__init__()
        self.comm, self.enter, self.leave = comm, enter, leave
        self.up = nn.Parameter(up.chunk(comm.size, dim=1)[comm.rank].clone())
        self.down = nn.Parameter(down.chunk(comm.size, dim=0)[comm.rank].clone())

    def forward(self, x):
        x = self.enter.apply(x, self.comm)
        return self.leave.apply(gelu(x @ self.up) @ self.down, self.comm)


class Attention(nn.Module):
    """The same of a rank's heads: columns of three matrices (h, h), rows of `output` (h, h)."""

    def __init__(self, comm, query, key, value, output, heads, enter=Copy, leave=Reduce):
        super().__init__()
        self.comm, self.enter, self.leave = comm, enter, leave
        mine = [w.chunk(comm.size, dim=1)[comm.rank] for w in (query, key, value)]
        self.read = nn.ParameterList(w.clone() for w in mine)
        self.output = nn.Parameter(output.chunk(comm.size, dim=0)[comm.rank].clone())
        self.heads = heads // comm.size

    def forward(self, x):
        x = self.enter.apply(x, self.comm)
        q, k, v = ((x @ w).unflatten(2, (self.heads, -1)) for w in self.read)  # (s, b, a/t, d)
        q, k, v = (each.permute(1, 2, 0, 3) for each in (q, k, v))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.permute(2, 0, 1, 3).flatten(2)
        return self.leave.apply(mixed @ self.output, self.comm)
