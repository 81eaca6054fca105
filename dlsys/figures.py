"""What the pictures of several mechanisms share: figures that show once, and units of time."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


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
