"""Attention with gathered keys and values, as one rank runs it: gather, use, drop, twice.

How Llama 3 learned long sequences: Grattafiori et al. (2024), arXiv 2407.21783, section 3.3.2.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.context_parallel.attention import (
    NOTHING,
    Attention,
    attend,
    attend_backward,
    merge,
    visible,
)


def all_keys(comm, layout, k: Tensor, v: Tensor) -> Tensor:
    """Keys and values of all ranks (n, 2, b, most, kv_heads, d), padded where tokens are fewer."""
    kv, most = torch.stack((k, v)), max(map(layout.tokens, range(comm.size)))
    return comm.all_gather(F.pad(kv, (0, 0, 0, 0, 0, most - k.shape[1]))[None])


def gathered_forward(comm, layout, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Gather, and merge what my queries find in everybody's keys."""
    out, lse = torch.zeros_like(q), q.new_full((*q.shape[:3], 1), NOTHING)
    for owner, kv in enumerate(all_keys(comm, layout, k, v)):
        for mine, theirs, seen in visible(layout, comm.rank, owner, q.device):
            found = attend(q[:, mine], kv[0][:, theirs], kv[1][:, theirs], seen)
            out[:, mine], lse[:, mine] = merge((out[:, mine], lse[:, mine]), found)
    return out, lse


def gathered_backward(comm, layout, q, k, v, out, lse, dout) -> tuple[Tensor, Tensor, Tensor]:
    """Gather again, and reduce the gradients to the ranks that have the tokens."""
    delta, dq = (dout * out).sum(-1, keepdim=True), torch.zeros_like(q)
    all_kv = all_keys(comm, layout, k, v)
    all_dkv = torch.zeros_like(all_kv)
    for owner, (kv, dkv) in enumerate(zip(all_kv, all_dkv, strict=True)):
        for mine, theirs, seen in visible(layout, comm.rank, owner, q.device):
            found = attend_backward(
                q[:, mine], kv[0][:, theirs], kv[1][:, theirs], seen,
                lse[:, mine], dout[:, mine], delta[:, mine],
            )  # fmt: skip
            dq[:, mine] += found[0]
            dkv[0][:, theirs] += found[1]
            dkv[1][:, theirs] += found[2]
    (own,) = comm.reduce_scatter(all_dkv)
    dk, dv = own[:, :, : k.shape[1]]
    return dq, dk, dv


def gathered_attention(comm, layout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention (b, tokens, heads, d) of this rank's queries to the keys of all ranks."""
    return Attention.apply(gathered_forward, gathered_backward, comm, layout, q, k, v)
