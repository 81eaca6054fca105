"""Tiled attention equals torch's own and the formula, forward and backward, to the bit where it can."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from dlsys.attention import (
    FastMemory,
    FlashAttention,
    flash_attention,
    log_sum_exp,
    merge,
    naive_attention,
    naive_saved_bytes,
    online_attention,
    peak_bytes,
    saved_bytes,
    summarize,
    tiled_saved_bytes,
    tiling,
    weighted_mean,
)
from dlsys.attention.flash import backward, forward

BOTH = ("queries", "keys")


def heads(rows, columns, d=8, kv_heads=2, group=1, batch=2, dtype=torch.float64, seed=0):
    """q, k, v with gradients, and a gradient of the result."""
    make = torch.Generator().manual_seed(seed)

    def normal(number, length):
        return torch.randn(batch, number, length, d, generator=make, dtype=torch.float64).to(dtype)

    q, grad = normal(kv_heads * group, rows), normal(kv_heads * group, rows)
    k, v = normal(kv_heads, columns), normal(kv_heads, columns)
    return [x.requires_grad_() for x in (q, k, v)], grad


def close(found, expected, tolerance=1e-12):
    for x, y in zip(found, expected, strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


def with_gradients(out, inputs, grad):
    return [out, *torch.autograd.grad(out, inputs, grad)]


# -- torch's own ---------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "tiles"),
    [(16, 16, (4, 8)), (17, 13, (5, 4)), (5, 19, (16, 3)), (1, 9, (1, 2)), (9, 1, (4, 4))],
)
def test_result_and_every_gradient_are_those_of_torchs_own_attention(
    group, is_causal, rows, columns, tiles
):
    inputs, grad = heads(rows, columns, group=group)
    own = F.scaled_dot_product_attention(*inputs, is_causal=is_causal, enable_gqa=True)
    ours = flash_attention(*inputs, is_causal, tiles=tiling(rows, columns, *tiles, is_causal))
    close(with_gradients(ours, inputs, grad), with_gradients(own, inputs, grad))


@pytest.mark.parametrize("is_causal", [False, True])
def test_with_the_default_tiles_it_is_torchs_own_in_fp32(is_causal):
    inputs, grad = heads(700, 700, d=16, kv_heads=1, batch=1, dtype=torch.float32)
    own = F.scaled_dot_product_attention(*inputs, is_causal=is_causal)
    ours = FlashAttention.apply(*inputs, is_causal)
    # FP32 sums of 700 terms in two orders.
    close(with_gradients(ours, inputs, grad), with_gradients(own, inputs, grad), 2e-5)


@pytest.mark.parametrize(("rows", "columns"), [(3, 11), (11, 11), (11, 4)])
@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_both_ways_to_lay_a_mask_over_unequal_lengths_are_torchs(rows, columns, bias):
    inputs, grad = heads(rows, columns)
    lower = bias is causal_lower_right
    align = "lower-right" if lower else "upper-left"
    tiles = tiling(rows, columns, 4, 3, True, align)
    ours = flash_attention(*inputs, tiles=tiles)
    if lower and rows > columns:  # the first queries see no key: torch gives NaN, we give 0
        seen = slice(rows - columns, None)
        assert (ours[..., : rows - columns, :] == 0).all()
        own = F.scaled_dot_product_attention(
            inputs[0][..., seen, :], *inputs[1:], attn_mask=bias(columns, columns)
        )
        ours, grad = ours[..., seen, :], grad[..., seen, :]
    else:
        own = F.scaled_dot_product_attention(*inputs, attn_mask=bias(rows, columns))
    found = with_gradients(ours, inputs, grad)
    assert all(x.isfinite().all() for x in found)
    close(found, with_gradients(own, inputs, grad))


def test_a_query_without_a_key_has_result_and_gradient_zero_in_every_form():
    inputs, grad = heads(7, 3)
    tiled = flash_attention(*inputs, tiles=tiling(7, 3, 2, 2, True, "lower-right"))
    plain = naive_attention(*inputs, True, align="lower-right")
    found = with_gradients(tiled, inputs, grad)
    assert (found[0][..., :4, :] == 0).all()
    assert (found[1][..., :4, :] == 0).all()
    close(found, with_gradients(plain, inputs, grad))


def test_a_scale_is_taken_in_all_three_gradients():
    inputs, grad = heads(6, 6)
    own = F.scaled_dot_product_attention(*inputs, scale=0.3)
    expected = with_gradients(own, inputs, grad)
    for ours in (
        flash_attention(*inputs, scale=0.3, tiles=tiling(6, 6, 4, 4)),
        naive_attention(*inputs, scale=0.3),
    ):
        close(with_gradients(ours, inputs, grad), expected)


@pytest.mark.parametrize("dims", [2, 3])
def test_one_head_and_heads_without_a_batch_are_taken_too(dims):
    inputs, grad = heads(6, 9, batch=1, kv_heads=1 if dims == 2 else 2)
    for _ in range(4 - dims):
        inputs, grad = [x.detach()[0].requires_grad_() for x in inputs], grad[0]
    own = F.scaled_dot_product_attention(*inputs)
    ours = flash_attention(*inputs, tiles=tiling(6, 9, 4, 4))
    close(with_gradients(ours, inputs, grad), with_gradients(own, inputs, grad))


def test_a_transposed_layout_is_read_as_it_lies():
    """(b, s, h, d) in memory, as projections give it, seen as (b, h, s, d)."""
    inputs, grad = heads(6, 6)
    moved = [
        x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in inputs
    ]
    assert not moved[0].is_contiguous()
    tiles = tiling(6, 6, 4, 3)
    ours = with_gradients(flash_attention(*moved, tiles=tiles), moved, grad)
    close(ours, with_gradients(flash_attention(*inputs, tiles=tiles), inputs, grad))


# -- to the bit ----------------------------------------------------------------------------------


def classes(rows, columns, number=4, dtype=torch.float32):
    """Queries that see the keys of their class alone, 2^i of them: every weight is a power of two.

    Scores are 0 or -2000, whose exponential is 0 in FP32, so nothing is rounded in any order.
    """
    make = torch.Generator().manual_seed(1)
    q = F.one_hot(torch.arange(rows) % number, number)
    k = -2000 * (1 - F.one_hot(torch.arange(columns) % number, number))
    v, grad = (torch.randint(-8, 9, (n, number), generator=make) for n in (columns, rows))
    q, k, v, grad = (x[None].to(dtype) for x in (q, k, v, grad))
    return [x.requires_grad_() for x in (q, k, v)], grad


@pytest.mark.parametrize(
    ("tiles", "orders"),
    [
        *(((3, 5), orders) for orders in itertools.product(BOTH, BOTH)),
        *((tiles, (BOTH[0], BOTH[1])) for tiles in [(1, 1), (64, 7), (16, 64), (64, 64)]),
    ],
)
def test_weights_that_are_powers_of_two_give_the_same_bits_with_every_tile_and_order(tiles, orders):
    inputs, grad = classes(48, 64)
    plain = with_gradients(naive_attention(*inputs, scale=1.0), inputs, grad)
    q, k, v = (x.detach() for x in inputs)
    table, memory = tiling(48, 64, *tiles), FastMemory()
    out, lse = forward(table.schedule(orders[0]), q[None], k, v, 1.0, memory)
    saved = (q[None], k, v, out, lse)
    # log 16 is no power of two: exp(x - log 16) is rounded once in backward.
    found = backward(table.schedule(orders[1]), saved, grad[None], 1.0, memory)
    assert torch.equal(out[0], plain[0])
    assert torch.equal(lse, torch.full_like(lse, 16).log())
    for ours, theirs in zip((found[0][0], *found[1:]), plain[1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(
    *(st.integers(1, 12) for _ in range(4)),
    st.sampled_from([None, 0, "lower"]),
    st.sampled_from(BOTH),
    st.sampled_from(BOTH),
    st.integers(1, 2),
)
def test_any_length_tile_mask_and_order_is_the_formula(
    rows, columns, query_tile, key_tile, mask, outer, outer_back, group
):
    inputs, grad = heads(rows, columns, d=3, group=group)
    align = "lower-right" if mask == "lower" else "upper-left"
    plain = naive_attention(*inputs, mask is not None, align=align)
    expected = with_gradients(plain, inputs, grad)
    q, k, v = (x.detach().reshape(4, -1, *x.shape[-2:]) for x in inputs)
    k, v = k[:, 0], v[:, 0]
    table = tiling(rows, columns, query_tile, key_tile, mask is not None, align)
    out, lse = forward(table.schedule(outer), q, k, v, 3**-0.5, FastMemory())
    saved = (q, k, v, out, lse)
    found = backward(
        table.schedule(outer_back), saved, grad.reshape(q.shape), 3**-0.5, FastMemory()
    )
    for ours, theirs in zip((out, *found), expected, strict=True):
        torch.testing.assert_close(ours.view(theirs.shape), theirs, rtol=1e-12, atol=1e-12)


def test_double_precision_gradients_are_those_of_finite_differences():
    inputs, _ = heads(5, 6, d=3, kv_heads=1, group=2, batch=1)
    for is_causal in (False, True):
        tiles = tiling(5, 6, 2, 4, is_causal)
        assert torch.autograd.gradcheck(
            lambda q, k, v, t=tiles, c=is_causal: flash_attention(q, k, v, c, tiles=t), inputs
        )


def test_a_second_derivative_is_refused_by_a_sentence_and_the_plain_form_has_it():
    inputs, _ = heads(3, 3, d=2, kv_heads=1, batch=1)
    with pytest.raises(RuntimeError, match="FlashAttention has no second derivative"):
        torch.autograd.gradgradcheck(lambda *x: flash_attention(*x), inputs)
    assert torch.autograd.gradgradcheck(lambda *x: naive_attention(*x), inputs)


# -- narrow and extreme numbers ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_numbers_are_added_in_fp32(dtype):
    """2,048 keys that all count the same, in tiles of 16: a sum in 16 bits would stick at 256."""
    q, k = torch.zeros(1, 1, 4, 8, dtype=dtype), torch.zeros(1, 1, 2048, 8, dtype=dtype)
    v = torch.ones(1, 1, 2048, 8, dtype=dtype)
    out = flash_attention(q, k, v, tiles=tiling(4, 2048, 4, 16))
    assert out.dtype == dtype
    assert (out == 1).all()
    inputs, grad = heads(40, 40, dtype=dtype)
    own = F.scaled_dot_product_attention(*(x.float() for x in inputs))
    ours = with_gradients(flash_attention(*inputs, tiles=tiling(40, 40, 8, 8)), inputs, grad)
    exact = with_gradients(own, inputs, grad.float())
    for x, y in zip(ours, exact, strict=True):
        # Rounded once at the end, and the result before backward.
        torch.testing.assert_close(x.float(), y.float(), rtol=2e-2, atol=2e-2)


def test_scores_of_thousands_do_not_overflow():
    q = torch.full((1, 1, 4, 4), 60.0)
    k = torch.linspace(-60, 60, 12).repeat(4, 1).T[None, None].contiguous()
    v = torch.arange(48.0).view(1, 1, 12, 4)
    out = flash_attention(q, k, v, tiles=tiling(4, 12, 2, 5))
    assert torch.equal(out[0, 0], v[0, 0, -1].expand(4, 4))
    assert flash_attention(-q, -k, v, tiles=tiling(4, 12, 2, 5)).isfinite().all()


# -- the online softmax --------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_summaries_merge_in_any_order_and_grouping(a, b, c):
    make = torch.Generator().manual_seed(a + 10 * b + 100 * c)
    x = 20 * torch.randn(3, a + b + c, generator=make, dtype=torch.float64)
    v = torch.randn(a + b + c, 2, generator=make, dtype=torch.float64)
    one, two, three = (
        summarize(*part) for part in zip(x.split([a, b, c], -1), v.split([a, b, c]), strict=True)
    )
    exact = x.softmax(-1) @ v
    for merged in (
        merge(merge(one, two), three),
        merge(one, merge(two, three)),
        merge(three, merge(two, one)),
    ):
        torch.testing.assert_close(weighted_mean(merged), exact, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(log_sum_exp(merged), x.logsumexp(-1), rtol=1e-12, atol=1e-12)


def test_a_part_that_is_masked_whole_changes_nothing():
    x, v = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [5.0]])
    seen, masked = summarize(x, v), summarize(torch.full((1, 2), -math.inf), v)
    for merged in (merge(seen, masked), merge(masked, seen)):
        assert torch.equal(weighted_mean(merged), weighted_mean(seen))
        assert torch.equal(log_sum_exp(merged), log_sum_exp(seen))
    assert torch.equal(weighted_mean(masked), torch.zeros(1, 1))


@pytest.mark.parametrize("tile", [1, 3, 10, 64])
def test_the_loop_over_parts_is_softmax(tile):
    x = torch.randn(4, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(
        online_attention(x, torch.eye(10, dtype=torch.float64), tile), x.softmax(-1)
    )


def test_a_softmax_of_each_tile_is_none_of_the_row():
    """The literal list of steps: a tile's weights add up to one, and tiles are added up."""
    make = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(8, 64, generator=make, dtype=torch.float64)
    v = torch.randn(64, 4, generator=make, dtype=torch.float64)
    exact = x.softmax(-1) @ v
    per_tile = sum(a.softmax(-1) @ b for a, b in zip(x.split(16, -1), v.split(16), strict=True))
    assert (per_tile - exact).abs().max() > 1
    assert (online_attention(x, v, 16) - exact).abs().max() < 1e-14


# -- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns", "group"), [(64, 64, 1), (33, 70, 2)])
def test_what_is_kept_is_q_k_v_the_result_and_one_number_a_query(rows, columns, group, dtype):
    inputs, _ = heads(rows, columns, group=group, dtype=dtype)
    counted = saved_bytes(lambda: flash_attention(*inputs))
    sizes = (rows, columns, 8, 2 * group, 2, 2, dtype.itemsize)
    assert counted == tiled_saved_bytes(*sizes)
    assert saved_bytes(lambda: naive_attention(*inputs)) == naive_saved_bytes(*sizes)


def test_the_log_sum_exp_that_is_kept_is_that_of_the_scores():
    (q, k, v), _ = heads(6, 9)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        FlashAttention.apply(q, k, v, False)
    (lse,) = (x for x in saved if x.shape == q.shape[:-1])
    torch.testing.assert_close(lse, (q @ k.mT / 8**0.5).logsumexp(-1))


@pytest.mark.parametrize("is_causal", [False, True])
def test_at_4096_tokens_less_than_a_quarter_of_the_plain_peak_is_alive(is_causal):
    inputs, _ = heads(4096, 4096, d=64, kv_heads=1, batch=1, dtype=torch.float32)

    def peak(attention):
        return peak_bytes(lambda: attention(*inputs, is_causal).sum().backward())

    tiled, plain = peak(flash_attention), peak(naive_attention)
    table = 4 * 4096**2
    assert 3 * table <= plain < 3.4 * table  # the weights, their gradient and that of the scores
    assert tiled < plain / 20
    assert tiled < 8 * 4 * 4096 * 64  # a few tensors of the length of q, and tiles


def test_peak_bytes_counts_what_is_alive_and_not_what_was_made():
    def step():
        a = torch.ones(100)
        b = a + 1
        del a
        return (b * 2).view(10, 10)

    assert peak_bytes(step) == 800
    there = torch.ones(100)
    assert peak_bytes(lambda: there.view(10, 10).add_(1)) == 0
    assert saved_bytes(lambda: torch.ones(10, requires_grad=True) * torch.ones(10)) == 40


# -- refusals ------------------------------------------------------------------------------------

X = torch.ones(1, 2, 8, 4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((X, X[..., :3], X[..., :3]), "k is of shape (1, 2, 8, 3)"),
        ((X, X, X[..., :4, :]), "v is of shape (1, 2, 4, 4)"),
        ((X, X.double(), X.double()), "k is of torch.float64"),
        ((X[:, :1], X, X), "k is of 2 heads; it must be of a number of heads that divides the 1"),
        ((X, X[0], X[0]), "k is of shape (2, 8, 4)"),
        ((X[..., :0, :], X, X), "q is of shape (1, 2, 0, 4)"),
        ((X.int(), X.int(), X.int()), "q is of torch.int32"),
        ((X, X, X, False, None, tiling(8, 9)), "tiles is Tiling(queries=8, keys=9"),
        ((X, X, X, True, None, tiling(8, 8)), "tiles have no mask but is_causal is True"),
        ((X, X, X, False, math.nan), "scale is nan"),
    ],
)
def test_what_is_no_attention_is_refused_by_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=r".") as caught:
        FlashAttention.apply(*arguments)
    assert sentence in str(caught.value)
