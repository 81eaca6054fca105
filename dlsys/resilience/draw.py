"""Pictures of cadence: a month of a run, its goodput over the interval, and over its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import count, positive, some
from dlsys.figures import closed_figure
from dlsys.palette import GRID, GROUND, INK, LINES
from dlsys.resilience.laws import best_share
from dlsys.resilience.price import Cadence, best_cadence, optimal_interval, shares
from dlsys.resilience.simulation import Found, SimulatedRun, Stretch
from dlsys.units import DAY, MINUTE, format_seconds

# Okabe and Ito's palette; hatches tell the same things apart in grey.
STRETCHES: Mapping[str, Mapping[str, Any]] = {
    "running": {"facecolor": "#56B4E9", "label": "work that stays, and its saves"},
    "redone": {"facecolor": "#D55E00", "hatch": "///", "label": "to be done again"},
    "detecting": {"facecolor": "#F0E442", "label": "failure not noticed yet"},
    "restarting": {"facecolor": "#E69F00", "hatch": "...", "label": "restarting"},
    "waiting": {"facecolor": "#CC79A7", "hatch": "xxx", "label": "waiting for a device"},
    "maintenance": {"facecolor": "#009E73", "hatch": "\\\\\\", "label": "maintenance"},
}
WASTE = {
    "writing": ("#0072B2", "", "writing"),
    "redone": ("#D55E00", "///", "done again"),
    "detecting": ("#F0E442", "", "not noticed yet"),
    "restarting": ("#E69F00", "...", "restarting"),
}
MOST_ROWS = 60


@checked
def draw_month(run: SimulatedRun) -> Figure:
    """A simulated run of at most 60 days, a row for each day: what its time went into."""
    figure, (axes,) = closed_figure(8, 0.8 + 0.14 * min(MOST_ROWS, run.seconds / DAY + 4))
    draw_days(axes, run)
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


def draw_days(axes: Axes, run: SimulatedRun) -> None:
    """The rows of `draw_month` into `axes`."""
    pieces = [piece for stretch in run.stretches for piece in _days(stretch)]
    for kind, style in STRETCHES.items():
        mine = [piece for piece in pieces if piece.kind == kind]
        if mine:
            days = [int(piece.start // DAY) for piece in mine]
            starts = [(p.start - day * DAY) / 3600 for p, day in zip(mine, days, strict=True)]
            widths = [(piece.end - piece.start) / 3600 for piece in mine]
            axes.barh(days, widths, 0.85, starts, edgecolor=GROUND, linewidth=0, **style)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4))
    axes.set_ylim(min(MOST_ROWS, max(1.0, run.seconds / DAY)) - 0.45, -0.55)
    axes.set_xlabel("time of day (h)")
    axes.set_ylabel("day")
    failures = run.events["failure"]
    title = f"{failures:,} failures, goodput {run.goodput:.1%}"
    axes.set_title(title, fontsize="medium", loc="left")


def _days(stretch: Stretch) -> list[Stretch]:
    """A stretch cut at midnight, as far as there are rows."""
    pieces, start = [], stretch.start
    while start < stretch.end and start < MOST_ROWS * DAY:
        midnight = (start // DAY + 1) * DAY
        pieces.append(Stretch(start, min(stretch.end, midnight), stretch.kind))
        start = midnight
    return pieces


@checked
def draw_intervals(
    write_seconds: float,
    mtbf_seconds: float,
    restart_seconds: float = 0.0,
    detection_seconds: float = 0.0,
    found: Sequence[Found] = (),
) -> Figure:
    """What a run's time goes into over the interval, with Young's and the best one marked.

    - found: simulated cadences, drawn as points with two standard errors to each side.
    """
    positive("write_seconds", write_seconds)
    positive("mtbf_seconds", mtbf_seconds)
    best = best_cadence(write_seconds, mtbf_seconds).interval
    figure, (axes,) = closed_figure(7, 3.6)
    intervals = [best * 10 ** (k / 40) for k in range(-60, 61)]
    down = restart_seconds, detection_seconds
    each = [shares(Cadence(i, write_seconds), mtbf_seconds, *down)._asdict() for i in intervals]
    draw_waste(axes, intervals, each)
    young = optimal_interval(write_seconds, mtbf_seconds)
    for name, at, line in (("Young", young, ":"), ("best", best, "-")):
        label = f"{name}: {format_seconds(at)}"
        axes.axvline(at / MINUTE, color=INK, linestyle=line, linewidth=1, label=label)
    if found:
        axes.errorbar(
            [one.cadence.interval / MINUTE for one in found],
            [1 - one.goodput for one in found],
            yerr=[2 * one.standard_error for one in found],
            color=INK,
            fmt="o",
            markersize=4,
            label="simulated",
        )
    axes.legend(fontsize="small")
    return figure


def draw_waste(axes: Axes, intervals: Sequence[float], each: Sequence[Mapping[str, Any]]) -> None:
    """The wasted shares over intervals in seconds, one on the other, into `axes`."""
    minutes = [interval / MINUTE for interval in intervals]
    low = [0.0] * len(minutes)
    for kind, (color, hatch, label) in WASTE.items():
        if not any(row[kind] for row in each):
            continue
        high = [below + row[kind] for below, row in zip(low, each, strict=True)]
        drawn: dict[str, Any] = {
            "facecolor": color,
            "hatch": hatch,
            "edgecolor": GROUND,
            "linewidth": 0.4,
        }
        axes.fill_between(minutes, low, high, label=label, **drawn)
        low = high
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlim(minutes[0], minutes[-1])
    axes.set_ylim(0, min(1.0, 1.05 * max(low)))
    axes.set_xlabel("interval between checkpoints (min)")
    axes.set_ylabel("share of time wasted")
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)


@checked
def draw_devices(
    devices: Sequence[int],
    failures_a_year: float,
    write_seconds: Sequence[float],
    restart_seconds: float = 0.0,
    detection_seconds: float = 0.0,
) -> Figure:
    """Goodput at the best interval over the number of devices, a line for each write's seconds."""
    some("devices", devices)
    some("write_seconds", write_seconds)
    positive("failures_a_year", failures_a_year)
    numbers = [count("A number of devices", number) for number in devices]
    figure, (axes,) = closed_figure(7, 3.4)
    for index, write in enumerate(write_seconds):
        positive("write_seconds", write)
        color, line, marker = LINES[index % len(LINES)]
        goodputs = [
            best_share(n, failures_a_year, write, restart_seconds, detection_seconds)[1].goodput
            for n in numbers
        ]
        style = {"color": color, "linestyle": line, "marker": marker, "markersize": 4}
        axes.plot(numbers, goodputs, label=f"write of {format_seconds(write)}", **style)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1)
    axes.set_xlabel("devices")
    axes.set_ylabel("goodput at the best interval")
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


def draw_choice(run: SimulatedRun, rows: Sequence[Any], chosen: float, best: float) -> Figure:
    """An explorer's month above, its rows below; chosen and best: intervals in seconds."""
    figure, (days, waste) = closed_figure(9, 8, 2)
    draw_days(days, run)
    days.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3)
    draw_waste(waste, [row.interval for row in rows], [row._asdict() for row in rows])
    marks = {"best": (best, "-"), "chosen": (chosen, "--")}
    if chosen == best:
        marks = {"best, and chosen": (best, "-")}
    for name, (at, line) in marks.items():
        label = f"{name}: {format_seconds(at)}"
        waste.axvline(at / MINUTE, color=INK, linestyle=line, linewidth=1.2, label=label)
    waste.legend(fontsize="small", ncols=2)
    return figure
