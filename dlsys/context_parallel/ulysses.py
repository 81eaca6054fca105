"""Ulysses, as one rank runs it: swap some tokens of all heads for all tokens of some heads.

Jacobs et al. (2023), DeepSpeed-Ulysses, arXiv 2309.14509. Heads do not read each other, so a rank
that has all tokens of a head can run any attention on them.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.context_parallel.attention import attend, visible


def to_heads(comm, x: Tensor) -> Tensor:
    """My tokens, all heads (b, m, h, d) -> all tokens, my heads (b, n m, h/n, d)."""
    parts = x.unflatten(2, (comm.size, -1)).movedim(2, 0)  # whom each part goes to
    return comm.all_to_all(parts.contiguous()).movedim(0, 1).flatten(1, 2)


def to_tokens(comm, x: Tensor) -> Tensor:
    """All tokens, my heads (b, n m, h/n, d) -> my tokens, all heads (b, m, h, d)."""
    parts = x.unflatten(1, (comm.size, -1)).movedim(1, 0)
    return comm.all_to_all(parts.contiguous()).movedim(0, 2).flatten(2, 3)


class Swap(torch.autograd.Function):
    """An all-to-all, and in backward the one that undoes it."""

    @staticmethod
    def forward(ctx, comm, there, back, x: Tensor) -> Tensor:
        """x, swapped."""
        ctx.comm, ctx.back = comm, back
        return there(comm, x)

    @staticmethod
    def backward(ctx, dy: Tensor):
        """The gradient of what was swapped, swapped back."""
        return None, None, None, ctx.back(ctx.comm, dy)


def ulysses_attention(comm, layout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of my queries (b, tokens, heads, d) to all ranks' keys."""
    n, tokens = comm.size, q.shape[1]
    if k.shape[2] < n:  # ranks that share a head of keys and values get a copy each
        k, v = (x.repeat_interleave(n // k.shape[2], dim=2) for x in (k, v))
    padded = (F.pad(x, (0, 0, 0, 0, 0, layout.most - tokens)) for x in (q, k, v))
    q, k, v = (Swap.apply(comm, to_heads, to_tokens, x) for x in padded)
    place = layout.order()  # where each position of the sequence has come to lie
    ((_, _, seen),) = visible(layout.whole(), 0, 0, q.device)
    out = torch.zeros_like(q)
    out[:, place], _ = attend(q[:, place], k[:, place], v[:, place], seen)
    return Swap.apply(comm, to_tokens, to_heads, out)[:, :tokens]
