"""The explorer of ZeRO and its pictures, held against plans, prices and their own words."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
from matplotlib.colors import to_hex

from dlsys.hardware import LINKS
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes, format_seconds
from dlsys.zero import (
    Unit,
    draw_borrow,
    draw_gather,
    draw_held,
    draw_update,
    explore,
    held,
    overlap,
    price,
    step_plan,
)
from dlsys.zero.draw import PARTS
from dlsys.zero.explorer import MOST_DRAWN, STAGES, Choice

UNITS = [Unit("ends", 3000, outer=True), Unit("a", 4000), Unit("b", 4000)]


def test_a_stage_holds_what_its_plan_does_and_sends_its_closed_form():
    for row in Choice(model="gpt2-xl", devices=8).rows():
        plan = dataclasses.replace(Choice(model="gpt2-xl", devices=8), stage=row.stage).plan()
        assert plan.elements == CATALOGUE["gpt2-xl"].parameters()
        assert row.held == held(plan)
        ideal = price(row.stage, 2 * plan.elements, 8).bytes_per_rank
        assert row.sent == pytest.approx(ideal, rel=1e-6)


def test_more_tokens_hide_what_few_do_not():
    few, many = (Choice(tokens=tokens).row() for tokens in (512, 131072))
    assert many.compute == pytest.approx(256 * few.compute)
    # What is left is what has nothing to hide behind, a few units' collectives of the 33.
    assert many.exposed < 0.2 * few.exposed


def test_weights_that_are_kept_are_sent_once_less_and_held():
    back, kept = Choice(model="gpt2-xl").row(), Choice(model="gpt2-xl", reshard="keep").row()
    assert kept.sent == pytest.approx(2 / 3 * back.sent)
    weights = 2 * CATALOGUE["gpt2-xl"].parameters()
    assert kept.gathered == pytest.approx(weights, rel=1e-4)
    assert back.gathered < weights / 10


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(stage=2, tokens=8192)
    row, words = choice.row(), choice.summary()
    for said in (
        *("stage 2 on 64 x H100 SXM", "8,192 tokens", format_bytes(row.held.at_rest)),
        *(format_bytes(row.sent), format_seconds(row.exposed), format_seconds(row.seconds)),
    ):
        assert said in words
    assert "times its 80 GB" in Choice(model="llama3-405b", stage=0).summary()
    assert explore(stage=2, tokens=8192).choice == choice


def test_the_explorer_draws_every_stage_and_the_chosen_step():
    choice = Choice(model="gpt2-xl", stage=1, devices=8)
    bars, spans = choice.figure().axes
    rows = choice.rows()
    assert [label.get_text() for label in bars.get_yticklabels()] == [
        *("stage 0", "▸ stage 1", "stage 2", "stage 3")
    ]
    for row in rows:
        ends = [
            bar.get_x() + bar.get_width()
            for bar in bars.patches
            if round(bar.get_y() + bar.get_height() / 2) == row.stage
        ]
        whole = row.held.at_rest + row.gathered + row.unreduced
        assert max(ends) == pytest.approx(whole / 1e9)
    few, every = choice.plan(MOST_DRAWN), choice.plan()
    assert few.units == every.units[:MOST_DRAWN]
    end = max(bar.get_x() + bar.get_width() for bar in spans.patches)
    assert end == pytest.approx(1e3 * choice.step(few).seconds)  # in ms
    assert spans.get_title(loc="left") == "the step with 6 of 49 units"
    part, whole = (choice.step(plan).compute_seconds for plan in (few, every))
    assert part / whole == pytest.approx(few.elements / every.elements)


def test_a_picture_of_a_step_has_a_bar_for_each_pass_and_each_collective():
    plan = step_plan(3, UNITS, 4)
    (axes,) = plan.draw(1.0, 2.0, where=LINKS["nvlink4"]).axes
    step = overlap(plan, 1.0, 2.0, LINKS["nvlink4"])
    assert len(axes.patches) == len(step.compute) + len(step.network)
    numbers = sorted(text.get_text() for text in axes.texts)
    assert numbers == ["0", "0", "1", "1", "2", "2"]  # gathers are too short for theirs
    assert format_seconds(step.exposed_seconds) in axes.get_title(loc="left")


def test_a_picture_of_memory_has_the_bytes_and_the_limit():
    each = {f"stage {stage}": held(step_plan(stage, UNITS, 4)) for stage in STAGES}
    (axes,) = draw_held(each, 80e9).axes
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts[0] == format_bytes(16 * 11_000)
    assert axes.lines[0].get_xdata()[0] == 80
    most = each["stage 3"].at_rest + each["stage 3"].gathered + each["stage 3"].unreduced
    assert texts[3] == f"{format_bytes(each['stage 3'].at_rest)}, at most {format_bytes(most)}"
    (_, near) = draw_held(each, 80e9, zoom=["stage 3"]).axes
    assert [label.get_text() for label in near.get_yticklabels()] == ["stage 3"]
    with pytest.raises(ValueError, match="zoom is 'stage 4'"):
        draw_held(each, zoom=["stage 4"])
    with pytest.raises(ValueError, match="it must have at least one"):
        draw_held({})


@pytest.mark.parametrize("field", ["model", "device", "link", "devices", "stage"])
def test_everything_that_can_be_chosen_has_a_row(field):
    for value in Choice.options()[field][1]:
        row = dataclasses.replace(Choice(), **{field: value}).row()
        assert min(row[1:]) >= 0
        assert row.compute > 0
        assert row.held.at_rest > 0


def test_in_stage_1_the_update_comes_between_the_collectives_of_data_parallelism():
    words = [text.get_text() for text in draw_update().axes[0].texts]
    steps = [word for word in words if word in ("reduce-scatter", "all-gather", "update")]
    assert steps[:3] == ["reduce-scatter", "all-gather", "update"]
    assert steps[3:] == ["reduce-scatter", "update", "all-gather"]


def test_a_rank_borrows_one_unit_in_each_pass_and_keeps_its_shards():
    colors = Counter(to_hex(patch.get_facecolor()) for patch in draw_borrow().axes[0].patches)
    passes, units, ranks = 6, 3, 4
    assert colors[PARTS["gathered"].lower()] == passes * (ranks - 1)
    assert colors[PARTS["weights"].lower()] == (passes + 1) * units
    assert colors[PARTS["unreduced"].lower()] == units * ranks
    assert colors[PARTS["gradients"].lower()] == 1 + 2 + 3  # after each reduction its own part


def test_of_a_gather_on_two_levels_cards_and_nvlink_bring_the_shares_that_the_law_has():
    colors = Counter(to_hex(patch.get_facecolor()) for patch in draw_gather().axes[0].patches)
    parts, k, nodes = 8 * 8, 4, 2  # of all ranks together
    assert colors[PARTS["by NVLink"].lower()] == (k - 1) / k * parts
    assert colors[PARTS["by card"].lower()] == 2 * (nodes - 1) / nodes / k * parts  # drawn twice
