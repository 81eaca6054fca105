"""What the pictures of several mechanisms share: figures that show once, blocks, units of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlsys.palette import COLORS, INK, MUTED, ON_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dlsys.streams import Overlap


def closed_figure(
    width: float, height: float, down: int = 1, across: int = 1
) -> tuple[Figure, list]:
    """A closed figure (shown where it is returned, not a second time by its cell) and its axes."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(width, height), layout="constrained")
    plt.close(figure)
    return figure, list(figure.subplots(down, across, squeeze=False).flat)


def area(number: int) -> dict[str, str]:
    """The look of a number's block: its `facecolor`, and the `color` of the words on it."""
    hue = number % len(COLORS)
    return {"facecolor": COLORS[hue], "color": ON_COLORS[hue]}


def block(
    axes: Axes, corner: tuple[float, float], width: float, height: float, words: str, **style: Any
) -> None:
    """A rectangle from its lower left corner on, with words in its middle.

    style: the patch's, and `color`, that of the words
    """
    from matplotlib.patches import Rectangle

    color = style.pop("color", INK)
    axes.add_patch(Rectangle(corner, width, height, **{"edgecolor": MUTED, "lw": 0.8, **style}))
    middle = corner[0] + width / 2, corner[1] + height / 2
    axes.text(*middle, words, ha="center", va="center_baseline", color=color, fontsize="small")


def arrow(
    axes: Axes, start: tuple[float, float], stop: tuple[float, float], words: str = "", **style: Any
) -> None:
    """An arrow, with words above its middle. style: the line's."""
    how = {"arrowstyle": "-|>", "color": INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0, **style}
    axes.annotate("", stop, start, arrowprops=how)
    middle = (start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2
    axes.annotate(
        words,
        middle,
        (0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize="small",
    )


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which `seconds` reads well, and how many of it a second has."""
    if seconds >= 1:
        return "s", 1.0
    return ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)


def lanes(axes: Axes, step: Overlap, longest: float) -> None:
    """What a device computes, and under it what its network carries, up to `longest` seconds.

    The actions of `step` are pairs of words and of the number whose color their block has.
    """
    unit, scale = time_unit(longest)
    for row, spans in enumerate((step.compute, step.network)):
        for span in spans:
            words, number = span.action
            corner = scale * span.start, row - 0.35
            block(axes, corner, scale * span.seconds, 0.7, words, **area(number))
    axes.set(xlim=(0, 1.01 * scale * longest), ylim=(1.5, -0.5), xlabel=f"time ({unit})")
    axes.set_yticks([0, 1], ["compute", "network"])
