"""Plans of recomputation: which layers a segment has, what is refused, and which plan is best."""

from __future__ import annotations

import itertools
import math
import operator
import random
import re
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsys.plain_data import as_data, from_data, offered_as
from dlsys.recomputation import (
    Chain,
    Layer,
    Plan,
    Segment,
    every,
    every_layer,
    first_layers,
    front,
    keep_all,
    least_peak,
    optimal,
    segments,
    selective,
    smallest,
    square_root,
    uniform,
)
from dlsys.recomputation.table import Table


def lengths(plan: Plan) -> list[int]:
    return [len(segment.layers) for segment in plan]


# -- builders ------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.data())
def test_segments_are_as_equal_as_whole_numbers_allow_and_longer_ones_first(n, data):
    k = data.draw(st.integers(1, n))
    plan = segments(n, k)
    plan.check()
    sizes = lengths(plan)
    assert len(sizes) == k
    assert sizes == sorted([n // k] * (k - n % k) + [n // k + 1] * (n % k), reverse=True)


@given(st.integers(1, 200), st.integers(1, 250))
def test_every_k_th_layer_starts_a_segment(n, k):
    plan = every(n, k)
    plan.check()
    assert [segment.start for segment in plan] == list(range(0, n, k))


@given(st.integers(1, 5000))
@example(12)  # 3 and 4 segments have one sum
def test_the_square_root_is_the_nearest_whole_number_and_no_other_has_a_lower_sum(n):
    k = len(square_root(n).segments)
    assert k == round(math.sqrt(n))
    assert k + n / k == pytest.approx(min(j + n / j for j in range(1, n + 1)))


def test_the_builders_modes_are_what_their_names_say():
    assert [s.mode for s in keep_all(3)] == ["keep"]
    assert [s.mode for s in selective(3)] == ["selective"]
    assert list(every_layer(2)) == [(0, 1, "recompute"), (1, 2, "recompute")]
    assert list(first_layers(5, 2)) == [*every_layer(2), (2, 5, "keep")]
    assert list(first_layers(3, 3)) == list(every_layer(3))
    assert list(first_layers(3, 0)) == list(keep_all(3))
    assert list(segments(4, 2).keep_last()) == [(0, 2, "recompute"), (2, 4, "keep")]


def test_parts_of_a_model_are_joined_in_order():
    plan = keep_all(1) + segments(5, 2) + selective(2)
    plan.check()
    assert plan.layers == 8
    assert list(plan) == [
        *((0, 1, "keep"), (1, 4, "recompute"), (4, 6, "recompute"), (6, 8, "selective"))
    ]
    with pytest.raises(TypeError):
        operator.add(plan, [Segment(0, 1, "keep")])


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ([(0, 3, "keep"), (4, 5, "keep")], "Layer 3 is in no segment: the next one starts at 4."),
        ([(1, 5, "keep")], "Layer 0 is in no segment"),
        ([(0, 3, "keep"), (2, 5, "keep")], "Layer 2 is in two segments"),
        ([(0, 3, "keep"), (2, 5, "keep")], "start the segment keep layers 2 to 4 at 3, where"),
        ([(3, 5, "keep"), (0, 3, "keep")], "Layer 0 is in no segment"),
        ([(0, 4, "keep")], "Layer 4 is in no segment: the last one stops before it."),
        ([(0, 0, "keep"), (0, 5, "keep")], "segment from layer 0 to 0 has no layer"),
        ([(0, 6, "recompute")], "There is no layer 5: the plan is of 5 layers, 0 to 4."),
        ([(0, 5, "kept")], "mode of the segment from layer 0 is 'kept'; it must be 'keep' or"),
        ([(0, 2.0, "keep")], "stop of the segment from layer 0 is 2.0; it must be a whole"),
        (
            [(-1, 5, "keep")],
            "The start of a segment is -1; it must be a whole number of at least 0",
        ),
        ([], "Layer 0 is in no segment"),
    ],
)
def test_a_plan_that_does_not_cover_every_layer_once_is_refused_by_the_layer(cut, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Plan(5, cut).check()


def of_no_segments(layers: int) -> Plan:
    return Plan(layers, ())


def test_more_layers_than_are_planned_for_are_refused_before_anything_is_built():
    for build in (every_layer, of_no_segments):
        with pytest.raises(ValueError, match=r"^layers is 10{18}; it must be at most 1,000,000\.$"):
            build(10**18)
    with pytest.raises(
        ValueError, match=r"^The number of layers is 1000001; it must be at most 1,000,000\.$"
    ):
        Chain((Layer("", 1, 1, 1, 2),) * 1_000_001)


def test_any_whole_number_and_any_sequence_are_held_as_pythons_own():
    assert type(Plan(np.int64(3), ()).layers) is int
    assert Chain([Layer("", 1, 1, 1, 2)]) == uniform(1, Layer("", 1, 1, 1, 2))


def test_a_plan_of_no_segments_has_no_last_one():
    with pytest.raises(ValueError, match=r"^segments is \(\); it must have at least one\.$"):
        of_no_segments(3).keep_last()


def test_more_segments_than_layers_are_refused():
    with pytest.raises(ValueError, match="k is 5; it must be at most the number of layers, 4"):
        segments(4, 5)
    with pytest.raises(ValueError, match="n is 5; it must be at most the number of layers, 4"):
        first_layers(4, 5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((2, 1, 1, 2), "input_bytes of layer a is 2; it must be at most its saved_bytes, 1"),
        ((1, 3, 1, 2, 3), "core_bytes of layer a is 3; it must be at most its saved_bytes less"),
        ((1, 3, 1, 2, 1, 2), "core of layer a is 2; it must be at most its forward, 1"),
        ((1, 3, 1, 2, 0, 0, 2), "tail of layer a is 2; it must be at most its forward, 1"),
        ((1, 3, 4, 2, 1, 1, 0, 2), "core_tail of layer a is 2; it must be at most its core, 1"),
        (
            (1, 3, 1, 2, 1, 1, 0, 0, 3),
            "behind_bytes of layer a is 3; it must be at most its saved_bytes less core_bytes, 2",
        ),
        ((-1, 3, 1, 2), "input_bytes of layer a is -1"),
        ((1, math.nan, 1, 2), "saved_bytes of layer a is nan"),
        ((1, 3, math.inf, 2), "forward of layer a is inf"),
        ((1, 3, 1, "2"), "backward of layer a is '2'"),
    ],
)
def test_a_layer_whose_parts_are_more_than_the_whole_is_refused(fields, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Layer("a", *fields)


def test_a_chain_has_a_layer():
    with pytest.raises(ValueError, match=r"^layers is \(\); it must have at least one\.$"):
        Chain(())


def test_plans_and_chains_travel_as_plain_data():
    for value in (segments(5, 2), uniform(2), Segment(0, 1, "keep")):
        assert from_data(offered_as(type(value)), as_data(value)) == value


# -- the best plan -------------------------------------------------------------------------------


def all_plans(n: int) -> list[Plan]:
    """Every plan of n layers: 4 for one layer, and so on; kept layers are segments of one."""

    def cut(i: int) -> Iterator[tuple[Segment, ...]]:
        if i == n:
            yield ()
        ones = [Segment(i, i + 1, mode) for mode in ("keep", "selective")]
        for first in [*ones, *(Segment(i, j, "recompute") for j in range(i + 1, n + 1))]:
            if i < n:
                yield from ((first, *rest) for rest in cut(first.stop))

    return [Plan(n, found) for found in cut(0)]


def odd_chain(seed: int, n: int) -> Chain:
    """Layers of which no two are alike, some with a core, some that nothing is saved in."""
    rng = random.Random(seed)
    layers = []
    for i in range(n):
        core_bytes, inputs, forward = rng.choice((0, 0, 3, 9)), rng.randint(0, 5), rng.randint(0, 9)
        core = rng.randint(0, forward) if core_bytes else 0
        saved = inputs + core_bytes + rng.randint(0, 6)
        tails = rng.randint(0, forward), rng.randint(0, core)
        beside = rng.randint(0, saved - core_bytes), rng.randint(0, 4)
        parts = core_bytes, core, *tails, *beside
        layers.append(Layer(f"{i}", inputs, saved, forward, 2 * forward, *parts))
    return Chain(tuple(layers))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("early_stop", [True, False])
def test_the_best_plan_of_every_budget_is_that_of_brute_force(seed, early_stop):
    chain = odd_chain(seed, 1 + seed % 6)
    prices = [plan.price(chain, early_stop) for plan in all_plans(len(chain))]
    least = min(price.peak_bytes for price in prices)
    assert smallest(chain).price(chain).peak_bytes == least
    for budget in {max(1, least + more) for more in (0, 1, 4, 9, 10**6)}:
        best = min(price.recomputed for price in prices if price.peak_bytes <= budget)
        found = optimal(chain, budget, early_stop)
        assert found.price.peak_bytes <= budget
        assert found.price.recomputed == pytest.approx(best)
        assert found.exact
        assert found.error == 0
        assert found.least == pytest.approx(best)


def test_a_core_that_finds_no_room_when_it_is_run_again_is_kept_or_goes_with_its_layer():
    """It would cost 1 and leave 3 bytes in place of 6; run again, with its copies it takes 12."""
    wide = Layer("a", 1, 6, 10, 20, 3, 1, copied_bytes=6)
    chain = Chain((wide, Layer("b", 1, 6, 2, 4), Layer("c", 1, 3, 1, 2)))
    found = optimal(chain, 10)
    assert [segment.mode for segment in found.plan] == ["recompute", "keep", "keep"]
    assert found.price.recomputed == found.least == 10


@pytest.mark.parametrize("seed", range(12, 18))
def test_the_front_is_that_of_brute_force(seed):
    chain = odd_chain(seed, 5)
    points = sorted(
        {(p.peak_bytes, p.recomputed) for p in (plan.price(chain) for plan in all_plans(5))}
    )
    best = [points[0]]
    for point in points:
        if point[1] < best[-1][1]:
            best.append(point)
    assert [(one.peak_bytes, one.recomputed) for one in front(chain, 1000)] == best


def test_of_the_lowest_peak_no_layer_is_run_again_for_nothing():
    assert [segment.mode for segment in smallest(uniform(2))] == ["keep", "keep"]


def test_a_budget_that_is_too_small_is_told_the_smallest_that_works():
    chain = uniform(48)
    with pytest.raises(ValueError, match=r"budget is 9 bytes .* the smallest that works is 10 "):
        optimal(chain, 9)
    assert optimal(chain, 10).price.peak_bytes == 10


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "4", None, True])
def test_a_budget_is_a_number_of_bytes(bad):
    with pytest.raises(ValueError, match=r"^budget is "):
        optimal(uniform(3), bad)


def test_layers_that_save_nothing_need_no_plan():
    chain = uniform(3, Layer("", 0, 0, 1, 2))
    assert optimal(chain, 1).price.recomputed == 0
    assert [(one.peak_bytes, one.recomputed) for one in front(chain)] == [(0, 0)]


def test_with_room_for_everything_nothing_is_run_again():
    assert optimal(uniform(7), 1e12).price.recomputed == 0


@given(st.integers(1, 400))
@settings(max_examples=40)
def test_equal_layers_fit_in_the_square_root_of_twice_their_number(n):
    chain = uniform(n)
    assert smallest(chain).price(chain).peak_bytes == least_peak(n)


@pytest.mark.parametrize("n", [11, 48])
def test_of_equal_linear_layers_each_that_fits_is_one_that_is_not_run_again(n):
    """What is kept is at most the budget, and all else is run again: the bound is reached."""
    for budget in range(least_peak(n), n + 1):
        found = optimal(uniform(n), budget)
        assert found.price.recomputed == found.least == n - budget
        assert found.exact


def test_equal_layers_that_no_step_divides_are_nearly_best():
    """2, 34 and 114 bytes in steps of some 28: rounded one by one, they would all err one way."""
    chain = uniform(1000, Layer("", 2, 114, 1, 2, 80, 0.03, 0.3, 0.015))
    found = optimal(chain, 30_000)
    assert not found.exact
    assert found.error < 0.001


@pytest.mark.parametrize("n", [3, 6, 7, 12])
def test_the_table_itself_gives_the_cost_of_the_plan_that_is_read_from_it(n):
    """Long segments alone fit: layers whose input is small, and that early stop does not shorten."""
    rng = random.Random(n)
    cost = [rng.randint(1, 9) for _ in range(n)]
    chain = Chain(tuple(Layer("", 2, 3, one, 2 * one, tail=one / 2) for one in cost))
    least = int(smallest(chain).price(chain).peak_bytes)
    for budget in range(least, 3 * n):
        table = Table(chain, float(budget), 1.0, True, down=False)
        assert table.least() == pytest.approx(table.plan().price(chain).recomputed)


def test_unequal_sizes_are_rounded_and_the_bound_says_what_that_may_lose():
    rng = random.Random(0)
    chain = Chain(
        tuple(
            Layer("", one := rng.uniform(1, 5), one + rng.uniform(5, 50), rng.uniform(1, 5), 6)
            for _ in range(150)
        )
    )
    for part in (0.1, 0.4, 0.8):
        found = optimal(chain, part * chain.saved_bytes)
        assert found.price.peak_bytes <= part * chain.saved_bytes
        assert found.least <= found.price.recomputed
        assert not found.exact
        assert 0 < found.error < 0.005


def test_no_plan_of_unequal_sizes_goes_below_the_bound(monkeypatch):
    """Few and coarse steps, so that the bound is far from the best, and must be below it."""
    monkeypatch.setattr(sys.modules["dlsys.recomputation.table"], "STEPS", 7)
    for seed in range(30, 36):
        chain = odd_chain(seed, 5)
        prices = [plan.price(chain) for plan in all_plans(5)]
        least = min(price.peak_bytes for price in prices)
        for budget in (least, (least + chain.saved_bytes) / 2, chain.saved_bytes - 1):
            best = min(price.recomputed for price in prices if price.peak_bytes <= budget)
            found = optimal(chain, budget)
            assert found.least <= best + 1e-9
            assert best <= found.price.recomputed
            assert found.price.peak_bytes <= budget


def test_a_thousand_layers_have_a_table_of_a_million_cells():
    """What keeps the time below a second: it grows with layers x steps, not with plans."""
    chain = uniform(1000)
    found = optimal(chain, 64)
    assert found.exact
    assert found.price.recomputed == 1000 - 64
    table = Table(chain, 900.0, 1.0, True, down=False)
    assert table.cost.size <= 2**20


def test_every_plan_of_a_few_layers_is_there():
    """The brute force itself: T(n) = 2 T(n-1) + T(n-1) + ... + T(0)."""
    counts = [len(all_plans(n)) for n in range(1, 5)]
    assert counts == [3, 10, 34, 116]
    for plan in itertools.islice(all_plans(4), 50):
        plan.check()
