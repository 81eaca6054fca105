"""The ring that a rank runs, as a page shows it: the sums of one device, the messages of the plan."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlsys import world
from dlsys.collectives import ring, ring_all_gather, ring_all_reduce, ring_reduce_scatter
from dlsys.hardware import LINKS

LINK = LINKS["infiniband-ndr"]
PLANS = {
    ring.reduce_scatter: ring_reduce_scatter,
    ring.all_gather: ring_all_gather,
    ring.all_reduce: ring_all_reduce,
}


def numbers(rank, length):
    return torch.randint(-99, 99, (length,), generator=torch.Generator().manual_seed(rank))


@given(n=st.integers(1, 9), each=st.integers(0, 5))
def test_every_rank_has_the_sum_of_all_or_its_part(n, each):
    xs = [numbers(rank, n * each) for rank in range(n)]
    total = torch.stack(xs).sum(0)

    def program(comm):
        x = xs[comm.rank].clone()
        found = ring.all_reduce(comm, x), ring.reduce_scatter(comm, x), ring.all_gather(comm, x)
        return *found, x

    for rank, (summed, part, gathered, x) in enumerate(world.simulate(program, n).results):
        assert torch.equal(summed, total)
        assert torch.equal(part, total[rank * each : (rank + 1) * each])
        assert torch.equal(gathered, torch.cat(xs))
        assert torch.equal(x, xs[rank]), "what is passed in stays as it is"


@pytest.mark.parametrize("program", PLANS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_its_messages_and_seconds_are_those_of_the_plan(program, n):
    length = 12 * n if program is not ring.all_gather else 12
    x, plan = torch.zeros(length), PLANS[program](n)
    runs = [
        world.simulate(one, n, link=LINK)
        for one in (lambda comm: program(comm, x), lambda comm: plan.run(comm, x))
    ]
    mine, planned = (
        sorted((m.src, m.dst, m.nbytes, round(1e9 * m.start)) for m in run.traffic.messages)
        for run in runs
    )
    assert len(mine) == (n - 1) * n * (2 if program is ring.all_reduce else 1)
    assert mine == planned
    price = plan.price(48 * n, LINK, itemsize=4)
    assert runs[0].seconds == pytest.approx(price.seconds, rel=1e-12)
    assert max(runs[0].traffic.sent) == price.bytes_per_rank


def test_real_processes_have_the_sums_of_torchs_own():
    def program(comm):
        x = numbers(comm.rank, 12)
        return torch.equal(ring.all_reduce(comm, x), comm.all_reduce(x))

    assert world.launch(program, ranks=3).results == [True] * 3


def test_a_buffer_of_unequal_chunks_is_refused():
    with pytest.raises(world.RankError, match=r"shape .* invalid for input of size 10"):
        world.simulate(lambda comm: ring.all_reduce(comm, torch.zeros(10)), 3)
