"""What pictures of data parallelism share: the looks of compute and network, axes, and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from dlsys.palette import GRID, MUTED

# Okabe and Ito's palette; hatches and line styles tell the same things apart in grey.
FORWARD: Mapping[str, Any] = {"facecolor": "#56B4E9", "label": "forward"}
BACKWARD: Mapping[str, Any] = {"facecolor": "#0072B2", "label": "backward"}
HIDDEN: Mapping[str, Any] = {"facecolor": "#009E73", "hatch": "///", "label": "all-reduce, hidden"}
EXPOSED: Mapping[str, Any] = {
    "facecolor": "#D55E00",
    "hatch": "xxx",
    "label": "all-reduce, exposed",
}
LEVEL: Mapping[str, Any] = {"color": MUTED, "linewidth": 1}


def byte_unit(most: float) -> tuple[float, str]:
    """How many of the unit in which `most` reads well a byte is, and the unit's name."""
    for size, unit in ((1e9, "GB, 10⁹ bytes"), (1e6, "MB, 10⁶ bytes"), (1e3, "kB, 10³ bytes")):
        if most >= size:
            return 1 / size, unit
    return 1.0, "bytes"


def powers(axes: Axes, ranks: Sequence[int]) -> None:
    """Let the horizontal axis be numbers of ranks, each twice the one before."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(ranks), [str(n) for n in ranks])
    axes.grid(color=GRID)
