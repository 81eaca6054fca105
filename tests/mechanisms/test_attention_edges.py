"""Prices by hand and by small runs; what cannot be is refused by name, what just can be is taken."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
import torch

from dlsys.attention import (
    Cost,
    FastMemory,
    Kernel,
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
    forward_cost,
    forward_law,
    forward_resident,
    matmul_cost,
    naive_backward_cost,
    naive_forward_cost,
    naive_pays,
    naive_saved_bytes,
    rows_to_bind,
    tiled_saved_bytes,
    tiling,
)
from dlsys.attention.flash import backward, forward
from dlsys.attention.plan import Align, Outer
from dlsys.hardware import DEVICES

PASSES = ("forward", "backward", "both")

# -- by hand -------------------------------------------------------------------------------------


def test_each_kernel_of_the_plain_form_has_its_name_and_price():
    """2 queries, 3 keys of 5: a table of 6, queries of 10, keys of 15, 2 * 6 * 5 FLOPs a product."""
    assert naive_forward_cost(2, 3, 5).kernels == (
        Kernel("scores", 60, 10 + 15, 6),
        Kernel("softmax", 0, 6, 6),
        Kernel("weighted sum", 60, 6 + 15, 10),
    )
    assert naive_backward_cost(2, 3, 5).kernels == (
        Kernel("dV", 60, 6 + 10, 15),
        Kernel("dP", 60, 10 + 15, 6),
        Kernel("softmax", 0, 6 + 6, 6),
        Kernel("dQ", 60, 6 + 15, 10),
        Kernel("dK", 60, 6 + 10, 15),
    )
    assert matmul_cost(2, 3, 5).kernels == (Kernel("product", 60, 60, 10),)


def test_a_tile_of_the_whole_table_reads_and_writes_each_operand_once():
    """2 queries, 3 keys of 5: 6 pairs of 4 * 5 FLOPs forward and of 10 * 5 backward."""
    table = tiling(2, 3, 2, 3)
    for outer in ("queries", "keys"):
        assert forward_cost(table, 5, outer).kernels == (Kernel("forward", 120, 40, 12),)
        sums, pairs = backward_cost(table, 5, outer).kernels
        assert sums == Kernel("row sums", 0, 2 * 10, 2)
        # q, the gradient of the result, two numbers a query, k and v; then three gradients.
        assert pairs == Kernel("backward", 300, 2 * 12 + 2 * 15, 10 + 2 * 15)


def test_a_schedule_prices_its_own_order_heads_and_batch():
    """Two tiles of keys: of 4 queries of 5, half-made results come once more, 7 numbers each.

    A lane with a group of 2 reads 60 of keys and values, 2 * 2 * 20 of queries and 2 * 4 * 7.
    """
    found = tiling(4, 6, 2, 3).schedule("keys").price(5, heads=4, kv_heads=2, batch=3)
    assert found == Cost((Kernel("forward", 6 * 960, 6 * 196, 6 * 104),))
    assert backward_cost(tiling(4, 6, 2, 3), 5, heads=4, kv_heads=2, batch=3).flops == 6 * 2400


def test_what_is_kept_is_counted_by_hand():
    """2 queries, 3 keys of 5 in 4 bytes: q, k, v, the result; and a number a query, or a weight a
    pair."""
    assert tiled_saved_bytes(2, 3, 5) == 4 * (10 + 15 + 15 + 10) + 4 * 2
    assert naive_saved_bytes(2, 3, 5) == 4 * (10 + 15 + 15) + 4 * 6


def test_counts_are_exact_where_floating_point_is_not():
    """Above 2^53 every second whole number is none of FP64."""
    n = 10**9 + 1
    assert Tiling(n, n, n, n, 0).pairs == 500_000_001_500_000_001
    assert tiled_saved_bytes(10**17 + 1, 1, 1) == 1_200_000_000_000_000_020
    assert crossover_memory(10**9, "backward") == 1_714_285_714_285_714_285
    assert crossover_limit(10**9, "backward") == 2_285_714_285_714_285_714


def test_laws_give_what_one_computes_by_hand():
    assert forward_law(2, 3, 4, 6) == 64
    assert backward_law(2, 3, 4, 6) == 256
    assert compulsory(2, 3, 5) == 10 + 15 + 15 + 10 + 2
    assert crossover_tile(2, 3) == pytest.approx(12 / 13)
    assert [crossover_memory(64, which) for which in PASSES] == [2048, 7021, 5213]
    assert [crossover_limit(64, which) for which in PASSES] == [4096, 9362, 7447]
    assert crossover_memory(64) == 2048
    assert crossover_limit(64) == 4096


@pytest.mark.parametrize(
    ("arguments", "tiles"),
    [
        # A query of 4 takes 10 numbers and a score; a key and its value take 8.
        ((100, 50, 4, 100), (100, 50, 8, 1, None)),
        ((100, 50, 4, 100, 3), (100, 50, 5, 3, None)),
        ((100, 2, 4, 100, 16), (100, 2, 7, 16, None)),  # room for the two keys there are
        ((3, 50, 4, 100), (3, 50, 3, 1, None)),
        ((100, 50, 4, 19), (100, 50, 1, 1, None)),
        ((100, 50, 4, 100, 1, True), (100, 50, 8, 1, 0)),
    ],
)
def test_the_best_tiling_has_as_many_queries_as_one_counts_by_hand(arguments, tiles):
    assert best_tiling(*arguments) == Tiling(*tiles)


def test_the_defaults_of_a_function_are_values_that_it_takes():
    for function, name, taken in ((tiling, "align", Align), (backward_cost, "outer", Outer)):
        assert inspect.signature(function).parameters[name].default in get_args(taken)


# -- by small runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["queries", "keys"])
@pytest.mark.parametrize(
    ("n", "m", "tiles", "offset", "group"),
    [
        (5, 7, (2, 3), None, 2),
        (5, 7, (2, 3), -1, 3),  # the last key is seen by none, and the last tile has one query
        (9, 1, (4, 4), -8, 3),
        (4, 4, (3, 3), -6, 2),  # no query sees a key
    ],
)
def test_a_small_run_moves_and_holds_what_is_priced(n, m, tiles, offset, group, outer):
    table = Tiling(n, m, *tiles, offset)
    q, (k, v) = torch.ones(2, group, n, 3), torch.ones(2, 2, m, 3)
    shape = {"heads": group, "kv_heads": 1, "batch": 2}
    memory, schedule = FastMemory(), table.schedule(outer)
    saved = (q, k, v, *forward(schedule, q, k, v, 0.5, memory))
    cost = forward_cost(table, 3, outer, **shape)
    assert (memory.read, memory.written) == (cost.read, cost.written)
    assert memory.peak == forward_resident(table, 3, group)
    memory = FastMemory()
    backward(schedule, saved, q, 0.5, memory)
    cost = backward_cost(table, 3, outer, **shape)
    assert (memory.read, memory.written) == (cost.read, cost.written)
    assert memory.peak == backward_resident(table, 3, group)


def runs(n, d):
    """What forward takes and moves with each tile of queries, backward with each of keys."""
    q, k, v = torch.ones(1, 1, n, d), torch.ones(1, n, d), torch.ones(1, n, d)
    found = {"forward": {}, "backward": {}}
    for tile in range(1, n + 1):
        memory = FastMemory()
        schedule = tiling(n, n, tile, 1).schedule("queries")
        saved = (q, k, v, *forward(schedule, q, k, v, 1.0, memory))
        found["forward"][memory.peak] = memory.elements
        memory = FastMemory()
        backward(tiling(n, n, 1, tile).schedule("keys"), saved, q, 1.0, memory)
        found["backward"][memory.peak] = memory.elements
    return found


@pytest.mark.parametrize(("n", "d"), [(1, 5), (3, 5), (4, 1), (5, 6), (6, 8)])
def test_the_plain_form_pays_where_small_runs_move_more_than_it(n, d):
    """It moves 4 tables and 4 operands forward, 7 and 8 backward; half of these once a block of rows.

    One token of 5 moves one number less backward in the plain form; in a memory for one query and
    one key of 1, tiles move less.
    """
    counted = runs(n, d)

    def plain(each, room):
        tables, operands = {"forward": (4, 2), "backward": (7, 4)}[each]
        blocks = -(-n // max(1, (room - d) // (d + 1)))
        return tables * n * n + operands * n * d * (1 + blocks)

    for passes in ({"forward"}, {"backward"}, {"forward", "backward"}):
        name = "both" if len(passes) == 2 else next(iter(passes))
        for room in range(1, max(counted["backward"]) + 9):
            moved = [
                [elements for peak, elements in counted[each].items() if peak <= room]
                for each in passes
            ]
            fits = all(moved)
            pays = not fits or sum(map(min, moved)) > sum(plain(each, room) for each in passes)
            assert naive_pays(n, d, room, name) == pays, (room, name)
            if name == "forward":
                assert naive_pays(n, d, room) == pays


# -- the bounds of what is taken -----------------------------------------------------------------

HEADS = {"heads": 1, "kv_heads": 1, "batch": 1}
SHAPE = {"queries": 2, "keys": 3, "head_size": 4}
LAW = {**SHAPE, "memory": 64}
TILES = tiling(4)
COST = Cost((Kernel("product", 1, 1, 1),))
COUNTED = (
    (Tiling, {"queries": 2, "keys": 3, "query_tile": 1, "key_tile": 1}),
    (tiling, {"queries": 2, "keys": 3}),
    (lambda **more: forward_cost(TILES, **more), {"head_size": 4, **HEADS}),
    (lambda **more: backward_cost(TILES, **more), {"head_size": 4, **HEADS}),
    (lambda **more: forward_resident(TILES, **more), {"head_size": 4, "group": 1}),
    (lambda **more: backward_resident(TILES, **more), {"head_size": 4, "group": 1}),
    (tiled_saved_bytes, {**SHAPE, **HEADS, "itemsize": 4}),
    (naive_forward_cost, {**SHAPE, **HEADS, "memory": 9}),
    (naive_backward_cost, {**SHAPE, **HEADS, "memory": 9}),
    (naive_saved_bytes, {**SHAPE, **HEADS, "itemsize": 4}),
    (matmul_cost, {"rows": 2, "inner": 3, "columns": 4, "tile": 1, "inner_tile": 1}),
    (forward_law, LAW),
    (backward_law, LAW),
    (compulsory, SHAPE),
    (best_tiling, {**LAW, "key_tile": 1}),
    (crossover_tile, {"length": 2, "head_size": 4}),
    (crossover_memory, {"head_size": 4}),
    (crossover_limit, {"head_size": 4}),
    (lambda **more: rows_to_bind(DEVICES["h100-sxm"], **more), {"itemsize": 2}),
    (naive_pays, {"length": 2, "head_size": 4, "memory": 64}),
    (lambda **more: check_fits(TILES, nbytes=10**6, **more), {"head_size": 4, "itemsize": 4}),
    (COST.intensity, {"itemsize": 2}),
    (lambda **more: COST.seconds(DEVICES["h100-sxm"], **more), {"itemsize": 2}),
)


def said(call, *arguments, **more):
    with pytest.raises(ValueError, match="must be") as caught:
        call(*arguments, **more)
    return str(caught.value)


@pytest.mark.parametrize(("call", "good"), COUNTED)
def test_a_count_of_zero_is_refused_by_its_own_name(call, good):
    call(**good)
    for name in good:
        sentence = said(call, **{**good, name: 0})
        assert sentence == f"{name} is 0; it must be a whole number of at least 1."


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Tiling(100_001, 1, 1, 1),
            "the number of tiles of queries is 100001; it must be at most 100,000.",
        ),
        (
            lambda: Tiling(1, 100_001, 1, 1),
            "the number of tiles of keys is 100001; it must be at most 100,000.",
        ),
        (lambda: Tiling(4, 4, 2, 2, 0.5), "offset is 0.5; it must be a whole number."),
        (lambda: tiling(4, 4, 2, 2).rows(2), "tile is 2; it must be at most 1."),
        (lambda: tiling(4, 4, 2, 2).columns(2), "tile is 2; it must be at most 1."),
        (
            lambda: tiling(4).is_cut("here"),
            "step is 'here'; it must be a Step such as Step(0, 0).",
        ),
        (
            lambda: Tiling(1000, 1001, 1, 1).schedule(),
            "the number of tiles is 1001000; it must be at most 1,000,000.",
        ),
        (
            lambda: Schedule(tiling(4), "both", ()),
            "outer is 'both'; it must be 'queries' or 'keys'.",
        ),
        (
            lambda: check_fits(tiling(4), 4, 0),
            "nbytes is 0; it must be a finite number above zero.",
        ),
        (
            lambda: best_tiling(100, 50, 4, 36, 3),
            "memory is 36; it must be at least 37 elements, for one query and these keys of "
            "head_size 4.",
        ),
        (
            lambda: naive_pays(100_001, 64, 10**6),
            "length is 100001; it must be at most 100,000.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_whole_sentence(call, sentence):
    assert said(call) == sentence


def test_heads_that_do_not_divide_are_named_with_those_that_do():
    with pytest.raises(ValueError, match=r"^6 heads do not divide by a kv_heads of 4; .* 3 and 6"):
        forward_cost(tiling(4), 4, heads=6, kv_heads=4)


def test_the_largest_table_and_schedule_that_are_taken():
    assert Tiling(100_000, 100_000, 1, 1).query_tiles == 100_000
    assert Tiling(1000, 1000, 1, 1, -1000).schedule().steps == ()


def test_an_offset_of_another_integer_type_becomes_a_plain_one():
    assert type(Tiling(4, 4, 2, 2, torch.tensor(1)).offset) is int


# -- proofs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        (
            [(0, 3)],
            "Step 0 visits queries 0 and keys 3; there are 2 tiles of queries and 3 of keys.",
        ),
        (
            [(0, 0), (0, 1), (0, 0)],
            "Step 2 visits queries 0 and keys 0 a second time: its pairs would count twice.",
        ),
        (
            [(1, 0), (0, 1), (1, 2)],
            "Step 2 visits queries 1 and keys 2, but queries 1 had left fast memory.",
        ),
    ],
)
def test_a_step_at_fault_is_named_whole(steps, sentence):
    with pytest.raises(ValueError, match=r"^Step") as caught:
        Schedule(tiling(4, 6, 2, 2), "queries", tuple(Step(*each) for each in steps)).check()
    assert str(caught.value) == sentence


def test_what_left_fast_memory_long_ago_may_not_come_back_either():
    steps = tuple(Step(*each) for each in [(0, 0), (1, 0), (2, 0), (0, 1)])
    with pytest.raises(ValueError, match=r"Step 3 .* but queries 0 had left fast memory"):
        Schedule(tiling(6, 4, 2, 2), "queries", steps).check()


def test_tiles_that_do_not_fit_are_told_with_all_that_was_given():
    """8 by 8 of 2: 8 * 6 of queries, 8 * 4 of keys, 64 scores. 74 elements hold 3 by 8, or 8 by 2."""
    table = tiling(8, 8, 8, 8)
    with pytest.raises(ValueError, match="Tiles") as caught:
        check_fits(table, 2, 296)
    assert str(caught.value) == (
        "Tiles of 8 queries and 8 keys (head_size 2, group 1, itemsize 4) hold 576 bytes in fast "
        "memory, and nbytes is 296; instead, 3 queries or 2 keys would fit."
    )


def test_a_group_of_two_takes_twice_the_rows():
    table = tiling(8, 8, 8, 8)
    check_fits(table, 2, 4 * (16 * 6 + 8 * 4 + 16 * 8), group=2)
    with pytest.raises(ValueError, match=r"group 2, itemsize 4\) hold 1,024 bytes"):
        check_fits(table, 2, 1023, group=2)


def test_nothing_is_freed_twice():
    memory, tensor = FastMemory(), torch.zeros(2, 3, 4)
    memory.free(memory.load(tensor))
    with pytest.raises(ValueError, match=r"^fast is 12 elements; .* at most the 0 resident ones"):
        memory.free(tensor)
    assert memory.resident == 0
