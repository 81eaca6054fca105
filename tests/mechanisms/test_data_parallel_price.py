"""What data parallelism costs, held against what running programs send and take; and the variants
that send less."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dlsys import world
from dlsys.collectives import (
    Plan,
    Transfer,
    hierarchical_all_reduce,
    plan_for,
    ring_all_reduce,
)
from dlsys.data_parallel import (
    BatchTradeoff,
    DataParallel,
    Int8,
    LocalSGD,
    NoiseMeter,
    PowerSGD,
    Scaling,
    TopK,
    accumulation_steps,
    amdahl_speedup,
    bucket_tradeoff,
    buckets,
    draw_bucket_tradeoff,
    draw_compression,
    draw_overlap,
    draw_scaling,
    noise_scale,
    overlap,
    step_bytes,
    strong_scaling,
    weak_scaling,
)
from dlsys.data_parallel.compression import quantize
from dlsys.data_parallel.ddp import GradientBucket, all_reduce
from dlsys.data_parallel.noise import NoiseScale
from dlsys.data_parallel.price import all_reduce_seconds, equal_buckets
from dlsys.hardware import DEVICES, LINKS, Link, dgx_h100
from dlsys.model import GPT
from dlsys.transformer import TransformerSpec

TINY = TransformerSpec(layers=2, hidden=16, heads=4, vocab=32, sequence=8)
LINK = Link("plain", latency=2e-3, bandwidth=1e6)
FREE = Link("no latency", latency=0.0, bandwidth=1e6)
TIMES = st.floats(0, 0.05)
SIZES = st.lists(st.integers(1, 40).map(lambda k: 48 * k), min_size=1, max_size=5)


# -- bytes ---------------------------------------------------------------------------------------


def test_step_bytes_of_published_examples():
    assert step_bytes(20e9, 64) == 39.375e9
    assert step_bytes(14e9, 8) == 24.5e9  # not 28: that is the limit for many ranks
    assert step_bytes(14e9, 1) == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_a_training_step_sends_exactly_the_priced_bytes(ranks):
    def program(comm):
        model = DataParallel(GPT(TINY), comm, bucket_bytes=9_000)
        tokens = torch.randint(32, (2, 8))
        model(tokens, tokens).backward()
        return model.plan

    run = world.simulate(program, ranks)
    plan = run.results[0]
    sent = [0] * ranks
    for message in run.traffic.messages:
        sent[message.src] += message.nbytes * (message.kind == "all_reduce")
    assert sum(sent) == pytest.approx(ranks * step_bytes(plan.nbytes, ranks))
    # Chunks are whole elements: one of a bucket is up to an element longer than another.
    most = 4 * 2 * (ranks - 1) * len(plan.buckets)
    assert 0 <= max(sent) - step_bytes(plan.nbytes, ranks) <= most
    assert run.traffic.count("all_reduce", rank=0) == (len(plan.buckets) if ranks > 1 else 0)


def test_eight_turned_rings_take_what_one_ring_takes_on_a_link_of_eight_cards():
    """The page prices nodes of eight cards as one link of eight times the bandwidth."""
    nodes, n, nbytes = 4, 32, 1e9
    ring = ring_all_reduce(n)

    def turned(rank: int, k: int) -> int:
        return rank - rank % 8 + (rank + k) % 8

    rounds = [
        [
            Transfer(turned(t.src, k), turned(t.dst, k), t.first + k * n, t.stop + k * n, t.reduce)
            for t in one
            for k in range(8)
        ]
        for one in ring.rounds
    ]
    rings = Plan("all_reduce", "eight rings", n, 8 * n, rounds)
    rings.check()
    card = LINKS["infiniband-ndr"]
    cards = replace(card, bandwidth=8 * card.bandwidth)
    seconds = rings.price(nbytes, dgx_h100(nodes)).seconds
    assert all_reduce_seconds(nbytes, n, cards) == pytest.approx(seconds, rel=1e-9)
    assert all_reduce_seconds(nbytes, n, card) > 7 * seconds


def test_accumulation_of_published_examples():
    assert repr(accumulation_steps(512, 16, 8)) == "4"  # a whole number
    assert accumulation_steps(512, 16, 32) == 1
    for batch, nearest in ((500, "384 and 512"), (100, "128"), (129, "128 and 256")):
        said = f"A batch of {batch} samples does not divide by 8 ranks with micro-batches of 16"
        with pytest.raises(ValueError, match=f"^{said}; the nearest that work: {nearest}.$"):
            accumulation_steps(batch, 16, 8)


# -- overlap -------------------------------------------------------------------------------------


def backward_with_handles(comm, sizes, backward, forward):
    """What a training program does: start each bucket's all-reduce and go on computing."""
    comm.compute(forward, "forward")
    handles = []
    for nbytes in sizes:
        comm.compute(backward * nbytes / sum(sizes), "backward")
        handles.append(comm.all_reduce(torch.zeros(nbytes // 4), async_op=True))
    for handle in handles:
        handle.wait()


@given(SIZES, TIMES, TIMES, st.sampled_from([1, 2, 3, 4]))
@settings(max_examples=40, deadline=None)
def test_the_priced_step_is_what_asynchronous_all_reduces_take_but_for_latency(
    sizes, backward, forward, ranks
):
    args = (sizes, backward, forward)
    exact = world.simulate(backward_with_handles, ranks, link=FREE, args=args).seconds
    found = overlap(sizes, backward, ranks, FREE, "ring", forward)
    assert found.seconds == pytest.approx(exact, rel=1e-12)
    # With latency, buckets that share the links hide some of each other's latencies.
    run = world.simulate(backward_with_handles, ranks, link=LINK, args=args).seconds
    priced = overlap(sizes, backward, ranks, LINK, "ring", forward).seconds
    latencies = 2 * (ranks - 1) * LINK.latency * len(sizes)
    assert priced - latencies - 1e-12 <= run <= priced + 1e-12


def test_a_real_step_takes_as_long_as_its_priced_buckets():
    device = DEVICES["h100-sxm"]
    link = Link("slow", latency=0.0, bandwidth=1e9)

    def program(comm):
        torch.manual_seed(0)
        model = DataParallel(
            nn.Sequential(*[nn.Linear(32, 32, bias=False) for _ in range(6)]), comm, 4096
        )
        comm.barrier()
        start = comm.seconds
        loss = model(torch.ones(64, 32)).sum()
        half = comm.seconds
        loss.backward()
        return start, half, comm.seconds, model.plan

    run = world.simulate(program, 4, link=link, device=device)
    start, half, end, plan = run.results[0]
    ready = sorted({c.start for c in run.traffic.calls if c.kind == "all_reduce" and c.rank == 0})
    assert len(ready) == len(plan.buckets) == 6
    shares = [b - a for a, b in zip([half, *ready], ready, strict=False)]
    more = {"forward_seconds": half - start, "shares": shares}
    found = plan.price(4, link, ready[-1] - half, **more)
    # What follows the last all-reduce of the run, dividing sums by n, is not in the price.
    busy = max(c.end for c in run.traffic.calls if c.kind == "all_reduce")
    assert found.seconds == pytest.approx(busy - start, rel=1e-9)
    assert 0 <= end - busy < 0.01 * found.seconds


def test_overlap_by_hand():
    link = Link("one second each", latency=0.0, bandwidth=1.0)
    step = overlap([1, 1, 1, 1], 8.0, 2, link, forward_seconds=4.0)
    assert step.compute == (("forward", 0, 4), (0, 4, 6), (1, 6, 8), (2, 8, 10), (3, 10, 12))
    assert step.network == ((0, 6, 7), (1, 8, 9), (2, 10, 11), (3, 12, 13))
    assert (step.seconds, step.exposed_seconds, step.hidden_fraction) == (13, 1, 0.75)
    assert step.blocking_seconds == 16
    late = overlap([1, 1, 1, 1], 8.0, 2, link, shares=[5, 1, 1, 1])
    assert [span[1] for span in late.network] == [5, 6, 7, 8]
    assert overlap([4.0], 8.0, 1, link).hidden_fraction == 1.0
    with pytest.raises(ValueError, match="2 shares for 1 buckets"):
        overlap([1], 1.0, 2, link, shares=[1, 2])


def test_a_plan_of_buckets_is_priced_with_all_that_is_given():
    link = Link("two ranks send as many bytes as they sum, one a second", 0.0, 1.0)
    plan = buckets({"a": 4, "b": 8}, 4)
    assert plan.price(2).seconds == 0
    assert [span[1:] for span in plan.price(2, link).network] == [(0, 8), (8, 12)]
    step = plan.price(2, link, 3.0, forward_seconds=1.0)
    assert [span[1:] for span in step.compute[1:]] == [(1, 3), (3, 4)]
    assert [span[1:] for span in step.network] == [(3, 11), (11, 15)]


def test_the_best_bucket_is_between_latency_and_the_exposed_last_one():
    link, ranks, nbytes, backward = LINKS["ethernet-100g"], 64, 2e9, 0.1
    steps = bucket_tradeoff(nbytes, backward, ranks, link)
    latencies = 2 * (ranks - 1) * link.latency  # of one all-reduce
    # The network never rests: a step is the first bucket's wait and all that is sent after it.
    busy = step_bytes(nbytes, ranks) / link.bandwidth
    for most, step in steps.items():
        k = nbytes / most
        assert step.seconds == pytest.approx(backward / k + k * latencies + busy)
    assert [nbytes / most for most in steps][:7] == pytest.approx([1, 2, 3, 4, 6, 8, 12])
    # The minimum is at k = sqrt(B / a) = 6.3, and 6 is tried.
    assert (backward / latencies) ** 0.5 == pytest.approx(6.3, abs=0.01)
    best = min(steps, key=lambda most: steps[most].seconds)
    assert best == nbytes / 6


def test_bucket_sizes_are_tried_with_the_algorithm_that_is_asked_for():
    # Four ranks' trees of two levels, up and down, carry whole buckets: four times their bytes.
    link = Link("one byte a second", 0.0, 1.0)
    steps = bucket_tradeoff(8.0, 0.0, 4, link, "tree", [4, 8])
    assert [step.network[0].end for step in steps.values()] == [32, 16]
    with pytest.raises(ValueError, match=r"^bucket_bytes is \[\]; it must have at least one\.$"):
        bucket_tradeoff(8.0, 0.0, 4, link, bucket_bytes=[])


def test_equal_buckets_are_the_fewest_that_are_small_enough():
    assert equal_buckets(10.0, 5.0) == [5.0, 5.0]
    assert equal_buckets(10.0, 4.0) == [10 / 3] * 3
    assert equal_buckets(10.0, 20.0) == [10.0]
    assert equal_buckets(0.0, 5.0) == [0.0]
    for k in range(1, 200):  # also where nbytes/k is rounded down
        assert len(equal_buckets(1e9, 1e9 / k)) == k
    assert len(equal_buckets(1e5, 1.0)) == 100_000
    said = "bucket_bytes is 1.0; it must be at least 2, so that buckets are at most 100,000."
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        equal_buckets(2e5, 1.0)
    with pytest.raises(ValueError, match=r"^nbytes is -1\.0; it must be a finite "):
        equal_buckets(-1.0, 1.0)


def test_what_is_no_size_and_no_share_is_called_by_its_name():
    with pytest.raises(ValueError, match=r"^A bucket's size in bytes is -1; "):
        overlap([1, -1], 8.0, 2, LINK)
    with pytest.raises(ValueError, match=r"^A share of backward is -1; "):
        overlap([1, 1], 8.0, 2, LINK, shares=[1, -1])
    with pytest.raises(ValueError, match=r"^The size of 'b' in bytes is -8; "):
        buckets({"a": 8, "b": -8})
    with pytest.raises(ValueError, match=r"^fraction is 1\.5; .* at most 1, which sends all\.$"):
        TopK(1.5)


def test_every_part_that_is_tried_is_a_power_of_two_or_three_times_one():
    steps = bucket_tradeoff(6144.0, 1.0, 2, LINK)
    parts = sorted([2**i for i in range(13)] + [3 * 2**i for i in range(11)])
    assert [len(step.network) for step in steps.values()] == parts
    assert list(steps) == [6144 / part for part in parts]


def test_amdahls_speedup_is_that_of_published_examples():
    fractions = (0.05, 0.15, 0.40)
    assert [round(amdahl_speedup(256, r), 2) for r in fractions] == [18.62, 6.52, 2.49]
    assert (amdahl_speedup(1, 0.4), amdahl_speedup(8, 1.0)) == (1, 1)


def test_an_all_reduce_takes_what_its_algorithms_plan_takes():
    where, nbytes = dgx_h100(2), 1e9
    names = ("ring", "tree", "halving_doubling", "recursive_doubling")
    seconds = {name: all_reduce_seconds(nbytes, 16, where, name) for name in (*names, "best")}
    for name in names:
        assert seconds[name] == plan_for("all_reduce", 16, name).price(nbytes, where).seconds
    levels = hierarchical_all_reduce(2, 8).price(nbytes, where).seconds
    assert all_reduce_seconds(nbytes, 16, where, "hierarchical") == levels
    assert seconds["best"] == min(*seconds.values(), levels) < seconds["ring"]
    assert all_reduce_seconds(nbytes, 16, where) == seconds["ring"]
    assert all_reduce_seconds(nbytes, 16, None) == 0
    alone = [all_reduce_seconds(nbytes, 16, LINK, name) for name in names]
    assert all_reduce_seconds(nbytes, 16, LINK, "best") == min(alone)
    with pytest.raises(ValueError, match=r"^There is no all_reduce algorithm 'best'"):
        all_reduce_seconds(nbytes, 16, None, "best")
    with pytest.raises(ValueError, match=r"^A hierarchical all_reduce needs to know the nodes"):
        all_reduce_seconds(nbytes, 16, LINK, "hierarchical")


# -- scaling -------------------------------------------------------------------------------------


def test_the_network_is_the_wall_where_it_takes_longer_than_backward_and_not_as_long():
    for seconds, bound in ((2.0, False), (2.25, True)):
        step = overlap([seconds], 2.0, 2, Link("", 0.0, 1.0), forward_seconds=1.0)
        assert Scaling(4, step, 1.0).network_bound == bound


def train_steps(comm, seconds, nbytes, shared, steps):
    for _ in range(steps):
        comm.compute(seconds / comm.size if shared else seconds)
        comm.all_reduce(torch.zeros(nbytes // 4))


@pytest.mark.parametrize(("scaling", "shared"), [(weak_scaling, False), (strong_scaling, True)])
def test_scaling_is_what_runs_of_each_size_take(scaling, shared):
    seconds, nbytes, ranks = 0.05, 4 * 240, [1, 2, 3, 4, 5, 8]
    alone = world.simulate(train_steps, 1, link=LINK, args=(seconds, nbytes, shared, 3)).seconds
    for found in scaling(ranks, seconds, nbytes, LINK):
        run = world.simulate(train_steps, found.ranks, link=LINK, args=(seconds, nbytes, shared, 3))
        work = 1 if shared else found.ranks
        assert found.speedup == pytest.approx(work * alone / run.seconds)
        assert found.efficiency == pytest.approx(found.speedup / found.ranks)


def test_buckets_hide_communication_up_to_the_network_wall():
    link = Link("100 Gb/s", 0.0, 12.5e9)  # on many ranks an all-reduce takes 2.24 s
    strong = strong_scaling([1, 8, 16, 64], 30.0, 14e9, link, bucket_bytes=100e6)
    assert [each.network_bound for each in strong] == [False, False, True, True]
    assert strong[1].speedup > 7.9
    for each in strong[2:]:  # 30 s of work in no less than the communication takes
        assert each.speedup < 30 / each.step.communication_seconds < 14.3


def test_overlap_raises_efficiency_and_clusters_are_priced_by_their_two_levels():
    args = ([64], 0.5, 2.8e9, dgx_h100(8))
    (flat,), (levels,) = weak_scaling(*args), weak_scaling(*args, "hierarchical")
    (overlapped,) = weak_scaling(*args, "hierarchical", bucket_bytes=100e6)
    assert levels.efficiency < overlapped.efficiency <= 1
    assert levels.step.communication_seconds < flat.step.communication_seconds


def test_a_cluster_of_another_size_is_refused_whatever_the_algorithm():
    for algorithm in ("ring", "hierarchical", "best"):
        with pytest.raises(ValueError, match="8 ranks on a cluster of 16 devices"):
            overlap([1e6], 1.0, 8, dgx_h100(2), algorithm)
    with pytest.raises(ValueError, match="no all_reduce algorithm 'rign'; did you mean 'ring'"):
        overlap([1e6], 1.0, 8, LINK, "rign")


# -- compression ---------------------------------------------------------------------------------


SHAPES = ((6, 5), (7,), (4, 3, 2), ())


def make_bucket(seed, shapes=SHAPES, dtype=torch.float32):
    """A bucket of this rank's gradients, its plan made as DataParallel makes it."""
    stream = torch.Generator().manual_seed(seed)
    parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in reversed(shapes)]
    sizes = {str(i): p.nbytes for i, p in enumerate(parameters)}
    plan = buckets(sizes, 1e9)
    bucket = GradientBucket(plan.buckets[0], parameters[::-1], comm=None, hook=all_reduce)
    bucket.flat.copy_(torch.randint(-8, 9, bucket.flat.shape, generator=stream))
    return bucket


def exchange(comm, hook, steps, shapes=SHAPES):
    """Gradients given, results got, and the residual that is left, after some steps of a hook."""
    given = got = torch.zeros(())
    for step in range(steps):
        bucket = make_bucket(100 * step + comm.rank, shapes)
        given = given + bucket.flat.double()
        got = got + hook(comm, bucket).wait().double()
    return given, got, hook.residuals.get(0, torch.zeros(()))


def test_top_k_of_one_rank_gives_sent_plus_residual_bit_for_bit():
    def program(comm):
        hook, old = TopK(0.1), torch.zeros(())
        for step in range(4):
            bucket = make_bucket(step)
            sent = hook(comm, bucket).wait()
            assert torch.equal(sent + hook.residuals[0], bucket.flat + old)
            assert hook.residuals[0].abs().max() <= sent[sent != 0].abs().min()
            assert int((sent != 0).sum()) <= hook.kept(bucket.flat.numel())
            old = hook.residuals[0].clone()

    world.simulate(program, 1)


@pytest.mark.parametrize(
    "make", [lambda: TopK(0.2), Int8, lambda: PowerSGD(1), lambda: PowerSGD(2)]
)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("shapes", [SHAPES, [()]])  # the second: fewer elements than ranks
def test_what_is_sent_adds_up_to_the_gradients_but_for_one_residual(make, ranks, shapes):
    def program(comm):
        hook = make()
        given, got, left = exchange(comm, hook, 6, shapes)
        # The owner of a block of Int8 has a residual of its own, of the mean.
        if not isinstance(hook, Int8):
            return given, got, left, torch.zeros(())
        return given, got, left, comm.all_gather(hook.block_residuals[0])[: got.numel()]

    run = world.simulate(program, ranks)
    given, got, left, blocks = (torch.stack(each) for each in zip(*run.results, strict=True))
    assert torch.equal(got, got[:1].expand_as(got))
    whole = got[0] + left.double().mean(0) + blocks[0]
    # Six steps of float32 numbers up to 8, each rounded to 24 bits.
    torch.testing.assert_close(whole, given.mean(0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_powersgd_of_full_rank_is_the_plain_mean(dtype):
    def program(comm):
        bucket = make_bucket(comm.rank, ((6, 5), (3, 8), (7,)), dtype)
        return bucket.flat.clone(), PowerSGD(8)(comm, bucket).wait()

    run = world.simulate(program, 3)
    mean = torch.stack([given for given, _ in run.results]).mean(0)
    close = 20 * torch.finfo(dtype).eps  # products of the gradients' own precision
    for _, got in run.results:
        torch.testing.assert_close(got, mean, rtol=close, atol=8 * close)


def test_powersgd_comes_closer_from_step_to_step_to_the_best_of_its_rank():
    def program(comm):
        hook = PowerSGD(1, error_feedback=False)
        for _ in range(40):
            bucket = make_bucket(0, ((6, 5),))
            u, s, v = torch.linalg.svd(bucket.flat.view(6, 5))
            got = hook(comm, bucket).wait()
        torch.testing.assert_close(got.view(6, 5), s[0] * u[:, :1] @ v[:1], rtol=1e-4, atol=1e-4)

    world.simulate(program, 2)


def test_a_byte_is_off_by_half_a_step_at_most():
    def program(comm):
        hook, bucket = Int8(), make_bucket(0)
        step = bucket.flat.abs().max() / 127
        hook(comm, bucket).wait()
        return (hook.residuals[0].abs().max() / step).item()

    assert 0.4 < world.simulate(program, 1).results[0] <= 0.5 + 1e-4


def test_without_error_feedback_nothing_is_kept():
    def program(comm):
        hooks = TopK(0.1, False), Int8(False), PowerSGD(1, False)
        for hook in hooks:
            hook(comm, make_bucket(comm.rank)).wait()
        return [hook.residuals for hook in hooks], hooks[1].block_residuals

    assert world.simulate(program, 2).results == [([{}] * 3, {})] * 2


def test_nothing_is_quantized_to_nothing():
    whole, scale = quantize(torch.zeros(0))
    assert (whole.shape, whole.dtype, scale) == ((0,), torch.int8, 0)


def test_top_k_of_all_sends_all_and_of_next_to_nothing_one():
    assert [TopK(1.0).kept(n) for n in (0, 1, 7)] == [0, 1, 7]
    assert [TopK(1e-6).kept(n) for n in (0, 1, 7)] == [0, 1, 1]


def test_powersgd_sees_a_transposed_parameter_as_its_matrix():
    def program(comm):
        parameter = nn.Parameter(torch.zeros(5, 4).T)  # (4, 5), laid out by columns
        bucket = GradientBucket(buckets({"w": 80}).buckets[0], [parameter], comm, all_reduce)
        rank_one = torch.outer(torch.arange(4.0), torch.arange(5.0))
        bucket.gradients()[0].copy_(rank_one)
        got = PowerSGD(1)(comm, bucket).wait()
        torch.testing.assert_close(got.as_strided((4, 5), (1, 4)), rank_one)

    world.simulate(program, 2)


def sent_by(make, ranks, shapes):
    def program(comm):
        make()(comm, make_bucket(comm.rank, shapes)).wait()

    return world.simulate(program, ranks).traffic.sent


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_every_hook_sends_the_bytes_that_it_promises(ranks):
    shapes, elements = ((40, 30), (10,)), 1210
    plain = step_bytes(4 * elements, ranks)
    for fraction, kept in ((0.1, 121), (0.2, 242)):
        sent = sent_by(lambda f=fraction: TopK(f), ranks, shapes)
        assert sent == [(ranks - 1) * kept * 8] * ranks
        assert sent[0] == TopK(fraction).sent_bytes(elements, ranks)
    assert (sent[0] < plain) == (ranks < 5)  # a gather grows with n
    padded = -(-elements // ranks) * ranks
    sent = sent_by(Int8, ranks, shapes)
    assert sent == [step_bytes(padded, ranks) + 8 * (ranks - 1)] * ranks
    assert sent[0] < 0.27 * plain


@pytest.mark.parametrize(
    ("shapes", "rank", "elements"),
    [
        (((40, 30), (10,)), 2, 2 * (40 + 30) + 10),
        (((40, 30), (10,)), 99, 30 * (40 + 30) + 10),
        (((), (3, 0)), 1, 1),
        (((2, 3, 4), (5,)), 1, 2 + 12 + 5),
        (((2, 3, 4), (5,)), 4, 2 * (2 + 12) + 5),
    ],
)
def test_powersgd_sends_two_thin_factors_of_a_matrix_and_vectors_whole(shapes, rank, elements):
    for ranks in (2, 3):
        sent = sent_by(lambda: PowerSGD(rank), ranks, shapes)
        assert sum(sent) == pytest.approx(ranks * step_bytes(4 * elements, ranks))


@pytest.mark.parametrize("make", [lambda: TopK(0.1), Int8, lambda: PowerSGD(1), NoiseMeter])
def test_a_hook_object_that_ranks_share_is_refused(make):
    hook = make()
    said = f"One {type(hook).__name__} object is used with .*, but what it remembers is one rank's"
    with pytest.raises(ValueError, match=f"{said}: make it inside the rank program\\.(?!X)"):
        world.simulate(lambda comm: hook(comm, make_bucket(comm.rank)).wait(), 2)


@pytest.mark.parametrize("make", [lambda: TopK(0.1), Int8, lambda: PowerSGD(2)])
def test_hooks_send_16_bit_gradients_as_such(make):
    shapes = ((10, 20), (9,))

    def program(comm):
        bucket = make_bucket(comm.rank, shapes, torch.bfloat16)
        return bucket.flat.double(), make()(comm, bucket).wait()

    run = world.simulate(program, 2)
    mean = torch.stack([given for given, _ in run.results]).mean(0)
    for _, got in run.results:
        assert got.dtype == torch.bfloat16
        assert (got - mean).norm() < mean.norm()
    in_32_bits = sum(sent_by(make, 2, shapes))
    by_hook = {"TopK": 2 * 21 * 6, "Int8": in_32_bits, "PowerSGD": in_32_bits / 2}
    assert sum(run.traffic.sent) == by_hook[type(make()).__name__]


def test_residuals_of_16_bit_gradients_add_up_in_32_bits():
    def program(comm):
        plan = buckets({"w": 4})
        parameter = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
        bucket = GradientBucket(plan.buckets[0], [parameter], comm, all_reduce)
        hook, got = TopK(0.5), 0.0
        for _ in range(400):
            bucket.flat.copy_(torch.tensor([1.5, 2.0**-8]))
            got += hook(comm, bucket).wait()[1].item()
        return got

    # Its turn comes when 384 of them make 1.5; a sum in bfloat16 stops growing at 1.
    assert world.simulate(program, 1).results[0] >= 1.5


# -- local SGD -----------------------------------------------------------------------------------


def training(comm, every=None, optimizer_class=torch.optim.SGD):
    """The parameters after four steps on a rank's own tokens, with an average of parameters after
    every so many, or of gradients."""
    model = GPT(TINY, seed=comm.rank)  # every rank starts from rank 0's
    model = LocalSGD(model, comm, every) if every else DataParallel(model, comm)
    optimizer = optimizer_class(model.parameters(), 0.1)
    stream = torch.Generator().manual_seed(comm.rank)
    for _ in range(4):
        tokens = torch.randint(32, (2, 8), generator=stream)
        optimizer.zero_grad()
        model(tokens, tokens.roll(-1, 1)).backward()
        optimizer.step()
        if every:
            model.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_local_sgd_that_averages_after_every_step_is_data_parallelism():
    parallel, local = (world.simulate(training, 3, args=(k,)).results for k in (None, 1))
    # The same sums in another order: a few rounding errors of parameters around 0.1.
    torch.testing.assert_close(local, parallel, rtol=1e-4, atol=1e-6)
    # With a state of its own on each rank it is not: Adam divides by each rank's own moments.
    adam = torch.optim.AdamW
    parallel, local = (world.simulate(training, 3, args=(k, adam)).results for k in (None, 1))
    assert (parallel[0] - local[0]).abs().max() > 1e-2


def test_local_sgd_averages_parameters_that_are_not_contiguous():
    def program(comm):
        net = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
        model = LocalSGD(net, comm)
        with torch.no_grad():
            net.weight.copy_(torch.arange(24.0).view(3, 2, 2, 2) + 2 * comm.rank)
        model.step()
        return torch.equal(net.weight, torch.arange(24.0).view(3, 2, 2, 2) + 1)

    assert world.simulate(program, 2).results == [True, True]


def test_local_sgd_sends_one_part_in_every_of_the_bytes_and_lets_ranks_drift_between():
    runs = {k: world.simulate(training, 2, args=(k,)) for k in (1, 2, 4, 3)}
    sent = {k: run.traffic.by_kind()["all_reduce"] for k, run in runs.items()}
    assert sent[1] == 2 * sent[2] == 4 * sent[4] == 4 * sent[3]
    elements = runs[1].results[0].numel()
    assert sent[1] == 4 * 2 * step_bytes(4 * elements, 2)
    for k, run in runs.items():
        same = torch.equal(*run.results)
        assert same == (4 % k == 0)  # after step 4 of every=3 the ranks are one step apart


def test_local_sgd_averages_over_the_group_that_it_is_given_or_over_all():
    class Times(nn.Linear):
        def forward(self, x, by=1.0):
            return by * super().forward(x)

    def program(comm, grouped):
        net = Times(1, 1, bias=False)
        model = LocalSGD(net, comm.split(comm.rank // 2) if grouped else None)
        nn.init.constant_(net.weight, float(comm.rank))
        model.step()
        return model(torch.ones(1), by=2.0).item()

    assert world.simulate(program, 4, args=(True,)).results == [1.0, 1.0, 5.0, 5.0]
    assert world.simulate(program, 4, args=(False,)).results == [3.0] * 4


# -- gradient noise ------------------------------------------------------------------------------


def test_the_noise_scale_of_exact_norms_is_exact():
    square, trace = 3.0, 24.0
    norm = {batch: square + trace / batch for batch in (2, 5, 64)}
    for small, large in ((2, 5), (5, 64), (2, 64)):
        found = noise_scale(small, norm[small], large, norm[large])
        assert (found.gradient_square, found.trace) == pytest.approx((square, trace))
        assert found.simple == pytest.approx(8)
    with pytest.raises(ValueError, match=r"shows in the difference .* one must be larger\.$"):
        noise_scale(4, 1.0, 4, 1.0)
    with pytest.raises(ValueError, match=r"\bNo step was measured: .* DataParallel's hook\.(?!X)"):
        world.simulate(lambda comm: NoiseMeter().estimate(comm, 1), 1)


@pytest.mark.parametrize("square", [0.0, -0.5])
def test_where_the_gradient_is_lost_in_its_noise_no_batch_is_large_enough(square):
    assert NoiseScale(square, 3.0).simple == math.inf
    assert NoiseScale(0.5, 3.0).simple == 6


class Known(nn.Module):
    """Its gradient for a sample is that sample: mean `center`, covariance `deviation`^2 I."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, samples):
        return (samples @ self.weight).mean()


def test_the_meter_adds_up_squares_in_64_bits():
    """Of two equal samples there is no noise; 4097^2 has more digits than 32 bits hold."""

    def program(comm):
        meter = NoiseMeter()
        model = DataParallel(Known(1), comm, hook=meter)
        model(torch.full((1, 1), 4097.0)).backward()
        return meter.estimate(comm, 1)

    assert world.simulate(program, 2).results == [NoiseScale(4097.0**2, 0.0)] * 2


def test_the_meter_of_a_real_model_gives_what_its_samples_gradients_give():
    """Ranks of one sample each, at fixed parameters: the estimate from all pairs of batch sizes."""
    spec, ranks = TINY, 6
    tokens = torch.randint(32, (ranks, 1, 8), generator=torch.Generator().manual_seed(0))

    def program(comm):
        meter = NoiseMeter()
        model = DataParallel(GPT(spec), comm, bucket_bytes=10_000, hook=meter)
        for _ in range(2):  # two equal steps say what one does
            model.zero_grad()
            model(tokens[comm.rank], tokens[comm.rank].roll(-1, 1)).backward()
        return meter.estimate(comm, 1)

    found = world.simulate(program, ranks).results[0]
    gradients = []
    for each in tokens:
        model = GPT(spec)
        model(each, each.roll(-1, 1)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]).double())
    together = torch.stack(gradients)
    # The textbook estimator of the covariance: squared deviations over n - 1.
    trace = float((together - together.mean(0)).square().sum()) / (ranks - 1)
    assert found.trace == pytest.approx(trace, rel=1e-4)
    assert found.gradient_square == pytest.approx(
        float(together.mean(0).square().sum()) - trace / ranks, rel=1e-4
    )


@given(st.floats(1, 1e6), st.floats(1, 1e9), st.floats(1e-3, 1e3))
@settings(max_examples=30, deadline=None)
def test_steps_and_samples_lie_on_the_hyperbola_and_double_at_the_critical_batch(s, e, part):
    trade = BatchTradeoff(s, e)
    batch = part * trade.critical_batch
    steps, samples = trade.steps(batch), trade.samples(batch)
    assert samples == pytest.approx(steps * batch)
    assert (steps / s - 1) * (samples / e - 1) == pytest.approx(1, rel=1e-6)
    assert trade.steps(trade.critical_batch) == pytest.approx(2 * s)
    assert trade.samples(trade.critical_batch) == pytest.approx(2 * e)


# -- pictures and imports ------------------------------------------------------------------------


def test_pictures_show_what_was_priced_with_units_and_are_closed():
    import matplotlib.pyplot as plt

    step = overlap([1e6] * 4, 10.0, 4, LINK, forward_seconds=2.0)
    curve = weak_scaling([1, 2, 4], 1.0, 4.5e5, LINK)
    sizes = bucket_tradeoff(1e6, 1.0, 4, LINK)
    best = min(sizes, key=lambda size: sizes[size].seconds)
    overlaps = draw_overlap(step, overlap([4e6], 10.0, 4, LINK), names=["four", "one"])
    tradeoff, scaling = draw_bucket_tradeoff(sizes), draw_scaling({"weak": curve})
    compression = draw_compression({"plain": ([1e6, 2e6], [2.0, 1.0])})
    plan = buckets({"a": 400, "b": 800}, 800).draw()
    assert not plt.get_fignums()
    assert all(f.axes[-1].get_xlabel() for f in (overlaps, tradeoff, scaling, compression, plan))

    widths = {c.get_label(): sum(bar.get_width() for bar in c) for c in overlaps.axes[0].containers}
    exposed = step.exposed_seconds
    hidden = {"all-reduce, hidden": step.communication_seconds - exposed}
    shown = {"forward": 2, "backward": 10, "all-reduce, exposed": exposed, **hidden}
    assert widths == pytest.approx(shown)
    assert {text.get_text() for text in overlaps.axes[0].texts} == {"", "0", "1", "2", "3"}
    assert overlaps.axes[0].get_xlim()[1] >= step.seconds
    assert [*tradeoff.axes[0].lines[-1].get_xdata()] == [best / 1e6]
    weak, walled = scaling.axes[0].lines[1:3]
    assert [*weak.get_ydata()] == [each.speedup for each in curve]
    assert [*walled.get_xdata()] == [each.ranks for each in curve if each.network_bound] == [4]
    assert [*compression.axes[0].lines[0].get_xdata()] == pytest.approx([1, 2])  # MB
    assert [bar.get_width() for bar in plan.axes[0].patches] == pytest.approx([800, 400])
    assert plan.axes[0].yaxis_inverted()


def test_pictures_drop_no_curve_however_many_there_are():
    curves = {f"run {i}": ([1e6, 2e6], [2.0, 1.0 + i]) for i in range(9)}
    figure = draw_compression(curves)
    assert figure.axes[0].get_legend_handles_labels()[1] == list(curves)
    figure = draw_scaling({name: weak_scaling([1, 2], 1.0, 1e6, LINK) for name in curves})
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [name for name in shown if name in curves] == list(curves)


def test_prices_need_neither_torch_nor_matplotlib():
    code = (
        "import sys; from dlsys.data_parallel import overlap, step_bytes, weak_scaling, noise_scale;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
