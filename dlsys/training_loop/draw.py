"""Pictures of the loop: a step's spans, losses and schedules, steps against batches, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, SupportsIndex

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, refuse_what, some, text
from dlsys.figures import closed_figure, time_unit
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED
from dlsys.streams import Span
from dlsys.training_loop.laws import Extremes
from dlsys.training_loop.plan import StepPlan
from dlsys.training_loop.price import price

# Okabe and Ito's palette; hatches tell the same things apart in grey.
ACTIONS: Mapping[str, Mapping[str, Any]] = {
    "load": {"facecolor": "#009E73", "hatch": "xx", "label": "load"},
    "forward": {"facecolor": "#56B4E9", "label": "forward"},
    "backward": {"facecolor": "#0072B2", "hatch": "..", "label": "backward"},
    "reduce": {"facecolor": "#CC79A7", "hatch": "\\\\", "label": "sum over ranks"},
    "update": {"facecolor": "#E69F00", "hatch": "//", "label": "update"},
}
MEMORY: Mapping[str, Mapping[str, Any]] = {
    "parameters": {"facecolor": "#0072B2", "label": "weights and gradients"},
    "state": {"facecolor": "#E69F00", "hatch": "//", "label": "optimizer state"},
    "activations": {"facecolor": "#56B4E9", "hatch": "..", "label": "activations"},
}


@checked
def draw_step(
    plan: StepPlan,
    forward: float = 1.0,
    backward: float = 2.0,
    update: float = 0.5,
    reduce: float = 0.0,
    load: float = 0.0,
) -> Figure:
    """The spans of a step in time; with a time to load, below it the same step with prefetching."""
    times = {"forward": forward, "backward": backward, "update": update, "reduce": reduce}
    at_least("load", load, 0)
    ways = (False, True) if load else (False,)
    figure, each = closed_figure(8, 1.7 * len(ways), len(ways))
    prices = [price(plan, **times, load=load, prefetch=way) for way in ways]
    longest = max(each.seconds for each in prices)
    positive("forward + backward + update", longest)
    for axes, cost, way in zip(each, prices, ways, strict=True):
        draw_spans(axes, cost.spans, longest)
        if load:
            title = "with prefetch" if way else "load, then compute"
            axes.set_title(title, loc="left", fontsize="medium")
    _legend(figure, each[0])
    return figure


def draw_spans(axes: Axes, spans: Sequence[Span], longest: float) -> None:
    """Spans as bars into `axes`, a row for those who load, and one for the device."""
    unit, scale = time_unit(longest)
    kinds = [span.action.split()[0] for span in spans]
    lanes = ["load", "device"] if "load" in kinds else ["device"]
    for kind, span in zip(kinds, spans, strict=True):
        begin, width = span.start * scale, span.seconds * scale
        look: dict[str, Any] = {"edgecolor": GROUND, "linewidth": 0.6, **ACTIONS[kind]}
        axes.barh(lanes.index("load" if kind == "load" else "device"), width, 0.7, begin, **look)
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_xlim(0, 1.01 * longest * scale)
    axes.set_xlabel(f"time ({unit})")


@checked
def draw_losses(
    curves: Mapping[str, Sequence[float]],
    every: SupportsIndex = 1,
    log: bool = False,
    up: str = "loss",
) -> Figure:
    """Losses, a line for each named run, over steps: the first is of step `every`, and so on.

    `up` names the vertical axis.
    """
    some("curves", curves)
    every = count("every", every)
    text("up", up)
    figure, (axes,) = closed_figure(7, 3.6)
    for (name, losses), (color, style, _) in zip(curves.items(), cycle(LINES), strict=False):
        for loss in losses:
            at_least(f"curves: {name}", loss, 0)
        steps = range(every, every * len(losses) + 1, every)
        axes.plot(steps, losses, color=color, linestyle=style, label=name)
    if log:
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel(up)
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


@checked
def draw_schedules(schedules: Mapping[str, Sequence[float]]) -> Figure:
    """Rates, a line for each named schedule, over the step from 0."""
    some("schedules", schedules)
    figure, (axes,) = closed_figure(7, 3)
    for (name, rates), (color, style, _) in zip(schedules.items(), cycle(LINES), strict=False):
        for rate in rates:
            at_least(f"schedules: {name}", rate, 0)
        axes.plot(range(len(rates)), rates, color=color, linestyle=style, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate / peak")
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


@checked
def draw_batches(batches: Sequence[float], steps: Sequence[float], fitted: Extremes) -> Figure:
    """Left, steps to one loss over the batch; right, samples: what ran, and the fitted law."""
    for name, values in (("batches", batches), ("steps", steps)):
        some(name, values)
        for value in values:
            positive(name, value)
    if len(batches) != len(steps):
        refuse_what("steps, batches", f"{len(steps)} and {len(batches)} numbers", "as many of both")
    if not isinstance(fitted, Extremes):
        refuse("fitted", fitted, "what fit_extremes gives")
    figure, (left, right) = closed_figure(9, 3.6, 1, 2)
    fine = [min(batches) * (max(batches) / min(batches)) ** (k / 40) for k in range(41)]
    law = [fitted.least_steps + fitted.least_samples / b for b in fine]
    for axes, power, what in ((left, 0, "steps"), (right, 1, "samples")):
        ran = [s * b**power for b, s in zip(batches, steps, strict=True)]
        color, _, marker = LINES[0]
        axes.plot(batches, ran, color=color, marker=marker, linestyle="none", label="ran")
        curve = [s * b**power for b, s in zip(fine, law, strict=True)]
        axes.plot(fine, curve, color=LINES[1][0], linestyle=LINES[1][1], label="law")
        least = fitted.least_samples if power else fitted.least_steps
        axes.axhline(least, color=MUTED, linestyle=":", label=f"fewest {what}")
        axes.axvline(fitted.critical_batch, color=INK, linestyle="-.", label="critical batch")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("batch (samples)")
        axes.set_ylabel(f"{what} to the loss")
        axes.grid(color=GRID)
        axes.legend(fontsize="small")
    return figure


def draw_choice(
    spans: Sequence[Span], rows: Sequence[Any], micro_batch: int, memory: float
) -> Figure:
    """An explorer's step above; below, the bytes of each micro-batch, and what the device has."""
    figure, (step, bars) = closed_figure(9, 5.5, 2)
    draw_spans(step, spans, max(span.end for span in spans))
    low = [0.0] * len(rows)
    for name, style in MEMORY.items():
        sizes = [getattr(row, name) / 1e9 for row in rows]
        look: dict[str, Any] = {"edgecolor": GROUND, "linewidth": 0.6, **style}
        bars.bar(range(len(rows)), sizes, 0.7, low, **look)
        low = [a + b for a, b in zip(low, sizes, strict=True)]
    bars.axhline(memory / 1e9, color=INK, linestyle=":", label="the device")
    ticks = [f"▸ {r.micro_batch}" if r.micro_batch == micro_batch else r.micro_batch for r in rows]
    bars.set_xticks(range(len(rows)), ticks)
    bars.set_xlabel("sequences at once")
    bars.set_ylabel("memory (GB)")
    bars.legend(fontsize="small")
    _legend(figure, step)
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    known = dict(zip(labels, handles, strict=True))
    figure.legend(known.values(), known, loc="outside upper center", ncols=5, fontsize="small")
