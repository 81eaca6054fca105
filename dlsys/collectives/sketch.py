"""Sketches: which collective a product of cut matrices needs, and what crosses between nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.figures import arrow, block, closed_figure
from dlsys.palette import GRID, GROUND, INK, MUTED, ON_DARK, ON_LIGHT

# Okabe and Ito's palette, a dark and a light color; numbers in the blocks say the same.
HOLDERS: Mapping[str, Mapping[str, Any]] = {
    "0": {"facecolor": "#0072B2", "color": ON_DARK},
    "1": {"facecolor": "#E69F00", "color": ON_LIGHT},
    "both": {"facecolor": GRID},
    "nothing": {"facecolor": "none", "linestyle": "--"},
}
SLOW = "#D55E00"  # what crosses between nodes
Blocks = Sequence[tuple[float, float, float, float, str]]  # x, y, width, height, who has it
ROWS: Blocks = ((0, 0.5, 1, 0.5, "0"), (0, 0, 1, 0.5, "1"))
COLUMNS: Blocks = ((0, 0, 0.5, 1, "0"), (0.5, 0, 0.5, 1, "1"))
WHOLE: Blocks = ((0, 0, 1, 1, "both"),)
CORNERS: Blocks = ((0, 0, 1, 1, "nothing"), (0, 0.5, 0.5, 0.5, "0"), (0.5, 0, 0.5, 0.5, "1"))
ADDENDS: Blocks = ((0, 0, 1, 1, "0"), (1.35, 0, 1, 1, "1"))
NOTHING: Blocks = ((0, 0, 1, 1, "nothing"),)
# A, B, what the ranks can compute of C alone, what they send and why, what they have of C then.
CASES = (
    (ROWS, WHOLE, ROWS, "nothing", "each row has all it needs", ROWS),
    (COLUMNS, WHOLE, NOTHING, "all-gather of A", "a row of C needs all columns", WHOLE),
    (COLUMNS, ROWS, ADDENDS, "all-reduce of C", "each has an addend of C", WHOLE),
    (ROWS, COLUMNS, CORNERS, "all-gather of B", "a row of C needs all of B", ROWS),
)


def draw_products() -> Figure:
    """The four cases of a product of matrices that two ranks have cut, and what each must send."""
    figure, (axes,) = closed_figure(7.6, 4.1)
    heads = {0.5: "A", 2.2: "B", 4.575: "C before sending", 7.5: "sent", 9.6: "C after"}
    for x, words in heads.items():
        axes.text(x, 0, words, ha="center", weight="bold")
    for row, (a, b, before, sent, why, after) in enumerate(CASES):
        y = -1.3 * row - 1.2
        for x, matrix in ((0, a), (1.7, b), (3.4, before), (9.1, after)):
            for left, low, width, height, who in matrix:
                words = "" if who == "nothing" else who
                block(axes, (x + left, y + low), width, height, words, **HOLDERS[who])
        signs = {-0.45: f"{row + 1}", 1.35: "×", 3.05: "="}
        signs |= {4.575: "+"} if before is ADDENDS else {}
        for x, sign in signs.items():
            axes.text(x, y + 0.5, sign, ha="center", va="center")
        arrow(axes, (6.0, y + 0.5), (8.85, y + 0.5), sent)
        axes.text(7.4, y + 0.4, why, ha="center", va="top", color=MUTED)
    for text in axes.texts:
        text.set_fontsize("medium")
    axes.set(xlim=(-0.6, 10.3), ylim=(-5.15, 0.4), aspect="equal")
    axes.set_axis_off()
    return figure


def draw_two_levels() -> Figure:
    """One ring through two nodes of eight, and beside it an all-reduce on two levels."""
    figure, (ring, levels) = closed_figure(8.4, 3.1, across=2)
    _draw_nodes(ring, busy=(0, 7), heads="-|>")
    ring.set_title("One ring", fontsize="medium")
    ring.text(3.8, 2.3, "the other cards send nothing", ha="center", va="center", fontsize="small")
    says = "each round lasts as long as\nthe message that leaves a node"
    ring.text(3.8, -0.5, says, ha="center", va="top", fontsize="small")
    _draw_nodes(levels, busy=range(8), heads="<|-|>")
    levels.set_title("Two levels", fontsize="medium")
    says = "1 reduce-scatter inside\n2 all-reduce of an eighth by each card\n3 all-gather inside"
    levels.text(3.8, -0.5, says, ha="center", va="top", fontsize="small")
    for y, steps in ((3.9, "1, 3"), (2.3, "2"), (0.3, "1, 3")):
        levels.text(8.1, y, steps, va="center", weight="bold")
    return figure


def _draw_nodes(axes: Axes, busy: Sequence[int], heads: str) -> None:
    """Two nodes of eight devices, a card at each; messages between neighbors and by busy cards."""
    for node, low in enumerate((3.6, 0)):
        block(axes, (-0.3, low - 0.2), 8.2, 1.0, "", facecolor="none", edgecolor=INK)
        axes.text(-0.5, low + 0.3, f"node {node}", ha="right", va="center", fontsize="small")
        for place in range(8):
            block(axes, (place, low), 0.6, 0.6, "", facecolor=HOLDERS["0"]["facecolor"])
            card = (place + 0.15, low + (0.65, -0.35)[node == 0])
            block(axes, card, 0.3, 0.3, "", facecolor=SLOW if place in busy else GROUND)
        for place in range(7):
            near, far = (place + 0.6, low + 0.3), (place + 1.0, low + 0.3)
            start, stop = (far, near) if node else (near, far)
            arrow(axes, start, stop, arrowstyle=heads)
    for place in busy:
        above, below = (place + 0.3, 3.25), (place + 0.3, 0.95)
        start, stop = (above, below) if place else (below, above)
        arrow(axes, start, stop, arrowstyle=heads, color=SLOW, lw=2.5)
    axes.set(xlim=(-1.9, 8.8), ylim=(-1.9, 4.6), aspect="equal")
    axes.set_axis_off()
