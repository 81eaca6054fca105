"""The branches that the page shows: one device's results and gradients, and the collectives of the plan."""

import pytest
import torch

from dlsys import world
from dlsys.tensor_parallel import all_reduce_bytes
from dlsys.tensor_parallel.one_rank import Attention, Copy, FeedForward, Gather, Reduce, Scatter

S, B, H, F, HEADS = 8, 2, 8, 12, 4
ENDS = {"whole": (Copy, Reduce), "by token": (Gather, Scatter)}
ends = pytest.mark.parametrize("both", ENDS.values(), ids=ENDS)
several = pytest.mark.parametrize("ranks", [1, 2, 4])


def drawn(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def feed_forward(comm, *both):
    return FeedForward(comm, drawn(H, F, seed=1), drawn(F, H, seed=2), *both)


def attention(comm, *both):
    return Attention(comm, *(drawn(H, H, seed=i) for i in range(4)), HEADS, *both)


BRANCHES = {"feed-forward": feed_forward, "attention": attention}
branches = pytest.mark.parametrize("branch", BRANCHES.values(), ids=BRANCHES)


def run(comm, branch, both):
    """Output, and the gradients of the input and of what the rank has of each matrix."""
    made, x = branch(comm, *both), drawn(S, B, H, seed=9)
    if both[0] is Gather:
        x = x.chunk(comm.size)[comm.rank]
    x = x.clone().requires_grad_()
    y = made(x)
    y.pow(3).sum().backward()
    return y.detach(), x.grad, {name: p.grad for name, p in made.named_parameters()}


@ends
@branches
@several
def test_a_branch_on_ranks_is_that_of_one_device(branch, both, ranks):
    found = world.simulate(run, ranks, args=(branch, both)).results
    [(y, dx, matrices)] = world.simulate(run, 1, args=(branch, ENDS["whole"])).results
    by_token = both[0] is Gather
    for place, expected in enumerate((y, dx)):
        each = [one[place] for one in found]
        each = [torch.cat(each)] if by_token else each
        for one in each:
            torch.testing.assert_close(one, expected, rtol=1e-10, atol=1e-10)
    for name, expected in matrices.items():
        whole = torch.cat(
            [one[2][name] for one in found], dim=0 if name in ("down", "output") else 1
        )
        torch.testing.assert_close(whole, expected, rtol=1e-10, atol=1e-10)


@branches
@pytest.mark.parametrize("ranks", [2, 4])
def test_both_ends_send_the_bytes_of_two_all_reduces(branch, ranks):
    message = all_reduce_bytes(S * B, H, itemsize=8)
    for name, both in ENDS.items():
        traffic = world.simulate(run, ranks, args=(branch, both)).traffic
        assert sum(traffic.sent) == ranks * 2 * 2 * (ranks - 1) / ranks * message, name
        kinds = {call.kind for call in traffic.calls}
        whole = {"all_reduce"}
        assert kinds == (whole if name == "whole" else {"all_gather", "reduce_scatter"})
