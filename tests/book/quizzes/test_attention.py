"""The numbers of the quiz on attention, computed."""

import math

import torch

from dlsys.attention import (
    Summary,
    flash_attention,
    forward_cost,
    forward_law,
    log_sum_exp,
    merge,
    naive_attention,
    naive_forward_cost,
    saved_bytes,
    tiling,
)
from tests.book.quizzes import contract


def total(*parts: tuple[float, float]) -> float:
    """The total of two parts, each with its maximum and total."""
    one, other = (
        Summary(torch.tensor([float(m)]), torch.tensor([float(t)]), torch.zeros(1, 1))
        for m, t in parts
    )
    return float(merge(one, other).total)


def visited(tokens: int, query_tile: int, key_tile: int) -> int:
    """How many tiles a causal mask leaves."""
    return len(tiling(tokens, tokens, query_tile, key_tile, is_causal=True).schedule().steps)


def cut(tokens: int, query_tile: int, key_tile: int) -> int:
    """How many of them it cuts."""
    tiles = tiling(tokens, tokens, query_tile, key_tile, is_causal=True)
    return sum(map(tiles.is_cut, tiles.schedule().steps))


def against_plain(tile: int, head: int, tokens: int = 2**20) -> float:
    """How many times as much as the plain form the tiled one moves, on very many tokens."""
    tiled = forward_cost(tiling(tokens, tokens, tile, 2**14), head)
    return round(tiled.elements / naive_forward_cost(tokens, tokens, head).elements, 2)


def wider(times: int, heads: float) -> float:
    """By the law: heads so many times as large, and so many times as many."""
    return heads * forward_law(64, 64, 64 * times, 2**14) / forward_law(64, 64, 64, 2**14)


BOTH = total((4, 3), (1, 10))
NUMBERS = {
    "attention-merge": BOTH,
    "attention-visits": visited(1536, 256, 128),
    "attention-small-tile": against_plain(64, 256),
    "attention-wider-heads": wider(2, 1 / 2),
    "attention-corner": tiling(4, 10, 1, 1, True, "lower-right").pairs,
}

MISCONCEPTIONS = {
    "attention-merge": {
        "a maximum of its own": total((4, 3), (4, 10)),
        "The wrong part": total((1, 3), (4, 10)),
        "the smaller maximum": BOTH * math.exp(3),
        "themselves": BOTH * math.exp(4),
        "Both parts have shrunk": 13 * math.exp(-3),
    },
    "attention-visits": {
        "all tiles": 6 * 12,
        "Half of all": 6 * 12 / 2,
        "Those are whole": visited(1536, 256, 128) - cut(1536, 256, 128),
        "as many keys": visited(1536, 256, 256),
        "as few queries": visited(1536, 128, 128),
    },
    "attention-small-tile": {
        "The other way round": 1 / against_plain(64, 256),
        "four numbers": 256 / 64,
        "the tile beside the head": 64 / 256,
        "crosses four times": 2 * 256 / 64,
        "twice as many queries": against_plain(128, 256),
    },
    "attention-wider-heads": {
        "for a head": wider(2, 1),
        "as many rows": 2 * 1 / 2,
        "for the plain form": 1 / 2,
        "not twice": wider(2, 2),
    },
    "attention-corner": {
        "upper left": tiling(4, 10, 1, 1, True).pairs,
        "without a mask": tiling(4, 10).pairs,
        "itself, too": tiling(4, 10, 1, 1, True, "lower-right").pairs - 4,
        "all ten": tiling(10, 10, 1, 1, True).pairs,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_plain_form_moves_half_with_heads_twice_as_wide() -> None:
    narrow, wide = (
        naive_forward_cost(2**16, 2**16, d, heads=heads).elements
        for d, heads in ((64, 32), (128, 16))
    )
    assert 0.49 < wide / narrow < 0.51


def test_what_tiled_attention_keeps_is_what_the_quiz_says() -> None:
    q, k, v = (torch.randn(1, 1, n, 16, requires_grad=True) for n in (50, 70, 70))
    kept = saved_bytes(lambda: flash_attention(q, k, v))
    assert kept == 4 * (q.numel() + 2 * k.numel() + q.numel() + 50)


def test_sums_that_are_not_rescaled_are_right_in_one_tile_alone() -> None:
    torch.manual_seed(0)
    q, k, v = 3 * torch.randn(3, 1, 12, 4, dtype=torch.float64)

    def unscaled(tile: int) -> torch.Tensor:
        top, bottom = torch.zeros(1, 12, 4, dtype=torch.float64), torch.zeros(1, 12, 1)
        for keys, values in zip(k.split(tile, 1), v.split(tile, 1), strict=True):
            scores = q @ keys.mT / 2
            weights = torch.exp(scores - scores.amax(-1, keepdim=True))
            top, bottom = top + weights @ values, bottom + weights.sum(-1, keepdim=True)
        return top / bottom

    exact = naive_attention(q, k, v)
    assert torch.allclose(unscaled(12), exact)
    assert (unscaled(4) - exact).abs().max() > 0.1


def test_one_number_a_query_brings_the_weights_back() -> None:
    x = torch.randn(3, 7, dtype=torch.float64)
    left, right = (
        Summary(m := part.amax(-1), (e := torch.exp(part - m[:, None])).sum(-1), e[..., :1])
        for part in x.split((4, 3), -1)
    )
    lse = log_sum_exp(merge(left, right))
    assert torch.allclose(torch.exp(x - lse[:, None]), x.softmax(-1))


def test_a_byte_serves_as_many_flops_as_a_tile_has_rows() -> None:
    long = tiling(2**16, 2**16, 64, 128)
    for heads, kv_heads, intensity in ((32, 4, 512), (32, 32, 64)):
        for d in (64, 128):
            cost = forward_cost(long, d, heads=heads, kv_heads=kv_heads)
            assert 0.97 * intensity < cost.intensity() <= intensity
    assert round(naive_forward_cost(2**16, 2**16, 128).intensity()) == 64
