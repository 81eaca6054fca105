"""Colors of figures: lines that stay distinguishable, and the rest by role, for the page's theme.

Lines differ for color-blind readers, and in grey by style and marker; they read on light and dark.
Everything else has a role. Each role has a color that nothing else has, which is how `dlsys.svg`
knows it again in a finished figure and lets the page's theme choose: light ink on a dark page. What
stands on a colored bar keeps its color, as the bar does; so a label there is ON_DARK or ON_LIGHT.
"""

from __future__ import annotations

from typing import Any

INK = "#010101"  # text, axes, outlines: on the page itself
GROUND = "#fefefe"  # the page; edges that part one bar from the next
MUTED = "#767676"  # level lines and what is said in passing
GRID = "#dfdfdf"  # lines to read values by, and empty areas
ON_DARK = "#ffffff"  # on a dark bar, on either theme
ON_LIGHT = "#000000"  # on a light bar, on either theme
ROLES = {"ink": INK, "ground": GROUND, "muted": MUTED, "grid": GRID}
"""What a theme chooses, by the role's name: the page's stylesheet has `--figure-<name>`."""

LINES = (
    ("#0072B2", "-", "o"),
    ("#D55E00", "--", "s"),
    ("#009E73", "-.", "^"),
    ("#CC79A7", ":", "D"),
    (INK, (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#E69F00", (0, (1, 1)), "P"),
)
"""(color, line style, marker) of the first, the second, ... line: Okabe and Ito's colors."""

COLORS = [LINES[i][0] for i in (0, 1, 2, 3, 5)]
ON_COLORS = [ON_DARK, *[ON_LIGHT] * 4]
"""Of areas that are told apart by their color and a number; and of the number on each."""

STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.facecolor", "legend.facecolor"), GROUND),
    "legend.edgecolor": GRID,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "svg.hashsalt": "dlsys",
}
"""Matplotlib's settings for a figure that goes into a page: roles, text as text, the same bytes."""
