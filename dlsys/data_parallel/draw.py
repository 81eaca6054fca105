"""Pictures of what data parallelism costs: overlap, bucket sizes, scaling, bytes against loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import refuse, some
from dlsys.data_parallel.laws import Scaling
from dlsys.data_parallel.picture import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    HIDDEN,
    LEVEL,
    byte_unit,
    powers,
)
from dlsys.data_parallel.plan import BucketPlan
from dlsys.figures import closed_figure, time_unit
from dlsys.palette import GRID, GROUND, INK, LINES, ON_DARK, ON_LIGHT
from dlsys.streams import Overlap
from dlsys.units import MEGA, format_bytes, format_seconds

SHADES = ("#56B4E9", "#B4DDF4")
NARROW = 0.022  # of the axis: a bar that is shorter has no room for its bucket's number


def draw(plan: BucketPlan) -> Figure:
    """A row for each bucket, sent from top to bottom, its gradients one after the other.

    The line is where a bucket is full: it is sent once its last gradient has reached it.
    """
    rows = [bucket.nbytes for bucket in plan.buckets]
    figure, (axes,) = closed_figure(7.5, 1.2 + 0.34 * len(rows))
    widest = max([*rows, 1])
    scale, unit = byte_unit(widest)
    for row, bucket in enumerate(plan.buckets):
        start = 0
        for place, (name, size) in enumerate(zip(bucket.names, bucket.sizes, strict=True)):
            axes.barh(row, size * scale, 0.75, start * scale, color=SHADES[place % 2])
            if size > 0.011 * len(name) * widest:
                middle = (start + size / 2) * scale
                named = axes.text(middle, row, name, ha="center", va="center", fontsize=7)
                named.set_color(ON_LIGHT)
            start += size
    if plan.bucket_bytes <= 2 * widest:
        limit = plan.bucket_bytes * scale
        axes.axvline(limit, label="bucket_bytes", linestyle=":", color="#D55E00")
        axes.legend(fontsize="small", loc="lower right")
    axes.set_yticks(range(len(rows)), [f"bucket {i}" for i in range(len(rows))])
    axes.invert_yaxis()
    axes.set_xlabel(f"gradients ({unit})")
    return figure


@checked
def draw_overlap(*steps: Overlap, names: Sequence[str] = ()) -> Figure:
    """A panel for each step: compute above, all-reduces below, bucket by bucket, on one time axis.

    The part of communication after backward's end, which the step waits for, is marked.
    """
    some("steps", steps)
    figure, grid = closed_figure(7.5, 0.8 + 1.25 * len(steps), len(steps))
    unit, scale = time_unit(max(step.seconds for step in steps))
    width = 1.02 * max(step.seconds for step in steps) * scale
    for place, (axes, step) in enumerate(zip(grid, steps, strict=True)):
        axes.set_xlim(0, width)
        _bars(axes, 1, step.compute[:1], FORWARD, scale)
        _bars(axes, 1, step.compute[1:], BACKWARD, scale)
        ends = step.compute_seconds
        _bars(axes, 0, [(i, a, min(b, ends)) for i, a, b in step.network], HIDDEN, scale)
        _bars(axes, 0, [(i, max(a, ends), b) for i, a, b in step.network], EXPOSED, scale)
        axes.axvline(ends * scale, color=INK, linestyle=":", linewidth=1.2)
        axes.set_yticks([1, 0], ["compute", "network"])
        axes.set_ylim(-0.55, 1.55)
        title = f"{names[place]}: " if names else ""
        title += f"step {format_seconds(step.seconds)}, {step.hidden_fraction:.0%} hidden"
        axes.set_title(title, fontsize="medium", loc="left")
    grid[-1].set_xlabel(f"time ({unit})")
    shown: dict[str, Any] = {}
    for axes in grid:
        handles, labels = axes.get_legend_handles_labels()
        shown.update(zip(labels, handles, strict=True))
    order = [s["label"] for s in (FORWARD, BACKWARD, HIDDEN, EXPOSED) if s["label"] in shown]
    figure.legend(
        [shown[k] for k in order], order, loc="outside upper center", ncols=4, fontsize="small"
    )
    return figure


def _bars(
    axes: Axes, row: float, spans: Sequence[tuple[Any, float, float]], style: Any, scale: float
) -> None:
    """Bars of the spans (bucket, start, end) that have a length, with their buckets' numbers."""
    spans = [span for span in spans if span[2] - span[1] > 1e-12 * abs(span[2])]
    if not spans:
        return
    starts = [start * scale for _, start, _ in spans]
    widths = [(end - start) * scale for _, start, end in spans]
    least = NARROW * axes.get_xlim()[1]
    # An edge of the page's color would cover a very short bar; it gets one of its own color.
    edges = [GROUND if width > least / 4 else style["facecolor"] for width in widths]
    axes.barh(row, widths, 0.7, starts, edgecolor=edges, linewidth=0.6, **style)
    patch = {"facecolor": ON_DARK, "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    for (bucket, _, _), start, width in zip(spans, starts, widths, strict=True):
        if bucket != "forward" and width > least:
            name = axes.text(start + width / 2, row, str(bucket), ha="center", va="center")
            name.set(fontsize=8, color=ON_LIGHT, bbox=patch)


@checked
def draw_bucket_tradeoff(steps: Mapping[float, Overlap], best: float | None = None) -> Figure:
    """Seconds of a step over the size of its buckets, with what it is made of.

    steps: as `bucket_tradeoff` gives them. The step lies between compute alone and compute with
    all communication after it; the best size (the shortest step's, unless given) is marked.
    """
    some("steps", steps)
    found = min(steps, key=lambda size: steps[size].seconds) if best is None else best
    if not isinstance(found, int | float) or found not in steps:
        refuse("best", best, f"one of the sizes in steps: {', '.join(f'{s:g}' for s in steps)}")
    figure, (axes,) = closed_figure(7, 4)
    sizes = list(steps)
    unit, scale = time_unit(max(step.blocking_seconds for step in steps.values()))
    lines = {
        "step": [step.seconds for step in steps.values()],
        "step without overlap": [step.blocking_seconds for step in steps.values()],
        "communication alone": [step.communication_seconds for step in steps.values()],
    }
    for (label, values), (color, style, _) in zip(lines.items(), cycle(LINES), strict=False):
        shown = [value * scale for value in values]
        axes.plot([s / MEGA for s in sizes], shown, color=color, linestyle=style, label=label)
    compute = next(iter(steps.values())).compute_seconds * scale
    axes.axhline(compute, label="compute alone", **LEVEL)
    axes.plot(
        found / MEGA,
        steps[found].seconds * scale,
        "o",
        color="#0072B2",
        label=f"best: {format_bytes(found)}",
    )
    axes.set_xscale("log")
    top = 3 * steps[found].seconds  # tiny buckets take without limit
    axes.set_ylim(0, top * scale)
    axes.set_xlim(left=0.7 * min(s for s in sizes if steps[s].seconds <= top) / MEGA)
    axes.set_xlabel("bucket (MB, 10⁶ bytes)")
    axes.set_ylabel(f"time ({unit})")
    axes.legend(fontsize="small")
    return figure


@checked
def draw_scaling(curves: Mapping[str, Sequence[Scaling]]) -> Figure:
    """Speedup and efficiency over ranks, a line for each named curve of weak or strong scaling.

    Open markers are beyond the network wall, where communication takes longer than backward.
    """
    some("curves", curves)
    figure, (left, right) = closed_figure(8.5, 4, 1, 2)
    ranks = sorted({each.ranks for curve in curves.values() for each in curve})
    left.plot(ranks, ranks, label="n", **LEVEL)
    for (name, curve), (color, style, marker) in zip(curves.items(), cycle(LINES), strict=False):
        xs = [each.ranks for each in curve]
        for axes, ys in (
            (left, [each.speedup for each in curve]),
            (right, [100 * each.efficiency for each in curve]),
        ):
            axes.plot(xs, ys, color=color, linestyle=style, marker=marker, ms=5, label=name)
            bound = [(x, y) for x, y, each in zip(xs, ys, curve, strict=True) if each.network_bound]
            for x, y in bound:
                axes.plot(x, y, marker, ms=5, color=color, markerfacecolor=GROUND)
    for axes in (left, right):
        powers(axes, ranks)
        axes.set_xlabel("ranks n")
    left.set_yscale("log", base=2)
    left.set_yticks(ranks, [str(n) for n in ranks])
    left.set_ylabel("speedup over one rank")
    right.set_ylabel("efficiency (%)")
    right.set_ylim(0, 105)
    left.plot([], [], "o", ms=5, color=INK, markerfacecolor=GROUND, label="beyond the network wall")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize="small")
    return figure


@checked
def draw_compression(
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str = "loss"
) -> Figure:
    """Loss over bytes that a rank has sent, a line for each named (bytes, losses) of a run."""
    some("curves", curves)
    figure, (axes,) = closed_figure(7, 4)
    scale, unit = byte_unit(max(max(sent) for sent, _ in curves.values()))
    for (name, (sent, losses)), (color, style, marker) in zip(
        curves.items(), cycle(LINES), strict=False
    ):
        xs = [nbytes * scale for nbytes in sent]
        every = max(1, len(xs) // 8)
        axes.plot(
            xs,
            losses,
            color=color,
            linestyle=style,
            marker=marker,
            markevery=every,
            ms=5,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"sent by a rank so far ({unit})")
    axes.set_ylabel(label)
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure
