"""The Gantt chart of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from dlsys.palette import GRID, GROUND, MUTED
from dlsys.world.span import Span

# Okabe and Ito's palette: told apart by colour-blind readers; the hatches tell them apart in grey.
STYLE: dict[str, dict[str, Any]] = {
    "wait": {"facecolor": GRID, "edgecolor": MUTED, "hatch": "..."},
    "compute": {"facecolor": "#0072B2", "edgecolor": GROUND},
    "communication": {"facecolor": "#E69F00", "edgecolor": GROUND, "hatch": "///"},
}
PLACE = {"wait": (-0.42, 0.84), "compute": (-0.42, 0.42), "communication": (0.0, 0.42)}
"""Where in a rank's row each kind is drawn: offset and height."""
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def gantt(ranks: int, spans: Sequence[Span], title: str = "") -> Figure:
    """Draw `spans`: a row per rank; compute in the upper half, communication in the lower."""
    longest = max((span.end for span in spans), default=0.0)
    scale, unit = next((u for u in UNITS if longest >= u[0]), UNITS[-1])
    bars: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        if span.end > span.start:
            bar = (span.start / scale, (span.end - span.start) / scale)
            bars[span.kind, span.rank].append(bar)

    figure = plt.figure(figsize=(8, 0.8 + 0.4 * max(2, ranks)), layout="constrained")
    plt.close(figure)  # a cell shows it once, as its value
    axes = figure.subplots()
    for (kind, rank), row in sorted(bars.items(), key=lambda item: list(STYLE).index(item[0][0])):
        offset, height = PLACE[kind]
        axes.broken_barh(row, (rank + offset, height), linewidth=0.5, label=kind, **STYLE[kind])
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        figure.legend(
            unique.values(), unique.keys(), loc="outside upper right", ncols=3, fontsize="small"
        )
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("rank")
    axes.set_yticks(range(ranks) if ranks <= 16 else [0, ranks - 1])
    axes.set_ylim(ranks - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_title(title, loc="left")
    return figure
