"""A ring all-reduce, as one rank runs it. Every rank has messages with its two neighbours only.

The same as data, to be checked, priced and drawn, is `ring_plan.py`. Patarasuk and Yuan (2009).
"""

import torch
from torch import Tensor


def pass_on(comm, chunk: Tensor) -> Tensor:
    """Send a chunk to the right, and return the one from the left."""
    arrived = torch.empty_like(chunk)
    sending = comm.isend(chunk, (comm.rank + 1) % comm.size)
    comm.recv(arrived, (comm.rank - 1) % comm.size)
    sending.wait()
    return arrived


def reduce_scatter(comm, x: Tensor) -> Tensor:
    """Add up all ranks' x (n * length,). Return this rank's chunk (length,)."""
    n = comm.size
    chunks = list(x.view(n, -1))
    for k in range(n - 1):
        sent = (comm.rank - 1 - k) % n  # in round k chunk c is at rank c+1+k
        came = (comm.rank - 2 - k) % n  # what the left neighbor sends
        # Not +=, which would change the caller's x.
        chunks[came] = chunks[came] + pass_on(comm, chunks[sent])
    return chunks[comm.rank]


def all_gather(comm, part: Tensor) -> Tensor:
    """Return the parts (length,) of all ranks, one after the other."""
    n = comm.size
    parts = {comm.rank: part}
    for k in range(n - 1):
        sent = (comm.rank - k) % n  # has just come; at first our own
        came = (comm.rank - 1 - k) % n
        parts[came] = pass_on(comm, parts[sent])
    return torch.cat([parts[rank] for rank in range(n)])


def all_reduce(comm, x: Tensor) -> Tensor:
    """Return the sum of all ranks' x (n * length,), on every rank."""
    return all_gather(comm, reduce_scatter(comm, x))
