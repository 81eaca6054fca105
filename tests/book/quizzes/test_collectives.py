"""The numbers of the quiz on collectives, computed."""

from dlsys.collectives import ring_all_gather, ring_all_reduce, tree_all_reduce
from dlsys.collectives.price import bus_factor
from dlsys.hardware import LINKS
from tests.book.quizzes import contract

RING8 = ring_all_reduce(8).price(14e9, LINKS["nvlink3"])
GATHER = ring_all_gather(16).price(32e9, None).bytes_per_rank / 1e9

NUMBERS = {
    "ring-bytes": GATHER,
    "nvlink-direction": LINKS["nvlink3"].bandwidth / 1e9,
    "hdr-port": LINKS["infiniband-hdr"].bandwidth / 1e9,
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
    "latencies": {"a tree": len(tree_all_reduce(64).rounds)},
    "busbw": {
        "the algorithm bandwidth": 400,
        "very many ranks": 2 * 400,
        "an all-gather": 400 * bus_factor("all_gather", 8),
        "The other way": 400 / bus_factor("all_reduce", 8),
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_nvlink_gives_the_seconds_of_the_ring() -> None:
    assert round(RING8.seconds * 1e3) == 82
    assert round(RING8.seconds * 1e3 / 2) == 41
    assert LINKS["nvlink3"].bandwidth / LINKS["infiniband-hdr"].bandwidth == 12
