"""What plans cost: closed form against event simulation, published values, and the chooser."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.collectives import (
    best,
    candidates,
    crossovers,
    draw_crossovers,
    hierarchical_all_reduce,
    node_boundary,
    pairwise_all_to_all,
    plan_for,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
)
from dlsys.collectives.choose import FLAT, TWO_LEVEL
from dlsys.collectives.plan import Rounds
from dlsys.collectives.price import _closed_form, _simulated, bus_factor
from dlsys.hardware import DEVICES, LINKS, Cluster, Link, dgx_h100

NAMED = [(kind, name) for kind, builders in FLAT.items() for name in builders]
FREE = Link("no latency", latency=0.0, bandwidth=1e9)
SIZES = st.floats(1e-3, 1e13) | st.integers(1, 10**13)
LINK = st.builds(Link, st.just("any"), latency=st.floats(0, 1e-2), bandwidth=st.floats(1e6, 1e13))
ON_CLUSTERS = [  # plans with a closed form also where messages cross between nodes
    *[("all_reduce", name) for name in ("ring", "tree", "halving_doubling", "recursive_doubling")],
    *[(kind, "ring") for kind in ("all_gather", "reduce_scatter")],
    *[(kind, "tree") for kind in ("broadcast", "reduce", "scatter", "gather")],
]
SYMMETRIC = [*ON_CLUSTERS, ("all_to_all", "pairwise"), ("broadcast", "ring"), ("reduce", "ring")]


def cluster(nodes, devices_per_node, intra, inter, nics=None):
    return Cluster(DEVICES["h100-sxm"], nodes, devices_per_node, intra, inter, nics)


def same_both_ways(plan, nbytes, where, itemsize=None):
    """Closed form and event simulation agree; False where there is no closed form."""
    found = _closed_form(plan, nbytes, where, itemsize)
    if found is not None:
        simulated = _simulated(plan, nbytes, where, itemsize)
        assert dataclasses.astuple(found) == pytest.approx(
            dataclasses.astuple(simulated), rel=1e-12, abs=0
        )
        assert plan.price(nbytes, where, itemsize) == found
    return found is not None


# -- two ways to the same price ------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), SYMMETRIC)
def test_symmetric_plans_have_an_exact_closed_form_on_a_link_for_1_to_17_ranks(kind, name):
    for n in range(1, 18):
        for root in {0, n // 2, n - 1} if kind in ("broadcast", "reduce") else {0}:
            plan = plan_for(kind, n, name, root=root)
            assert same_both_ways(plan, 1e6 / 7, LINKS["ethernet-100g"])
            assert same_both_ways(plan, 4 * 5 * plan.chunks, LINKS["ethernet-100g"], itemsize=4)


def literature(n):
    """Latencies, buffers on the critical path, and buffers that the busiest rank sends, by plan.

    Written down anew: rings from Patarasuk and Yuan (2009), trees, halving and doubling from
    Thakur, Rabenseifner and Gropp (2005); the naive plan by counting what passes rank 0's port.
    """
    p, whole = 2 ** math.floor(math.log2(n)), 1
    extra = n - p
    up, depth, odd = round(math.log2(p)), math.ceil(math.log2(n)), bool(extra)
    share = Fraction(1, n)
    rest, ring = 1 - share, (n - 1, 1 - share, 1 - share)
    chain, tree = (n + 6, Fraction(n + 6, 8), whole), (depth, depth, depth)
    # Of p places the lowest `extra` stand for two ranks each, so that a run of k places from the
    # lowest on has min(2k, k + extra) of the n shares: halving cuts it, doubling sends it. A rank
    # beyond p sends or gets the whole buffer and its share besides.
    runs = sum(min(2 << k, (1 << k) + extra) * share for k in range(up))
    halving = (up + 2 * odd, runs + (whole + share) * odd)
    subtree = max((min(place & -place, n - place) for place in range(1, n)), default=0)
    mean = 2 * (1 - Fraction(1, p))
    return {
        ("broadcast", "tree"): tree,
        ("broadcast", "ring"): chain,
        ("reduce", "tree"): (depth, depth, whole),
        ("reduce", "ring"): chain,
        ("scatter", "tree"): (depth, rest, rest),
        ("gather", "tree"): (depth, rest, subtree * share),
        ("all_gather", "ring"): ring,
        ("all_gather", "doubling"): (*halving, runs + whole if odd else rest),
        ("reduce_scatter", "ring"): ring,
        ("reduce_scatter", "halving"): (*halving, whole if odd else rest),
        ("all_reduce", "ring"): (2 * (n - 1), 2 * rest, 2 * rest),
        ("all_reduce", "tree"): (2 * depth, 2 * depth, depth),
        ("all_reduce", "halving_doubling"): (2 * (up + odd), mean + 2 * odd, mean + odd),
        ("all_reduce", "recursive_doubling"): (up + 2 * odd, up + 2 * odd, up + odd),
        ("all_reduce", "naive"): (n, 2 * (n - 1), n - 1),
        ("all_to_all", "pairwise"): ring,
    }


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(NAMED), st.integers(2, 17), SIZES, LINK)
def test_every_plan_costs_on_a_link_what_the_literature_says(named, n, nbytes, link):
    plan, (latencies, buffers, sent) = plan_for(named[0], n, named[1]), literature(n)[named]
    seconds = latencies * link.latency + float(buffers) * nbytes / link.bandwidth
    for found in (plan.price(nbytes, link), _simulated(plan, nbytes, link, None)):
        assert found.seconds == pytest.approx(seconds, rel=1e-9, abs=0)
        assert found.bytes_per_rank == pytest.approx(float(sent) * nbytes, rel=1e-9, abs=0)
        assert found.messages == sum(map(len, plan.rounds))


def by_hand(plan, nbytes, where):
    """Seconds and bytes sent by each rank, from the definition of the model, without any queue.

    Of the messages whose ends have both come to their round, the one that could start first goes
    first. It occupies the port that it leaves by and the one that it arrives at.
    """
    g = where.devices_per_node
    left = [(k, i, t) for k, transfers in enumerate(plan.rounds) for i, t in enumerate(transfers)]
    entered, done = [0.0] * plan.ranks, [0.0] * plan.ranks
    free, sent = defaultdict(float), [0.0] * plan.ranks
    while left:
        at = {}
        for k, _, t in left:
            at.setdefault(t.src, k)
            at.setdefault(t.dst, k)
        here = [m for m in left if at[m[2].src] == at[m[2].dst] == m[0]]
        k, i, t = min(here, key=lambda m: (max(entered[m[2].src], entered[m[2].dst]), m[1], m[0]))
        left.remove((k, i, t))
        near = t.src // g == t.dst // g
        link = where.intra if near else where.inter
        ports = [
            (way, r if near else (r // g, r % g * where.nics // g), near)
            for way, r in (("out", t.src), ("in", t.dst))
        ]
        size = (t.stop - t.first) * nbytes / plan.pieces
        start = max(entered[t.src], entered[t.dst], *(free[port] for port in ports))
        sent[t.src] += size
        for port, end in zip(ports, (t.src, t.dst), strict=True):
            free[port] = start + size / link.bandwidth
            done[end] = max(done[end], start + link.latency + size / link.bandwidth)
        for end in (t.src, t.dst):
            if not any(round == k and end in (m.src, m.dst) for round, _, m in left):
                entered[end] = done[end]
    return max(done), max(sent)


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([*NAMED, *((kind, "hierarchical") for kind in TWO_LEVEL)]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    SIZES,
    LINK,
    LINK,
)
def test_every_plan_costs_on_a_cluster_what_its_messages_take(
    named, nodes, devices, nics, nbytes, intra, inter
):
    where = cluster(nodes, devices, intra, inter, min(nics, devices))
    if named[1] == "hierarchical":
        plan = TWO_LEVEL[named[0]](nodes, devices)
    else:
        plan = plan_for(named[0], nodes * devices, named[1])
    seconds, sent = by_hand(plan, nbytes, where)
    for found in (plan.price(nbytes, where), _simulated(plan, nbytes, where, None)):
        assert found.seconds == pytest.approx(seconds, rel=1e-9, abs=0)
        assert found.bytes_per_rank == pytest.approx(sent, rel=1e-9, abs=0)
        assert found.messages == sum(map(len, plan.rounds))


def test_rings_trees_doubling_and_hierarchical_plans_have_an_exact_closed_form_on_a_cluster():
    intra, inter = LINKS["nvlink4"], LINKS["infiniband-ndr"]
    for nodes, devices in ((1, 8), (4, 1), (3, 4), (4, 4)):
        where = cluster(nodes, devices, intra, inter)
        assert same_both_ways(ring_all_reduce(where.size), 1e8, where)
        for kind in ("all_reduce", "reduce_scatter", "all_gather"):
            assert same_both_ways(TWO_LEVEL[kind](nodes, devices), 1e8, where)
    for kind, name in ON_CLUSTERS:
        assert same_both_ways(plan_for(kind, 16, name), 1e8, cluster(4, 4, intra, inter))
    for kind in ("broadcast", "reduce", "scatter", "gather"):
        for root in range(6):  # wherever the root is, a closed form that exists is right
            same_both_ways(plan_for(kind, 6, "tree", root), 1e8, cluster(3, 2, intra, inter))
    assert same_both_ways(ring_all_reduce(4), 1e8, cluster(4, 1, inter, intra))
    # Of nodes of another size, and of shared cards, for which ranks queue, the simulation knows.
    assert not same_both_ways(hierarchical_all_reduce(2, 8), 1e8, cluster(4, 4, intra, inter))
    assert not same_both_ways(hierarchical_all_reduce(4, 4), 1e8, cluster(4, 4, intra, inter, 2))


def test_a_thousand_ranks_are_priced_without_looking_at_a_single_message():
    def build(index):
        raise AssertionError(f"round {index} was built")

    plans = [plan_for(kind, 1024, name) for kind, name in ON_CLUSTERS]
    plans += [TWO_LEVEL[kind](128, 8) for kind in ("all_reduce", "reduce_scatter", "all_gather")]
    for plan in plans:
        unseen = dataclasses.replace(plan, rounds=Rounds(len(plan.rounds), build))
        for where in (dgx_h100(128), LINKS["nvlink4"]):
            assert unseen.price(1e9, where).seconds > 0


def test_rounds_written_by_hand_are_never_priced_by_somebody_elses_formula():
    ring = ring_all_reduce(4)
    half = dataclasses.replace(ring, rounds=list(ring.rounds)[:3])
    assert half.price(4e9, FREE).seconds == pytest.approx(3, rel=1e-12)


# -- values --------------------------------------------------------------------------------------


def test_bus_bandwidth_of_a_ring_is_the_bandwidth_of_its_link_for_any_number_of_ranks():
    for n in range(2, 18):
        for make in (ring_all_reduce, ring_all_gather, ring_reduce_scatter):
            assert make(n).price(1e9, FREE).busbw == pytest.approx(1e9, rel=1e-12)
        assert pairwise_all_to_all(n).price(1e9, FREE).busbw == pytest.approx(1e9)
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("reduce_scatter", 8) == 0.875
    assert bus_factor("broadcast", 8) == bus_factor("reduce", 8) == 1


def test_one_rank_or_no_bytes_cost_nothing_and_have_no_bandwidth():
    for kind, name in NAMED:
        for plan, nbytes in ((plan_for(kind, 1, name), 1e9), (plan_for(kind, 4, name), 0)):
            where = LINKS["nvlink4"]
            for found in (plan.price(nbytes, where), _simulated(plan, nbytes, where, None)):
                assert (found.seconds, found.bytes_per_rank, found.messages) == (0, 0, 0)
                assert (found.algbw, found.busbw) == (0, 0)


def test_where_messages_take_no_time_bytes_are_counted_and_no_bandwidth_is_named():
    plan = ring_all_reduce(4)
    for found in (plan.price(8e9, None), _simulated(plan, 8e9, None, None)):
        assert (found.seconds, found.algbw, found.busbw) == (0, 0, 0)
        assert (found.bytes_per_rank, found.messages, found.rounds) == (12e9, 24, 6)


def test_bytes_are_counted_exactly_beyond_what_floats_hold():
    # 2^53 + 1 is a multiple of 3, which the nearest float is not.
    plan = ring_all_reduce(3)
    for itemsize, closed in ((1, True), (3, False)):
        assert (_closed_form(plan, 2**53 + 1, FREE, itemsize) is not None) == closed
        found = plan.price(2**53 + 1, FREE, itemsize).bytes_per_rank
        assert found == pytest.approx(4 / 3 * 2**53)


# -- bad input -----------------------------------------------------------------------------------


def test_impossible_sizes_and_networks_are_sentences():
    ring = ring_all_reduce(4)
    for nbytes in (-1, math.nan, math.inf):
        with pytest.raises(
            ValueError, match=r"nbytes is .*; it must be a finite number of at least 0"
        ):
            ring.price(nbytes, FREE)
    with pytest.raises(ValueError, match="whole number of items"):
        ring.price(10, FREE, itemsize=4)
    for itemsize in (0, -2, 2.5):
        with pytest.raises(ValueError, match=r"itemsize is .*; it must be a whole number"):
            ring.price(10, FREE, itemsize=itemsize)
    with pytest.raises(ValueError, match=r"has 8 devices \(1 nodes of 8\) and the plan 4 ranks"):
        ring.price(1e6, dgx_h100(1))
    with pytest.raises(
        ValueError,
        match=r"link_or_cluster is 'nvlink4'; it must be a Link such as LINKS\['nvlink4'\] or a Cluster",
    ):
        ring.price(1e6, "nvlink4")


# -- the chooser ---------------------------------------------------------------------------------


def test_the_best_plan_is_the_cheapest_of_the_candidates_at_every_size():
    for where, ranks in ((LINKS["nvlink4"], 6), (dgx_h100(3), None)):
        for nbytes in (1, 1e4, 1e6, 1e9):
            plans = candidates("all_reduce", where, ranks)
            seconds = [plan.price(nbytes, where).seconds for plan in plans.values()]
            chosen = best("all_reduce", nbytes, where, ranks)
            assert chosen.price(nbytes, where).seconds == pytest.approx(min(seconds), rel=1e-9)


def test_recursive_doubling_then_halving_doubling_then_a_ring_where_ranks_are_no_power_of_two():
    link, n = LINKS["infiniband-ndr"], 48
    changes = crossovers("all_reduce", link, n)
    assert [name for _, name in changes] == ["recursive_doubling", "halving_doubling", "ring"]
    for (size, above), (_, below) in zip(changes[1:], changes, strict=False):
        for nbytes, name in ((size / 1.01, below), (size * 1.01, above)):
            assert best("all_reduce", nbytes, link, n).algorithm == name
    # Where two are equal, p = 32 of the ranks doubling: 7(a + S/B) = 12a + (2 + 2 31/32) S/B, and
    # 12a + (2 + 2 31/32) S/B = 94a + 2 47/48 S/B.
    unit = link.latency * link.bandwidth
    exact = [unit * 5 / (5 - 31 / 16), unit * 82 / (2 + 31 / 16 - 47 / 24)]
    assert [size for size, _ in changes[1:]] == pytest.approx(exact, rel=1e-3)


def cross_at(size):
    """A ring and a tree of 64 ranks, and a link on which they cost the same at `size` bytes."""
    among = {"ring": ring_all_reduce(64), "tree": tree_all_reduce(64)}
    return among, Link("crossed", latency=size / 1e9 * (6 - 63 / 64) / (63 - 6), bandwidth=1e9)


def test_algorithms_cross_from_one_byte_on_and_not_beyond_the_largest_size_that_is_tried():
    among, link = cross_at(1.5)
    changes = crossovers("all_reduce", link, among=among)
    assert changes == [(1.0, "tree"), (pytest.approx(1.5, rel=1e-3), "ring")]
    among, link = cross_at(6144)
    assert crossovers("all_reduce", link, among=among, largest=4096) == [(1.0, "tree")]
    assert len(crossovers("all_reduce", link, among=among, largest=8192)) == 2


@pytest.mark.parametrize(
    ("kind", "where", "ranks"),
    [
        ("all_gather", LINKS["nvlink4"], None),
        ("all_reduce", LINKS["nvlink4"], 32),
        ("all_reduce", dgx_h100(2), None),
        ("all_reduce", dgx_h100(8), 8),
    ],
)
def test_plans_of_another_collective_or_of_other_ranks_are_not_compared(kind, where, ranks):
    among, _ = cross_at(6144)
    for compare in (
        lambda: best(kind, 8, where, ranks, among),
        lambda: crossovers(kind, where, ranks, among),
    ):
        with pytest.raises(
            ValueError, match=r"^among has 'ring', a plan of all_reduce among 64 ranks; "
        ):
            compare()
    mixed = among | {"other": ring_all_reduce(32)}
    with pytest.raises(
        ValueError, match=r"'other', .* 32 ranks; it must be one of all_reduce among 64\.$"
    ):
        best("all_reduce", 8, LINKS["nvlink4"], among=mixed)
    assert best("all_reduce", 8, dgx_h100(8), among=among) in among.values()


def test_the_best_of_some_is_one_of_them_and_of_equals_the_first():
    among, link = cross_at(6144)
    for name in among:
        assert best("all_reduce", 1e3, link, among={name: among[name]}) is among[name]
    assert best("all_reduce", 0, link, among=among) is among["ring"]  # nothing is sent
    # Without latencies these two differ by rounding alone.
    plans = [
        ("ring", ring_all_reduce(64)),
        ("halving", plan_for("all_reduce", 64, "halving_doubling")),
    ]
    for order, nbytes in product((plans, plans[::-1]), (1e5 / 3, 1e6 / 7, 1e7 / 9)):
        assert best("all_reduce", nbytes, FREE, among=dict(order)) is order[0][1]
    with pytest.raises(ValueError, match=r"^among is"):
        best("all_reduce", 1e3, link, among={})


@pytest.mark.parametrize("kind", TWO_LEVEL)
def test_two_levels_are_a_candidate_where_there_are_two_nodes(kind):
    assert "hierarchical" not in candidates(kind, dgx_h100(1))
    assert candidates(kind, dgx_h100(2))["hierarchical"].algorithm == "hierarchical"


def test_the_measured_cliff_lies_between_no_overlap_and_full_overlap_of_the_levels():
    inside, two, across = node_boundary()
    # More than NVLink carries one way: the switches add. Then the bound is 2(n-1)/n of the link.
    assert inside.predicted_busbw == pytest.approx(450e9, rel=1e-3)
    assert inside.predicted_busbw < inside.measured_busbw[0] < bus_factor("all_reduce", 8) * 450e9
    for side in (two, across):
        low, high = side.measured_busbw
        assert side.predicted_busbw < low <= high < side.overlapped_busbw
    # Recursive doubling: three rounds inside a node, and four more across 16.
    for side, far in (inside, 0), (two, 1), (across, 4):
        assert side.predicted_latency == pytest.approx(3 * 0.6e-6 + far * 2.7e-6, rel=1e-3)
        assert side.predicted_latency < side.measured_latency
    # Each of eight cards sends an eighth of 2 x 15/16 of the buffer, and bus bandwidth credits
    # every rank with 2 x 127/128 of it.
    assert across.overlapped_busbw == pytest.approx(8 * 50e9 * (127 / 128) / (15 / 16), rel=1e-9)
    assert two.overlapped_busbw == pytest.approx(482e9, rel=1e-3)  # bound by NVLink
    assert [side.nodes for side in (inside, two, across)] == [1, 2, 16]


def test_choosing_needs_to_know_how_many_ranks():
    with pytest.raises(ValueError, match="a Link needs the number of ranks"):
        best("all_reduce", 1e6, LINKS["nvlink4"])
    with pytest.raises(ValueError, match="a Cluster has its own"):
        best("all_reduce", 1e6, dgx_h100(1), ranks=4)


def test_the_figure_of_the_chooser_has_a_line_for_each_algorithm_and_marks_the_fastest():
    link = LINKS["nvlink4"]
    (axes,) = draw_crossovers("all_reduce", link, 6, sizes=(1e3, 1e9)).axes
    band, *lines = axes.lines
    plans = candidates("all_reduce", link, 6)
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["ring", "tree", "halving-doubling", "recursive-doubling"]
    for at in (0, 37, 100):
        nbytes = band.get_xdata()[at]
        seconds = [plan.price(nbytes, link).seconds for plan in plans.values()]
        assert [line.get_ydata()[at] for line in lines[:4]] == seconds
        assert band.get_ydata()[at] == min(seconds)
    assert (band.get_xdata()[0], band.get_xdata()[100]) == pytest.approx((1e3, 1e9))
    marks = [size for size, _ in crossovers("all_reduce", link, 6, largest=1e9)[1:]]
    assert [line.get_xdata()[0] for line in lines[4:]] == marks
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("buffer (bytes)", "time (s)")


def test_a_halving_has_a_closed_form_that_knows_who_sits_in_whose_node():
    for plan in (plan_for(kind, 16, name) for kind, name in HALVINGS):
        for where in (dgx_h100(2), Cluster(DEVICES["h100-sxm"], 8, 2, *THEIRS), LINKS["nvlink4"]):
            closed = _closed_form(plan, 1e9, where, None)
            assert closed is not None
            assert closed.seconds == pytest.approx(_simulated(plan, 1e9, where, None).seconds)


HALVINGS = [("reduce_scatter", "halving"), ("all_gather", "doubling")]
THEIRS = LINKS["nvlink4"], LINKS["infiniband-ndr"]


def test_whole_numbers_of_32_bits_have_a_price_as_any_others():
    plan, most = ring_all_reduce(16), np.int32(2**31 - 1)
    assert plan.price(most, LINKS["nvlink4"]) == plan.price(2**31 - 1, LINKS["nvlink4"])
    said = r" items of 4 bytes: give a multiple of itemsize, or leave itemsize out for the ideal price\.$"
    with pytest.raises(ValueError, match=said):
        plan.price(7, LINKS["nvlink4"], 4)


def test_crossovers_are_looked_for_up_to_a_single_byte():
    assert len(crossovers("all_reduce", LINKS["nvlink4"], 4, largest=1)) == 1


def test_measured_latencies_are_of_microseconds():
    assert [round(1e6 * each.measured_latency) for each in node_boundary()] == [13, 55, 235]
