"""What runs is what is priced: elements, FLOPs and residency; schedules are proved; laws have an error."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from dlsys.attention import (
    FastMemory,
    FastMemoryFullError,
    Schedule,
    Step,
    Tiling,
    backward_cost,
    backward_law,
    backward_resident,
    best_tiling,
    check_fits,
    compulsory,
    crossover_limit,
    crossover_memory,
    crossover_tile,
    flash_attention,
    forward_cost,
    forward_law,
    forward_resident,
    matmul_cost,
    naive_attention,
    naive_backward_cost,
    naive_forward_cost,
    naive_pays,
    naive_saved_bytes,
    overtaking_length,
    rows_to_bind,
    tiled_matmul,
    tiling,
)
from dlsys.attention.flash import backward, forward
from dlsys.hardware import DEVICES
from dlsys.transformer import CATALOGUE

BOTH = ("queries", "keys")
SIZES = st.integers(1, 14)
OFFSETS = st.one_of(st.none(), st.integers(-6, 6))


def flops_of(call):
    # The product that adds in place is one that torch's own table leaves out.
    more = {torch.ops.aten.baddbmm_: lambda into, a, b, **_: 2 * math.prod(a) * b[-1]}
    with FlopCounterMode(display=False, custom_mapping=more) as counter:
        found = call()
    return counter.get_total_flops(), found


@settings(max_examples=80, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, OFFSETS, st.sampled_from(BOTH), st.integers(1, 3))
@example(9, 1, 4, 4, -8, "keys", 3)  # one query sees a key: the row sums hold more than any tile
def test_every_element_that_moves_and_every_flop_is_priced(n, m, bq, bk, offset, outer, group):
    d, kv_heads, batch = 3, 2, 2
    table = Tiling(n, m, bq, bk, offset)
    schedule = table.schedule(outer)
    schedule.check()
    q = torch.randn(batch * kv_heads, group, n, d)
    k, v = torch.randn(2, batch * kv_heads, m, d)
    shape = {"heads": kv_heads * group, "kv_heads": kv_heads, "batch": batch}

    memory = FastMemory()
    flops, (out, lse) = flops_of(lambda: forward(schedule, q, k, v, 0.5, memory))
    cost = forward_cost(table, d, outer, **shape)
    assert (memory.read, memory.written, flops) == (cost.read, cost.written, cost.flops)
    assert (memory.peak, memory.resident) == (forward_resident(table, d, group), 0)

    memory = FastMemory()
    saved = (q, k, v, out, lse)
    flops, _ = flops_of(lambda: backward(schedule, saved, torch.ones_like(q), 0.5, memory))
    cost = backward_cost(table, d, outer, **shape)
    assert (memory.read, memory.written, flops) == (cost.read, cost.written, cost.flops)
    assert (memory.peak, memory.resident) == (backward_resident(table, d, group), 0)


def test_the_function_that_trains_moves_what_is_priced_forward_and_backward():
    memory, tiles = FastMemory(), tiling(50, 50, 16, 8, True)
    q, k, v = (torch.randn(2, heads, 50, 4, requires_grad=True) for heads in (6, 2, 2))
    flash_attention(q, k, v, True, tiles=tiles, memory=memory).sum().backward()
    shape = {"heads": 6, "kv_heads": 2, "batch": 2}
    assert memory.elements == sum(
        cost(tiles, 4, **shape).elements for cost in (forward_cost, backward_cost)
    )


class Plain:
    """The plain form, a kernel at a time, each of which reads its operands once and keeps nothing."""

    def __init__(self, memory: FastMemory) -> None:
        self.memory = memory

    def kernel(self, compute, *operands):
        loaded = [self.memory.load(x) for x in operands]
        result = compute(*loaded)
        self.memory.free(*loaded)
        self.memory.store(result, torch.empty_like(result))
        return result


@pytest.mark.parametrize(("n", "m", "d", "group"), [(8, 8, 4, 1), (5, 9, 3, 2), (1, 7, 2, 3)])
def test_the_plain_form_moves_four_and_seven_tables(n, m, d, group):
    q, grad = torch.randn(2, 4, group * n, d)
    k, v = torch.randn(2, 4, m, d)
    memory = FastMemory()
    run = Plain(memory).kernel

    def plain_forward():
        scores = run(lambda q, k: q @ k.mT, q, k)
        weights = run(lambda x: x.softmax(-1), scores)
        return weights, run(torch.bmm, weights, v)

    flops, (weights, out) = flops_of(plain_forward)
    cost = naive_forward_cost(n, m, d, 2 * group, 2, 2)
    assert (memory.read, memory.written, flops) == (cost.read, cost.written, cost.flops)
    before = memory.read, memory.written

    def plain_backward():
        dv = run(lambda p, g: p.mT @ g, weights, grad)
        dp = run(lambda g, v: g @ v.mT, grad, v)
        ds = run(lambda p, dp: p * (dp - (p * dp).sum(-1, keepdim=True)), weights, dp)
        return run(torch.bmm, ds, k), run(lambda ds, q: ds.mT @ q, ds, q), dv

    flops, found = flops_of(plain_backward)
    moved = memory.read - before[0], memory.written - before[1]
    cost = naive_backward_cost(n, m, d, 2 * group, 2, 2)
    assert (*moved, flops) == (cost.read, cost.written, cost.flops)
    # And it is attention.
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = naive_attention(*inputs, scale=1.0)
    torch.testing.assert_close(out, exact.detach())
    for ours, own in zip(found, torch.autograd.grad(exact, inputs, grad), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-5)


class PlainInFastMemory:
    """Its products in a fast memory that refuses what does not fit: rows stay, the rest passes."""

    def __init__(self, room: int, d: int) -> None:
        self.memory = FastMemory(room)
        self.rows = (room - d) // (d + 1)

    def blocks(self, x):
        return x.split(self.rows, 1)

    def table(self, a, b):
        """a b^T: rows of a stay, those of b come one by one."""
        out = a.new_empty(len(a), a.shape[1], b.shape[1])
        for block, place in zip(self.blocks(a), self.blocks(out), strict=True):
            rows = self.memory.load(block)
            for j in range(b.shape[1]):
                row = self.memory.load(b[:, j : j + 1])
                column = self.memory.keep(rows @ row.mT)
                self.memory.store(column, place[:, :, j : j + 1])
                self.memory.free(row, column)
            self.memory.free(rows)
        return out

    def sums(self, table, b):
        """table b: rows of the result stay."""
        out = b.new_empty(len(b), table.shape[1], b.shape[2])
        for block, place in zip(self.blocks(table), self.blocks(out), strict=True):
            rows = self.memory.keep(torch.zeros_like(place))
            for j in range(b.shape[1]):
                column, row = (
                    self.memory.load(x) for x in (block[:, :, j : j + 1], b[:, j : j + 1])
                )
                rows += column @ row
                self.memory.free(column, row)
            self.memory.store(rows, place)
            self.memory.free(rows)
        return out


@pytest.mark.parametrize("room", [9, 13, 14, 23, 40, 1000])
@pytest.mark.parametrize(("n", "m", "group"), [(8, 8, 1), (5, 9, 2), (1, 7, 3)])
def test_in_a_fast_memory_products_of_the_plain_form_read_an_operand_again(n, m, group, room):
    """As the tiled form has to, they keep to the room; softmaxes are left out, which have none."""
    d, shape = 4, (2 * group, 2, 1)
    q, grad = torch.randn(2, 2, group * n, d)
    k, v = torch.randn(2, 2, m, d)
    plain = PlainInFastMemory(room, d)
    scores = plain.table(q, k)
    torch.testing.assert_close(scores, q @ k.mT)
    torch.testing.assert_close(plain.sums(scores, v), scores @ v)
    products = [x for x in naive_forward_cost(n, m, d, *shape, room).kernels if x.flops]
    read, written = (sum(getattr(x, what) for x in products) for what in ("read", "written"))
    assert (plain.memory.read, plain.memory.written) == (read, written)

    plain = PlainInFastMemory(room, d)
    torch.testing.assert_close(plain.sums(scores.mT, grad), scores.mT @ grad)
    torch.testing.assert_close(plain.table(grad, v), grad @ v.mT)
    torch.testing.assert_close(plain.sums(scores, k), scores @ k)
    torch.testing.assert_close(plain.sums(scores.mT, q), scores.mT @ q)
    products = [x for x in naive_backward_cost(n, m, d, *shape, room).kernels if x.flops]
    read, written = (sum(getattr(x, what) for x in products) for what in ("read", "written"))
    assert (plain.memory.read, plain.memory.written) == (read, written)
    assert plain.memory.peak <= room


@pytest.mark.parametrize("cost", [naive_forward_cost, naive_backward_cost])
def test_the_plain_form_moves_least_where_all_fits_and_refuses_a_memory_for_no_row(cost):
    assert cost(8, 6, 4, memory=8 * 5 + 4) == cost(8, 6, 4)
    assert cost(8, 6, 4, memory=8 * 5 + 3).elements > cost(8, 6, 4).elements
    assert cost(8, 6, 4, memory=9).elements > cost(8, 6, 4, memory=14).elements
    with pytest.raises(ValueError, match="is 8; it must be at least 9 elements, for two rows of"):
        cost(8, 6, 4, memory=8)


def test_a_tiled_product_makes_the_weighted_sum_in_the_memory_that_the_plain_form_is_priced_in():
    n, d, room = 96, 4, 100
    rows = (room - d) // (d + 1)
    memory = FastMemory(room)
    tiled_matmul(torch.ones(n, n), torch.ones(n, d), memory, rows)
    kernel = naive_forward_cost(n, n, d, memory=room).kernels[2]
    assert (memory.read, memory.written) == (kernel.read, kernel.written)


# -- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", BOTH)
@pytest.mark.parametrize("is_causal", [False, True])
def test_one_element_too_few_and_the_run_stops(outer, is_causal):
    table = tiling(24, 24, 8, 6, is_causal)
    q, k, v = torch.randn(1, 2, 24, 4), torch.randn(1, 24, 4), torch.randn(1, 24, 4)
    schedule, room = table.schedule(outer), forward_resident(table, 4, 2)
    out, lse = forward(schedule, q, k, v, 0.5, FastMemory(room))
    with pytest.raises(FastMemoryFullError, match=f"fast memory of {room - 1:,}"):
        forward(schedule, q, k, v, 0.5, FastMemory(room - 1))
    room, saved = backward_resident(table, 4, 2), (q, k, v, out, lse)
    backward(schedule, saved, q, 0.5, FastMemory(room))
    with pytest.raises(FastMemoryFullError):
        backward(schedule, saved, q, 0.5, FastMemory(room - 1))


@pytest.mark.parametrize("backwards", [False, True])
def test_what_does_not_fit_names_the_bytes_and_the_next_tiles_that_do(backwards):
    resident = backward_resident if backwards else forward_resident
    table = tiling(4096, 4096, 128, 128)
    needed = 4 * resident(table, 64)
    check_fits(table, 64, needed, backward=backwards)
    with pytest.raises(ValueError, match=f"hold {needed:,} bytes") as caught:
        check_fits(table, 64, 160_000, backward=backwards)
    words = str(caught.value).split("instead, ")[1].split()
    for tile, name in ((int(words[0]), words[1]), (int(words[3]), words[4])):
        field = "query_tile" if name == "queries" else "key_tile"
        assert 4 * resident(replace(table, **{field: tile}), 64) <= 160_000
        assert 4 * resident(replace(table, **{field: tile + 1}), 64) > 160_000
    least = 4 * resident(tiling(4096, 4096, 1, 1), 64)
    with pytest.raises(ValueError, match="instead, tiles of 1 by 1 would fit"):
        check_fits(table, 64, least, backward=backwards)
    with pytest.raises(ValueError, match="not even tiles of 1 by 1 would fit"):
        check_fits(table, 64, least - 1, backward=backwards)


def test_a_large_head_has_smaller_tiles_that_fit_where_neither_side_alone_can_shrink_enough():
    """Heads of 512 in the 484 KiB of a multiprocessor: 33 by 33 hold 482,064 bytes backward."""
    with pytest.raises(ValueError, match=r"hold 1,967,104 bytes.*; instead, tiles of 33 by 33 w"):
        check_fits(tiling(4096), 512, 484 * 1024, backward=True)
    check_fits(tiling(4096, None, 33, 33), 512, 482_064, backward=True)
    for tiles in ((34, 34), (1, 128), (128, 1)):
        with pytest.raises(ValueError, match=r"would fit"):
            check_fits(tiling(4096, None, *tiles), 512, 484 * 1024, backward=True)


@pytest.mark.parametrize("outer", BOTH)
def test_advice_on_a_sequence_of_millions_takes_no_more_tiles_than_a_tiling_may_have(outer):
    """2^20 queries or keys in at most 100,000 tiles: 11 of them in each."""
    lengths = (2**20, 64) if outer == "queries" else (64, 2**20)
    least = "tiles of 11 by 1" if outer == "queries" else "tiles of 1 by 11"
    with pytest.raises(ValueError, match=f"not even {least} would fit"):
        check_fits(tiling(*lengths), 64, 1000)
    # 11 x 1 or 1 x 11: neither side alone shrinks so far.
    room = 4 * forward_resident(tiling(64, 64, *((11, 1) if outer == "queries" else (1, 11))), 64)
    with pytest.raises(ValueError, match=f"instead, {least} would fit"):
        check_fits(Tiling(*lengths, 16, 16), 64, room)
    with pytest.raises(ValueError, match=f"not even {least} would fit"):
        check_fits(Tiling(*lengths, 16, 16), 64, room - 1)


# -- schedules are proved ------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, SIZES, OFFSETS, st.sampled_from(BOTH))
def test_each_allowed_pair_is_visited_once_and_no_tile_without_one(n, m, bq, bk, offset, outer):
    table = Tiling(n, m, bq, bk, offset)
    allowed = torch.ones(n, m, dtype=torch.long)
    if offset is not None:
        allowed = allowed.tril(offset)
    visited = torch.zeros(n, m, dtype=torch.long)
    for step in table.schedule(outer).steps:
        block = (
            slice(table.rows(step.queries).start, table.rows(step.queries).stop),
            slice(table.columns(step.keys).start, table.columns(step.keys).stop),
        )
        visited[block] += 1
        assert allowed[block].any()
        assert table.is_cut(step) == bool((allowed[block] == 0).any())
    assert (visited[allowed == 1] == 1).all()
    assert table.pairs == allowed.sum()


CAUSAL = tiling(12, 12, 4, 4, True)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda steps: steps[:-1], "No step visits queries 2 and keys 2"),
        (lambda steps: (*steps, steps[-1]), "Step 6 visits queries 2 and keys 2 a second time"),
        (lambda steps: (Step(0, 1), *steps), "of which the mask allows no pair"),
        (lambda steps: (*steps, Step(3, 0)), "there are 3 tiles of queries and 3 of keys"),
        (lambda steps: (steps[1], steps[0], *steps[2:]), "queries 1 had left fast memory"),
    ],
)
def test_a_planted_fault_in_a_schedule_is_named(spoil, sentence):
    good = CAUSAL.schedule()
    good.check()
    bad = Schedule(CAUSAL, "queries", spoil(good.steps))
    with pytest.raises(ValueError, match=sentence):
        bad.check()


def test_a_schedule_of_one_order_is_none_of_the_other():
    with pytest.raises(ValueError, match="keys 0 had left fast memory"):
        Schedule(CAUSAL, "keys", CAUSAL.schedule("queries").steps).check()


# -- a product, tile by tile ---------------------------------------------------------------------


@pytest.mark.parametrize(("m", "k", "n"), [(8, 8, 8), (7, 5, 9), (1, 6, 3)])
@pytest.mark.parametrize(("tile", "inner"), [(1, 1), (3, 2), (4, 1), (16, 16)])
def test_a_tiled_product_is_exact_and_moves_what_is_priced(m, k, n, tile, inner):
    a, b = torch.arange(m * k).view(m, k).float(), torch.arange(k * n).view(k, n).float()
    memory = FastMemory(tile * tile + 2 * tile * inner)
    assert torch.equal(tiled_matmul(a, b, memory, tile, inner), a @ b)
    cost = matmul_cost(m, k, n, tile)
    assert (memory.read, memory.written) == (cost.read, cost.written)


def test_the_triple_loop_moves_2n3_and_tiles_of_b_a_bth_of_that():
    n = 48
    assert matmul_cost(n, n, n, 1).read == 2 * n**3
    for tile in (4, 12, 24):
        assert matmul_cost(n, n, n, tile).read * tile == 2 * n**3
    # With b^2 + 2b <= M the best is 2 n^3 / sqrt(M), within b = sqrt(M + 1) - 1.
    assert matmul_cost(n, n, n, 12).read == pytest.approx(2 * n**3 / 168**0.5, rel=0.09)


# -- laws against counts -------------------------------------------------------------------------


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("memory", [16_384, 65_536, 131_072])
def test_the_law_of_forward_is_within_a_tenth_of_the_count_where_memory_is_above_d_squared(
    d, memory
):
    n = 8192
    tiles = best_tiling(n, n, d, memory)
    assert forward_resident(tiles, d) <= memory
    assert forward_resident(replace(tiles, query_tile=tiles.query_tile + 1), d) > memory
    counted = forward_cost(tiles, d).elements
    assert counted == pytest.approx(forward_law(n, n, d, memory) + compulsory(n, n, d), rel=0.1)


def test_the_law_of_backward_is_within_a_fifth_of_the_count():
    n, d, memory = 8192, 64, 65_536
    keys = (memory - (3 * d + 2)) // (4 * d + 2)
    tiles = tiling(n, n, 1, keys)
    assert backward_resident(tiles, d) <= memory
    counted = backward_cost(tiles, d).elements
    assert counted == pytest.approx(backward_law(n, n, d, memory) + 10 * n * d, rel=0.2)


def test_twice_the_fast_memory_halves_what_goes_beyond_the_compulsory():
    n, d = 16_384, 64
    beyond = [
        forward_cost(best_tiling(n, n, d, memory), d).elements - compulsory(n, n, d)
        for memory in (32_768, 65_536, 131_072)
    ]
    assert [a / b for a, b in itertools.pairwise(beyond)] == pytest.approx([2, 2], rel=0.06)


@pytest.mark.parametrize("d", [16, 64, 128])
@pytest.mark.parametrize("n", [256, 4096])
def test_below_the_crossover_tile_tiling_moves_more_than_the_plain_form(n, d):
    plain, tile = naive_forward_cost(n, n, d).elements, crossover_tile(n, d)
    assert tile == pytest.approx(d / 2, rel=2 * d / n)
    # Tiles that divide n, so that no last one is smaller.
    below, above = (
        max(b for b in (2**i for i in range(13)) if b < tile),
        min(b for b in (2**i for i in range(13)) if b > tile),
    )
    assert forward_cost(tiling(n, n, below, 64), d).elements > plain
    assert forward_cost(tiling(n, n, above, 64), d).elements < plain


@pytest.mark.parametrize("passes", ["forward", "backward", "both"])
@pytest.mark.parametrize("d", [64, 128])
def test_both_forms_in_one_fast_memory_cross_where_the_laws_do(d, passes):
    """By the counts, which know what a tile holds beside queries or keys and their sums."""
    law = {"forward": 1 / 2, "backward": 12 / 7, "both": 14 / 11}[passes] * d * d
    assert crossover_memory(d, passes) == int(law)
    for share in (0.3, 0.6, 0.8, 1 - 10 / d):
        assert naive_pays(4096, d, int(share * law), passes)
    for share in (1 + 10 / d, 1.2, 1.5, 2):
        assert not naive_pays(4096, d, int(share * law), passes)
    assert naive_pays(4096, d, 4 * d, passes)  # not even one query fits


@pytest.mark.parametrize("passes", ["forward", "backward", "both"])
@pytest.mark.parametrize("d", [64, 128])
def test_beyond_the_limit_tiles_move_less_than_the_plain_form_does_in_any_memory(d, passes):
    law = {"forward": 1, "backward": 16 / 7, "both": 20 / 11}[passes] * d * d
    assert crossover_limit(d, passes) == int(law)
    n, moved = 4096, {"forward": forward_elements, "backward": backward_elements}
    each = moved.keys() if passes == "both" else [passes]
    plain = {"forward": naive_forward_cost, "backward": naive_backward_cost}
    least = sum(plain[one](n, n, d).elements for one in each)

    def tiled(room):
        return sum(moved[one](n, d, room) for one in each)

    shares = (0.3, 0.6, 0.8, 1 - 6 / d, 1 + 6 / d, 1.2, 1.5, 2)
    assert [tiled(int(share * law)) < least for share in shares] == [False] * 4 + [True] * 4
    assert all(
        least <= sum(plain[one](n, n, d, memory=m).elements for one in each)
        for m in (4 * d, int(law))
    )


def forward_elements(n, d, room):
    return forward_cost(best_tiling(n, n, d, room), d).elements


def backward_elements(n, d, room):
    keys = max(1, (room - (3 * d + 2)) // (4 * d + 2))
    return backward_cost(tiling(n, n, 1, keys), d).elements


def test_no_pass_pays_in_a_memory_that_holds_no_tile_of_it():
    least = {"forward": forward_resident, "backward": backward_resident}
    for passes, resident in least.items():
        assert naive_pays(4096, 1, resident(tiling(4096, 4096, 1, 1), 1) - 1, passes)
    room = forward_resident(tiling(4096, 4096, 1, 1), 64)
    assert naive_pays(4096, 64, room, "backward")
    assert naive_pays(4096, 64, room, "both")


def test_a_sequence_that_is_too_long_to_count_is_not_said_to_pay():
    with pytest.raises(ValueError, match=r"length is 1000000; .* at most 100,000"):
        naive_pays(10**6, 64, 10**6)


def test_on_a_multiprocessor_of_an_h100_what_backward_saves_with_heads_of_256_hangs_on_the_plain_form():
    """Tiles move less than the plain form in as much memory, and more than it moves in any."""
    n, d, room = 8192, 256, 484 * 1024 // 4
    for passes in ("forward", "backward", "both"):
        assert not naive_pays(n, d, room, passes)
        assert (crossover_limit(d, passes) < room) == (passes != "backward")
        assert crossover_memory(d, passes) < room
    tiled, least = backward_elements(n, d, room), naive_backward_cost(n, n, d).elements
    assert least < tiled < naive_backward_cost(n, n, d, memory=room).elements
    assert tiled / least == pytest.approx(16 / 7 / 1.89, rel=0.03)


def spec_of(name):
    """Where only the first layers are dense, cut after the first that is not."""
    spec = CATALOGUE[name]
    return replace(spec, layers=spec.moe.dense_layers + 1) if spec.moe else spec


@pytest.mark.parametrize(
    "name", ["gpt2-xl", "gpt3-175b", "llama3-8b", "chinchilla-70b", "deepseek-v3"]
)
def test_the_length_at_which_pairs_overtake_weights_is_that_of_the_counted_flops(name):
    """Those of pairs are the ones that grow by four when the sequence doubles."""
    spec = spec_of(name)
    at = round(overtaking_length(spec))

    def lead(length):
        flops, more = (
            replace(spec, sequence=n).operations(1, spec.layers - 1) for n in (length, 2 * length)
        )
        return sum(n if more[name] == 4 * n else -n for name, n in flops.items())

    assert lead(at - 1) < 0 < lead(at + 1)
    assert overtaking_length(spec, is_causal=True) == 2 * overtaking_length(spec)


def test_a_plain_layer_is_overtaken_at_six_times_its_width():
    assert overtaking_length(CATALOGUE["gpt3-175b"]) == 6 * CATALOGUE["gpt3-175b"].hidden


@pytest.mark.parametrize("d", [64, 128])
def test_from_as_many_rows_on_forward_is_bound_by_compute(d):
    h100, n = DEVICES["h100-sxm"], 2**16
    rows = rows_to_bind(h100)
    assert rows == pytest.approx(295.2, abs=0.1)

    def intensity(tile):
        return forward_cost(tiling(n, n, tile, 64), d).intensity()

    assert intensity(int(rows)) < h100.ridge("bf16") < intensity(int(1.01 * rows) + 1)


def test_seconds_are_those_of_the_slower_of_compute_and_memory_kernel_by_kernel():
    device = DEVICES["a100-80"]
    cost = naive_forward_cost(1024, 1024, 64)
    by_hand = sum(max(k.flops / 312e12, 2 * (k.read + k.written) / 2039e9) for k in cost.kernels)
    assert cost.seconds(device) == pytest.approx(by_hand)
    both = cost + naive_backward_cost(1024, 1024, 64)
    assert len(both.kernels) == 8
    assert both.seconds(device) > cost.seconds(device)


# -- values that the sources give, and what is right ----------------------------------------------


def test_the_table_of_scores_of_4096_tokens():
    """64 MiB a head in FP32, 1.07 GB for 16; 21 times q, k and v alone."""
    n, d = 4096, 64
    written = naive_forward_cost(n, n, d).kernels[0].written
    assert 4 * written == 67_108_864
    assert 16 * 4 * written == pytest.approx(1.0737e9, rel=1e-4)
    assert written / (3 * n * d) == pytest.approx(21.33, abs=0.01)
    # With the weights beside the scores, and with the result and its statistics beside q, k and v.
    assert 2 * written / (4 * n * d + n) == pytest.approx(31.8, abs=0.1)
    assert written / (4 * n * d + n) == pytest.approx(15.9, abs=0.1)


@pytest.mark.parametrize(("tile", "ratio"), [(64, 2.0), (128, 3.94), (256, 7.6)])
def test_traffic_falls_by_the_tile_and_not_by_64(tile, ratio):
    n, d = 4096, 64
    plain, tiled = naive_forward_cost(n, n, d), forward_cost(tiling(n, n, tile, tile), d)
    assert plain.elements / tiled.elements == pytest.approx(ratio, abs=0.05)


def test_flops_grow_by_a_sixth_forward_and_backward():
    n, d = 1024, 64
    plain = naive_forward_cost(n, n, d) + naive_backward_cost(n, n, d)
    tiles = tiling(n, n, 64, 64)
    tiled = forward_cost(tiles, d) + backward_cost(tiles, d)
    assert 6 * (tiled.flops - plain.flops) == plain.flops
    assert plain.flops == 12 * n * n * d


def test_a_square_tile_of_128_scores_takes_64_kib():
    operands = 128 * (2 * 64 + 2) + 2 * 128 * 64
    assert 4 * (forward_resident(tiling(4096), 64) - operands) == 64 * 1024


def test_a_table_in_which_the_plain_form_grows_by_less_than_four_from_512_to_2048_is_no_measurement_of_it():
    """Published: 12 to 45 ms forward, 35 to 120 ms in all, 4.2 to 18 GB; and 3.0 and 3.4 times less."""
    published = {"time": (45 / 12, 120 / 35), "memory": (18 / 4.2,)}
    priced = {"time": lambda *size: naive_forward_cost(*size).elements, "memory": naive_saved_bytes}
    for what, growths in published.items():
        grows = priced[what](2048, 2048, 64, 12) / priced[what](512, 512, 64, 12)
        assert 12 < grows < 16
        assert all(grows > 2.5 * claimed for claimed in growths)
