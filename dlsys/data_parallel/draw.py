"""Pictures of what data parallelism costs: buckets, overlap, scaling, bytes against loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlsys.annotated import checked
from dlsys.checks import some
from dlsys.data_parallel.laws import Scaling
from dlsys.data_parallel.plan import BucketPlan
from dlsys.figures import closed_figure, time_unit
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED, ON_DARK, ON_LIGHT
from dlsys.streams import Overlap, Span
from dlsys.units import MEGA, format_bytes, format_seconds

# Okabe and Ito's palette; hatches and line styles tell the same things apart in grey.
SHADES = ("#56B4E9", "#B4DDF4")
FORWARD: Mapping[str, Any] = {"facecolor": "#56B4E9", "label": "forward"}
BACKWARD: Mapping[str, Any] = {"facecolor": "#0072B2", "label": "backward"}
HIDDEN: Mapping[str, Any] = {"facecolor": "#009E73", "hatch": "///", "label": "all-reduce, hidden"}
EXPOSED: Mapping[str, Any] = {
    "facecolor": "#D55E00",
    "hatch": "xxx",
    "label": "all-reduce, exposed",
}
LEVEL: Mapping[str, Any] = {"color": MUTED, "linewidth": 1}
NARROW = 0.022  # of the axis: a bar that is shorter has no room for its bucket's number


def draw(plan: BucketPlan) -> Figure:
    """A row for each bucket, sent from top to bottom, its gradients one after the other.

    The line is where a bucket is full: it is sent once its last gradient has reached it.
    """
    widest = max([1, *(bucket.nbytes for bucket in plan.buckets)])
    scale, unit = byte_unit(widest)
    figure, (axes,) = closed_figure(7.5, 1.2 + 0.34 * len(plan.buckets))
    for row, bucket in enumerate(plan.buckets):
        sizes = [size * scale for size in bucket.sizes]
        starts = list(accumulate(sizes[:-1], initial=0.0))
        bars = axes.barh(row, sizes, 0.75, starts, color=SHADES)
        named = zip(bucket.names, bucket.sizes, strict=True)
        names = [name if size > 0.011 * len(name) * widest else "" for name, size in named]
        axes.bar_label(bars, names, label_type="center", fontsize=7, color=ON_LIGHT)
    if plan.bucket_bytes <= 2 * widest:
        limit = plan.bucket_bytes * scale
        axes.axvline(limit, label="bucket_bytes", linestyle=":", color="#D55E00")
        axes.legend(fontsize="small", loc="lower right")
    axes.set_yticks(range(len(plan.buckets)), [f"bucket {bucket.index}" for bucket in plan.buckets])
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
    longest = max(step.seconds for step in steps)
    for place, (axes, step) in enumerate(zip(grid, steps, strict=True)):
        _draw_step(axes, step, longest)
        title = f"{names[place]}: " if names else ""
        title += f"step {format_seconds(step.seconds)}, {step.hidden_fraction:.0%} hidden"
        axes.set_title(title, fontsize="medium", loc="left")
    grid[-1].set_xlabel(f"time ({time_unit(longest)[0]})")
    figure.legend(handles=_looks(), loc="outside upper center", ncols=4, fontsize="small")
    return figure


def draw_choice(rows: Sequence[Any], bucket: str, ranks: int) -> Figure:
    """An explorer's rows: left, the chosen step; right, the efficiency of every row.

    rows: with `bucket`, `ranks`, `efficiency`, `seconds` of the step, and of `forward`, `backward`,
    `hidden` and `exposed`; one of them has the chosen `bucket` and `ranks`, and is marked.
    """
    (chosen,) = (row for row in rows if (row.bucket, row.ranks) == (bucket, ranks))
    figure, (step, curves) = closed_figure(10, 4, 1, 2)
    done = chosen.forward + chosen.backward
    compute = Span("forward", 0.0, chosen.forward), Span("backward", chosen.forward, done)
    network = Span("all-reduce", done - chosen.hidden, chosen.seconds)
    _draw_step(step, Overlap(compute, (network,)), chosen.seconds)
    step.set_ylim(-0.6, 2.4)
    step.set_xlabel(f"time ({time_unit(chosen.seconds)[0]})")
    step.legend(handles=_looks(), fontsize="small", loc="upper center", ncols=2)

    sizes = list(dict.fromkeys(row.ranks for row in rows))
    by_bucket: dict[str, list[float]] = {}
    for row in rows:
        by_bucket.setdefault(f"buckets: {row.bucket}", []).append(100 * row.efficiency)
    _lines(curves, {name: (sizes, values) for name, values in by_bucket.items()})
    curves.plot([ranks], [100 * chosen.efficiency], "o", color=INK, fillstyle="none", markersize=10)
    _over_ranks(curves, sizes)
    curves.set_ylim(0, 105)
    curves.set_ylabel("efficiency (%)")
    curves.legend(fontsize="small")
    return figure


def _draw_step(axes: Axes, step: Overlap, longest: float) -> None:
    """Compute above, all-reduces below, those exposed that go on after compute."""
    unit_seconds = time_unit(longest)[1]
    axes.set_xlim(0, 1.02 * longest * unit_seconds)
    done = step.compute[-1].end
    _bars(axes, 1, step.compute[:1], FORWARD, unit_seconds)
    _bars(axes, 1, step.compute[1:], BACKWARD, unit_seconds)
    hidden = [Span(i, start, min(end, done)) for i, start, end in step.network]
    exposed = [Span(i, max(start, done), end) for i, start, end in step.network]
    _bars(axes, 0, hidden, HIDDEN, unit_seconds)
    _bars(axes, 0, exposed, EXPOSED, unit_seconds)
    axes.axvline(done * unit_seconds, color=INK, linestyle=":", linewidth=1.2)
    axes.set_yticks([1, 0], ["compute", "network"])
    axes.set_ylim(-0.55, 1.55)


def _bars(
    axes: Axes, row: float, spans: Sequence[Span], look: Mapping[str, Any], scale: float
) -> None:
    """Bars of the spans that have a length, with their buckets' numbers."""
    spans = [span for span in spans if span.seconds > 1e-12 * span.end]
    if not spans:
        return
    widths = [span.seconds * scale for span in spans]
    least = NARROW * axes.get_xlim()[1]
    # An edge of the page's color would cover a very short bar; it gets one of its own color.
    edges = [GROUND if width > least / 4 else look["facecolor"] for width in widths]
    starts = [span.start * scale for span in spans]
    bars = axes.barh(row, widths, 0.7, starts, edgecolor=edges, linewidth=0.6, **look)
    numbers = [
        str(span.action) if isinstance(span.action, int) and width > least else ""
        for span, width in zip(spans, widths, strict=True)
    ]
    patch = {"facecolor": ON_DARK, "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    axes.bar_label(bars, numbers, label_type="center", fontsize=8, color=ON_LIGHT, bbox=patch)


def _looks() -> list[Patch]:
    """What a legend shows of a step."""
    return [Patch(edgecolor=GROUND, **look) for look in (FORWARD, BACKWARD, HIDDEN, EXPOSED)]


@checked
def draw_bucket_tradeoff(steps: Mapping[float, Overlap]) -> Figure:
    """Seconds of a step over the size of its buckets, with what it is made of.

    steps: as `bucket_tradeoff` gives them. The step lies between compute alone and compute with
    all communication after it; the size of the shortest step is marked.
    """
    some("steps", steps)
    best = min(steps, key=lambda size: steps[size].seconds)
    figure, (axes,) = closed_figure(7, 4)
    unit, scale = time_unit(max(step.blocking_seconds for step in steps.values()))
    sizes = [size / MEGA for size in steps]
    made_of = {
        "step": [step.seconds * scale for step in steps.values()],
        "step without overlap": [step.blocking_seconds * scale for step in steps.values()],
        "communication alone": [step.communication_seconds * scale for step in steps.values()],
    }
    _lines(axes, {name: (sizes, seconds) for name, seconds in made_of.items()}, marker="")
    axes.axhline(steps[best].compute_seconds * scale, label="compute alone", **LEVEL)
    shortest = steps[best].seconds
    label = f"best: {format_bytes(best)}"
    axes.plot(best / MEGA, shortest * scale, "o", color="#0072B2", label=label)
    axes.set_xscale("log")
    top = 3 * shortest  # tiny buckets take without limit
    axes.set_ylim(0, top * scale)
    axes.set_xlim(left=0.7 * min(s for s, step in steps.items() if step.seconds <= top) / MEGA)
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
    walled = {name: [s for s in curve if s.network_bound] for name, curve in curves.items()}
    open_markers = {"linestyle": "", "markerfacecolor": GROUND, "label": "_"}
    values: tuple[Callable[[Scaling], float], ...]
    values = (lambda s: s.speedup, lambda s: 100 * s.efficiency)
    for axes, value in zip((left, right), values, strict=True):
        for shown, look in ((curves, {}), (walled, open_markers)):
            points = {
                name: ([s.ranks for s in curve], [value(s) for s in curve])
                for name, curve in shown.items()
            }
            _lines(axes, points, **look)
        _over_ranks(axes, ranks)
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
def draw_compression(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Loss over bytes that a rank has sent, a line for each named (bytes, losses) of a run."""
    some("curves", curves)
    figure, (axes,) = closed_figure(7, 4)
    scale, unit = byte_unit(max(max(sent) for sent, _ in curves.values()))
    scaled = {
        name: ([nbytes * scale for nbytes in sent], losses)
        for name, (sent, losses) in curves.items()
    }
    _lines(axes, scaled, markevery=0.1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"sent by a rank so far ({unit})")
    axes.set_ylabel("loss")
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


def _lines(
    axes: Axes, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], **look: Any
) -> None:
    """A line through each name's points, told apart by color, style and marker."""
    for (name, (xs, ys)), (color, style, marker) in zip(curves.items(), cycle(LINES), strict=False):
        own: dict[str, Any] = {"color": color, "linestyle": style, "marker": marker}
        axes.plot(xs, ys, **{**own, "ms": 5, "label": name, **look})


def _over_ranks(axes: Axes, ranks: Sequence[int]) -> None:
    """Let the horizontal axis be numbers of ranks, each twice the one before."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(n) for n in ranks])
    axes.set_xlabel("ranks n")
    axes.grid(color=GRID)


def byte_unit(most: float) -> tuple[float, str]:
    """How many of the unit in which `most` reads well a byte is, and the unit's name."""
    for size, unit in ((1e9, "GB, 10⁹ bytes"), (1e6, "MB, 10⁶ bytes"), (1e3, "kB, 10³ bytes")):
        if most >= size:
            return 1 / size, unit
    return 1.0, "bytes"
