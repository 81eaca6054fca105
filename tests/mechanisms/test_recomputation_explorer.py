"""The explorer of recomputation and its pictures, held against prices and their own words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from dlsys.recomputation import (
    Plan,
    Segment,
    draw_front,
    explore,
    front,
    segments,
    square_root,
    uniform,
)
from dlsys.recomputation.explorer import FITTING, POLICIES, Choice
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
    assert list(rows) == [*POLICIES, FITTING]


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


def test_what_no_option_has_is_refused():
    with pytest.raises(ValueError, match="no run again in the explorer 'all'"):
        explore(policy="all")


def test_the_explorer_draws_every_policy_and_the_chosen_step():
    choice = Choice(**SMALL, policy="every layer")
    bars, curve = choice.figure().axes
    labels = [label.get_text() for label in bars.get_yticklabels()]
    assert labels == [f"▸ {p}" if p == "every layer" else p for p in (*POLICIES, FITTING)]
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
    assert "6 B, layer 11" in words_of(curve)
    assert np.all(np.diff(curve.lines[0].get_xdata()) >= 0)


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
    assert labels == ["best there is", "square root", "measured"]
    with pytest.raises(ValueError, match="points is"):
        draw_front([])
