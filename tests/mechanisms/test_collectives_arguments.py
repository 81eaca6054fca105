"""A bad argument of collectives or of hardware is called by its name, with what is allowed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlsys import collectives
from dlsys.collectives import Plan, Transfer, ring_all_reduce
from dlsys.hardware import DEVICES, LINKS, dgx_h100

LINK, CLUSTER = LINKS["nvlink4"], dgx_h100(2)
RING = ring_all_reduce(4)


def hand_written(**fields: Any) -> Plan:
    right = {"kind": "broadcast", "algorithm": "x", "ranks": 2, "chunks": 2, "rounds": []}
    return Plan(**right | fields)


SENTENCES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: hand_written(rounds=[[Transfer(0, 1, 0, 1, reduce=1)]]),  # type: ignore[arg-type]
        "rounds must be a list of rounds, each a list of Transfer(src, dst, first, stop, "
        "reduce=False) of whole numbers, also where a round has only one (reduce is 1; it must be "
        "True or False).",
    ),
    (
        lambda: hand_written(kind="sum_all"),
        "There is no collective 'sum_all'; the kinds are broadcast, reduce, scatter, gather, "
        "all_gather, reduce_scatter, all_reduce, all_to_all.",
    ),
    (
        lambda: hand_written(chunks=4.0),
        "chunks is 4.0; it must be a whole number of at least 1.",
    ),
    (lambda: hand_written(root=-1), "root is -1; it must be a whole number of at least 0."),
    (
        lambda: hand_written(rounds=[Transfer(0, 1, 0, 1)]),
        "rounds must be a list of rounds, each a list of Transfer(src, dst, first, stop, "
        "reduce=False) of whole numbers, also where a round has only one "
        "(dlsys.collectives.plan.Transfer() argument after * must be an iterable, not int).",
    ),
    (
        lambda: hand_written(root=2),
        "Root 2 of 2 ranks: the root is one of the ranks, 0 to 1.",
    ),
    (
        lambda: hand_written(kind="all_to_all", ranks=3, chunks=3),
        "An all_to_all among 3 ranks has 9 chunks, one for each pair; this plan has 3.",
    ),
    (
        lambda: hand_written(kind="gather", ranks=4, chunks=6),
        "6 chunks do not give each of 4 ranks equally many in gather: use a multiple of 4.",
    ),
    (
        lambda: hand_written(rounds=[[(0, 1.0, 0, 1)]]),
        "rounds must be a list of rounds, each a list of Transfer(src, dst, first, stop, "
        "reduce=False) of whole numbers, also where a round has only one (dst is 1.0; it must be a "
        "whole number of at least 0).",
    ),
    (lambda: RING.share(4), "rank is 4; it must be at most 3."),
    (lambda: RING.steps(4), "rank is 4; it must be at most 3."),
    (lambda: ring_all_reduce(0), "n is 0; it must be a whole number of at least 1."),
    (
        lambda: CLUSTER.link(3, 16),
        "dst is 16; there is no rank 16: 2 nodes of 8 devices have ranks 0 to 15.",
    ),
    (
        lambda: dataclasses.replace(DEVICES["h100-sxm"], flops={"fp32": 0}),
        "flops['fp32'], the fp32 rate of H100 SXM in FLOP/s, is 0; it must be a finite number above zero.",
    ),
    (
        lambda: collectives.draw_crossovers("all_reduce", LINK, 4, sizes=(0, 1e6)),
        "A size in sizes is 0; it must be a finite number above zero.",
    ),
    (
        lambda: RING.run(4, None),
        "comm is 4; it must be a communicator, such as a rank program is called with.",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), SENTENCES)
def test_what_does_not_fit_together_is_a_sentence_with_both_numbers(call, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("place", range(4))
def test_a_transfer_written_in_other_numbers_is_told_what_is_wrong(place):
    name = ("src", "dst", "first", "stop")[place]
    transfer = [np.int64(0), 1, 0, 1, False]
    transfer[place] = np.int64(-1)
    with pytest.raises(
        ValueError, match=rf"\({name} is np\.int64\(-1\); it must be a whole number of at least 0"
    ):
        Plan("broadcast", "mine", 2, 1, [[tuple(transfer)]])
    empty = Plan("broadcast", "mine", 2, 1, [[(np.int64(0), 1, 0, 0, False)]])
    assert list(empty.rounds[0]) == [Transfer(0, 1, 0, 0, False)]


def test_a_plan_is_drawn_as_wide_as_asked():
    narrow, wide = (ring_all_reduce(2).draw(width=width).get_figwidth() for width in (3.0, 9.0))
    assert narrow < wide / 2


def test_a_plan_for_no_collective_is_refused_by_its_word():
    with pytest.raises(ValueError, match=r"^There is no collective 'sum_all'; "):
        collectives.plan_for("sum_all", 4)
