"""The Gantt chart of a run."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from dlsys.world.timeline import Timeline

# Okabe and Ito's palette: told apart by colour-blind readers; the hatches tell them apart in grey.
STYLE = {
    "compute": {"facecolor": "#0072B2", "edgecolor": "white"},
    "communication": {"facecolor": "#E69F00", "edgecolor": "white", "hatch": "///"},
    "wait": {"facecolor": "#DDDDDD", "edgecolor": "#888888", "hatch": "..."},
}
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def gantt(timeline: Timeline, title: str = "") -> Figure:
    """Draw `timeline`: a row per rank; compute in the upper half, communication in the lower."""
    longest = max((span.end for span in timeline.spans), default=0.0)
    scale, unit = next((u for u in UNITS if longest >= u[0]), UNITS[-1])
    figure = plt.figure(figsize=(8, 0.6 + 0.4 * max(2, timeline.ranks)), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    axes = figure.subplots()
    for kind, (offset, height) in {
        "wait": (-0.42, 0.84),
        "compute": (-0.42, 0.42),
        "communication": (0.0, 0.42),
    }.items():
        for rank in range(timeline.ranks):
            bars = [
                (span.start / scale, (span.end - span.start) / scale)
                for span in timeline.of(rank, kind)
                if span.end > span.start
            ]
            if bars:
                axes.broken_barh(
                    bars, (rank + offset, height), linewidth=0.5, **STYLE[kind], label=kind
                )
    labels = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if labels:
        axes.legend(labels.values(), labels.keys(), loc="upper right", ncols=3, fontsize="small")
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("rank")
    axes.set_yticks(range(timeline.ranks) if timeline.ranks <= 16 else [0, timeline.ranks - 1])
    axes.set_ylim(timeline.ranks - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.set_title(title)
    return figure
