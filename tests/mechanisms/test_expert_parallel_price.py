"""What expert parallelism sends: plan, price and laws beside what running ranks did."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys import world
from dlsys.collectives import best
from dlsys.expert_parallel import (
    Dispatch,
    DispatchError,
    MoE,
    copies_leaving,
    count_copies,
    drawn,
    k_to_overtake,
    nodes_reached,
    price,
    routing,
    volume_ratio,
    width_to_hide,
)
from dlsys.expert_parallel.dispatch import exchange
from dlsys.hardware import DEVICES, Cluster, Device, Link
from dlsys.tensor_parallel import autograd as conjugate
from dlsys.transformer import MixtureOfExperts, TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

FAST, SLOW = Link("inside", 1e-6, 1e10), Link("between", 5e-6, 1e9)
AT_ONCE = Device("computes in no time", {"fp32": 1e30, "bf16": 1e30}, 1e12, 1e30)
HIDDEN = 4


def cluster(n, size, cards=None):
    return Cluster(AT_ONCE, n // size, size, FAST, SLOW, cards)


def choices_of(tokens, experts, k, seed):
    scores = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(seed))
    return scores.topk(k).indices


def balanced(n, tokens, k):
    """Every token's copies go to k ranks one after the other; as many to each."""
    return [[[(t + i) % n for i in range(k)] for t in range(tokens)] for _ in range(n)]


# -- the plan ------------------------------------------------------------------------------------


@given(
    n=st.sampled_from([1, 2, 4, 6]), held=st.integers(1, 3), seed=st.integers(0, 99), data=st.data()
)
@settings(max_examples=30, deadline=None)
def test_copies_and_tokens_are_counted_by_rank_and_by_node(n, held, seed, data):
    k = data.draw(st.integers(1, n * held))
    size = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    choices = [choices_of(5, n * held, k, seed + rank).tolist() for rank in range(n)]
    choices[0][0][0] = n * held  # dropped
    plan = count_copies(choices, n * held, size)
    plan.check()
    for src in range(n):
        for dst in range(n):
            owned = range(dst * held, (dst + 1) * held)
            assert plan.copies[src][dst] == sum(e in owned for es in choices[src] for e in es)
        for node in range(n // size):
            owned = range(node * size * held, (node + 1) * size * held)
            assert plan.nodes[src][node] == sum(any(e in owned for e in es) for es in choices[src])
    assert sum(plan.read) == 5 * n * k - 1
    assert plan.leaving == sum(plan.copies[a][b] for a in range(n) for b in range(n) if a != b)
    assert plan.imbalance == pytest.approx(max(plan.read) / (sum(plan.read) / n))


def test_a_skew_makes_one_rank_read_more():
    even, skewed = (drawn(200, 16, 2, 8, skew) for skew in (0.0, 1.0))
    assert sum(even.read) == sum(skewed.read) == 200 * 2 * 8
    assert even.imbalance < 1.2
    assert skewed.imbalance > 1.5


def test_the_most_popular_expert_is_drawn_as_often_as_its_weight():
    plan = drawn(4000, 4, 1, 4, skew=1.0)
    shares = sorted((read / 16000 for read in plan.read), reverse=True)
    expected = [1 / i / (1 + 1 / 2 + 1 / 3 + 1 / 4) for i in (1, 2, 3, 4)]
    assert shares == pytest.approx(expected, abs=0.015)  # 4 standard deviations


@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_limit_on_nodes_keeps_every_copy_and_lets_no_token_reach_more(most):
    plan = drawn(50, 32, 4, 8, devices_per_node=2, most_nodes=most)
    assert sum(plan.read) == 50 * 4 * 8
    assert all(sum(nodes) <= 50 * most for nodes in plan.nodes)
    assert min(map(sum, plan.nodes)) > 50 * most * 0.6
    free = drawn(50, 32, 4, 8, devices_per_node=2)
    assert sum(map(sum, plan.nodes)) <= sum(map(sum, free.nodes))


@given(seed=st.integers(0, 99), k=st.sampled_from([2, 4]), biased=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_router_chooses_among_the_nodes_whose_best_experts_are_best_together(seed, k, biased):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(6, 12, dtype=torch.float64, generator=generator)
    bias = torch.rand(12, dtype=torch.float64, generator=generator) if biased else None
    found = routing.choose_near(scores, k, bias, nodes=4, most=2)
    for token, chosen in zip(scores.sigmoid() + (0 if bias is None else bias), found, strict=True):
        good = [token[3 * i : 3 * i + 3].sort().values[-(k // 2) :].sum() for i in range(4)]
        near = sorted(range(4), key=good.__getitem__)[-2:]
        allowed = [e for e in range(12) if e // 3 in near]
        best = sorted(allowed, key=token.__getitem__, reverse=True)[:k]
        assert chosen.tolist() == best


def test_a_layer_with_a_limit_on_nodes_reaches_no_more():
    spec = TransformerSpec(1, 8, 2, 16, 4, moe=MixtureOfExperts(8, 4))
    torch.manual_seed(0)
    kept = []
    limited = partial(routing.choose_near, nodes=4, most=2)

    def choose(scores, k, bias):
        kept.append(limited(scores, k, bias))
        return kept[-1]

    MoE(spec, choose=choose)(torch.randn(20, 8))
    assert all(len({e // 2 for e in token}) == 2 for token in kept[0].tolist())


# -- bytes and seconds, as they were counted -----------------------------------------------------


def exchanged(comm, stages, size=None):
    """Rows as the stages say, {(src, dst): rows}, one exchange after the other.

    Those inside nodes of `size` ranks are exchanges of a node's ranks alone.
    """
    node = comm if size is None else comm.split(comm.rank // size)
    for stage in stages:
        stays = size is not None and all(src // size == dst // size for src, dst in stage)
        group = node if stays else comm
        ranks = [comm.rank - comm.rank % group.size + r for r in range(group.size)]
        sent = [stage.get((comm.rank, r), 0) for r in ranks]
        received = [stage.get((r, comm.rank), 0) for r in ranks]
        exchange(group, torch.zeros(sum(sent), HIDDEN), sent, received)
    return comm.seconds


@pytest.mark.parametrize("skew", [0.0, 1.5])
@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 2), (4, 2), (6, 6), (8, 4)])
def test_bytes_and_seconds_of_each_exchange_are_those_of_simulated_ranks(n, size, skew):
    where = cluster(n, size)
    plan = drawn(30, 2 * n, 2, n, skew, size)
    priced = plan.price(where, HIDDEN, 4)
    there = {(a, b): plan.copies[a][b] for a in range(n) for b in range(n)}
    back = {(b, a): rows for (a, b), rows in there.items()}
    for stage, nbytes, seconds in (
        (there, priced.dispatch_bytes, priced.dispatch),
        (back, priced.combine_bytes, priced.combine),
    ):
        run = world.simulate(exchanged, n, args=([stage],), cluster=where)
        assert max(run.traffic.sent) == nbytes
        assert run.seconds == pytest.approx(seconds)
    assert priced.between_nodes == 2 * HIDDEN * 4 * sum(
        rows for (a, b), rows in there.items() if a // size != b // size
    )


def test_once_a_node_each_token_crosses_once_and_goes_on_inside():
    n, size = 8, 4
    where = cluster(n, size)
    plan = drawn(30, 16, 4, n, 0.5, size)
    priced = plan.price(where, HIDDEN, 4, once_a_node=True)
    crossing, inside = {}, {}
    for src in range(n):
        for node in range(2):
            door = node * size + src % size
            if door != src:
                crossing[src, door] = plan.nodes[src][node]
            for dst in range(node * size, node * size + size):
                if dst != door:
                    inside[door, dst] = inside.get((door, dst), 0) + plan.copies[src][dst]
    run = world.simulate(exchanged, n, args=([crossing, inside], size), cluster=where)
    assert run.seconds == pytest.approx(priced.dispatch)
    assert max(run.traffic.sent) == priced.dispatch_bytes
    back = [{(b, a): rows for (a, b), rows in stage.items()} for stage in (inside, crossing)]
    run = world.simulate(exchanged, n, args=(back, size), cluster=where)
    assert run.seconds == pytest.approx(priced.combine)
    assert max(run.traffic.sent) == priced.combine_bytes
    # A token has 4 of 16 experts, 8 on the other node: 2 of its copies lie there, and one crosses.
    straight = plan.price(where, HIDDEN, 4)
    assert priced.between_nodes == 2 * sum(crossing.values()) * HIDDEN * 4
    assert priced.between_nodes < 0.6 * straight.between_nodes
    assert priced.dispatch < straight.dispatch


def test_ranks_that_share_network_cards_wait_for_them():
    plan = drawn(30, 16, 2, 8, 0.0, 4)
    alone, shared = (plan.price(cluster(8, 4, cards), 10**6) for cards in (4, 1))
    leaves = [sum(plan.nodes[src][1 - src // 4] for src in range(r, r + 4)) for r in (0, 4)]
    copies = [sum(sum(plan.copies[src][4 - r : 8 - r]) for src in range(r, r + 4)) for r in (0, 4)]
    assert max(leaves) < max(copies), "some tokens have two copies there"
    assert shared.dispatch >= max(copies) * 2e6 / SLOW.bandwidth > alone.dispatch


def test_a_whole_layers_step_is_what_its_parts_are():
    plan = count_copies(balanced(4, 8, 2), 4)
    link = Link("a link", 0.0, 1e9)
    priced = price(plan, link, 10, 2, dispatch_itemsize=1, experts=4, width=30, rate=1e9)
    rows = 8 * 2 * 3 // 4  # three of four copies leave
    assert (priced.dispatch_bytes, priced.combine_bytes) == (rows * 10, rows * 20)
    assert priced.dispatch == pytest.approx(rows * 10 / 1e9)
    assert priced.combine == pytest.approx(rows * 20 / 1e9)
    assert priced.counts == pytest.approx(3 / 4 * 4 * 8 / 1e9)
    assert priced.compute == pytest.approx(16 * 2 * 3 * 10 * 30 / 1e9)
    exchanges = priced.dispatch + priced.combine
    assert priced.forward == pytest.approx(priced.counts + exchanges + priced.compute)
    assert priced.backward == pytest.approx(exchanges + 2 * priced.compute)
    told = priced.counts + 2 * exchanges
    assert priced.communication_share == pytest.approx(told / (told + 3 * priced.compute))


# -- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "n", "tp", "ratio"), [(1, 8, 8, 0.5), (2, 8, 8, 1.0), (8, 64, 8, 4.5)]
)
def test_the_volume_of_an_all_to_all_over_an_all_reduce_is_what_both_send(k, n, tp, ratio):
    tokens = 64
    choices = balanced(n, tokens, k)

    def dispatches(comm):
        plan = count_copies(choices, n)
        stage = {(a, b): plan.copies[a][b] for a in range(n) for b in range(n)}
        exchanged(comm, [stage])

    def reduces(comm):
        conjugate.reduce(torch.zeros(tokens, HIDDEN), comm)

    sent = max(world.simulate(dispatches, n).traffic.sent)
    reduced = max(world.simulate(reduces, tp).traffic.sent)
    assert sent / reduced == volume_ratio(k, n, tp) == pytest.approx(ratio)


NAMED = Link("of one domain", 0.0, 9e11), Link("inside", 0.0, 4.5e11), Link("between", 0.0, 5e10)


@pytest.mark.parametrize(
    ("n", "size", "tp"), [(8, 8, 8), (64, 64, 8), (8, 8, 2), (16, 8, 8), (64, 8, 4)]
)
def test_dispatch_and_combine_overtake_tensor_parallelism_at_the_k_of_the_law(n, size, tp):
    domain, inside, between = NAMED
    tokens, hidden = 4 * n, 1000
    where, near = (Cluster(AT_ONCE, n // size, size, inside, between), inside)
    if size == n:
        where = near = domain
    law = k_to_overtake(n, tp, 1.0 if size == n else between.bandwidth / inside.bandwidth)
    nbytes = tokens * hidden * 2
    reduced = 2 * best("all_reduce", nbytes, near, tp).price(nbytes, near).seconds

    def seconds_of_one_k(choices):
        k = len(choices[0][0])
        priced = count_copies(choices, n, size).price(where, hidden)
        return (priced.dispatch + priced.combine) / k

    for k in (1, 2, 4):
        assert reduced / seconds_of_one_k(balanced(n, tokens, k)) == pytest.approx(law, rel=0.02)


@pytest.mark.parametrize(("n", "size"), [(8, 8), (16, 8)])
def test_copies_that_are_drawn_overtake_a_little_earlier_than_the_law_says(n, size):
    domain, inside, between = NAMED
    where, near = (Cluster(AT_ONCE, n // size, size, inside, between), inside)
    if size == n:
        where = near = domain
    law = k_to_overtake(n, 8, 1.0 if size == n else between.bandwidth / inside.bandwidth)
    priced = drawn(2000, n, 2, n, devices_per_node=size).price(where, 1000)
    nbytes = 2000 * 1000 * 2
    reduced = 2 * best("all_reduce", nbytes, near, 8).price(nbytes, near).seconds
    assert 0.9 * law < reduced / (priced.dispatch + priced.combine) * 2 < law


@pytest.mark.parametrize(
    ("k", "experts", "nodes"), [(1, 4, 4), (2, 6, 3), (3, 8, 2), (4, 4, 2), (5, 6, 6)]
)
def test_copies_that_leave_and_nodes_reached_are_the_means_over_every_choice(k, experts, nodes):
    held = experts // nodes
    home = range(held)  # of node 0
    choices = list(combinations(range(experts), k))
    reached = [len({e // held for e in es} - {0}) for es in choices]
    leaving = [sum(e not in home for e in es) for es in choices]
    assert nodes_reached(k, experts, nodes) == pytest.approx(sum(reached) / len(choices))
    assert copies_leaving(k, nodes) == pytest.approx(sum(leaving) / len(choices))


def test_drawn_tokens_reach_as_many_nodes_as_the_law_says():
    plan = drawn(500, 32, 4, 8, devices_per_node=2)
    others = sum(sum(nodes) - nodes[src // 2] for src, nodes in enumerate(plan.nodes)) / 4000
    assert others == pytest.approx(nodes_reached(4, 32, 4), rel=0.02)
    assert plan.leaving / 4000 == pytest.approx(copies_leaving(4, 8), rel=0.02)


@pytest.mark.parametrize(("n", "matrices", "itemsize"), [(2, 3, 2), (4, 2, 2), (8, 3, 4)])
def test_an_expert_of_the_laws_width_computes_as_long_as_its_copies_travel(n, matrices, itemsize):
    rate, link = 1e12, Link("a link", 0.0, 1e9)
    width = width_to_hide(rate, link.bandwidth, n, matrices, itemsize)
    plan = count_copies(balanced(n, 8 * n, 1), n)
    priced = price(plan, link, 10, itemsize, width=round(width), matrices=matrices, rate=rate)
    assert priced.compute == pytest.approx(priced.dispatch + priced.combine, rel=1 / width)


def test_what_mixtures_of_published_widths_hide():
    """By the law alone, at half the peak: Mixtral's experts hide their copies on NVLink, and
    DeepSeek-V3's, seven times narrower, do not on InfiniBand."""
    rate = DEVICES["h100-sxm"].rate("bf16") / 2
    assert width_to_hide(rate, 450e9, 8) < 14336
    assert width_to_hide(rate, 50e9, 64) > 2048


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: count_copies([[[0]]] * 3, 8), ValueError, "8 experts do not divide by a number of ranks of 3; the nearest that work: 2 and 4."),
        (lambda: count_copies([[[0]]] * 4, 8, 3), ValueError, "devices_per_node is 3; it must be a divisor of the 4 ranks."),
        (lambda: count_copies([[[-1]]], 8), ValueError, "an expert of choices is -1; it must be a whole"),
        (lambda: drawn(4, 8, 9, 2), ValueError, "k is 9; it must be at most 8"),
        (lambda: drawn(4, 8, 3, 4, devices_per_node=1, most_nodes=1), ValueError, "most_nodes is 1; it must be enough for 3 experts a token, of 2 on each node."),
        (lambda: nodes_reached(2, 8, 3), ValueError, "8 experts do not divide by a number of nodes of 3"),
        (lambda: drawn(4, 8, 2, 4).price(cluster(8, 4), 8), ValueError, "where is of 2 nodes of 4 devices; it must be of the dispatch's 1 nodes of 4."),
        (lambda: Dispatch(((1, 2), (3,)), ((2,), (2,))).check(), DispatchError, "rank 1 has copies for 1 ranks"),
        (lambda: Dispatch(((1, -1), (0, 0)), ((1,), (0,))).check(), DispatchError, "no number is below 0"),
        (lambda: Dispatch(((1, 1), (0, 0)), ((3,), (0,))).check(), DispatchError, "rank 0 has 3 tokens with a copy on node 0, which reads 2 of its copies."),
        (lambda: Dispatch(((1, 1), (0, 0)), ((0,), (0,))).check(), DispatchError, "rank 0 has 0 tokens"),
        (lambda: price(Dispatch(((1, 1), (0, 0)), ((0,), (0,))), SLOW, 8), DispatchError, "rank 0 has 0 tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_the_defaults_of_the_laws_are_those_that_are_told():
    assert k_to_overtake(8, 4) == k_to_overtake(8, 4, 1.0)
    assert k_to_overtake(2, 4) > 0
    for call, said in [
        (lambda: k_to_overtake(1, 4), "n is 1; it must be a whole number of at least 2"),
        (lambda: k_to_overtake(8, 1), "tp is 1; it must be a whole number of at least 2"),
    ]:
        with pytest.raises(ValueError, match=f"^{said}"):
            call()


def test_one_expert_of_the_best_node_is_the_best_of_all():
    for seed in range(4):
        near, free = (drawn(40, 16, 1, 8, 0.5, 2, most_nodes=most, seed=seed) for most in (1, None))
        assert near == free
    assert drawn(9, 8, 2, 4) == drawn(9, 8, 2, 4, seed=0) != drawn(9, 8, 2, 4, seed=1)
    several = drawn(100, 32, 4, 8, devices_per_node=2, most_nodes=2)
    assert all(min(nodes) > 0 for nodes in several.nodes)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: drawn(9, 8, 1, 4, 0, 2, most_nodes=3), "most_nodes is 3; it must be at most 2."),
        (lambda: drawn(9, 8, 1, 4, most_nodes=2), "most_nodes is 2; it must be at most 1."),
        (lambda: drawn(9, 9, 1, 4), "9 experts do not divide by a number of ranks of 4"),
    ],
)
def test_what_cannot_be_drawn_is_told(call, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        call()


def test_a_dispatch_of_twice_the_tokens_has_twice_the_copies():
    once = drawn(9, 8, 2, 4, devices_per_node=2)
    twice = once.times(2)
    assert twice.copies == tuple(tuple(2 * n for n in row) for row in once.copies)
    assert twice.nodes == tuple(tuple(2 * n for n in row) for row in once.nodes)


def test_what_is_not_given_takes_no_time():
    plan, link = drawn(9, 8, 2, 2), Link("plain", 1e-6, 1e9)
    bare = price(plan, link, 16)
    assert (bare.counts, bare.compute) == (0, 0)
    assert (
        price(plan, link, 16, rate=1e12).compute
        == 0
        < price(plan, link, 16, width=8, rate=1e12).compute
    )
    assert price(plan, link, 16, experts=8).counts > 0
    alone = price(drawn(9, 8, 2, 1), link, 16, experts=8)
    assert (alone.counts, alone.forward, alone.communication_share) == (0, 0, 0)
