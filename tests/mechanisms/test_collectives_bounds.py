"""No plan of the catalogue sends less than any plan must, and those that are said to send least do.

The bounds follow from what a kind leaves where, and the counts from the transfers themselves: no
formula of `price` is asked.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from dlsys.collectives import Plan, Transfer, plan_for, ring_all_reduce
from dlsys.collectives.choose import FLAT, TWO_LEVEL
from dlsys.hardware import dgx_h100

PAGE = Path(__file__).parents[2] / "chapters" / "collectives_more.md"
NAMED = [(kind, name) for kind, builders in FLAT.items() for name in builders]
LEAST = {  # all that send the least, on any number of ranks
    *[(kind, "ring") for kind in ("all_gather", "reduce_scatter", "all_reduce")],
    ("all_to_all", "pairwise"),
    ("broadcast", "ring"),
    *[("reduce", name) for name in ("ring", "tree")],
    ("scatter", "tree"),
}
LEAST_AT_POWERS_OF_TWO = {
    ("all_reduce", "halving_doubling"),
    ("reduce_scatter", "halving"),
    ("all_gather", "doubling"),
}


def counted(plan):
    """Buffers that the busiest ranks send and receive, and all together: sums over the transfers."""
    sent, received = Counter(), Counter()
    held = plan.ranks if plan.kind == "all_to_all" else plan.chunks  # chunks of a rank's buffer
    for transfers in plan.rounds:
        for transfer in transfers:
            share = Fraction(transfer.stop - transfer.first, held)
            sent[transfer.src] += share
            received[transfer.dst] += share
    return max(sent.values(), default=0), max(received.values(), default=0), sum(sent.values())


def least(kind, n):
    """The fewest buffers that some rank must send, that some rank must receive, and in all.

    Where only ranks add: each element of an all-reduce travels to the first complete sum from n-1
    others and from there to n-1 others. A rank of an all-to-all keeps its own block alone. Of
    rooted kinds the root sends (or gets) what others end (or begin) with.
    """
    rest = Fraction(n - 1, n)
    whole = 1 if n > 1 else 0
    return {
        "all_reduce": (2 * rest, 2 * rest, 2 * (n - 1)),
        "reduce_scatter": (rest, rest, n - 1),
        "all_gather": (rest, rest, n - 1),
        "all_to_all": (rest, rest, n - 1),
        "broadcast": (whole, whole, n - 1),
        "reduce": (whole, whole, n - 1),
        "scatter": (rest, Fraction(whole, n), rest),
        "gather": (Fraction(whole, n), rest, rest),
    }[kind]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_no_plan_moves_less_than_any_must_and_those_send_the_least_that_are_said_to(kind, name):
    for n in range(1, 18):
        found, bounds = counted(plan_for(kind, n, name)), least(kind, n)
        assert all(moved >= bound for moved, bound in zip(found, bounds, strict=True)), n
        power_of_two = n & (n - 1) == 0
        if (kind, name) in LEAST or ((kind, name) in LEAST_AT_POWERS_OF_TWO and power_of_two):
            assert found[0] == bounds[0], n
        elif n > 4:
            assert found[0] > bounds[0], n


@pytest.mark.parametrize(("nodes", "devices"), [(1, 4), (2, 3), (3, 2), (4, 4)])
@pytest.mark.parametrize("kind", TWO_LEVEL)
def test_no_hierarchical_plan_moves_less_than_any_plan_must(kind, nodes, devices):
    found, bounds = counted(TWO_LEVEL[kind](nodes, devices)), least(kind, nodes * devices)
    assert all(moved >= bound for moved, bound in zip(found, bounds, strict=True))


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_the_chapters_eight_rings_send_the_least_and_cross_nodes_no_faster_than_cards_allow(nodes):
    (source,) = re.findall(r"^def eight_rings\(.*?(?=^\S)", PAGE.read_text("utf-8"), re.M | re.S)
    known = {"Plan": Plan, "Transfer": Transfer, "ring_all_reduce": ring_all_reduce}
    exec(source, known)
    plan, cluster = known["eight_rings"](nodes), dgx_h100(nodes)
    plan.check()
    assert counted(plan) == least("all_reduce", 8 * nodes)
    node = float(least("all_reduce", nodes)[0]) * 1e9 / (8 * cluster.inter.bandwidth)
    seconds = plan.price(1e9, cluster).seconds
    assert seconds >= node
    # One ring has one card for what a node sends, and all that it sends passes one port.
    assert nodes == 1 or seconds < ring_all_reduce(8 * nodes).price(1e9, cluster).seconds / 7
