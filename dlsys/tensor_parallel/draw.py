"""Pictures of tensor parallelism: a layer cut, time in communication, what a layer keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dlsys.annotated import checked
from dlsys.checks import some
from dlsys.hardware import Cluster
from dlsys.palette import GRID, GROUND, INK, MUTED
from dlsys.tensor_parallel.laws import communication_over_compute
from dlsys.tensor_parallel.plan import BRANCHES, Layout, Parameter, layout
from dlsys.tensor_parallel.price import Kept, activation_bytes
from dlsys.transformer import TransformerSpec
from dlsys.units import GIGA, format_bytes

# Okabe and Ito's palette: told apart by colour-blind readers; hatches tell them apart in grey.
HELD, SPEAKS, STREAM = "#0072B2", "#D55E00", MUTED
PARTS: Mapping[str, dict[str, Any]] = {
    "between": {"label": "between the branches", "facecolor": "#E69F00", "hatch": "..."},
    "inside": {"label": "inside, by heads and neurons", "facecolor": "#0072B2"},
    "scores": {"label": "attention scores", "facecolor": "#56B4E9", "hatch": "///"},
}
# What an explorer's bars are made of: seconds in ms, memory in GB.
SECONDS: Mapping[str, dict[str, Any]] = {
    "computing": {"facecolor": "#0072B2"},
    "communication": {"facecolor": "#E69F00", "hatch": "..."},
}
MEMORY: Mapping[str, dict[str, Any]] = {
    "state": {"facecolor": "#56B4E9", "hatch": "///"},
    "activations": {"facecolor": "#009E73", "hatch": "xx"},
}
LINES = {"ring": ("#D55E00", "-", "o"), "best": ("#0072B2", "--", "s")}
MIDDLE = {"attention": "softmax\nof own heads", "ffn": "function of\nown neurons"}
MOST_LANES = 4
SIDE, STEP = 0.72, 0.95  # of a matrix; from one lane to the next


@checked
def draw_layer(plan: Layout) -> Figure:
    """One layer: a lane for each rank (4 at most), a panel for each branch.

    Squares are weight matrices, inputs down and outputs across, with what the rank holds filled;
    vertical bars are collectives, forward named above and backward below. What is done to tokens
    stands outside of them: the stream on either side, the norm, dropout and the addition are full
    where the rank has all tokens, and a piece where it has some. At the foot stand the shapes of
    what a rank has there.
    """
    lanes = min(plan.tp, MOST_LANES)
    figure = plt.figure(figsize=(8.5, 1.6 + 2 * (0.9 + 0.62 * lanes)), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    for axes, branch in zip(figure.subplots(2, 1), BRANCHES, strict=True):
        _draw_branch(axes, plan, branch, lanes)
    manner = "tensor and sequence" if plan.sequence_parallel else "tensor"
    shown = "" if lanes == plan.tp else f" ({lanes} of them drawn)"
    figure.suptitle(f"One layer on {plan.tp} {manner}-parallel ranks{shown}", fontsize="large")
    return figure


def _draw_branch(axes: Axes, plan: Layout, branch: str, lanes: int) -> None:
    reading, writing = BRANCHES[branch]
    reads = [m for m in reading if m != "gate" or plan.spec.gated]
    first, out = 2.4, 6.75  # where the matrices begin; each takes a width of 1
    middle = (first + len(reads) + out) / 2
    bars = {"input": 2.05, "output": out + SIDE + 0.35}
    end = bars["output"] + 1.45
    of_tokens = {"stream": 0.9, "norm": 1.5, "dropout, +": end - 0.9, "stream ": end}
    for rank in range(lanes):
        y = -STEP * rank
        axes.text(0.0, y + SIDE / 2, f"rank {rank}", va="center")
        for x in of_tokens.values():
            _draw_tokens(axes, plan, rank, x, y)
        for place, matrix in enumerate(reads):
            _draw_matrix(axes, plan[f"layers.*.{branch}.{matrix}.weight"], rank, first + place, y)
        words = MIDDLE[branch]
        axes.text(middle, y + SIDE / 2, words, ha="center", va="center", fontsize="small")
        _draw_matrix(axes, plan[f"layers.*.{branch}.{writing}.weight"], rank, out, y)
    top, bottom = SIDE + 0.12, -STEP * (lanes - 1) - 0.12
    for place, matrix in enumerate(reads):
        axes.text(first + place + SIDE / 2, top, matrix, ha="center", va="bottom")
    axes.text(out + SIDE / 2, top, writing, ha="center", va="bottom")
    for words, x in of_tokens.items():
        axes.text(x + 0.15, top, words.strip(), ha="center", va="bottom", fontsize="small")
    axes.text(0.0, top + 0.32, branch, va="bottom", weight="bold")
    for side, x in bars.items():
        axes.plot((x, x), (top, bottom), color=SPEAKS, linewidth=4, solid_capstyle="butt")
        for arrow, said, y, va in (
            ("→", plan.layer.forward, top + 0.32, "bottom"),
            ("←", plan.layer.backward, bottom - 0.06, "top"),
        ):
            kinds = [c.kind.replace("_", "-") for c in said if c.where == f"{branch}.{side}"]
            again = [c.kind for c in said if c.where == f"{branch}.{side} again"]
            words = f"{arrow} {kinds[0] if kinds else 'nothing'}"
            words += "\n(and again the gather)" if again else ""
            axes.text(x, y, words, ha="center", va=va, color=INK if kinds else MUTED)
    below = bottom - (0.85 if plan.sequence_parallel else 0.55)
    places = (1.05, first + SIDE / 2, middle, out + SIDE / 2, end + 0.15)
    for x, shape in zip(places, _shapes(plan, branch), strict=True):
        axes.text(x, below, shape, ha="center", va="top", fontsize="small")
    axes.set_xlim(-0.1, end + 0.75)
    axes.set_ylim(below - 0.35, top + 0.75)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _shapes(plan: Layout, branch: str) -> tuple[str, str, str, str, str]:
    """What a rank has: of the stream, read, inside, as its addend, and of the stream again."""
    inner = "h" if branch == "attention" else "f"
    stream = f"(b, s/{plan.tp}, h)" if plan.sequence_parallel else "(b, s, h)"
    return stream, "(b, s, h)", f"(b, s, {inner}/{plan.tp})", "(b, s, h)", stream


def _draw_tokens(axes: Axes, plan: Layout, rank: int, x: float, y: float) -> None:
    first, stop = (rank, rank + 1) if plan.sequence_parallel else (0, plan.tp)
    height = SIDE / plan.tp
    axes.add_patch(Rectangle((x, y), 0.3, SIDE, facecolor="none", edgecolor=INK))
    bottom = y + SIDE - stop * height  # the first tokens are at the top
    axes.add_patch(Rectangle((x, bottom), 0.3, (stop - first) * height, facecolor=STREAM))


def _draw_matrix(axes: Axes, parameter: Parameter, rank: int, x: float, y: float) -> None:
    """A matrix as in x W, inputs down and outputs across: dimension 0 of torch's weight across."""
    corner, width, height = (x, y), SIDE, SIDE
    if parameter.dimension is not None:
        length = parameter.shape[parameter.dimension]
        first, stop = (edge / length * SIDE for edge in parameter.bounds(rank))
        if parameter.dimension == 0:
            corner, width = (x + first, y), stop - first
        else:
            corner, height = (x, y + SIDE - stop), stop - first
    axes.add_patch(Rectangle(corner, width, height, facecolor=HELD))
    axes.add_patch(Rectangle((x, y), SIDE, SIDE, facecolor="none", edgecolor=INK))


@checked
def draw_share(
    spec: TransformerSpec,
    batch: int,
    cluster: Cluster,
    degrees: Sequence[int] = (1, 2, 4, 8, 16, 32),
    sequence_parallel: bool = False,
    rate: float | None = None,
) -> Figure:
    """Communication's share of a step over the degree t, none of it hidden; the node is marked.

    One line where every collective is a ring, one where each has the cheapest algorithm, which on
    several nodes is the hierarchical one; crosses for `communication_over_compute`, the law of
    rings. `rate` as for `Layout.price`.
    """
    some("degrees", degrees)
    plans = [layout(spec, t, sequence_parallel) for t in degrees]
    shares = {
        algorithm: [
            100 * p.price(batch, cluster, algorithm=algorithm, rate=rate).share for p in plans
        ]
        for algorithm in LINES
    }
    figure = plt.figure(figsize=(7, 4), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    axes = figure.subplots()
    for algorithm, (color, dashes, marker) in LINES.items():
        label = "rings" if algorithm == "ring" else "the best algorithm for each message"
        axes.plot(
            degrees, shares[algorithm], color=color, linestyle=dashes, marker=marker, label=label
        )
    laws = [_law(spec, cluster, t, rate) for t in degrees]
    axes.plot(degrees, laws, "x", color=INK, markersize=9, label="rings, by the law")
    boundary = cluster.devices_per_node * 2**0.5
    if max(degrees) > cluster.devices_per_node:
        axes.axvline(boundary, color=MUTED, linestyle=":")
        for words, side, x in (
            ("one node\u00a0", "right", 0.99),
            ("\u00a0several nodes", "left", 1.01),
        ):
            axes.text(boundary * x, 97, words, ha=side, va="top")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(degrees), [str(t) for t in degrees])
    axes.set_ylim(0, 100)
    axes.set_xlabel("tensor-parallel degree t (ranks)")
    axes.set_ylabel("time in communication (% of the step)")
    axes.grid(color=GRID)
    axes.legend(loc="center left", fontsize="small")
    return figure


def _law(spec: TransformerSpec, cluster: Cluster, tp: int, rate: float | None) -> float:
    """The share of communication in percent, by the law and the slowest link of the ring."""
    link = cluster.intra if tp <= cluster.devices_per_node else cluster.inter
    rate = cluster.device.rate("bf16") if rate is None else rate
    ratio = communication_over_compute(spec.hidden, tp, rate, link)
    return 100 * ratio / (1 + ratio)


@checked
def draw_activations(
    spec: TransformerSpec, batch: int, degrees: Sequence[int] = (1, 2, 4, 8), dropout: bool = True
) -> Figure:
    """What a layer keeps on each rank over t: left without, right with sequence parallelism."""
    some("degrees", degrees)
    kept = {
        place + shift: activation_bytes(spec, batch, t, sequence_parallel, dropout)
        for place, t in enumerate(degrees)
        for shift, sequence_parallel in ((-0.2, False), (0.2, True))
    }
    figure = plt.figure(figsize=(7.5, 4), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    axes = figure.subplots()
    for x, one in kept.items():
        _draw_bar(axes, x, one, labelled=x < 0)
    axes.set_xticks(
        [place + shift for place in range(len(degrees)) for shift in (-0.2, 0.2)],
        [f"{t}\n{words}" for t in degrees for words in ("TP", "TP+SP")],
    )
    axes.set_xlabel("tensor-parallel degree t (ranks), without and with sequence parallelism")
    axes.set_ylabel("kept by one layer on one rank (GB, 10⁹ bytes)")
    axes.margins(y=0.08)
    axes.legend(title=spec.name or None, loc="upper right")
    return figure


def _draw_bar(axes: Axes, x: float, kept: Kept, labelled: bool) -> None:
    bottom = 0.0
    for part, style in PARTS.items():
        height = getattr(kept, part) / GIGA
        shown = style if labelled else {**style, "label": None}
        axes.bar(x, height, 0.36, bottom, edgecolor=GROUND, **shown)
        bottom += height
    axes.annotate(
        format_bytes(kept.total), (x, bottom), (0, 3), textcoords="offset points", ha="center"
    )


def draw_choice(rows: Sequence[Any], ranks: int, memory: float) -> Figure:
    """An explorer's rows: left, the seconds of a step over the ranks; right, the bytes of each.

    rows: with `ranks` and the numbers that SECONDS and MEMORY name; those of the chosen `ranks` are
    marked. memory: of a device, in bytes, a dotted line.
    """
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")  # no wider than a page
    time, space = figure.subplots(1, 2)
    _draw_bars(time, rows, SECONDS, 1e-3, ranks)
    time.set_ylabel("one micro-batch (ms)")
    _draw_bars(space, rows, MEMORY, GIGA, ranks)
    space.axhline(memory / GIGA, color="#D55E00", linestyle=":", linewidth=2, label="one device")
    space.set_ylabel("memory of one rank (GB, 10⁹ bytes)")
    for axes in (time, space):
        axes.use_sticky_edges = False  # the top of a bar is no edge to stop at
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tensor-parallel degree t (ranks)")
        axes.legend()
    return figure


def _draw_bars(
    axes: Axes, rows: Sequence[Any], parts: Mapping[str, dict[str, Any]], unit: float, ranks: int
) -> None:
    bottoms = [0.0] * len(rows)
    for part, style in parts.items():
        heights = [getattr(row, part) / unit for row in rows]
        axes.bar(range(len(rows)), heights, 0.6, bottoms, label=part, edgecolor=GROUND, **style)
        bottoms = [bottom + high for bottom, high in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(rows)), [str(row.ranks) for row in rows])
    chosen = [row.ranks for row in rows].index(ranks)
    axes.annotate(
        "▼", (chosen, bottoms[chosen]), (0, 2), textcoords="offset points", ha="center", color=INK
    )
