"""The explorer of input pipelines and the pictures, held against prices, simulations and their own words."""

from __future__ import annotations

import pytest

from dlsys.input_pipeline import (
    InputPipeline,
    Stage,
    draw_depth,
    draw_timeline,
    explore,
    exponential_utilization,
    simulate,
)
from dlsys.input_pipeline.explorer import BATCH, KINDS, Choice


def test_a_row_is_what_the_stage_could_do_alone_and_how_it_spent_its_time():
    choice = Choice(workers=8, step=100)
    rows = {row.stage: row for row in choice.rows()}
    assert rows["transform"].samples_per_second == pytest.approx(8 / 0.010)
    assert rows["step"].samples_per_second == pytest.approx(BATCH / 0.100)
    stored = KINDS[choice.sample].stored
    assert rows["read"].samples_per_second == pytest.approx(500e6 / stored)
    assert choice.price().bottleneck == "step"
    assert rows["step"].starved < 0.15  # until the first batch is there
    slow = {row.stage: row for row in Choice(workers=1).rows()}
    assert slow["step"].starved > 0.8
    assert slow["read"].blocked > 0.5
    for row in (*rows.values(), *slow.values()):
        assert 0 <= row.busy + row.starved + row.blocked <= 1 + 1e-9


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(workers=2, prefetch=4)
    words, price, timeline = choice.summary(), choice.price(), choice.timeline()
    for said in (
        "2 workers with 4 batches each",
        f"The slowest stage is transform: {price.samples_per_second:,.0f} samples/s",
        f"works {price.utilization:.0%} of the time",
        f"step {timeline.spent('step').busy / timeline.seconds:.0%} busy",
    ):
        assert said in words
    assert explore(workers=2, prefetch=4).choice == choice


def test_clips_are_stopped_by_the_storage_and_text_by_nothing_but_the_step():
    assert Choice(sample="clip, 16 images", storage=100, workers=32).price().bottleneck == "read"
    text = Choice(sample="text, 2,048 tokens", transform=0.05)
    assert text.price().bottleneck == "step"
    assert text.price().utilization == 1


def test_the_explorer_draws_workers_above_and_shares_below():
    choice = Choice(workers=2)
    above, below = choice.figure().axes
    assert [label.get_text() for label in above.get_yticklabels()] == [
        *("read", "transform 0", "transform 1", "transfer", "step")
    ]
    drawn = [bar.get_width() for bar in below.patches]
    told = [getattr(row, part) for part in ("busy", "starved", "blocked") for row in choice.rows()]
    assert drawn == pytest.approx(told)


def test_a_picture_of_a_timeline_has_a_bar_for_each_batch_where_it_was_worked_on():
    plan = InputPipeline((Stage("load", 3.0, workers=2), Stage("step", 1.0)))
    timeline = simulate(plan, 6)
    (axes,) = draw_timeline(timeline, most=5).axes
    bars = {
        (round(bar.get_y() + bar.get_height() / 2), bar.get_x(), bar.get_width())
        for bar in axes.patches
        if bar.get_height() == pytest.approx(0.85)
    }
    rows = {"load": 0, "step": 2}
    assert bars == {
        (rows[span.stage] + span.worker, span.start, span.end - span.start)
        for span in timeline.spans
        if span.batch < 5
    }
    assert {text.get_text() for text in axes.texts} == set("01234")
    assert axes.get_xlabel() == "time (s)"


def test_the_beginning_of_a_long_timeline_is_drawn_with_its_numbers():
    plan = InputPipeline((Stage("load", 3.0, workers=2), Stage("step", 1.0)))
    (axes,) = draw_timeline(simulate(plan, 600), most=5).axes
    assert {text.get_text() for text in axes.texts} == set("01234")


def test_a_picture_of_depths_has_a_line_for_each_variation_and_the_law():
    (axes,) = draw_depth([1, 4], [0.0, 1.0], batches=6000).axes
    lines = {line.get_label(): [*line.get_ydata()] for line in axes.lines}
    assert lines["variation 0"] == pytest.approx([1, 1], abs=1e-3)
    assert lines["the law"] == [exponential_utilization(1, 1), exponential_utilization(1, 4)]
    assert lines["variation 1"] == pytest.approx(lines["the law"], rel=0.03)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: explore(workers=3), "no workers in the explorer 3"),
        (lambda: draw_depth([], [0.0]), "depths is .*; it must have at least one"),
        (lambda: draw_depth([1], [0.0], ratio=0), "ratio is 0"),
        (lambda: draw_timeline(3), "timeline is 3; it must be a Timeline"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
