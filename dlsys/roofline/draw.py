"""Pictures of roofs, of what lies under them, and of where time goes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse, some
from dlsys.figures import closed_figure, time_unit
from dlsys.hardware import Device
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED
from dlsys.roofline.diagnosis import IDLE, INPUT, LAUNCH, Diagnosis
from dlsys.roofline.measurements import Timed
from dlsys.roofline.measuring import Machine, UnderRoof
from dlsys.roofline.plan import Operation
from dlsys.roofline.price import BANDWIDTH, COMPUTE, NETWORK, attainable, place
from dlsys.roofline.tiles import Processor, Tile, tiled
from dlsys.roofline.traces import CATEGORIES, COMMUNICATION, HOST, KERNEL, Trace
from dlsys.roofline.utilization import Stair

# Okabe and Ito's palette; hatches tell the same things apart in grey.
SHARES: Mapping[str, Mapping[str, Any]] = {
    COMPUTE: {"facecolor": "#0072B2"},
    BANDWIDTH: {"facecolor": "#56B4E9", "hatch": "//"},
    NETWORK: {"facecolor": "#E69F00", "hatch": "xx"},
    INPUT: {"facecolor": "#009E73", "hatch": ".."},
    LAUNCH: {"facecolor": "#CC79A7", "hatch": "\\\\"},
    IDLE: {"facecolor": GRID},
}
LANES = {KERNEL: COMPUTE, COMMUNICATION: NETWORK, HOST: LAUNCH, INPUT: INPUT}


@checked
def draw_roofline(
    devices: Sequence[Device],
    operations: Mapping[str, Operation],
    number_format: str = "bf16",
) -> Figure:
    """The roofs of devices in a format, and where operations lie: on those of the first one."""
    some("devices", devices)
    some("operations", operations)
    figure, (axes,) = closed_figure(8, 4.4)
    intensities = [o.intensity for o in operations.values() if o.intensity]
    low, high = 0.5 * min([1.0, *intensities]), 3 * max([1000.0, *intensities])
    for device, (color, style, _) in zip(devices, LINES, strict=False):
        _roof(axes, device, number_format, low, high, color=color, linestyle=style)
    points = {name: o for name, o in operations.items() if o.intensity}
    for (name, operation), (color, _, marker) in zip(
        points.items(), _many(len(points)), strict=True
    ):
        rate = place(operation, devices[0], number_format).rate
        label = f"{name}: {_three_digits(operation.intensity)}"
        axes.plot(operation.intensity, rate, marker, color=color, markersize=8, label=label)
    _finish(axes, low, high)
    figure.legend(loc="outside right upper", fontsize="small")
    return figure


@checked
def draw_measured(
    machine: Machine | Device, programs: Mapping[str, UnderRoof] | Mapping[str, Timed]
) -> Figure:
    """A roof, and programs where they were measured below it: that of the machine at hand, in FP32,
    or of a device's data sheet, in BF16."""
    some("programs", programs)
    figure, (axes,) = closed_figure(8, 4.0)
    held = {name: run for name, run in programs.items() if run.operation.flops}
    intensities = [run.operation.intensity for run in held.values()]
    low, high = 0.5 * min([0.2, *intensities]), 3 * max([100.0, *intensities])
    if isinstance(machine, Machine):
        device, number_format = machine.device, "fp32"
    else:
        device, number_format = machine, "bf16"
    _roof(axes, device, number_format, low, high, color=INK, linestyle="-")
    for (name, run), (color, _, marker) in zip(held.items(), _many(len(held)), strict=True):
        rate = run.operation.flops / run.seconds
        axes.plot(run.operation.intensity, rate, marker, color=color, markersize=8, label=name)
    _finish(axes, low, high)
    figure.legend(loc="outside right upper", fontsize="small")
    return figure


@checked
def draw_beside(measured: Mapping[int, float], priced: Mapping[int, float], name: str) -> Figure:
    """Seconds as they were measured and as a price foresees them, over a size of this name."""
    some("measured", measured)
    some("priced", priced)
    figure, (axes,) = closed_figure(8, 3.2)
    unit, scale = time_unit(max(*measured.values(), *priced.values()))
    (blue, _, marker), (orange, style, _) = LINES[0], LINES[1]
    axes.plot(*_sorted(priced, scale), style, color=orange, label="priced")
    axes.plot(*_sorted(measured, scale), marker, color=blue, markersize=4, label="measured")
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.set_xlabel(name)
    axes.set_ylabel(f"time ({unit})")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.legend(fontsize="small", loc="lower right")
    return figure


def _sorted(seconds: Mapping[int, float], scale: float) -> tuple[list[int], list[float]]:
    sizes = sorted(seconds)
    return sizes, [seconds[size] * scale for size in sizes]


def _three_digits(intensity: float) -> str:
    return f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.3g}"


def _many(number: int) -> list[tuple[str, Any, str]]:
    return [LINES[i % len(LINES)] for i in range(number)]


def _roof(
    axes: Axes, device: Device, number_format: str, low: float, high: float, **of: Any
) -> None:
    ridge = device.ridge(number_format)
    at = [low, ridge, high] if low < ridge < high else [low, high]
    rates = [attainable(x, device, number_format) for x in at]
    axes.plot(at, rates, label=f"{device.name}, corner at {ridge:.3g}", **of)


def _finish(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("FLOPs for each byte through memory")
    axes.set_ylabel("FLOP/s")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)


@checked
def draw_waves(columns: Sequence[int], m: int, k: int, tile: Tile, processor: Processor) -> Figure:
    """FLOP/s of products (m, k) by (k, n) over n, of tiles; below, their seconds, in waves."""
    some("columns", columns)
    figure, (above, below) = closed_figure(8, 4.2, 2)
    widths = [count("columns", n) for n in columns]
    each = [tiled(m, k, n, tile, processor) for n in widths]
    color, style, _ = LINES[0]
    rates = [2 * m * k * n / one.seconds / 1e12 for n, one in zip(widths, each, strict=True)]
    above.plot(widths, rates, style, color=color)
    above.axhline(processor.rate / 1e12, color=MUTED, linestyle=":")
    above.set_ylabel("TFLOP/s")
    unit, scale = time_unit(max(one.seconds for one in each))
    below.plot(widths, [one.seconds * scale for one in each], style, color=color)
    below.set_ylabel(f"time ({unit})")
    below.set_xlabel(f"columns n of the result, in tiles of {tile}")
    for axes in (above, below):
        axes.set_ylim(0)
        axes.grid(color=GRID)
    return figure


@checked
def draw_waterfall(stairs: Sequence[Stair]) -> Figure:
    """What is lost on the way from a peak, stair by stair; inferred ones are hatched."""
    some("stairs", stairs)
    for stair in stairs:
        if not isinstance(stair, Stair):
            refuse("A stair of stairs", stair, "one that `waterfall` makes")
    positive("stairs[0].before", stairs[0].before)
    figure, (axes,) = closed_figure(8, 1.2 + 0.42 * (len(stairs) + 2))
    peak = stairs[0].before
    axes.barh(0, 100, color=LINES[0][0])
    for row, stair in enumerate(stairs, 1):
        hatch = None if stair.measured else "///"
        left, width = 100 * stair.after / peak, 100 * stair.lost / peak
        axes.barh(row, width, left=left, color=LINES[1][0], hatch=hatch, edgecolor=GROUND)
        # Beside the bar, on the side where there is room.
        place_of, side = (left, "right") if left > 8 else (left + width, "left")
        axes.text(
            place_of, row, f" {width:.1f} ", ha=side, va="center", fontsize="small", color=INK
        )
    axes.barh(len(stairs) + 1, 100 * stairs[-1].after / peak, color=LINES[0][0])
    names = ["peak", *[stair.name for stair in stairs], "what is left"]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    inferred = "" if all(stair.measured for stair in stairs) else " (hatched: inferred)"
    axes.set_xlabel(f"% of the peak{inferred}")
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    return figure


@checked
def draw_trace(trace: Trace, seconds: float | None = None) -> Figure:
    """A trace's events, a row for each category; the first `seconds` of them."""
    shown = trace.seconds if seconds is None else seconds
    positive("seconds", shown)
    figure, (axes,) = closed_figure(8, 2.2)
    unit, scale = time_unit(shown)
    present = [each for each in CATEGORIES if trace.of(each)]
    for row, category in enumerate(present):
        events = [e for e in trace.of(category) if e.start < trace.start + shown]
        spans = [((e.start - trace.start) * scale, e.seconds * scale) for e in events]
        style = {"facecolor": SHARES[LANES[category]]["facecolor"]}
        axes.broken_barh(spans, (row - 0.35, 0.7), edgecolor=GROUND, linewidth=0.2, **style)
    axes.set_yticks(range(len(present)), present)
    axes.invert_yaxis()
    axes.set_xlim(0, shown * scale)
    axes.set_xlabel(f"time ({unit})")
    return figure


@checked
def draw_shares(diagnoses: Mapping[str, Diagnosis]) -> Figure:
    """A bar for each diagnosis: what its time goes into."""
    some("diagnoses", diagnoses)
    figure, (axes,) = closed_figure(8, 1.3 + 0.42 * len(diagnoses))
    ends = [0.0] * len(diagnoses)
    for limit, style in SHARES.items():
        parts = [100 * each.shares[limit] for each in diagnoses.values()]
        if any(parts):
            axes.barh(range(len(parts)), parts, 0.7, ends, edgecolor=GROUND, label=limit, **style)
        ends = [end + part for end, part in zip(ends, parts, strict=True)]
    axes.set_yticks(range(len(diagnoses)), list(diagnoses))
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the time")
    figure.legend(loc="outside upper center", ncols=6, fontsize="small")
    return figure


def draw_choice(rows: Sequence[Any], chosen: Any, device: Device, number_format: str) -> Figure:
    """An explorer's rows: the sizes of an operation under a device's roof, the chosen one marked.

    rows: with `intensity`, `rate` and `tokens`, one of them `chosen`.
    """
    figure, (axes,) = closed_figure(8, 4.0)
    low = 0.5 * min([1.0, *[row.intensity for row in rows if row.intensity]])
    high = 3 * max(1000.0, *[row.intensity for row in rows])
    _roof(axes, device, number_format, low, high, color=INK, linestyle="-")
    drawn = [row for row in rows if row.intensity and row.rate]
    color, _, marker = LINES[1]
    axes.plot([r.intensity for r in drawn], [r.rate for r in drawn], ".", color=LINES[0][0])
    if chosen.intensity and chosen.rate:
        label = f"{chosen.tokens:,} tokens: {_three_digits(chosen.intensity)}"
        axes.plot(chosen.intensity, chosen.rate, marker, color=color, markersize=10, label=label)
    _finish(axes, low, high)
    axes.set_ylim(10 ** math.floor(math.log10(min([r.rate for r in drawn] or [1e9]))))
    axes.legend(fontsize="small", loc="lower right")
    return figure
