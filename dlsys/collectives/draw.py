"""Pictures of plans: who holds what after every round, and which algorithm is the fastest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.collectives.check import states
from dlsys.collectives.choose import _among, crossovers
from dlsys.collectives.plan import REDUCING, Plan, Transfer
from dlsys.figures import closed_figure
from dlsys.hardware import Cluster, Link
from dlsys.palette import GRID, INK, LINES, MUTED, ON_DARK, ON_LIGHT

# Okabe and Ito's palette; the fill, a darker blue that white text can be read on, runs from light
# to dark, and arrows differ in shape.
FILL, ARROW = (0.0, 0.30, 0.56), "#D55E00"
CELL = 0.66  # of the distance from one cell to the next; the arrows run in the gaps
MOST_RANKS, MOST_CHUNKS, MOST_PANELS, MOST_NAMED = 32, 64, 16, 100


@checked
def draw(plan: Plan, width: float = 7.0) -> Figure:
    """A panel for the start and for each round: columns are ranks, rows are chunks.

    A cell is the darker the more contributions the rank holds, and names them (with many cells,
    only where they are new); arrows show what moved, solid where the receiver added it and dashed
    where it stored it; they run between the cells. `width` in inches.

    Raises ValueError for a plan too large to be read, PlanError for one that cannot be executed.
    """
    positive("width", width)
    if plan.ranks > MOST_RANKS or plan.chunks > MOST_CHUNKS:
        raise ValueError(
            f"A drawing of {plan.ranks} ranks and {plan.chunks} chunks could not be read: draw the "
            f"same algorithm with 4 ranks, say; {MOST_RANKS} ranks and {MOST_CHUNKS} chunks are "
            "the most."
        )
    count = len(plan.rounds)
    shown = {round(i * count / (MOST_PANELS - 1)) for i in range(MOST_PANELS)}  # evenly
    wide, high = max(2.3, 0.36 * plan.ranks + 0.5), max(1.3, 0.31 * plan.chunks + 0.7)
    across = max(1, min(len(shown), int(width / wide)))
    down = math.ceil(len(shown) / across)
    figure, grid = closed_figure(across * wide, down * high + 0.3, down, across)
    free = iter(grid)
    for index, held in enumerate(states(plan)):
        if index in shown:
            axes = next(free)
            _draw_state(axes, plan, held, plan.rounds[index - 1] if index else ())
            axes.set_title(f"round {index - 1}" if index else "start", fontsize=10)
    for axes in free:
        axes.set_axis_off()
    figure.suptitle(title(plan), fontsize="large")
    return figure


def title(plan: Plan) -> str:
    """The plan in words: algorithm, kind and ranks."""
    kind, algorithm = plan.kind.replace("_", "-"), plan.algorithm.replace("_", "-")
    return f"{algorithm} {kind} among {plan.ranks} rank{'s' * (plan.ranks > 1)}"


def _draw_state(
    axes: Axes, plan: Plan, held: list[dict[int, int]], transfers: Sequence[Transfer]
) -> None:
    """The contributions in each rank's chunks (bit masks), with the arrows that led there."""
    n, chunks = plan.ranks, plan.chunks
    written = {(t.dst, c) for t in transfers for c in range(t.first, t.stop)}
    sparse = n * chunks > MOST_NAMED
    squares, faces, edges, widths = [], [], [], []
    # What was just written comes last, so that its edges lie over those of its neighbours.
    for rank, chunk in sorted(product(range(n), range(chunks)), key=written.__contains__):
        mask, new = held[rank].get(chunk, 0), (rank, chunk) in written
        share = mask.bit_count() / n if plan.kind in REDUCING else 0.6 * bool(mask)
        xs, ys = (rank - CELL / 2, rank + CELL / 2), (chunk - CELL / 2, chunk + CELL / 2)
        squares.append([(xs[0], ys[0]), (xs[1], ys[0]), (xs[1], ys[1]), (xs[0], ys[1])])
        faces.append(tuple(1 - share * (1 - part) for part in FILL))
        edges.append(ARROW if new else MUTED)
        widths.append(1.6 if new else 0.5)
        text = "" if sparse and transfers and not new else _contents(mask, n)
        if text and chunks <= 20 and n <= 16:
            dark = ON_DARK if share > 0.65 else ON_LIGHT
            size = min(9.0, 27 / max(3, len(text) - text.count(",") / 2))  # a comma is narrow
            named = axes.text(rank, chunk, text, ha="center", va="center", color=dark, zorder=3)
            named.set(fontsize=size, in_layout=False)  # measuring every text takes seconds
    axes.add_collection(
        PolyCollection(squares, facecolors=faces, edgecolors=edges, linewidths=widths, zorder=1)
    )
    for t in transfers:
        arrow = FancyArrowPatch(
            path=_way(t, n),
            arrowstyle="-|>",
            mutation_scale=8,
            linestyle="-" if t.reduce else (0, (3, 1.5)),
            linewidth=1.3,
            color=ARROW,
            clip_on=False,
            zorder=4,
            in_layout=False,
        )
        axes.add_patch(arrow)
    if plan.symmetry and plan.symmetry.shape:
        nodes, devices = plan.symmetry.shape
        for node in range(1, nodes):
            axes.axvline(node * devices - 0.5, color=INK, linestyle=":", linewidth=1)
    axes.set_xlim(-0.6, n - 0.4)
    axes.set_ylim(chunks - 0.4, -0.6)
    axes.set_xticks(range(n) if n <= 16 else [0, n - 1])
    axes.set_yticks(range(chunks) if chunks <= 20 else [0, chunks - 1])
    if plan.kind == "all_to_all" and chunks <= 20:
        axes.set_yticks(range(chunks), [f"{c // n}→{c % n}" for c in range(chunks)])
    axes.tick_params(length=0, labelsize=9)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("rank", fontsize=9, labelpad=1)
    axes.set_ylabel("chunk", fontsize=9, labelpad=1)


def _way(t: Transfer, n: int) -> Path:
    """An arrow's way through the gaps, from edge to edge.

    To a neighbor it is straight; farther right it runs above the row, farther left below it, and
    the farther the higher.
    """
    far, edge = t.dst - t.src, CELL / 2
    ahead = math.copysign(1, far)
    if abs(far) == 1:
        row = (t.first + t.stop - 1) / 2 - 0.12 * ahead  # two that swap chunks do not meet
        return Path([(t.src + ahead * edge, row), (t.dst - ahead * edge, row)])
    row = t.first - edge if far > 0 else t.stop - 1 + edge
    lane = row - ahead * (1 - CELL) * (0.35 + 0.5 * abs(far) / n)
    start, end = t.src + 0.1 * ahead, t.dst - 0.1 * ahead
    curve = [Path.MOVETO] + 3 * [Path.CURVE4]
    return Path([(start, row), (start, lane), (end, lane), (end, row)], curve)


def _contents(mask: int, n: int) -> str:
    """Whose contributions: all, their ranks, or how many where that is too long."""
    if not mask:
        return ""
    ranks = [r for r in range(n) if mask >> r & 1]
    if len(ranks) == n > 1:
        return "all"
    if len(ranks) == 1:
        return str(ranks[0])
    return ",".join(map(str, ranks)) if n <= 10 and len(ranks) <= 6 else f"{len(ranks)} of {n}"


@checked
def draw_crossovers(
    kind: str,
    link_or_cluster: Link | Cluster,
    ranks: int | None = None,
    among: Mapping[str, Plan] | None = None,
    sizes: tuple[float, float] = (1e2, 1e10),
) -> Figure:
    """Seconds over message size for each algorithm, both axes logarithmic.

    The fastest is underlaid; vertical lines mark the sizes at which another becomes the fastest.
    """
    plans = dict(_among(kind, link_or_cluster, ranks, among))
    low, high = sizes
    positive("A size in sizes", low)
    positive("A size in sizes", high)
    xs = [low * (high / low) ** (i / 100) for i in range(101)]  # evenly on a logarithmic axis
    figure, (axes,) = closed_figure(7, 4)
    seconds = {
        name: [plan.price(x, link_or_cluster).seconds for x in xs] for name, plan in plans.items()
    }
    axes.plot(xs, [min(ys) for ys in zip(*seconds.values(), strict=True)], color=GRID, linewidth=9)
    _draw_seconds(axes, xs, seconds)
    for size, _ in crossovers(kind, link_or_cluster, ranks, plans, high)[1:]:
        axes.axvline(size, color=MUTED, linewidth=0.8)
    axes.set_title(f"{kind.replace('_', '-')} among {next(iter(plans.values())).ranks} ranks")
    return figure


def draw_choice(rows: Sequence[Any], shown: Any, rounds: Sequence[tuple[float, float]]) -> Figure:
    """An explorer's rows: left, seconds by the size of the buffer; right, bytes round by round.

    rows: with `algorithm`, `nbytes` and `seconds`; `shown` is one such, and is marked.
    rounds: bytes that each round of it carries, (inside nodes, between them).
    """
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    seconds: dict[str, list[float]] = {}
    for row in rows:
        seconds.setdefault(row.algorithm, []).append(row.seconds)
    _draw_seconds(left, sorted({row.nbytes for row in rows}), seconds, markersize=4)
    left.plot([shown.nbytes], [shown.seconds], "o", color=INK, fillstyle="none", markersize=11)
    inside, between = ([part[i] / 1e9 for part in rounds] for i in range(2))
    at = range(1, len(rounds) + 1)
    right.bar(at, inside, color=LINES[0][0], label="inside nodes")
    right.bar(at, between, bottom=inside, color=LINES[1][0], label="between nodes")
    right.set_xlabel(f"round of {shown.algorithm}", fontsize="large")
    right.set_ylabel("bytes of all ranks (GB)", fontsize="large")
    right.tick_params(labelsize="large")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.set_ylim(top=1.3 * right.dataLim.ymax)  # room for the legend
    right.legend(ncols=2, loc="upper center")
    return figure


def _draw_seconds(
    axes: Axes, sizes: Sequence[float], seconds: Mapping[str, Sequence[float]], markersize: int = 0
) -> None:
    """A line for each algorithm, on logarithmic axes."""
    for (name, ys), (color, style, marker) in zip(seconds.items(), LINES * 2, strict=False):
        (line,) = axes.plot(sizes, ys, color=color, linestyle=style, label=name.replace("_", "-"))
        line.set(marker=marker, markersize=markersize)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("buffer (bytes)", fontsize="large")
    axes.set_ylabel("time (s)", fontsize="large")
    axes.tick_params(labelsize="large")
    axes.grid(color=GRID)
    axes.legend(fontsize="large")
