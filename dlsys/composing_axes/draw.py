"""Pictures of composing: one rank's groups on a mesh, what a step is made of, and the front."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dlsys.annotated import checked
from dlsys.checks import at_least, count, refuse_what, some
from dlsys.composing_axes.search import Plan, Search
from dlsys.figures import block, closed_figure
from dlsys.mesh import Mesh
from dlsys.palette import COLORS, GRID, GROUND, INK, MUTED, ON_COLORS
from dlsys.units import format_bytes
from dlsys.world import Run

AXES = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}
TRAFFIC = {"tp": "tensor", "cp": "context", "data": "data", "pp": "pipeline"}
"""Axes by the names that `step_bytes` has for them, in the colors of AXES."""
CALLS = {
    "tp": ("tensor", COLORS[0]), "cp": ("context", COLORS[1]), "ep": ("experts", COLORS[4]),
    "data": ("data", COLORS[2]), "holders": ("data", COLORS[2]),
}  # fmt: skip
"""Axes whose calls are drawn, by the names of their communicators: name, and color."""
HELD: dict[str, dict[str, Any]] = {
    "state": {"facecolor": "#009E73"},
    "gathered": {"facecolor": "#009E73", "hatch": "///"},
    "activations": {"facecolor": "#F0E442"},
    "logits": {"facecolor": "#CC79A7"},
    "base": {"facecolor": "#868686"},
}
PARTS: dict[str, dict[str, Any]] = {
    "products": {"facecolor": "#0072B2"},
    "traffic": {"facecolor": "#56B4E9"},
    "launches": {"facecolor": "#BDBDBD"},
    "head": {"facecolor": "#0072B2", "hatch": "///"},
    "all_reduces": {"facecolor": "#D55E00"},
    "exchanges": {"facecolor": "#E69F00"},
    "bubble": {"facecolor": "none", "edgecolor": MUTED, "hatch": "..."},
    "gradients": {"facecolor": "#009E73"},
    "update": {"facecolor": "#CC79A7"},
    "fixed": {"facecolor": "#868686"},
}
"""The look of what a step's seconds are spent on: what computes, what communicates, what waits."""


@checked
def draw_mesh(mesh: Mesh, rank: int = 0, devices_per_node: int = 8) -> Figure:
    """All ranks, a row for each node, and with whom `rank` shares each axis.

    A rank of its groups has the color of the axis along which it differs, and all others are empty.
    """
    rank = count("rank", rank, 0, mesh.size - 1)
    per = count("devices_per_node", devices_per_node)
    nodes = -(-mesh.size // per)
    figure, (axes,) = closed_figure(1.2 + 0.62 * min(per, mesh.size), 0.9 + 0.42 * nodes)
    groups = {axis: set(mesh.group(axis, rank)) - {rank} for axis in AXES}
    for other in range(mesh.size):
        node, place = divmod(other, per)
        shared = [i for i, axis in enumerate(AXES) if other in groups[axis]]
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": GRID, "color": MUTED}
        if shared:
            style = {"facecolor": COLORS[shared[0]], "color": ON_COLORS[shared[0]]}
        if other == rank:
            style = {"facecolor": "none", "edgecolor": INK, "lw": 2.0}
        block(axes, (place, node), 0.9, 0.8, str(other), **style)
    axes.set(xlim=(-0.1, min(per, mesh.size)), ylim=(nodes, -0.2), xticks=[])
    axes.set_yticks([node + 0.4 for node in range(nodes)], [f"node {n}" for n in range(nodes)])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    _legend(figure, mesh)
    return figure


@checked
def draw_holders(mesh: Mesh, devices_per_node: int = 4) -> Figure:
    """What each rank holds: the model as a square for each, a row of them for each node.

    Stages cut the square across, tensor ranks down. A rank holds its colored part, and updates the
    strip of it that ZeRO-1 leaves to it. The narrow bar is the batch: rows from top to bottom, and
    of these the rank reads its replica's and its context rank's.
    """
    per = count("devices_per_node", devices_per_node)
    nodes, across = -(-mesh.size // per), min(per, mesh.size)
    figure, (axes,) = closed_figure(0.4 + 1.5 * across, 0.7 + 1.4 * nodes)
    for rank in range(mesh.size):
        node, column = divmod(rank, per)
        at, x, y = mesh.coordinates(rank), column + 0.28, node + 0.22
        width, height = 0.64 / mesh.tp, 0.68 / mesh.pp
        strip = height / (mesh.dp * mesh.cp)
        part = x + width * at["tp"], y + height * at["pp"]
        updated = part[0], part[1] + strip * mesh.place(rank)
        row, columns = 0.68 / mesh.dp, 0.14 / mesh.cp
        read = x - 0.2 + columns * at["cp"], y + row * at["dp"]
        for corner, wide, high, color in (
            ((x, y), 0.64, 0.68, "none"),
            (part, width, height, COLORS[0]),
            (updated, width, strip, COLORS[2]),
            ((x - 0.2, y), 0.14, 0.68, "none"),
            (read, columns, row, COLORS[4]),
        ):
            block(axes, corner, wide, high, "", facecolor=color)
        axes.text(x, y - 0.04, f"rank {rank}", color=INK, fontsize="small")
    axes.set(xlim=(0, across), ylim=(nodes, 0), xticks=[])
    axes.set_yticks([node + 0.56 for node in range(nodes)], [f"node {n}" for n in range(nodes)])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    looks = {"weights that it holds": 0, "of these, what it updates": 2, "tokens that it reads": 4}
    patches = [Patch(facecolor=COLORS[number], label=name) for name, number in looks.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=3, fontsize="small")
    return figure


def _legend(figure: Figure, mesh: Mesh) -> None:
    degrees = [(i, axis, getattr(mesh, axis)) for i, axis in enumerate(AXES)]
    patches = [
        Patch(facecolor=COLORS[i], label=f"{AXES[axis]} {degree}")
        for i, axis, degree in degrees
        if degree > 1
    ]
    figure.legend(handles=patches, loc="outside upper center", ncols=4, fontsize="small")


@checked
def draw_step(run: Run, begin: float = 0.0) -> Figure:
    """What every rank of a simulated run does from `begin` seconds on, a row for each.

    Gray is computing, a color the collectives of an axis, lines are a pipeline's messages, and
    where there is nothing the rank waits.
    """
    at_least("begin", begin, 0)
    if run.traffic.ranks * run.seconds == 0 or not run.timeline.spans:
        refuse_what("run", "one without seconds", "simulated on a cluster")
    figure, (axes,) = closed_figure(9, 1.4 + 0.28 * run.traffic.ranks)
    done: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for span in run.timeline.spans:
        if span.kind == "compute":
            done.setdefault(("computing", span.rank), []).append((span.start, span.end))
    for call in run.traffic.calls:
        if call.axis in CALLS:
            done.setdefault((call.axis, call.rank), []).append((call.start, call.end))
    looks = {"computing": ("computing", GRID), **CALLS}
    for name, (_, color) in looks.items():  # later ones lie above
        for rank in range(run.traffic.ranks):
            all_of = _merged(done.get((name, rank), []))
            late = [(max(start, begin), end) for start, end in all_of if end > begin]
            bars = [(1e3 * (start - begin), 1e3 * (end - start)) for start, end in late]
            axes.broken_barh(bars, (rank - 0.4, 0.8), facecolors=color, lw=0)
    color = COLORS[list(AXES).index("pp")]
    sent = [m for m in run.traffic.messages if m.axis == "pp" and m.start >= begin]
    for each in sent:
        ends = [1e3 * (each.start - begin), 1e3 * (each.end - begin)]
        axes.plot(ends, [each.src, each.dst], color=color, lw=1)
    used = {name for name, _ in done} | ({"pp"} if sent else set())
    looks["pp"] = "pipeline", color
    shown = {text: color for name, (text, color) in looks.items() if name in used}
    patches = [Patch(facecolor=color, label=text) for text, color in shown.items()]
    figure.legend(handles=patches, loc="outside upper center", ncols=6, fontsize="small")
    axes.set(ylim=(run.traffic.ranks - 0.4, -0.6), xlim=(0, None), xlabel="milliseconds")
    axes.set_yticks(range(run.traffic.ranks), [f"rank {n}" for n in range(run.traffic.ranks)])
    return figure


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals, those that touch as one."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@checked
def draw_plans(plans: Mapping[str, Plan]) -> Figure:
    """A bar for each named plan: seconds of a step by what they are spent on, and bytes held.

    Below its name stand micro-batches, ZeRO's stage, and whether layers run again.
    """
    some("plans", plans)
    figure, (left, right) = closed_figure(9, 1.5 + 0.5 * len(plans), across=2)
    named = [f"{name}\n{plan.how}" for name, plan in plans.items()]
    each = [(left, "seconds of a step", PARTS, 1.0), (right, "GB on the fullest device", HELD, 1e9)]
    for axes, label, styles, unit in each:
        longest, used = 0.0, set()
        for row, plan in enumerate(plans.values()):
            start = 0.0
            for name, amount in (plan.parts if axes is left else plan.held).items():
                style = {"edgecolor": GROUND, **styles[name]}
                axes.barh(row, amount / unit, 0.7, start, lw=0.4, **style)
                start += amount / unit
                used |= {name} if amount > 0 else set()
            axes.text(start, row, f" {start:.3g}", va="center", color=INK, fontsize="small")
            longest = max(longest, start)
        axes.set_yticks(range(len(plans)), named if axes is left else [], fontsize="small")
        axes.set(xlabel=label, ylim=(len(plans) - 0.4, -0.6), xlim=(0, 1.15 * longest))
        patches = [
            Patch(label=name.replace("_", "-"), **{"edgecolor": MUTED, "lw": 0.4, **styles[name]})
            for name in styles
            if name in used
        ]
        axes.legend(
            handles=patches, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
            fontsize="x-small", frameon=False,
        )  # fmt: skip
    return figure


@checked
def draw_traffic(
    meshes: Mapping[str, Mesh], sent: Mapping[str, float], devices_per_node: int = 8
) -> Figure:
    """Whom rank 0 sends to along each axis, in each named mesh, a row for each node.

    sent: bytes of a step by axis, of all ranks, as `step_bytes` has them. The thicker a line, the
    more a rank sends along it: a millimeter more for each factor of ten.
    """
    some("meshes", meshes)
    per = count("devices_per_node", devices_per_node)
    size = max(mesh.size for mesh in meshes.values())
    figure, panels = closed_figure(
        4.2 * len(meshes), 0.9 + 0.27 * -(-size // per), across=len(meshes)
    )
    for axes, (name, mesh) in zip(panels, meshes.items(), strict=True):
        for rank in range(mesh.size):
            node, place = divmod(rank, per)
            axes.plot(place, node, "o", ms=5, color=GRID, zorder=1)
        for number, axis in enumerate(TRAFFIC):
            if sent.get(axis, 0) <= 0:
                continue
            ranks, each = mesh.group(axis, 0), sent[axis] / mesh.size
            width = 0.5 + 2.8 * max(0.0, math.log10(each / 1e9))
            for one, other in itertools.pairwise(ranks):
                (y0, x0), (y1, x1) = divmod(one, per), divmod(other, per)
                bent = {"arrowstyle": "-", "color": COLORS[number], "lw": width, "alpha": 0.9}
                bent["connectionstyle"] = f"arc3,rad={0.0 if y0 == y1 else 0.35}"
                axes.annotate("", (x1, y1), (x0, y0), arrowprops=bent, zorder=2 + number)
        nodes = -(-mesh.size // per)
        axes.set(title=name, xlim=(-1.5, per - 0.5), ylim=(nodes - 0.4, -0.6), xticks=[])
        axes.set_yticks(range(nodes), [f"node {n}" for n in range(nodes)], fontsize="x-small")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    lines = [
        Patch(facecolor=COLORS[i], label=f"{TRAFFIC[axis]}: {format_bytes(sent[axis] / size)}")
        for i, axis in enumerate(TRAFFIC)
        if sent.get(axis, 0) > 0
    ]
    figure.legend(handles=lines, loc="outside upper center", ncols=4, fontsize="small")
    return figure


@checked
def draw_front(search: Search, most: int = 2000) -> Figure:
    """Plans as points by kind, bytes of a device over seconds of a step, and the front of the best.

    Of more plans than `most`, every so many-th is drawn; those that take ten times as long as the
    best one, or hold four times what there is, lie outside. The line is the device's memory.
    """
    figure, (axes,) = closed_figure(7, 4)
    step = -(-len(search) // count("most", most))
    few = slice(None, None, step)
    seconds, held = search.seconds[few], search.total[few] / 1e9
    gathers, stages = search.runs.zero[few] == 3, search.runs.pp[few] > 1
    kinds = {"ZeRO-3": gathers, "with a pipeline": stages, "others": ~gathers & ~stages}
    for (name, of), color in zip(kinds.items(), (COLORS[2], COLORS[3], MUTED), strict=True):
        axes.plot(seconds[of], held[of], ".", color=color, ms=3, label=name, zorder=1)
    front = search.front()
    ends = [(each.seconds, sum(each.held.values()) / 1e9) for each in front]
    axes.plot(*zip(*ends, strict=True), color=INK, lw=1, marker="o", ms=4, label="front")
    axes.axhline(search.memory / 1e9, color=INK, lw=1)
    axes.annotate(
        format_bytes(search.memory), (1, search.memory / 1e9), (-2, 3), ("axes fraction", "data"),
        "offset points", ha="right", fontsize="small",
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="seconds of a step", ylabel="GB on a device")
    fastest, most_bytes = ends[0][0], search.memory / 1e9
    axes.set(xlim=(0.7 * fastest, 10 * fastest), ylim=(0.8 * ends[-1][1], 4 * most_bytes))
    axes.grid(True)
    axes.legend(loc="upper right")
    return figure
