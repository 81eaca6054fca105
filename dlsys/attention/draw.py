"""Pictures of tiled attention: the order of visits, and curves of what moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dlsys.annotated import checked
from dlsys.attention.plan import QUERIES, Schedule
from dlsys.checks import positive, refuse, some
from dlsys.figures import closed_figure
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED, ON_LIGHT

MOST_DRAWN = 1024
SEEN, CUT, SKIPPED = "#56B4E9", "#E69F00", GRID
"""Tiles whose pairs are all allowed, some, or none."""


def draw(schedule: Schedule) -> Figure:
    """The table of tiles, each with the number of its visit; raises ValueError beyond 1,024."""
    tiles = schedule.tiling
    if tiles.query_tiles * tiles.key_tiles > MOST_DRAWN:
        refuse("the number of tiles", tiles.query_tiles * tiles.key_tiles, f"at most {MOST_DRAWN}")
    down, across = tiles.query_tiles, tiles.key_tiles
    figure, (axes,) = closed_figure(1.6 + 0.5 * across, 1.3 + 0.42 * down)
    numbers = {step: number for number, step in enumerate(schedule.steps)}
    for i in range(down):
        for j in range(across):
            visit = numbers.get((i, j))  # type: ignore[call-overload]
            cut = visit is not None and tiles.is_cut(schedule.steps[visit])
            color = SKIPPED if visit is None else CUT if cut else SEEN
            hatch = "///" if cut else None
            axes.add_patch(
                Rectangle(
                    (j, i), 1, 1, facecolor=color, edgecolor=GROUND, linewidth=1.2, hatch=hatch
                )
            )
            if visit is not None:
                label = axes.text(j + 0.5, i + 0.5, str(visit), ha="center", va="center")
                label.set(color=ON_LIGHT, fontsize="small")
    axes.set(xlim=(0, across), ylim=(down, 0), xlabel="tile of keys", ylabel="tile of queries")
    axes.set_xticks([j + 0.5 for j in range(across)], [str(j) for j in range(across)])
    axes.set_yticks([i + 0.5 for i in range(down)], [str(i) for i in range(down)])
    axes.tick_params(length=0)
    stays = "queries stay" if schedule.outer == QUERIES else "keys stay"
    axes.set_title(f"{stays}, {len(schedule.steps)} visits", fontsize="medium", loc="left")
    return figure


@checked
def draw_curves(
    curves: Mapping[str, Mapping[float, float]],
    x: str,
    y: str,
    marks: Mapping[str, float] | None = None,
) -> Figure:
    """Named curves {x: y} on logarithmic axes; x and y are labels, marks named places on x.

    Raises ValueError for no curve, an empty one, or numbers that are not above zero.
    """
    some("curves", curves)
    figure, (axes,) = closed_figure(7, 3.4)
    _curves(axes, curves)
    for place, (name, at) in enumerate((marks or {}).items()):
        positive(f"marks[{name!r}]", at)
        axes.axvline(at, color=MUTED, linestyle=(0, (1, 2 + place)), linewidth=1.2)
        axes.text(at, 1.0, f" {name}", transform=axes.get_xaxis_transform(), va="top", color=INK)
        axes.texts[-1].set_fontsize("small")
    axes.set(xlabel=x, ylabel=y)
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


def _curves(axes: Axes, curves: Mapping[str, Mapping[float, float]]) -> None:
    for number, (name, curve) in enumerate(curves.items()):
        some(f"curves[{name!r}]", curve)
        for at, value in curve.items():
            positive(f"curves[{name!r}], a place", at)
            positive(f"curves[{name!r}], a value", value)
        color, style, marker = LINES[number % len(LINES)]
        few: dict[str, Any] = {"marker": marker, "markersize": 4} if len(curve) < 16 else {}
        axes.plot([*curve], [*curve.values()], color=color, linestyle=style, label=name, **few)
    axes.set(xscale="log", yscale="log")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)


def draw_choice(rows: Sequence[Any], chosen: Any) -> Figure:
    """An explorer's rows by length: what moves, and what is kept, tiled and plain.

    rows: with `length`, `moved`, `naive_moved`, `kept` and `naive_kept`; `chosen` is one of them.
    """
    figure, (moved, kept) = closed_figure(9, 3.6, 1, 2)
    for axes, tiled, naive, label in (
        (moved, "moved", "naive_moved", "bytes moved, forward and backward"),
        (kept, "kept", "naive_kept", "bytes kept for backward"),
    ):
        _curves(
            axes,
            {
                "tiled": {row.length: getattr(row, tiled) for row in rows},
                "plain": {row.length: getattr(row, naive) for row in rows},
            },
        )
        axes.axvline(chosen.length, color=MUTED, linestyle=":")
        place = axes.get_xaxis_transform()
        axes.text(chosen.length, 0.02, f" {chosen.length:,}", transform=place, fontsize="small")
        axes.set(xlabel="tokens", ylabel=label)
    moved.legend(fontsize="small")
    return figure
