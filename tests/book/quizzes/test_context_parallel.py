"""The numbers of the quiz on context parallelism, computed."""

import math

import pytest
import torch

from dlsys.context_parallel import layout, merge, price, ranks_for_ulysses, tokens_to_hide
from dlsys.hardware import Link
from dlsys.transformer import TransformerSpec
from tests.book.quizzes import contract

LINK = Link("no latency", 0.0, 50e9)


def spec(heads: int, kv_heads: int) -> TransformerSpec:
    """A model with these heads, of size 128."""
    return TransformerSpec(1, 128 * heads, heads, 10, 8192, kv_heads=kv_heads, gated=True)


def merged(*parts: tuple[float, float]) -> float:
    """The mean of parts, each with the sum of its weights and its mean."""
    found = [
        tuple(torch.tensor(x, dtype=torch.float64) for x in (mean, math.log(weight)))
        for weight, mean in parts
    ]
    mean, _ = merge(merge(found[0], found[1]), found[2])  # type: ignore[arg-type]
    return round(mean.item(), 9)


def last(ranks: int) -> float:
    """Percent of the scores that the last of these ranks has, with contiguous pieces."""
    load = layout(6000 * ranks, ranks, "contiguous").load()
    return 100 * load[-1] / sum(load)


def tokens(faster: float, wider: float, kv_heads: int) -> float:
    """Tokens to hide, where they are 3,000 with a model of 8 heads of keys."""
    rate = 3000 / tokens_to_hide(spec(32, 8), 1.0, LINK.bandwidth)
    return round(tokens_to_hide(spec(32, kv_heads), faster * rate, wider * LINK.bandwidth), 6)


def times(ranks: int, one: str = "ring", other: str = "ulysses", heads: int = 48) -> float:
    """The bytes of one method beside those of another, forward."""
    sent = [
        price(
            layout(1024 * ranks, ranks), spec(heads, 8), LINK, method, 1e12, algorithm="default"
        ).forward.bytes_per_rank  # type: ignore[arg-type]
        for method in (one, other)
    ]
    return sent[0] / sent[1]


NUMBERS = {
    "context_parallel-merge": merged((2, 5), (6, 1), (12, 3)),
    "context_parallel-contiguous": last(6),
    "context_parallel-hide": tokens(2, 3, 4),
    "context_parallel-bytes": times(8),
}

MISCONCEPTIONS = {
    "context_parallel-merge": {
        "mean of the means": (5 + 1 + 3) / 3,
        "divided by all weight": 2 * 5 + 6 * 1 + 12 * 3,
        "Means do not add up": 5 + 1 + 3,
        "their weight together": ((2 * 5 + 6 * 1) / 8 + 3) / 2,
    },
    "context_parallel-contiguous": {
        "That is the mean": 100 / 6,
        "the first rank": 100 / 36,
        "if each were seen whole": 100 * 6 / 21,
        "limit of twice the mean": 2 * 100 / 6,
    },
    "context_parallel-hide": {
        "leave the scores as they are": tokens(2, 3, 8),
        "fewer tokens hide them": 2 * tokens(2, 3, 8),
        "they need more of them": tokens(0.5, 3, 4),
        "not more": 9 * tokens(2, 3, 4),
        "do not cancel": tokens(1, 1, 8),
    },
    "context_parallel-bytes": {
        "other way round": 1 / times(8),
        "not 8 heads": 7 * 16 / (7 / 8 * 16),
        "Results are swapped back": 7 * 16 / (7 / 8 * 64),
        "not those of queries": 7 * 96 / (7 / 8 * 112),
        "with 7 ranks": 6 * 16 / (6 / 7 * 112),
    },
}


class TestQuiz(contract.Quiz): ...


def test_four_equal_documents_are_balanced_by_zigzag_and_others_are_not() -> None:
    equal = layout(16_384, 4, "zigzag", range(0, 16_384, 4096))
    assert len(set(equal.load())) == 1
    assert sum(equal.load()) == 4 * sum(layout(4096, 1).load())
    assert sum(equal.load()) / sum(layout(16_384, 4).load()) == pytest.approx(1 / 4, abs=1e-3)
    assert len(set(layout(16_384, 4, "zigzag", (0, 12_288)).load())) > 1


def test_a_ring_sends_more_than_ulysses_beyond_seven_ranks() -> None:
    assert ranks_for_ulysses(spec(48, 8)) == 8
    assert times(4) < 1 < times(8)


def test_a_group_of_eight_hides_a_ring_eight_times_as_early() -> None:
    whole, of_ring = spec(40, 8), spec(5, 1)  # what a device has after the swap
    tokens_of_a_block = tokens_to_hide(of_ring, 400e12, 50e9)
    assert tokens_of_a_block == pytest.approx(tokens_to_hide(whole, 400e12, 50e9))
    with pytest.raises(ValueError, match="40 heads do not divide by a Ulysses degree of 32"):
        price(layout(1024 * 32, 32), whole, LINK, "ulysses", 400e12)
