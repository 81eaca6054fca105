"""The exercises on attention: their figures are those of the package, and what holds for all."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise, permutations, product

import pytest
import torch

from dlsys.attention import (
    Summary,
    backward_cost,
    forward_cost,
    log_sum_exp,
    merge,
    naive_attention,
    naive_forward_cost,
    overtaking_length,
    rows_to_bind,
    tiling,
    weighted_mean,
)
from dlsys.hardware import DEVICES
from dlsys.transformer import CATALOGUE
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


@pytest.mark.parametrize("kind", ["plain", "large", "low"])
def test_summaries_merge_as_those_of_the_package(kind: str) -> None:
    answers = solved("attention")
    one, other = answers["given"](3, kind)
    ours = answers["merged"](one, other)
    theirs = merge(Summary(*one), Summary(*other))
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs, strict=True))
    result, lse = answers["finished"](ours)
    assert torch.allclose(result, weighted_mean(theirs))
    assert torch.allclose(lse, log_sum_exp(theirs))


@pytest.mark.parametrize("kind", ["all", "causal", "overflow", "low"])
def test_gradients_of_all_tiles_are_those_that_torch_finds(kind: str) -> None:
    answers = solved("attention")
    q, k, v, dz, allowed, scale = answers["operands"](4, kind)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    x = (scale * q @ k.T).masked_fill(~allowed, -torch.inf)
    torch.autograd.backward(x.softmax(1) @ v, dz)
    with torch.no_grad():
        found = answers["in_tiles"](answers["gradients"], 4, kind, (3, 5))
    for leaf, came in zip(leaves, found.values(), strict=True):
        assert leaf.grad is not None
        assert torch.allclose(leaf.grad, came, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("outer", ["queries", "keys"])
def test_two_loops_move_what_the_package_counts(outer: str) -> None:
    answers, tiles = solved("attention"), tiling(60, 60, 12, 20)
    visits = [tuple(step) for step in tiles.schedule(outer).steps]  # type: ignore[arg-type]
    cost = forward_cost(tiles, 24, outer)  # type: ignore[arg-type]
    turned = sum(a[0 if outer == "keys" else 1] == b[0 if outer == "keys" else 1]
                 for a, b in pairwise(visits))  # fmt: skip
    assert turned == 0, "then a loop would be counted dearer than it is"
    assert answers["moved"](visits, 12, 20, 24) == (cost.read, cost.written)


@pytest.mark.parametrize("outer", ["queries", "keys"])
def test_the_price_of_an_order_is_the_packages_backward_without_row_sums(outer: str) -> None:
    answers, tiles = solved("attention"), tiling(384, 384, 64, 64, is_causal=True)
    visits = [tuple(step) for step in tiles.schedule(outer).steps]  # type: ignore[arg-type]
    kernel = backward_cost(tiles, 64, outer).kernels[-1]  # type: ignore[arg-type]
    passed = 0 if outer == "keys" else 1
    free = sum(a[passed] == b[passed] for a, b in pairwise(visits))
    each = 64 * (4 * 64 + 2) if outer == "keys" else 6 * 64 * 64
    found = answers["numbers_of"](visits, 64, 64, 64)
    assert found + free * each == kernel.read + kernel.written


@pytest.mark.parametrize("sees", [[1, 2, 3], [2, 3], [1, 1, 2, 2], [3, 3], [2, 2, 3]])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (16, 64), (100, 30), (93, 64)])
def test_no_order_moves_less_than_the_solutions(sees: list[int], rows: int, columns: int) -> None:
    answers, size = solved("attention"), (rows, columns, 16)
    pairs = [(i, j) for i, n in enumerate(sees) for j in range(n)]
    least = min(answers["numbers_of"](order, *size) for order in permutations(pairs))
    assert answers["numbers_moved"](answers["cheapest"], (sees, *size)) == least
    assert answers["saved_in_words"](lambda *_: pairs, (sees, *size)) != "least" or least == (
        answers["numbers_of"](pairs, *size)
    )


def test_the_best_tiles_are_the_best_of_all() -> None:
    answers = solved("attention")
    shape = {"heads": 32, "kv_heads": 8}
    for name, price in (("forward", forward_cost), ("backward", backward_cost)):
        best = answers["moves"](answers["design"], name)
        for queries, keys in product(range(16, 513, 16), range(32, 513, 32)):
            tiles = tiling(8192, 8192, queries, keys, is_causal=True)
            if answers["PASSES"][name][1](tiles, 128, 4) <= 456 * 1024 // 4:
                assert price(tiles, 128, **shape).elements >= best  # type: ignore[operator]
    assert answers["ROOM"] == 456 * 1024 // 4


def test_without_a_mask_twice_the_memory_saves_what_a_hint_says() -> None:
    moved = [
        forward_cost(tiling(8192, 8192, queries, 32), 128, heads=32, kv_heads=8).elements
        for queries in (80, 192)  # the best in the memory there is, and in twice as much
    ]
    assert moved[0] / moved[1] == pytest.approx(2.276, abs=5e-4)


def test_the_lengths_are_those_of_the_package() -> None:
    answers, spec = solved("attention"), CATALOGUE["llama3-8b"]
    equal, alone = overtaking_length(spec), overtaking_length(replace(spec, kv_heads=32))
    assert answers["third_at"] == pytest.approx(equal / 2)
    assert answers["third_without_groups"] == pytest.approx(alone / 2)
    causal = overtaking_length(spec, is_causal=True)
    assert answers["fraction"] == pytest.approx(32768 / (32768 + causal))
    tiles = tiling(1024, 1024, 128, 128)
    forward, backward = forward_cost(tiles, 128).flops, backward_cost(tiles, 128).flops
    trained = forward + backward
    assert answers["equal_in_training"] == pytest.approx(causal * 3 * forward / trained)


def test_what_binds_is_what_the_package_prices() -> None:
    answers, device = solved("attention"), DEVICES["h100-pcie"]
    rows = rows_to_bind(device)
    assert answers["tokens"] - 1 < rows / 8 <= answers["tokens"]
    mixed = 2 / sum(1 / rows_to_bind(device, name, 1) for name in ("bf16", "fp8")) / 8
    assert answers["tokens_fp8"] - 1 < mixed <= answers["tokens_fp8"]
    assert answers["tokens_fp8"] != answers["tokens"], "then who ignores the format is right"
    n, shape = 2**16, {"heads": 64, "kv_heads": 8}

    def seconds(tokens: int, of: object = device, **more: int) -> float:
        return forward_cost(tiling(n, n, tokens, 128), 128, **shape | more).seconds(of)  # type: ignore[arg-type]

    plain = naive_forward_cost(n, n, 128, **shape).seconds(device)
    assert answers["plain_times"] == pytest.approx(plain / seconds(128), rel=0.01)
    one = forward_cost(tiling(1, n, 1, 128), 128, **shape).seconds(device)
    assert answers["decode_us"] == pytest.approx(1e6 * one, rel=1e-3)
    wide = replace(device, memory_bandwidth=2 * device.memory_bandwidth)
    quick = replace(device, flops={"bf16": 2 * device.rate("bf16")})
    assert answers["twice_times"] == pytest.approx(seconds(32) / seconds(32, wide), rel=0.01)
    runs = {"A": (32, {}), "B": (128, {}), "C": (1, {"batch": 16}), "D": (128, {"kv_heads": 64})}
    for run, (tokens, more) in runs.items():
        faster = {
            "rate": seconds(tokens, quick, **more),
            "bandwidth": seconds(tokens, wide, **more),
        }
        assert answers["helps"][run] == min(faster, key=faster.__getitem__)


def test_cases_lie_on_either_side_of_each_rule_that_is_near_the_right_one() -> None:
    answers = solved("attention")
    rules = (
        lambda rows, columns, d: columns < rows,
        lambda rows, columns, d: 4 * columns * d < rows * (3 * d + 2),
        lambda rows, columns, d: 3 * columns < 2 * rows,
    )
    cases = [answers[name][1:] for name in ("NEAR", "THIN")]
    keys_come = [rows * (4 * d + 2) > 6 * columns * d for rows, columns, d in cases]
    assert all([rule(*case) for case in cases] != keys_come for rule in rules)


@pytest.mark.parametrize("grows", [True, False])
def test_the_mended_pass_is_attention_and_the_faulty_one_only_in_one_tile(grows: bool) -> None:
    answers = solved("attention")
    q, k, v = answers["inputs"](6, 16, grows)
    exact = naive_attention(q[None], k[None], v[None], is_causal=True)[0]
    for tile in (3, 8, 16):
        mended, faulty = (
            answers["passed"](answers[name], q, k, v, tile, 0)[0] for name in ("mended", "faulty")
        )
        assert torch.allclose(mended, exact, atol=1e-4)
        assert torch.allclose(faulty, exact, atol=1e-4) == (tile == 16)


def one_query(keys: int, dtype: torch.dtype, is_online: bool = True) -> float:
    """Equal scores, and values of which the later half is 1: the mean, in tiles of 16."""
    zero, full = torch.zeros(1, dtype=dtype), torch.full((1,), 16, dtype=dtype)
    tiles = [Summary(zero, full, full[:, None] * (16 * 2 * n >= keys)) for n in range(keys // 16)]
    if not is_online:
        return float(sum(map(weighted_mean, tiles))) / len(tiles)
    return float(weighted_mean(reduce(merge, tiles)))


def test_the_four_kernels_report_what_their_faults_make() -> None:
    assert one_query(65_536, torch.bfloat16) == 1
    assert one_query(65_536, torch.float32) == one_query(65_536, torch.float32, False) == 0.5
    assert one_query(512, torch.bfloat16) == 0.5
    q, k, v = torch.randn(3, 1, 512, 8, generator=torch.Generator().manual_seed(0))
    first = naive_attention(q[:, -1:], k, v, is_causal=True)
    assert torch.allclose(first, v[:, :1])


def test_the_figures_of_the_model_answer_on_length_are_right() -> None:
    text, causal = model_answer("attention"), overtaking_length(CATALOGUE["llama3-8b"], True)
    assert causal == 53_248
    shares = [round(100 * n / (n + causal)) for n in (8192, 131_072)]
    assert f"{shares[0]} % of a layer's FLOPs, and on 131,072 it takes {shares[1]} %" in text
    times = (causal + 131_072) / (causal + 8192) * 16
    assert f"takes {round(times)} times the time and not 16" in text
    assert round(131_072 / 8192) == 16
    trained = solved("attention")["equal_in_training"]
    times = (trained + 131_072) / (trained + 8192) * 16
    assert f"it is {round(times)} times)" in text
    shares = [round(100 * n / (n + trained)) for n in (8192, 131_072)]
    assert f"{round(times)} times, from {shares[0]} % to {shares[1]} %, is as good" in text
