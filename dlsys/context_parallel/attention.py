"""Attention put together out of parts of the keys, forward and backward.

Attention is a weighted mean of values. Over two parts of the keys it is the mean of both parts'
means, each counted by the sum of its weights. Milakov and Gimelshein (2018), arXiv 1805.02867.
q is (b, queries, heads, d), k and v are (b, keys, kv_heads, d); `seen` (queries, keys) says which
key a query sees.
"""

from functools import partial

import torch
from torch import Tensor

from dlsys.model import at_least_float32

NOTHING = -1e30  # the log of no weight: inf - inf is NaN


def scores(q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
    """Return q k / sqrt(d), (b, heads, queries, keys)."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    x = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    return x.masked_fill(~seen, NOTHING)


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of v (b, queries, heads, d), and the log of its weights (…, 1)."""
    q, k, v = map(at_least_float32, (q, k, v))  # so that merging adds no rounding
    x = scores(q, k, seen)
    lse = x.logsumexp(-1, keepdim=True)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], dim=2)
    mean = torch.einsum("bhqk,bkhd->bqhd", torch.exp(x - lse), v)
    return mean, lse.transpose(1, 2)


def merge(one, other) -> tuple[Tensor, Tensor]:
    """Make what `attend` gives for the keys of both out of what it gives for each."""
    (a, lse_a), (b, lse_b) = one, other
    lse = torch.logaddexp(lse_a, lse_b)
    return a * torch.exp(lse_a - lse) + b * torch.exp(lse_b - lse), lse


def visible(layout, mine: int, theirs: int, device):
    """Parts of my queries and of their keys that see each other, with their mask."""
    documents = torch.tensor(layout.documents, device=device)  # where each begins

    def positions(x: range) -> Tensor:
        return torch.arange(x.start, x.stop, x.step, device=device)

    for rows, queries, columns, keys in layout.blocks(mine, theirs):
        q, k = positions(queries), positions(keys)
        of_q, of_k = (torch.bucketize(x, documents, right=True) for x in (q, k))
        yield rows, columns, (k <= q[:, None]) & (of_k == of_q[:, None])


def absorb(layout, me: int, owner: int, q, kv, out, lse) -> None:
    """Merge into my out and lse what my queries find in the keys of `owner`."""
    for mine, theirs, seen in visible(layout, me, owner, q.device):
        found = attend(q[:, mine], kv[0][:, theirs], kv[1][:, theirs], seen)
        out[:, mine], lse[:, mine] = merge((out[:, mine], lse[:, mine]), found)


def attend_backward(q, k, v, seen, lse, dout, delta) -> tuple[Tensor, ...]:
    """What these keys and queries add to the gradients of q, k and v.

    lse is that of all keys, delta the sum of dout * out over d: (b, queries, heads, 1).
    """
    q, k, v, dout = map(at_least_float32, (q, k, v, dout))
    group = q.shape[2] // k.shape[2]
    v = v.repeat_interleave(group, dim=2)
    weights = torch.exp(scores(q, k, seen) - lse.transpose(1, 2))
    dweights = torch.einsum("bqhd,bkhd->bhqk", dout, v)
    dscores = weights * (dweights - delta.transpose(1, 2))
    dscores *= q.shape[-1] ** -0.5  # of q k, which the scores divide by sqrt(d)
    dq = torch.einsum("bhqk,bkhd->bqhd", dscores, k.repeat_interleave(group, dim=2))
    dk = torch.einsum("bhqk,bqhd->bkhd", dscores, q)
    dv = torch.einsum("bhqk,bqhd->bkhd", weights, dout)
    # A group's query heads read one head of keys and values: their gradients add up.
    return dq, *(x.unflatten(2, (-1, group)).sum(3) for x in (dk, dv))


def absorb_backward(layout, me, owner, q, kv, lse, dout, delta, dq) -> Tensor:
    """Add to my dq what the keys of `owner` add; return what I add to their gradients."""
    dkv = torch.zeros_like(kv)
    for mine, theirs, seen in visible(layout, me, owner, q.device):
        found = attend_backward(
            q[:, mine], kv[0][:, theirs], kv[1][:, theirs], seen,
            lse[:, mine], dout[:, mine], delta[:, mine],
        )  # fmt: skip
        dq[:, mine] += found[0]
        dkv[0][:, theirs] += found[1]
        dkv[1][:, theirs] += found[2]
    return dkv


class Attention(torch.autograd.Function):
    """The result of one function, and in backward the gradients of another."""

    @staticmethod
    def forward(ctx, attention, gradients, comm, layout, q, k, v) -> Tensor:
        """out, of the `attention` that also gives the log-sum-exp of each query."""
        out, lse = attention(comm, layout, q, k, v)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.gradients = partial(gradients, comm, layout)
        return out

    @staticmethod
    def backward(ctx, dout: Tensor):
        """A gradient for each argument of `forward`: none, but for q, k and v."""
        return None, None, None, None, *ctx.gradients(*ctx.saved_tensors, dout)
