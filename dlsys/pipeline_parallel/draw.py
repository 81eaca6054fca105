"""Pictures of schedules: who works when on what, what is held meanwhile, and what idles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dlsys.annotated import checked
from dlsys.checks import at_least, positive, some
from dlsys.palette import GRID, INK, LINES, ON_DARK, ON_LIGHT
from dlsys.pipeline_parallel.action import KINDS
from dlsys.pipeline_parallel.plan import Plan
from dlsys.pipeline_parallel.price import Price, Seconds

# Okabe and Ito's palette. In grey F is dark, B is light and W lies between them, hatched; the
# later of a rank's stages are paler.
COLORS = {"F": (0.0, 0.30, 0.56), "B": (0.95, 0.75, 0.35), "W": (0.0, 0.62, 0.45)}
UPDATE = (0.6, 0.6, 0.6)
HATCHED, HATCH = "W", (1.0, 1.0, 1.0, 0.6)
MOST_NAMED = 1500
MOST_RANKS = 64


@checked
def draw(
    plan: Plan,
    forward: Seconds = 1.0,
    backward: Seconds = 2.0,
    transfer: float = 0.0,
    weight_backward: Seconds | None = None,
    memory: bool = False,
    until: float | None = None,
    width: float = 9.0,
    *,
    send: float = 0.0,
    receive: float = 0.0,
    update: Seconds = 0.0,
) -> Figure:
    """A Gantt chart: a row for each rank, a bar for each action with its micro-batch's number.

    Idle time and that of messages stay empty, and the later of a rank's stages are paler; a grey
    bar at the end is the update. The times are those of `price`. With `memory` a panel below shows
    how many (stage, micro-batch) pairs the ranks hold.
    until: the right end of the time axis, for charts to be compared; width: in inches. Raises
    ValueError for more ranks than can be read.
    """
    if plan.p > MOST_RANKS:
        raise ValueError(
            f"A chart of {plan.p} ranks could not be read: draw the same schedule with 8, say; "
            f"{MOST_RANKS} are the most."
        )
    positive("until", 1.0 if until is None else until)
    positive("width", width)
    cost = plan.price(
        forward, backward, transfer, weight_backward, send=send, receive=receive, update=update
    )
    rows = 0.28 * plan.p + 1.1
    figure, (axes, *below) = _figure(
        (width, rows + 2.0 * memory), heights=[rows, 2.0] if memory else [rows]
    )
    _bars(axes, plan, cost, until or cost.makespan, width)
    _updates(axes, plan, cost, send)
    for panel in below:
        _held(panel, plan, cost, until or cost.makespan)
    (below or [axes])[-1].set_xlabel("time (s)")
    figure.legend(handles=_legend(plan, any(cost.update)), ncols=5, loc="outside lower left")
    axes.set_title(
        f"{plan.name}: {plan.p} rank{'s' * (plan.p > 1)}, "
        f"{plan.m} micro-batch{'es' * (plan.m > 1)}, "
        f"{cost.makespan:.4g} s, {cost.bubble_fraction:.1%} idle".replace("%", " %")
    )
    return figure


@checked
def draw_comparison(
    plans: Sequence[Plan] | Mapping[str, Plan],
    forward: float = 1.0,
    backward: float = 2.0,
    transfer: float = 0.0,
    weight_backward: float | None = None,
    *,
    quick: float = 0.0,
) -> Figure:
    """What schedules leave idle and what they hold, a row for each, the smallest memory on top.

    On the left, a filled point is the idle share at `transfer` seconds, a hollow one that at
    `quick`, where they differ. On the right, a bar is the peak memory: activations of a rank's
    share of the model for one micro-batch, on the rank that holds most, which is (stage,
    micro-batch) pairs divided by stages per rank.
    """
    named = plans if isinstance(plans, Mapping) else {plan.name: plan for plan in plans}
    some("plans", named)
    at_least("quick", quick, 0)

    def share(plan: Plan, seconds: float) -> float:
        return 100 * plan.price(forward, backward, seconds, weight_backward).bubble_fraction

    held = {name: max(plan.peak_in_flight) / plan.v for name, plan in named.items()}
    slow = {name: share(plan, transfer) for name, plan in named.items()}
    rows = sorted(named, key=lambda name: (held[name], slow[name]))
    figure, (idle, memory) = _figure((8, 1.2 + 0.3 * len(rows)), beside=True)
    color, _, marker = LINES[0]
    for row, name in enumerate(rows):
        if transfer != quick:
            fast = share(named[name], quick)
            idle.plot([fast, slow[name]], [row, row], color=color, linewidth=1)
            idle.plot(fast, row, marker, color=color, fillstyle="none", markersize=7)
        idle.plot(slow[name], row, marker, color=color, markersize=7)
    bars = memory.barh(range(len(rows)), [held[name] for name in rows], 0.6, color=LINES[1][0])
    memory.bar_label(bars, [f"{held[name]:g}" for name in rows], padding=2, fontsize=8)
    idle.set_yticks(range(len(rows)), rows)
    idle.set_ylim(len(rows) - 0.5, -0.5)
    idle.set_xlabel("idle share of the step (%)")
    memory.set_xlabel("micro-batches held, at most")
    memory.margins(x=0.15)
    for axes in (idle, memory):
        axes.set_xlim(left=0)
        axes.set_axisbelow(True)
        axes.grid(color=GRID)
    return figure


def _figure(
    size: tuple[float, float], heights: Sequence[float] = (1.0,), beside: bool = False
) -> tuple[Figure, list[Axes]]:
    """Panels of these heights on one axis of time, or two of one height `beside` each other."""
    figure = plt.figure(figsize=size, layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time at the end of the cell
    grid: Any = (
        figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        if beside
        else figure.subplots(len(heights), 1, squeeze=False, sharex=True, height_ratios=heights)
    )
    return figure, list(grid.flat)


def _bars(axes: Axes, plan: Plan, cost: Price, until: float, width: float) -> None:
    local = {  # a stage's place among those of its rank
        stage: plan.placement[:stage].count(rank) for stage, rank in enumerate(plan.placement)
    }
    inches = width * 0.9 / until  # of a second
    room = (0.058 * len(str(plan.m - 1)) + 0.01) / inches  # for the longest number
    sparse = sum(map(len, cost.spans)) <= MOST_NAMED
    bars: dict[tuple[str, int], list[Any]] = {}
    for rank, spans in enumerate(cost.spans):
        for (kind, stage, k), start, end in spans:
            low, high = rank - 0.42, rank + 0.42
            square = [(start, low), (end, low), (end, high), (start, high)]
            bars.setdefault((kind, local[stage]), []).append(square)
            if sparse and end - start >= room:
                dark = sum(_color(kind, local[stage], plan.v)) < 1.0
                text = axes.text((start + end) / 2, rank, str(k), ha="center", va="center_baseline")
                text.set(fontsize=7, color=ON_DARK if dark else ON_LIGHT, in_layout=False)
    for (kind, place), squares in bars.items():
        fill = PolyCollection(squares, facecolors=[_color(kind, place, plan.v)], linewidths=0)
        if kind == HATCHED:  # in the colour of its edges
            fill.set(hatch="////", edgecolors=[HATCH])
        axes.add_collection(fill)
        if sparse:
            axes.add_collection(
                PolyCollection(squares, facecolors="none", edgecolors=INK, linewidths=0.5)
            )
    axes.set_xlim(0, until)
    axes.set_ylim(plan.p - 0.45, -0.55)
    axes.set_yticks(range(plan.p) if plan.p <= 16 else [0, plan.p - 1])
    axes.set_ylabel("rank")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _updates(axes: Axes, plan: Plan, cost: Price, send: float) -> None:
    """A bar for each rank's update, once its last action has ended and its message is sent."""
    for rank, (spans, seconds) in enumerate(zip(cost.spans, cost.update, strict=True)):
        if seconds:
            (kind, stage, _), _, end = spans[-1]
            sends = kind == "B" and stage > 0 and plan.placement[stage - 1] != rank
            axes.barh(rank, seconds, 0.84, end + sends * send, color=UPDATE, edgecolor=INK)


def _legend(plan: Plan, updates: bool) -> list[Patch]:
    words = dict(KINDS) if plan.splits_backward else {"F": "forward", "B": "backward"}
    if plan.splits_backward:
        words["B"] = "backward for inputs"
    patches = [
        Patch(
            facecolor=COLORS[kind],
            hatch="////" * (kind == HATCHED),
            edgecolor=HATCH if kind == HATCHED else INK,
            label=name,
        )
        for kind, name in words.items()
    ]
    if updates:
        patches.append(Patch(facecolor=UPDATE, edgecolor=INK, label="update"))
    if plan.v > 1:
        later = _color("F", plan.v - 1, plan.v)
        patches.append(Patch(facecolor=later, edgecolor=INK, label="paler: a later stage"))
    return patches


def _color(kind: str, place: int, v: int) -> tuple[float, float, float]:
    paler = 0.55 * place / max(1, v - 1)
    red, green, blue = (part + (1 - part) * paler for part in COLORS[kind])
    return red, green, blue


def _held(axes: Axes, plan: Plan, cost: Price, until: float) -> None:
    """The pairs in flight over time: from a forward pass's start to the end that frees them."""
    frees = "W" if plan.splits_backward else "B"
    shown = range(plan.p) if plan.p <= 4 else sorted({0, plan.p // 2, plan.p - 1})
    for rank, (color, style, _) in zip(shown, LINES, strict=False):
        steps = [(start, 1) for (kind, *_), start, _ in cost.spans[rank] if kind == "F"]
        steps += [(end, -1) for (kind, *_), _, end in cost.spans[rank] if kind == frees]
        times, held = [0.0], [0]
        for time, change in sorted(steps):
            if time > times[-1]:
                times.append(time)
                held.append(held[-1])
            held[-1] += change  # where one pass ends and the next starts there is no dip
        axes.step(times, held, where="post", color=color, linestyle=style, label=f"rank {rank}")
    axes.set_xlim(0, until)
    axes.set_ylim(0, 1.3 * max(plan.peak_in_flight))  # the legend stands above the lines
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("in flight")
    axes.grid(color=GRID)
    axes.legend(loc="upper right", ncols=4, fontsize=8)
