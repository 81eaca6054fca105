"""What pictures of data parallelism share: the looks of compute and network, axes, and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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


def closed_figure(
    width: float, height: float, down: int = 1, across: int = 1
) -> tuple[Figure, list]:
    """A closed figure (shown where it is returned, not a second time by its cell) and its axes."""
    figure = plt.figure(figsize=(width, height), layout="constrained")
    plt.close(figure)
    return figure, list(figure.subplots(down, across, squeeze=False).flat)


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which `seconds` reads well, and how many of it a second has."""
    if seconds >= 1:
        return "s", 1.0
    return ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)


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
