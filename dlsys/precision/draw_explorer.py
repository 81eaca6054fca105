"""The picture of the explorer: a value among a format's numbers, and the errors of rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from dlsys.figures import closed_figure
from dlsys.palette import GRID, INK, LINES
from dlsys.precision.draw import draw_ticks


def draw_choice(rows: Sequence[Any], value: float, mode: str) -> Figure:
    """An explorer's rows: above, numbers and where each mode puts the value; below, the errors.

    rows: those with `share` are bins of errors, with `up` roundings, with `value` numbers.
    """
    numbers = [row.value for row in rows if hasattr(row, "value")]
    modes = [row for row in rows if hasattr(row, "up")]
    figure, (line, shares) = closed_figure(8, 5, 2, 1)
    ends = (min([*numbers, value]), max([*numbers, value]))
    draw_ticks(line, 0, numbers, ends)
    line.plot([value, value], [-0.5, len(modes) + 0.5], color=INK, linestyle=":")
    for place, row in enumerate(modes, 1):
        for x, part in ((row.high, row.up), (row.low, 1 - row.up)):
            if part:
                color = LINES[1][0] if row.mode == mode else INK
                line.plot([value, x], [place, place], color=color, linewidth=1)
                line.plot(x, place, "o", color=color, ms=5)
    line.set_yticks(range(len(modes) + 1), ["numbers", *(row.mode for row in modes)])
    line.set_xlabel(f"{value:.6g} and the numbers of the format")
    for (color, style, _), row in zip(LINES, modes, strict=False):
        bins = [each for each in rows if hasattr(each, "share") and each.mode == row.mode]
        edges = [bins[0].low, *(each.high for each in bins)]
        shares.stairs(
            [100 * each.share for each in bins],
            edges,
            color=color,
            linestyle=style,
            linewidth=2.2 if row.mode == mode else 1,
            label=row.mode,
        )
    shares.set_xlabel("error (spacings of the format at the number)")
    shares.set_ylabel("numbers (%)")
    shares.grid(color=GRID)
    shares.legend(fontsize="small")
    return figure
