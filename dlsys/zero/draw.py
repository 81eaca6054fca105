"""Pictures of ZeRO: a step with gathers beside compute, and what each stage leaves on a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse, some
from dlsys.figures import arrow, block, closed_figure, time_unit
from dlsys.network import Where
from dlsys.palette import GRID, GROUND, INK, MUTED, ON_DARK, ON_LIGHT
from dlsys.streams import Overlap
from dlsys.units import format_bytes, format_seconds
from dlsys.zero.plan import BACKWARD, FORWARD, GATHER, REDUCE, StepPlan
from dlsys.zero.price import Held, overlap

# One color for weights, gradients and optimizer's state in all pictures, after Okabe and Ito; what
# is whole only for a moment is lighter and hatched, and what computes is grey.
GATHERED: Mapping[str, Any] = {"facecolor": "#56B4E9", "hatch": "///"}
UNREDUCED: Mapping[str, Any] = {"facecolor": "#E6B8D0", "hatch": "\\\\\\"}
SPANS: Mapping[str, Mapping[str, Any]] = {
    FORWARD: {"facecolor": "#BDBDBD", "label": "forward"},
    BACKWARD: {"facecolor": "#868686", "label": "backward"},
    GATHER: {**GATHERED, "label": "gather of weights"},
    REDUCE: {**UNREDUCED, "label": "reduction of gradients"},
}
BUCKETS: Mapping[str, Mapping[str, Any]] = {
    "weights": {"facecolor": "#0072B2", "label": "weights"},
    "gradients": {"facecolor": "#CC79A7", "label": "gradients"},
    "optimizer": {"facecolor": "#009E73", "label": "optimizer's state"},
    "gathered": {**GATHERED, "label": "gathered weights, at most"},
    "unreduced": {**UNREDUCED, "label": "whole gradients, at most"},
}
BYTES = "bytes on a device (GB, 10⁹ bytes)"
NARROW = 0.02  # of the axis: a bar that is shorter has no room for its unit's number


def draw(
    plan: StepPlan,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    where: Where = None,
) -> Figure:
    """A step of the plan: what the device computes above, what the network carries below.

    forward, backward and where are those of `price.overlap`. Numbers on bars are those of units.
    """
    figure, (axes,) = closed_figure(8, 2.3)
    step = overlap(plan, forward, backward, where)
    draw_step(axes, step)
    done = f"step {format_seconds(step.seconds)}, {format_seconds(step.exposed_seconds)} exposed"
    axes.set_title(f"stage {plan.stage}, {plan.ranks} ranks: {done}", fontsize="medium", loc="left")
    figure.legend(loc="outside upper center", ncols=4, fontsize="small")
    return figure


def draw_step(axes: Axes, step: Overlap) -> None:
    """Both rows of a step into `axes`."""
    unit, scale = time_unit(step.seconds)
    room = 1.02 * (step.seconds or 1.0) * scale
    patch = {"facecolor": ON_DARK, "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
    number: Any = {"ha": "center", "va": "center", "fontsize": 8, "color": ON_LIGHT, "bbox": patch}
    for row, spans in ((1, step.compute), (0, step.network)):
        for kind, style in SPANS.items():
            shown = [span for span in spans if span.action.kind == kind and span.seconds]
            starts = [span.start * scale for span in shown]
            widths = [span.seconds * scale for span in shown]
            if shown:
                axes.barh(row, widths, 0.7, starts, edgecolor=GROUND, linewidth=0.4, **style)
            for span, start, width in zip(shown, starts, widths, strict=True):
                if width > NARROW * room:
                    axes.text(start + width / 2, row, str(span.action.unit), **number)
    axes.set_xlim(0, room)
    axes.set_yticks([1, 0], ["compute", "network"])
    axes.set_ylim(-0.55, 1.55)
    axes.set_xlabel(f"time ({unit})")


@checked
def draw_held(
    each: Mapping[str, Held], limit: float | None = None, zoom: Sequence[str] = ()
) -> Figure:
    """A bar for each named `Held`: what a device holds at rest, and at most beside it in a step.

    limit: bytes of the device's memory, drawn as a line; zoom: names of bars that are too short to
    see their parts, drawn below once more. Raises ValueError for a name that has no bar.
    """
    some("each", each)
    if limit is not None:
        positive("limit", limit)
    for name in zoom:
        if name not in each:
            refuse("zoom", name, f"names of {', '.join(map(repr, each))}")
    below = {name: each[name] for name in zoom}
    panels = [each, below] if below else [each]
    figure, axes = closed_figure(7, 1.4 + 0.42 * len(each) + 0.55 * len(below), len(panels))
    for one, bars, line in zip(axes, panels, (limit, None), strict=False):
        draw_bars(one, bars, line)
        one.set_xlabel("")
    axes[-1].set_xlabel(BYTES)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def draw_bars(axes: Axes, each: Mapping[str, Held], limit: float | None) -> None:
    """The bars of `draw_held` into `axes`."""
    ends = [0.0] * len(each)
    for bucket, style in BUCKETS.items():
        sizes = [getattr(held, bucket) / 1e9 for held in each.values()]
        axes.barh(range(len(each)), sizes, 0.7, ends, edgecolor=GROUND, linewidth=0.6, **style)
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    for row, (end, held) in enumerate(zip(ends, each.values(), strict=True)):
        total = format_bytes(held.at_rest)
        if held.most > held.at_rest:
            total += f", at most {format_bytes(held.most)}"
        named = axes.annotate(total, (end, row), (4, 0), textcoords="offset points", va="center")
        named.set(fontsize="small", color=INK)
        named.set_bbox({"facecolor": GROUND, "edgecolor": "none", "pad": 0.5})  # over the limit
    if limit is not None:
        axes.axvline(limit / 1e9, color=INK, linestyle=":", label="the device's memory")
    axes.set_yticks(range(len(each)), list(each))
    axes.invert_yaxis()
    longest = max(each.values(), key=lambda held: held.at_rest)
    room = 1.45 if longest.most > longest.at_rest else 1.18  # for the label of the longest
    axes.set_xlim(0, room * max([*ends, 1e-9]))
    axes.set_xlabel(BYTES)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)


def draw_choice(
    rows: Sequence[Any], stage: int, step: Overlap, memory: float, title: str
) -> Figure:
    """An explorer's rows: above, what a device holds at each stage; below, the chosen step.

    rows: with `stage` and `held`, one of them of the chosen stage; memory: bytes of a device;
    title: of the step.
    """
    figure, (bars, spans) = closed_figure(9, 5.2, 2)
    names = {row.stage: f"stage {row.stage}" for row in rows} | {stage: f"▸ stage {stage}"}
    draw_bars(bars, {names[row.stage]: row.held for row in rows}, memory)
    bars.legend(fontsize="small", loc="lower right")
    draw_step(spans, step)
    spans.set_title(title, fontsize="medium", loc="left")
    spans.legend(fontsize="small", loc="upper right", ncols=4)
    spans.set_ylim(-0.55, 2.3)
    return figure


# What a rank has of a part, in the pictures below; words beside the blocks say the same.
PARTS = {bucket: style["facecolor"] for bucket, style in BUCKETS.items()}
PARTS |= {"own": PARTS["unreduced"], "by card": "#E69F00", "by NVLink": PARTS["gathered"]}
PARTS[""] = "none"
STAGES = {"stage 0": "data parallelism", "stage 1": "cuts the optimizer"}
STAGES |= {"stage 2": "and the gradients", "stage 3": "and the weights"}


@checked
def draw_shards(ranks: int = 4) -> Figure:
    """Which parts of weights, gradients and optimizer's state each rank keeps, by stage."""
    ranks = count("ranks", ranks, 1, 16)
    figure, axes = closed_figure(9, 0.35 * ranks + 0.9, across=4)
    shown = ("weights", "gradients", "optimizer")
    for stage, (each, named) in enumerate(zip(axes, STAGES.items(), strict=True)):
        for place, bucket in enumerate(shown):
            held = _own(bucket, ranks, rest=bucket if stage < len(shown) - place else "")
            _parts(each, place * (ranks + 1), 0, held)
        middles = [place * (ranks + 1) + ranks / 2 for place in range(len(shown))]
        each.set_xticks(middles, shown, fontsize="x-small")
        each.set_yticks([-r - 0.5 for r in range(ranks)], [f"rank {r}" for r in range(ranks)])
        each.tick_params(length=0, labelleft=stage == 0, labelsize="small")
        each.spines[:].set_visible(False)
        each.set_title("\n".join(named), fontsize="medium")
        each.set(xlim=(-0.5, 3 * ranks + 2.5), ylim=(-ranks - 0.1, 0.1))
    return figure


def draw_update() -> Figure:
    """A step of data parallelism, and of stage 1, which updates in the middle of an all-reduce."""
    figure, (axes,) = closed_figure(8.5, 3.9)
    all_own, sums, news = (_own(kind, 4, rest=kind) for kind in ("own", "gradients", "weights"))
    part, new = _own("gradients", 4), _own("weights", 4)
    rows = {
        "data parallelism": (all_own, "reduce-scatter", part, "all-gather", sums, "update", news),
        "stage 1": (all_own, "reduce-scatter", part, "update", new, "all-gather", news),
    }
    under = {"own": "own gradients", "gradients": "their sums", "weights": "new weights"}
    for row, (name, states) in enumerate(rows.items()):
        top = -6.6 * row
        axes.text(0, top + 0.6, name, weight="bold")
        for place, held in enumerate(states[::2]):
            _parts(axes, 8 * place, top, held)
            said = {"ha": "center", "fontsize": "small"}
            axes.text(8 * place + 2, top - 4.8, under[held[0][0]], **said)
        for place, step in enumerate(states[1::2]):
            how = {"color": "#D55E00", "lw": 3} if step == "update" else {}
            arrow(axes, (8 * place + 4.4, top - 2), (8 * place + 7.6, top - 2), step, **how)
    axes.set(xlim=(-0.5, 28.5), ylim=(-11.8, 1.8), aspect="equal")
    axes.set_axis_off()
    return figure


def draw_borrow() -> Figure:
    """What one rank of four has of three units while it goes through them under stage 3."""
    figure, (axes,) = closed_figure(9, 3.2)
    passes = [("forward", unit) for unit in range(3)] + [("backward", unit) for unit in (2, 1, 0)]
    reduced: set[int] = set()
    for place, (name, now) in enumerate([*passes, ("the update", -1)]):
        left = 5.4 * place
        for unit in range(3):
            whole = "gathered" if unit == now else ""
            beside = "unreduced" if name == "backward" and unit == now else ""
            weights = _own("weights", 4, rest=whole)[1]
            gradients = [beside] * 4 if beside else _own("gradients", 4)[1]
            has_gradients = beside or unit in reduced
            for down, row in ((0, weights), (1, gradients if has_gradients else [])):
                _parts(axes, left, -2.7 * unit - 1.05 * down, [row])
        reduced |= {now} if name == "backward" else set()
        axes.text(left + 2, 0.35, f"{name}\nunit {now}" if now >= 0 else name, ha="center")
    for unit in range(3):
        axes.text(-0.5, -2.7 * unit - 1, f"unit {unit}", ha="right", va="center")
    kinds = ("weights", "gathered", "gradients", "unreduced")
    handles = [Patch(facecolor=PARTS[kind], edgecolor=MUTED) for kind in kinds]
    words = ["its own weights", "borrowed weights", "its own sums of gradients"]
    figure.legend(handles, [*words, "whole gradients"], loc="outside lower center", ncols=4)
    axes.set(xlim=(-3, 37), ylim=(-7.6, 1.9), aspect="equal")
    axes.set_axis_off()
    return figure


def draw_gather() -> Figure:
    """A gather on two levels, of two nodes of four: a card brings 1 part of 8, and NVLink 6."""
    figure, (axes,) = closed_figure(8.5, 2.6)
    first = _own("weights", 8)
    across = [row[:] for row in first]
    for rank in range(8):
        across[rank][(rank + 4) % 8] = "by card"
        y = -rank - 0.5 - 0.6 * (rank > 3)
        axes.text(-0.4, y, f"rank {rank}", ha="right", va="center", fontsize="small")
    inside = [[kind or "by NVLink" for kind in row] for row in across]
    states = {"its own part": first, "one more by its card": across, "the rest by NVLink": inside}
    for place, (words, held) in enumerate(states.items()):
        for node in range(2):
            _parts(axes, 13 * place, -4.6 * node, held[4 * node : 4 * node + 4])
        axes.text(13 * place + 4, -9.6, words, ha="center", fontsize="small")
    for node in range(2):
        axes.text(-5.8, -2 - 4.6 * node, f"node {node}", va="center", weight="bold")
    for left, words in ((8.4, "across nodes"), (21.4, "inside")):
        arrow(axes, (left, -4.3), (left + 4.2, -4.3), words)
    axes.set(xlim=(-6, 34.5), ylim=(-9.9, 0.2), aspect="equal")
    axes.set_axis_off()
    return figure


def _own(kind: str, n: int, rest: str = "") -> list[list[str]]:
    """What each rank has of n parts: its own one of a kind, and the rest of a kind or not."""
    return [[kind if part == rank else rest for part in range(n)] for rank in range(n)]


def _parts(axes: Axes, left: float, top: float, held: Sequence[Sequence[str]]) -> None:
    """A row for each rank and a column for each part, filled with what the rank has of it."""
    for rank, row in enumerate(held):
        for part, kind in enumerate(row):
            block(axes, (left + part, top - rank - 0.9), 1, 0.8, "", facecolor=PARTS[kind])
