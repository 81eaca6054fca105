"""The numbers of the quiz on collectives, computed."""

from dlsys.collectives import ring_all_reduce, tree_all_reduce
from dlsys.hardware import LINKS
from tests.book.quizzes import contract

RING8 = ring_all_reduce(8).price(14e9, LINKS["nvlink3"])

NUMBERS = {
    "ring-bytes": RING8.bytes_per_rank / 1e9,
    "nvlink-direction": LINKS["nvlink3"].bandwidth / 1e9,
    "hdr-port": LINKS["infiniband-hdr"].bandwidth / 1e9,
    "latencies": len(ring_all_reduce(64).rounds),
}

MISCONCEPTIONS = {
    "ring-bytes": {
        "one phase": RING8.bytes_per_rank / 2e9,
        "also receives": 2 * RING8.bytes_per_rank / 1e9,
        "over all eight": 8 * RING8.bytes_per_rank / 1e9,
    },
    "latencies": {"a tree": len(tree_all_reduce(64).rounds)},
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_nvlink_gives_the_seconds_of_the_ring() -> None:
    assert round(RING8.seconds * 1e3) == 82
    assert round(RING8.seconds * 1e3 / 2) == 41
    assert LINKS["nvlink3"].bandwidth / LINKS["infiniband-hdr"].bandwidth == 12
