"""Expert parallelism, as one rank runs it: copies of tokens travel to their experts and back.

Rank r of n has tokens of its own, and the r-th E/n of the experts. Lepikhin et al. (2020), GShard,
arXiv 2006.16668. Everything is as in mixture.py, but for two exchanges.
"""

import torch
from torch import Tensor

from dlsys.expert_parallel.mixture import by_expert, weigh_and_add


def exchange(comm, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Send the first sent[0] rows of x to rank 0, the next to rank 1; return what comes.

    An all-to-all of unequal parts, in n-1 rounds. No message goes where nothing is sent.
    """
    me, n = comm.rank, comm.size
    leaving = x.split(sent)
    arrived = x.new_empty(sum(received), *x.shape[1:])
    coming = arrived.split(received)
    coming[me].copy_(leaving[me])
    for step in range(1, n):  # in each, everybody has another to send to
        dst, src = (me + step) % n, (me - step) % n
        send = [(comm.isend, leaving[dst], dst)] if sent[dst] else []
        receive = [(comm.irecv, coming[src], src)] if received[src] else []
        # On NCCL a send waits for its receive: of two ranks one has to receive first.
        calls = send + receive if me < dst else receive + send
        for handle in [start(rows, peer) for start, rows, peer in calls]:
            handle.wait()
    return arrived


class Exchange(torch.autograd.Function):
    """An exchange; in backward the gradients of what has been sent come back."""

    @staticmethod
    def forward(ctx, comm, sent: list[int], received: list[int], x: Tensor) -> Tensor:
        """See `exchange`."""
        ctx.comm, ctx.sent, ctx.received = comm, sent, received
        return exchange(comm, x.contiguous(), sent, received)

    @staticmethod
    def backward(ctx, dy: Tensor):
        """Send back as many rows as came."""
        dx = exchange(ctx.comm, dy.contiguous(), ctx.received, ctx.sent)
        return None, None, None, dx


def dispatched(comm, x, chosen, weights, compute, number: int) -> Tensor:
    """Have all ranks' experts read my tokens, and mine the tokens of all ranks."""
    n = comm.size
    order, counts = by_expert(chosen, number)
    going = counts.view(n, -1)  # copies for each rank's experts
    coming = comm.all_to_all(going)  # copies for my experts, from each rank
    sent, received = going.sum(1).tolist(), coming.sum(1).tolist()

    leaving = x[order // chosen.shape[1]]
    arrived = Exchange.apply(comm, sent, received, leaving)  # dispatch
    # They lie rank by rank, and within a rank expert by expert: sort by expert.
    expert = torch.arange(number // n, device=x.device).repeat(n)
    together = expert.repeat_interleave(coming.flatten()).argsort(stable=True)
    copies = compute(arrived[together], coming.sum(0).tolist())
    back = copies[together.argsort()]  # as they came
    returned = Exchange.apply(comm, received, sent, back)  # combine
    return weigh_and_add(x, returned, weights, order)
