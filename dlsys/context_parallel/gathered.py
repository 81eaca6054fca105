"""Attention with gathered keys and values, as one rank runs it: gather, use, drop, twice.

How Llama 3 learned long sequences: Grattafiori et al. (2024), arXiv 2407.21783, section 3.3.2.
"""

import torch
from torch import Tensor

from dlsys.context_parallel.attention import NOTHING, Attention, absorb, absorb_backward
from dlsys.model import at_least_float32


def all_keys(comm, layout, k: Tensor, v: Tensor) -> Tensor:
    """Keys and values of all ranks (n, 2, b, most, heads, d), padded."""
    kv, short = torch.stack((k, v)), layout.most - k.shape[1]
    return comm.all_gather(torch.nn.functional.pad(kv, (0, 0, 0, 0, 0, short))[None])


def gathered_forward(comm, layout, q, k, v) -> tuple[Tensor, Tensor]:
    """Gather, and merge what my queries find in everybody's keys."""
    out = at_least_float32(torch.zeros_like(q))
    lse = out.new_full((*q.shape[:3], 1), NOTHING)
    for owner, kv in enumerate(all_keys(comm, layout, k, v)):
        absorb(layout, comm.rank, owner, q, kv, out, lse)
    return out.to(q.dtype), lse


def gathered_backward(comm, layout, q, k, v, out, lse, dout) -> tuple[Tensor, Tensor, Tensor]:
    """Gather again, and reduce the gradients to the ranks that have the tokens."""
    delta = (at_least_float32(dout) * out).sum(-1, keepdim=True)
    dq = at_least_float32(torch.zeros_like(q))
    dkvs = [
        absorb_backward(layout, comm.rank, owner, q, kv, lse, dout, delta, dq)
        for owner, kv in enumerate(all_keys(comm, layout, k, v))
    ]
    (own,) = comm.reduce_scatter(torch.stack(dkvs))
    dk, dv = own[:, :, : k.shape[1]]
    return dq, dk, dv


def gathered_attention(comm, layout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of my queries (b, tokens, heads, d) to all ranks' keys."""
    return Attention.apply(gathered_forward, gathered_backward, comm, layout, q, k, v)
