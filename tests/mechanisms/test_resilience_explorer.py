"""The explorer of cadence and its pictures, held against prices, simulations and their own words."""

from __future__ import annotations

import dataclasses

import pytest

from dlsys.resilience import (
    Cadence,
    Maintenance,
    Spares,
    best_cadence,
    best_share,
    draw_devices,
    draw_intervals,
    draw_month,
    exact_interval,
    explore,
    optimal_interval,
    search,
    shares,
    simulate_run,
)
from dlsys.resilience.draw import STRETCHES
from dlsys.resilience.explorer import DETECTION, MONTH, Choice
from dlsys.units import DAY, HOUR, MINUTE, YEAR, format_seconds
from tests.mechanisms.test_resilience_simulation import M


def test_a_row_is_the_price_of_its_interval_and_the_best_has_most():
    choice = Choice(devices=4096, failures=0.3, write=120, restart=600)
    m = YEAR / 4096 / 0.3
    assert choice.mtbf() == pytest.approx(m)
    rows = choice.rows()
    for row in rows:
        expected = shares(Cadence(row.interval, 120), m, 600, DETECTION)
        assert tuple(row[1:]) == pytest.approx(tuple(expected))
    assert [row.interval for row in rows] == sorted(row.interval for row in rows)
    best = max(rows, key=lambda row: row.useful)
    assert best.interval == pytest.approx(exact_interval(120, m))
    assert best == choice.row()


def test_the_month_is_one_of_those_failures_and_its_goodput_near_the_price():
    choice = Choice()
    month = choice.month()
    assert month.seconds == MONTH
    assert month.events["failure"] == pytest.approx(MONTH / choice.mtbf(), rel=0.2)
    assert month.goodput == pytest.approx(choice.row().useful, abs=0.03)
    assert Choice(spares=0).month().share("waiting") > 0.5


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(interval="2 h", spares=8)
    row, words = choice.row(), choice.summary()
    for said in (
        *("16,384 devices with 0.17 failures a year each", format_seconds(choice.mtbf())),
        f"the best interval is {format_seconds(choice.best().interval)}",
        f"Saving every 2 h leaves {row.useful:.1%}",
        f"{row.writing:.1%} goes into writing, {row.redone:.1%} is done again",
        f"{choice.month().events['failure']:,} failures",
        f"goodput of {choice.month().goodput:.1%}",
    ):
        assert said in words
    assert explore(interval="2 h", spares=8).choice == choice


@pytest.mark.parametrize("field", ["devices", "failures", "write", "restart", "interval", "spares"])
def test_everything_that_can_be_chosen_has_a_row_and_a_month(field):
    for value in Choice.options()[field][1]:
        choice = dataclasses.replace(Choice(), **{field: value})
        assert sum(choice.row()[1:]) == pytest.approx(1)
        assert 0 < choice.month().goodput < 1


def test_the_dearest_choice_is_simulated_all_the_same():
    dearest = Choice(devices=131_072, failures=1.0, write=1, interval="1 min", restart=10)
    assert dearest.month().events["failure"] > 10_000


def test_the_explorer_draws_the_month_above_and_the_best_interval_below():
    choice = Choice(interval="1 h")
    days, waste = choice.figure().axes
    assert f"{choice.month().goodput:.1%}" in days.get_title(loc="left")
    labels = {line.get_label(): line.get_xdata()[0] for line in waste.lines}
    best = choice.best().interval
    assert labels[f"best: {format_seconds(best)}"] == pytest.approx(best / MINUTE)
    assert labels["chosen: 60 min" if "chosen: 60 min" in labels else "chosen: 1 h"] == 60


def test_a_picture_of_a_month_has_every_hour_of_every_day_once():
    run = simulate_run(
        Cadence(1000, 60),
        10 * DAY,
        M,
        600,
        60,
        spares=Spares(1, HOUR),
        maintenance=Maintenance(4 * DAY, 5 * HOUR),
    )
    (axes,) = draw_month(run).axes
    hours = [0.0] * 10
    for bar in axes.patches:
        hours[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()
        assert -1e-9 <= bar.get_x() <= bar.get_x() + bar.get_width() <= 24 + 1e-9
    assert hours == pytest.approx([24] * 10)
    labels = {text.get_text() for text in axes.get_figure().legends[0].get_texts()}
    kinds = {stretch.kind for stretch in run.stretches}
    assert labels == {STRETCHES[kind]["label"] for kind in kinds}
    assert len(kinds) == 6
    drawn = sum(bar.get_width() for bar in axes.patches if bar.get_hatch() == "///")
    assert drawn == pytest.approx(run.share("redone") * 240)


def test_a_picture_of_intervals_marks_young_s_and_the_best_and_has_the_simulated():
    best = best_cadence(60, M)
    found = search([best, Cadence(6000, 60)], 2, seconds=10 * DAY, failures=M)
    (axes,) = draw_intervals(60, M, 300, 60, found).axes
    at = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    for name, interval in (("Young", optimal_interval(60, M)), ("best", best.interval)):
        assert at[f"{name}: {format_seconds(interval)}"] == pytest.approx(interval / MINUTE)
    (points,) = axes.containers
    xs, ys = points.lines[0].get_data()
    assert [*xs] == pytest.approx([best.interval / MINUTE, 100])
    assert [*ys] == pytest.approx([1 - one.goodput for one in found])
    # The top of the stack at the best interval is what is wasted there.
    top = axes.collections[3].get_paths()[0].vertices
    wasted = shares(best, M, 300, 60).wasted
    assert min(abs(y - wasted) for x, y in top if x == pytest.approx(best.interval / 60)) < 1e-9


def test_a_picture_of_devices_has_a_line_for_each_write():
    (axes,) = draw_devices([64, 1024, 16_384], 0.17, [10, 300], 300).axes
    for line, write in zip(axes.lines, (10, 300), strict=True):
        assert [*line.get_ydata()] == [
            best_share(n, 0.17, write, 300)[1].goodput for n in (64, 1024, 16_384)
        ]
        assert format_seconds(write) in line.get_label()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: draw_devices([], 1, [1]), "devices is .*; it must have at least one"),
        (lambda: draw_devices([8], 1, []), "write_seconds is .*; it must have at least one"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
