"""The numbers of the quiz on collectives, computed."""

from dataclasses import replace

import pytest

from dlsys.collectives import (
    hierarchical_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
)
from dlsys.collectives.price import bus_factor
from dlsys.hardware import LINKS, Cluster, Link, dgx_a100
from tests.book.quizzes import contract

FREE = Link("no time", 0.0, 1e30)
HDR = replace(LINKS["infiniband-hdr"], latency=0.0)
OF_150 = Link("150 GB/s each way", 0.0, 150e9)
FOUR_NODES = Cluster(dgx_a100(4).device, 4, 8, intra=FREE, inter=HDR)
GATHER = ring_all_gather(16).price(32e9, None).bytes_per_rank / 1e9

NUMBERS = {
    "ring-bytes": GATHER,
    "moved-bytes": 1e3 * ring_all_reduce(16).price(8e9, OF_150).seconds,
    "card-step": 1e3 * hierarchical_all_reduce(4, 8).price(8e9, FOUR_NODES).seconds,
    "latencies": len(ring_all_reduce(64).rounds),
    "busbw": 400 * bus_factor("all_reduce", 8),
}

MISCONCEPTIONS = {
    "ring-bytes": {
        "its own part": 32 / 16,
        "two phases": ring_all_reduce(16).price(32e9, None).bytes_per_rank / 1e9,
        "over all ranks": 16 * GATHER,
        "the part of one": 15 * 32,
    },
    "moved-bytes": {
        "nobody send 30 GB": 30 / 150 * 1e3,
        "one of them": 1e3 * ring_reduce_scatter(16).price(8e9, OF_150).seconds,
        "the buffer over the bandwidth": 8 / 150 * 1e3,
        "very many ranks": 16 / 150 * 1e3,
    },
    "card-step": {
        "gigabits": 1e3 * ring_all_reduce(4).price(1e9, replace(HDR, bandwidth=200e9)).seconds,
        "the whole buffer": 1e3 * ring_all_reduce(4).price(8e9, HDR).seconds,
        "one phase": 1e3 * ring_reduce_scatter(4).price(1e9, HDR).seconds,
        "Not all 32": 1e3 * ring_all_reduce(32).price(1e9, HDR).seconds,
        "there are four nodes": 1e3 * ring_all_reduce(8).price(1e9, HDR).seconds,
    },
    "latencies": {"a tree": len(tree_all_reduce(64).rounds)},
    "busbw": {
        "the algorithm bandwidth": 400,
        "very many ranks": 2 * 400,
        "an all-gather": 400 * bus_factor("all_gather", 8),
        "The other way": 400 / bus_factor("all_reduce", 8),
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_bytes_that_the_questions_and_their_feedback_name_are_those_of_the_plans() -> None:
    phase, ring = (make(8).price(14e9, OF_150) for make in (ring_reduce_scatter, ring_all_reduce))
    assert (phase.bytes_per_rank, ring.bytes_per_rank) == (12.25e9, 24.5e9)
    assert 2 * ring_all_reduce(16).price(8e9, OF_150).bytes_per_rank == 30e9
    assert ring_all_reduce(4).price(1e9, HDR).bytes_per_rank == pytest.approx(1.5e9)
