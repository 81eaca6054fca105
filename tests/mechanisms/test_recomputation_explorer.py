"""The explorer of recomputation and its pictures, held against prices and their own words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from dlsys.recomputation import (
    Chain,
    Layer,
    Plan,
    Segment,
    draw_front,
    explore,
    front,
    optimal,
    segments,
    smallest,
    square_root,
    uniform,
)
from dlsys.recomputation.explorer import CHEAPEST, FITTING, NAMES, Choice
from dlsys.recomputation.fitting import cheapest
from dlsys.recomputation.plan import KEEP, RECOMPUTE
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations
from dlsys.units import format_bytes

SMALL: dict[str, Any] = {"model": "gpt2-small", "batch": 8}


def words_of(axes: Axes) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def test_the_explorers_policies_keep_what_the_memory_formulas_say():
    spec = dataclasses.replace(CATALOGUE["gpt2-small"], sequence=1024)
    rows = {row.policy: row for row in Choice(**SMALL).rows()}
    for policy, recompute in (
        ("keep everything", "none"),
        ("attention core", "selective"),
        ("every layer", "full"),
    ):
        assert rows[policy].kept == activations(spec, 8, recompute=recompute).everything
    assert rows["square root"].layers == spec.layers
    assert list(rows) == [*NAMES]


@pytest.mark.parametrize("budget", [1, 2, 4, 8, 16, 32])
def test_as_few_layers_are_run_again_as_fit(budget):
    choice = Choice(**SMALL, budget=budget, policy=FITTING)
    n = choice.row().layers
    chain = choice.chain()
    peaks = []
    for k in range(13):
        parts = [*(["recompute"] * k), *(["keep"] * (12 - k))]
        cut = [Segment(i + 1, i + 2, mode) for i, mode in enumerate(parts)]
        plan = Plan(14, (Segment(0, 1, "keep"), *cut, Segment(13, 14, "keep")))
        peaks.append(plan.price(chain).peak_bytes)
    fitting = [k for k, peak in enumerate(peaks) if peak <= budget * 1e9]
    assert n == (fitting[0] if fitting else 12)


DEAR = 1000.0  # of a forward pass: nobody runs an embedding again that costs as much


def equal(first: int, last: int, *layer: float) -> Chain:
    """Seven equal layers between an embedding and a head of so many bytes."""
    middle = uniform(7, Layer("", *layer)).layers
    return Chain((Layer("", 0, first, DEAR, 0), *middle, Layer("", 1, last, 9, 18)))


@pytest.mark.parametrize(
    "chain",
    [
        equal(5, 6, 2, 11, 6, 12, 4, 1, 0, 0, 2, 1),
        equal(1, 40, 3, 14, 6, 12, 4, 1, 0, 0, 2, 0),
        equal(3, 4, 1, 9, 6, 12, 2, 5, 0, 1, 3, 2),  # a core that is nearly the whole layer's work
        equal(0, 9, 2, 7, 6, 12),
    ],
)
def test_the_cheapest_mix_of_every_budget_is_the_best_of_all_plans(chain):
    tightest = smallest(chain)
    least = int(tightest.price(chain).peak_bytes)
    for budget in range(least, int(chain.saved_bytes) + 2):
        plan, best = cheapest(chain, budget), optimal(chain, budget).price.recomputed
        if best < DEAR:
            assert plan.price(chain).recomputed == best
            assert plan.price(chain).peak_bytes <= budget
        else:  # with the embedding kept nothing fits
            assert plan == tightest
    assert cheapest(chain, least - 1) == tightest


def test_layers_that_cost_nothing_again_or_have_no_core_bytes_are_a_mix_as_well():
    free = equal(0, 9, 2, 7, 0, 0, 4)  # whatever is chosen costs the same
    assert all(cheapest(free, budget).price(free).recomputed == 0 for budget in (20, 30, 60))
    bare = equal(0, 9, 2, 7, 6, 12, 0, 5)
    assert {part.mode for part in cheapest(bare, 30)} == {KEEP, RECOMPUTE}


@pytest.mark.parametrize(("model", "sequence"), [("gpt2-small", 16384), ("llama2-7b", 2048)])
def test_without_running_the_embedding_again_a_model_runs_at_most_a_layer_more(model, sequence):
    chain = Choice(model=model, batch=4, sequence=sequence).chain()
    least = smallest(chain).price(chain).peak_bytes
    for part in (0.02, 0.1, 0.3, 0.7):
        budget = least + part * (chain.saved_bytes - least)
        found, best = cheapest(chain, budget).price(chain), optimal(chain, budget)
        assert found.peak_bytes <= budget
        assert best.least <= found.recomputed + 1e-9 * chain.forward
        assert found.recomputed <= best.price.recomputed + chain.layers[1].forward


def test_where_no_mix_fits_the_cheapest_is_the_smallest():
    choice = Choice(**SMALL, budget=1, policy=CHEAPEST)
    chain = choice.chain()
    assert choice.row().peak == smallest(chain).price(chain).peak_bytes > 1e9
    assert "does not fit in 1 GB" in choice.summary()


@pytest.mark.parametrize("budget", [2, 4, 8, 16])
def test_the_explorers_cheapest_beats_every_other_policy_that_fits(budget):
    rows = {row.policy: row for row in Choice(**SMALL, budget=budget).rows()}
    fitting = {name: row.share for name, row in rows.items() if row.peak <= budget * 1e9}
    assert min(fitting.values()) == fitting[CHEAPEST]
    if budget == 4:  # as many layers as must, without cores, cost three times as much
        assert fitting[FITTING] > 3 * fitting[CHEAPEST]


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(**SMALL, budget=2, policy="square root")
    row, words = choice.row(), choice.summary()
    for said in (
        *("square root", "8 samples of 1,024 tokens", "12 of 12 layers", "does not fit in 2 GB"),
        *(format_bytes(row.kept), format_bytes(row.peak), f"{row.share:.1%} of a step"),
    ):
        assert said in words
    assert "the cores of all layers" in Choice(**SMALL).summary()
    assert "which fits in 1,024 GB" in Choice(**SMALL, budget=1024).summary()
    assert explore(**SMALL, budget=2, policy="square root").choice == choice


def test_the_explorer_draws_every_policy_and_the_chosen_step():
    choice = Choice(**SMALL, policy="every layer")
    bars, curve = choice.figure().axes
    labels = [label.get_text() for label in bars.get_yticklabels()]
    assert labels == [f"▸ {p}" if p == "every layer" else p for p in NAMES]
    kept, rebuilt = bars.containers
    for row, low, high in zip(choice.rows(), kept, rebuilt, strict=True):
        assert low.get_width() == pytest.approx(row.kept / 1e9)
        assert low.get_width() + high.get_width() == pytest.approx(row.peak / 1e9)
    line = curve.lines[0]
    assert max(line.get_ydata()) == pytest.approx(choice.row().peak / 1e9)
    assert line.get_ydata()[-1] == pytest.approx(0)


def test_a_plan_is_drawn_with_what_it_keeps_and_its_peak():
    figure = segments(12, 3).draw(uniform(12))
    bars, curve = figure.axes
    kept, rebuilt = bars.containers
    starts = [bar.get_x() + bar.get_width() / 2 for bar in kept if bar.get_height()]
    assert starts == pytest.approx([0, 4, 8])
    assert sum(bar.get_height() for bar in rebuilt) == 9
    assert [line.get_xdata()[0] for line in bars.lines] == [3.5, 7.5]
    assert "6 B" in words_of(curve)
    assert np.all(np.diff(curve.lines[0].get_xdata()) >= 0)
    # Forward ends at 12 of 45, for early stop leaves out a layer of each segment; else of 48.
    assert curve.lines[0].get_xdata()[12] == pytest.approx(12 / 45)
    _, curve = segments(12, 3).draw(uniform(12), early_stop=False).axes
    assert curve.lines[0].get_xdata()[12] == pytest.approx(12 / 48)


def test_the_front_has_named_plans_and_what_was_measured_on_them():
    chain = uniform(12)
    best = front(chain)
    cost = square_root(12).price(chain)
    point = (cost.peak_bytes, cost.recomputed)
    (axes,) = draw_front(best, {"square root": point}, {"counted": point}).axes
    line, named, ring = axes.lines
    assert list(zip(*line.get_data(), strict=True)) == [(b.peak_bytes, b.recomputed) for b in best]
    assert (named.get_xdata()[0], named.get_ydata()[0]) == point
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == point
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["least, of the three modes", "square root", "measured"]
    with pytest.raises(ValueError, match="points is"):
        draw_front([])
