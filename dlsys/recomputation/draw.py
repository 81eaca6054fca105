"""Pictures of recomputation: what a chain keeps, memory over a step, the front of both costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import some
from dlsys.figures import closed_figure
from dlsys.palette import GRID, GROUND, INK, LINES
from dlsys.recomputation.plan import RECOMPUTE, Chain, Plan
from dlsys.recomputation.price import BACKWARD, FORWARD, REBUILD, Moment, Price, kept, price

if TYPE_CHECKING:
    from dlsys.recomputation.optimum import Best

# Okabe and Ito's palette; hatches tell the same things apart in grey.
BYTES: Mapping[str, Mapping[str, Any]] = {
    "kept": {"facecolor": "#0072B2", "label": "kept"},
    "rebuilt": {"facecolor": "#E69F00", "hatch": "///", "label": "rebuilt in backward"},
}
SPANS: Mapping[str, Mapping[str, Any]] = {
    FORWARD: {"facecolor": "#56B4E9", "label": "forward"},
    REBUILD: {"facecolor": "#E69F00", "hatch": "///", "label": "run again"},
    BACKWARD: {"facecolor": "#0072B2", "hatch": "...", "label": "backward"},
}
UNITS = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12))


def draw(plan: Plan, chain: Chain, early_stop: bool = True) -> Figure:
    """Above, what each layer keeps and what backward rebuilds; below, bytes held over a step."""
    figure, (bars, curve) = closed_figure(8, 5.0, 2)
    cost = price(plan, chain, early_stop)
    draw_chain(bars, plan, chain)
    draw_curve(curve, cost)
    for axes in (bars, curve):
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    return figure


def draw_chain(axes: Axes, plan: Plan, chain: Chain) -> None:
    """A bar a layer into `axes`; thin lines stand where segments that are run again begin."""
    keeps = [kept(segment, i, chain.layers[i]) for segment in plan.segments for i in segment.layers]
    all_bytes = [layer.saved_bytes for layer in chain.layers]
    unit, scale = _unit(max(all_bytes))
    places = range(len(chain))
    below = [nbytes / scale for nbytes in keeps]
    above = [(whole - low) / scale for whole, low in zip(all_bytes, keeps, strict=True)]
    look: dict[str, Any] = {"width": 0.85, "edgecolor": GROUND, "linewidth": 0.3}
    axes.bar(places, below, **look, **BYTES["kept"])
    axes.bar(places, above, bottom=below, **look, **BYTES["rebuilt"])
    for segment in plan.segments:
        if segment.mode == RECOMPUTE and segment.start:
            axes.axvline(segment.start - 0.5, color=INK, linewidth=0.5)
    axes.set_xlim(-0.6, len(chain) - 0.4)
    axes.set_ylim(0, 1.05 * (max(all_bytes) / scale or 1))
    axes.set_xlabel("layer of the chain")
    axes.set_ylabel(f"saved ({unit})")


def draw_curve(axes: Axes, cost: Price, budget: float | None = None) -> None:
    """Bytes held over a step into `axes`, its peak marked; what runs is told by the area's look."""
    unit, scale = _unit(max(cost.peak_bytes, budget or 0))
    whole = cost.hardware_cost or 1.0
    seen: set[str] = set()
    start = Moment(FORWARD, 0, 0.0, 0.0)
    edges, heights = [0.0], [0.0]
    for run in _runs(cost.curve):
        xs = [start.cost / whole, *(moment.cost / whole for moment in run)]
        # What an action leaves is held from its end on, and what it needs until then.
        ys = [start.nbytes / scale, *(moment.nbytes / scale for moment in run)]
        style = dict(SPANS[run[0].action])
        if run[0].action in seen:
            style.pop("label")
        seen.add(run[0].action)
        axes.fill_between(xs, ys, step="post", alpha=0.85, linewidth=0, **style)
        edges, heights, start = [*edges, *xs[1:]], [*heights, *ys[1:]], run[-1]
    axes.step(edges, heights, where="post", color=INK, linewidth=1)
    peak = cost.peak_bytes / scale
    place = cost.peak.cost / whole
    axes.plot([place], [peak], "o", color=INK, markersize=5)
    words = f"{peak:.3g} {unit}"
    side = "right" if place > 0.6 else "left"
    axes.annotate(
        words, (place, peak), (6 if side == "left" else -6, 5), textcoords="offset points", ha=side
    )
    if budget is not None:
        axes.axhline(budget / scale, color=INK, linestyle=":", label="budget")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.2 * max(peak, (budget or 0) / scale, 1e-12))
    axes.set_xlabel("part of the step's work that is done")
    axes.set_ylabel(f"held for backward ({unit})")


def _runs(curve: Sequence[Moment]) -> list[list[Moment]]:
    """Moments of one action that follow each other."""
    runs: list[list[Moment]] = []
    for moment in curve:
        if not runs or runs[-1][0].action != moment.action:
            runs.append([])
        runs[-1].append(moment)
    return runs


@checked
def draw_front(
    points: Sequence[Best],
    plans: Mapping[str, tuple[float, float]] | None = None,
    measured: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """The front of (peak bytes, what is run again), with named plans and measured points on it.

    points: those of `front(chain)`; plans: priced ones by name; measured: what running them
    counted, drawn as rings around what was priced.
    """
    some("points", points)
    figure, (axes,) = closed_figure(7, 4.2)
    named, counted = plans or {}, measured or {}
    front = sorted((point.peak_bytes, point.recomputed) for point in points)
    every = [*front, *named.values(), *counted.values()]
    unit, scale = _unit(max(nbytes for nbytes, _ in every))
    color, dashes, _ = LINES[0]
    axes.step(
        [nbytes / scale for nbytes, _ in front],
        [cost for _, cost in front],
        where="post",
        color=color,
        linestyle=dashes,
        label="least, of the three modes",
    )
    for (name, (nbytes, cost)), (color, _, marker) in zip(named.items(), _looks(), strict=False):
        axes.plot([nbytes / scale], [cost], marker, color=color, label=name)
    for place, (nbytes, cost) in enumerate(counted.values()):
        look: dict[str, Any] = {"color": INK, "fillstyle": "none", "markersize": 11}
        axes.plot([nbytes / scale], [cost], "o", **look, label="" if place else "measured")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=-0.02 * max(cost for _, cost in every) or -1)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"most bytes held at once ({unit})")
    axes.set_ylabel("run again (the chain's unit, FLOPs for a GPT)")
    axes.legend(fontsize="small")
    return figure


def _looks() -> list[tuple[str, Any, str]]:
    return [*LINES[1:], *LINES[1:]]


def draw_choice(rows: Sequence[Any], policy: str, cost: Price, budget: float) -> Figure:
    """An explorer's rows: left, peaks by policy against the budget; right, the chosen step.

    rows: with `policy`, `kept`, `peak` and `share`, one of them of the chosen policy.
    """
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    bars, curve = figure.subplots(1, 2, width_ratios=(1, 1.2))
    unit, scale = _unit(max([budget, *(row.peak for row in rows)]))
    below = [row.kept / scale for row in rows]
    above = [(row.peak - row.kept) / scale for row in rows]
    look: dict[str, Any] = {"height": 0.7, "edgecolor": GROUND, "linewidth": 0.5}
    bars.barh(range(len(rows)), below, **look, **BYTES["kept"])
    bars.barh(range(len(rows)), above, left=below, **look, **BYTES["rebuilt"])
    most = max(row.peak for row in rows) / scale
    for place, row in enumerate(rows):
        text = f" +{row.share:.1%} work"
        said = bars.text(row.peak / scale, place, text, va="center", fontsize="small", color=INK)
        said.set_bbox({"facecolor": GROUND, "edgecolor": "none", "pad": 0.5})
    bars.axvline(budget / scale, color=INK, linestyle=":", label="budget")
    names = [f"▸ {row.policy}" if row.policy == policy else row.policy for row in rows]
    bars.set_yticks(range(len(rows)), names)
    bars.invert_yaxis()
    bars.set_xlim(0, 1.35 * max(most, budget / scale))
    bars.set_xlabel(f"held for backward ({unit})")
    draw_curve(curve, cost, budget)
    for axes in (bars, curve):
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
    return figure


def _unit(most: float) -> tuple[str, float]:
    """The unit in which `most` bytes are a short number, and its bytes."""
    return [pair for pair in UNITS if pair[1] <= max(most, 1.0)][-1]
