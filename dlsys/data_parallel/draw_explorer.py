"""The picture of the explorer: the chosen step, and what is left of the ranks in every one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.data_parallel.picture import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    HIDDEN,
    powers,
)
from dlsys.figures import closed_figure, time_unit
from dlsys.palette import GROUND, INK, LINES


def draw_choice(rows: Sequence[Any], bucket: str, ranks: int) -> Figure:
    """An explorer's rows: left, the chosen step; right, the efficiency of every row.

    rows: with `bucket`, `ranks`, `efficiency`, `seconds` of the step, and of `forward`, `backward`,
    `hidden` and `exposed`; one of them has the chosen `bucket` and `ranks`, and is marked.
    """
    (chosen,) = (row for row in rows if (row.bucket, row.ranks) == (bucket, ranks))
    figure, (step, curves) = closed_figure(10, 4, 1, 2)
    _draw_step(step, chosen)
    _draw_efficiency(curves, rows)
    curves.plot([ranks], [100 * chosen.efficiency], "o", color=INK, fillstyle="none", markersize=10)
    return figure


def _draw_step(axes: Axes, row: Any) -> None:
    """Compute above, communication below: hidden before the end of backward, exposed after it."""
    unit, scale = time_unit(row.seconds)
    done = row.forward + row.backward
    for place, start, seconds, look in (
        (1, 0.0, row.forward, FORWARD),
        (1, row.forward, row.backward, BACKWARD),
        (0, done - row.hidden, row.hidden, HIDDEN),
        (0, done, row.exposed, EXPOSED),
    ):
        axes.barh(place, seconds * scale, 0.6, start * scale, edgecolor=GROUND, **look)
    axes.set_yticks([1, 0], ["compute", "network"])
    axes.set_ylim(-0.6, 2.4)
    axes.set_xlabel(f"time ({unit})")
    axes.legend(fontsize="small", loc="upper center", ncols=2)


def _draw_efficiency(axes: Axes, rows: Sequence[Any]) -> None:
    """A line over the ranks for each size of buckets."""
    sizes = list(dict.fromkeys(row.ranks for row in rows))
    lines: dict[str, list[float]] = {}
    for row in rows:
        lines.setdefault(row.bucket, []).append(100 * row.efficiency)
    for (name, values), (color, style, marker) in zip(lines.items(), cycle(LINES), strict=False):
        named = f"buckets: {name}"
        axes.plot(sizes, values, color, linestyle=style, marker=marker, ms=4, label=named)
    powers(axes, sizes)
    axes.set_ylim(0, 105)
    axes.set_xlabel("ranks n")
    axes.set_ylabel("efficiency (%)")
    axes.legend(fontsize="small")
