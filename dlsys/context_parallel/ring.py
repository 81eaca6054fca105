"""Ring attention, as one rank runs it: queries stay, keys and values go round.

Liu, Zaharia and Abbeel (2023), arXiv 2310.01889. Who has which tokens is a `Layout` of plan.py.
q is (b, tokens, heads, d), k and v are (b, tokens, kv_heads, d): a rank's own, chunk by chunk.
"""

from functools import partial

import torch
from torch import Tensor

from dlsys.context_parallel.attention import NOTHING, Attention, absorb, absorb_backward
from dlsys.model import at_least_float32


def pass_on(comm, x: Tensor, tokens: int):
    """Start to send x to the right; return a function that waits for the left's x."""
    if comm.size == 1:
        return lambda: x
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    arriving = x.new_empty(*x.shape[:2], tokens, *x.shape[3:])
    if comm.rank % 2:  # on NCCL a send waits for its receive: not all may send first
        coming, sending = comm.irecv(arriving, left), comm.isend(x, right)
    else:
        sending, coming = comm.isend(x, right), comm.irecv(arriving, left)

    def wait() -> Tensor:
        sending.wait()
        return coming.wait()

    return wait


def ring_forward(comm, layout, q, k, v) -> tuple[Tensor, Tensor]:
    """Merge in what my queries find in these keys, while the next travel."""
    me, n = comm.rank, comm.size
    kv = torch.stack((k, v))  # one message
    out = at_least_float32(torch.zeros_like(q))
    lse = out.new_full((*q.shape[:3], 1), NOTHING)
    for step in range(n):
        owner = (me - step) % n  # whose keys these are
        if step < n - 1:
            next_kv = pass_on(comm, kv, layout.tokens((owner - 1) % n))
        absorb(layout, me, owner, q, kv, out, lse)
        if step < n - 1:
            kv = next_kv()
    return out.to(q.dtype), lse


def ring_backward(comm, layout, q, k, v, out, lse, dout) -> tuple[Tensor, ...]:
    """Go round again; gradients go the way of their keys, one round later."""
    me, n = comm.rank, comm.size
    delta = (at_least_float32(dout) * out).sum(-1, keepdim=True)
    kv, dq = torch.stack((k, v)), at_least_float32(torch.zeros_like(q))
    next_dkv = partial(torch.zeros_like, kv)  # at first no rank has found anything
    for step in range(n):
        owner = (me - step) % n
        if step < n - 1:
            next_kv = pass_on(comm, kv, layout.tokens((owner - 1) % n))
        dkv = absorb_backward(layout, me, owner, q, kv, lse, dout, delta, dq)
        dkv += next_dkv()  # what the ranks before me have found for these keys
        next_dkv = pass_on(comm, dkv, layout.tokens((owner - 1) % n))
        if step < n - 1:
            kv = next_kv()
    dk, dv = next_dkv()  # the last step has brought mine home
    return dq, dk, dv


def ring_attention(comm, layout, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of my queries (b, tokens, heads, d) to all ranks' keys."""
    return Attention.apply(ring_forward, ring_backward, comm, layout, q, k, v)
