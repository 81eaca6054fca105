"""Pictures of precision: formats on the number line, the errors of rounding, curves of loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what, some
from dlsys.figures import closed_figure
from dlsys.palette import GRID, INK, LINES, MUTED
from dlsys.precision.number_line import numbers_between
from dlsys.precision.plan import Format
from dlsys.precision.sums import signal_to_noise
from dlsys.tensors import dense, of_shape


@checked
def draw_number_line(formats: Sequence[Format], low: float = 0.0, high: float = 8.0) -> Figure:
    """A row for each format: a tick for each of its numbers from `low` (at least 0) to `high`.

    Numbers too many for ticks are a band. A row's line ends at the format's largest number.
    """
    some("formats", formats)
    figure, (axes,) = closed_figure(8, 0.8 + 0.45 * len(formats))
    for row, (fmt, color) in enumerate(zip(formats, cycle(_COLORS), strict=False)):
        draw_ticks(axes, row, numbers_between(fmt, low, high), (low, min(high, fmt.max)), color)
    axes.set_yticks(range(len(formats)), [str(fmt) for fmt in formats])
    axes.invert_yaxis()
    axes.set_xlim(low - 0.01 * (high - low), high + 0.01 * (high - low))
    axes.set_xlabel("numbers of the format")
    return figure


@checked
def draw_errors(x: Tensor, rounded: Mapping[str, Tensor], bins: int = 81) -> Figure:
    """How often each relative error (rounded - x) / |x| occurs, a line for each named tensor.

    Errors beyond +-1/2 count at the ends: -1/2 has all that became zero. The legend has the signal
    to noise in decibels. Raises ValueError for tensors of another shape than x.
    """
    some("rounded", rounded)
    bins = count("bins", bins, 1, 1000)
    dense("x", x)
    if x.is_meta:
        refuse_what("x", "on the device meta", "on one that holds numbers")
    figure, (axes,) = closed_figure(7.5, 4)
    kept = x.detach().double().flatten()
    if not bool(kept.isfinite().all()) or not bool((kept != 0).any()):
        refuse_what("x", of_shape(x) + " with zeros alone, infinity or NaN", "finite numbers")
    for (name, each), (color, style, _) in zip(rounded.items(), cycle(LINES), strict=False):
        decibels = signal_to_noise(x, each)
        error = ((each.detach().double().flatten() - kept) / kept.abs())[kept != 0]
        counts = error.clamp(-0.5, 0.5).float().histc(bins, -0.5, 0.5) / error.numel()
        middles = [100 * ((i + 0.5) / bins - 0.5) for i in range(bins)]
        label = f"{name}: {decibels:.1f} dB"
        axes.plot(middles, (100 * counts).tolist(), color=color, linestyle=style, label=label)
    axes.set_xlabel("error (% of the number)")
    axes.set_ylabel("numbers (%)")
    axes.set_yscale("log")
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


@checked
def draw_losses(curves: Mapping[str, Sequence[float]], window: int = 5) -> Figure:
    """Left, the loss of each step, a line for each named curve; right, by how much it is above the
    first curve's, as the mean of `window` steps.

    Raises ValueError for curves of different lengths.
    """
    some("curves", curves)
    window = count("window", window)
    first = next(iter(curves.values()))
    figure, (left, right) = closed_figure(9, 4, 1, 2)
    for (name, losses), (color, style, _) in zip(curves.items(), cycle(LINES), strict=False):
        if len(losses) != len(first):
            refuse(f"curve {name!r}", len(losses), f"of {len(first)} steps, as the first is")
        left.plot(losses, color=color, linestyle=style, label=name)
        over = [a - b for a, b in zip(losses, first, strict=True)]
        means = [sum(over[i : i + window]) / window for i in range(len(over) - window + 1)]
        steps = [i + (window - 1) / 2 for i in range(len(means))]
        right.plot(steps, means, color=color, linestyle=style)
    left.set_ylabel("loss (nats a byte)")
    right.set_ylabel(f"loss above {next(iter(curves))}'s")
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(color=GRID)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize="small")
    return figure


_COLORS = [color for color, _, _ in LINES if color != INK]


def draw_ticks(
    axes: Axes,
    row: float,
    numbers: Sequence[float] | None,
    span: tuple[float, float],
    color: str = LINES[0][0],
) -> None:
    """A line over `span` at the height `row` with a tick for each number; None: a band."""
    axes.plot(span, [row, row], color=MUTED, linewidth=0.8, zorder=0)
    if numbers is None:
        axes.barh(row, span[1] - span[0], 0.6, span[0], color=color)
    else:
        axes.vlines(list(numbers), row - 0.3, row + 0.3, color=color, linewidth=1.2)
