"""Tensors drawn: as bars over the steps in which they are alive, and which are worth keeping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.figures import closed_figure
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED
from dlsys.recomputation.graph import Graph
from dlsys.recomputation.keeping import keeping_front
from dlsys.recomputation.lifetimes import lifetimes
from dlsys.recomputation.training_step import AGAIN, GRADIENT
from dlsys.units import format_bytes

# Okabe and Ito's palette; hatches tell the same things apart in grey.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "made": {"facecolor": "#56B4E9", "label": "made in forward"},
    AGAIN: {"facecolor": "#E69F00", "hatch": "///", "label": "made again"},
    GRADIENT: {"facecolor": "#CC79A7", "hatch": "...", "label": "gradients"},
}
MOST_BARS = 80


@checked
def draw_lifetimes(graph: Graph, order: Sequence[str] | None = None) -> Figure:
    """When each value of the graph is alive, above, and the bytes alive in each step, below.

    A bar is as thick as its value is large. order: as for `lifetimes`. The graph may be one of
    `step_graph`: what is made again and gradients have colors of their own then. Raises ValueError
    for more than MOST_BARS values, which nobody could tell apart.
    """
    plan = lifetimes(graph, order)
    if len(plan.values) > MOST_BARS:
        refuse("graph", graph, f"one of at most {MOST_BARS} values to be drawn")
    figure, (bars, curve) = closed_figure(8, 2.2 + 0.16 * len(plan.values), 2)
    bars.get_gridspec().set_height_ratios([0.16 * len(plan.values) + 0.4, 1.5])
    most = max((value.nbytes for value in plan.values), default=0) or 1
    for kind, style in KINDS.items():
        rows = [(y, value) for y, value in enumerate(plan.values) if _kind(value.name) == kind]
        if rows:
            bars.barh(
                [y for y, _ in rows],
                [value.last + 1 - value.first for _, value in rows],
                [0.15 + 0.75 * (value.nbytes / most) ** 0.5 for _, value in rows],
                [value.first for _, value in rows],
                edgecolor=GROUND,
                linewidth=0.4,
                **style,
            )
    names = [value.name for value in plan.values]
    bars.set_yticks(range(len(names)), names, fontsize=6)
    bars.invert_yaxis()
    curve.stairs([n / 1e6 for n in plan.during], color=LINES[0][0], linewidth=1.8)
    curve.axhline(plan.peak / 1e6, color=MUTED, linestyle=":")
    curve.text(0, plan.peak / 1e6, f" peak {format_bytes(plan.peak)}", va="bottom", color=INK)
    curve.set(ylim=(0, 1.25 * (plan.peak or 1) / 1e6), xlabel="step", ylabel="alive (MB)")
    for axes in (bars, curve):
        axes.set_xlim(0, len(plan.order))
        axes.grid(axis="x", color=GRID)
        axes.set_axisbelow(True)
    if any(_kind(name) != "made" for name in names):
        figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


@checked
def draw_keepings(graph: Graph) -> Figure:
    """Every best choice of tensors to keep: cost over bytes, and below it which tensors those are.

    Cost is in parts of the graph's own, one forward pass. A dark cell is a tensor that is kept at
    this point of `keeping_front`; points stand from the most bytes to the fewest.
    """
    front = keeping_front(graph)[::-1]
    whole = sum(each.cost for each in graph.operations) or 1.0
    names = [name for name in graph.producer if any(name in each.keep for each in front)]
    figure, (curve, cells) = closed_figure(8, 3.2 + 0.16 * len(names), 2)
    curve.get_gridspec().set_height_ratios([2.4, 0.16 * len(names) + 0.4])
    nbytes = [each.nbytes / 1e9 for each in front]
    color, _, marker = LINES[0]
    curve.step(nbytes, [each.cost / whole for each in front], color=color, where="pre")
    curve.plot(nbytes, [each.cost / whole for each in front], marker, color=color, markersize=4)
    curve.set(xlabel="kept (GB, 10⁹ bytes)", ylabel="run again\n(of a forward pass)")
    curve.grid(color=GRID)
    for x, each in enumerate(front):
        rows = [y for y, name in enumerate(names) if name in each.keep]
        cells.bar([x] * len(rows), 1, 1, [y - 0.5 for y in rows], color=color, edgecolor=GROUND)
    cells.set_xticks(range(0, len(front), 5))
    cells.set_yticks(range(len(names)), names, fontsize=6)
    cells.set(xlim=(-0.5, len(front) - 0.5), ylim=(max(0.5, len(names) - 0.5), -0.5))
    cells.set_xlabel("points of the curve, from the right")
    return figure


def _kind(name: str) -> str:
    return next((kind for kind in (AGAIN, GRADIENT) if name.startswith(kind)), "made")
