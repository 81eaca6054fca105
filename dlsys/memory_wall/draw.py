"""Pictures of the walls: buckets against a device's memory, activations, and time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import count, positive, some
from dlsys.hardware import Device
from dlsys.memory_wall.fitting import Fit
from dlsys.memory_wall.plan import Recipe, model_state
from dlsys.memory_wall.price import training_seconds
from dlsys.palette import GROUND, INK, MUTED
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations
from dlsys.units import GIGA, YEAR, format_bytes

# Okabe and Ito's palette: told apart by colour-blind readers; the hatches tell them apart in grey.
STYLE: Mapping[str, dict[str, Any]] = {
    "weights": {"facecolor": "#0072B2"},
    "gradients": {"facecolor": "#56B4E9", "hatch": "///"},
    "optimizer": {"facecolor": "#E69F00", "hatch": "..."},
    "activations": {"facecolor": "#009E73", "hatch": "xx"},
}
LINES = (("#0072B2", "-"), ("#009E73", "--"), ("#E69F00", "-."), ("#CC79A7", (0, (5, 1, 1, 1))))
LEVELS = ("-", "--", ":")
KEPT: Mapping[str, dict[str, Any]] = {
    "nothing recomputed": {},
    "attention recomputed, or flash": {"recompute": "selective"},
    "every layer recomputed": {"recompute": "full"},
}
MEMORY: Mapping[str, Any] = {"color": "#D55E00", "linestyle": ":", "linewidth": 2}
SEQUENCES = tuple(2**power for power in range(8, 18))


@checked
def draw_plans(plans: Mapping[str, Fit], device: Device) -> Figure:
    """The four buckets of each plan as bars, by its name, against the memory of a device."""
    figure = plt.figure(figsize=(8, 1.7 + 0.42 * len(plans)), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    draw_bars(figure.subplots(), {name: fit.held for name, fit in plans.items()}, device.memory)
    return figure


def draw_bars(axes: Axes, rows: Mapping[str, Mapping[str, float]], memory: float | None) -> None:
    """Horizontal stacked bars: a row for each key, its buckets in bytes, and a line at `memory`.

    Bucket names are those of STYLE; bytes are shown as GB (10^9).
    """
    starts = [0.0] * len(rows)
    for bucket, style in STYLE.items():
        widths = [row.get(bucket, 0) / GIGA for row in rows.values()]
        if any(widths):
            axes.barh(
                range(len(rows)), widths, 0.62, starts, label=bucket, edgecolor=GROUND, **style
            )
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    limit = (memory or 0) / GIGA
    axes.set_xlim(0, 1.18 * max(*starts, limit, 1e-9))
    # A character takes about 7 points; a total that the line would strike goes beyond it.
    character = 7 / 72 * axes.figure.dpi * axes.get_xlim()[1] / axes.get_window_extent().width
    for place, (end, row) in enumerate(zip(starts, rows.values(), strict=True)):
        text = format_bytes(sum(row.values()))
        struck = end <= limit <= end + (len(text) + 1) * character
        axes.annotate(
            text,
            (limit if struck else end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    if memory is not None:
        axes.axvline(limit, **MEMORY, label=f"memory of a device, {format_bytes(memory)}")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel("memory of one device (GB, 10⁹ bytes)")
    handles, labels = axes.get_legend_handles_labels()
    if memory is not None:  # matplotlib lists lines before bars
        handles, labels = [*handles[1:], handles[0]], [*labels[1:], labels[0]]
    axes.legend(
        handles,
        labels,
        fontsize="small",
        loc="lower center",
        bbox_to_anchor=(0.5, 1),
        ncols=4 if len(labels) <= 4 else 3,
    )


@checked
def draw_activations(
    spec: TransformerSpec,
    batch: int,
    sequences: Sequence[int] = SEQUENCES,
    recipe: Recipe | str = "mixed-adamw",
    device: Device | None = None,
    dropout: bool = True,
    shares: Sequence[int] = (1,),
) -> Figure:
    """Activations of all layers against sequence length, by what is recomputed, on log axes.

    Drawn is what they keep between forward and backward; a layer that backward is rebuilding
    (`Activations.recomputed`) comes on top. Level lines are the device's memory and the model's
    state, which no sequence changes: a line for each of `shares`, devices that ZeRO's stage 3
    divides it over. Raises ValueError for shares that are no counts.
    """
    figure = plt.figure(figsize=(8, 4.2), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    some("shares", shares)
    states = {
        f"model state over {n}" if n > 1 else "model state": model_state(
            spec.parameters(), recipe, zero_stage=3, data_parallel=n
        ).total
        for n in (count("Each of shares", share) for share in shares)
    }
    longer = [dataclasses.replace(spec, sequence=s) for s in sequences]
    lines = {
        label: [activations(each, batch, dropout=dropout, **options).total for each in longer]
        for label, options in KEPT.items()
    }
    axes = figure.subplots()
    draw_curves(axes, sequences, lines, states, device)
    axes.set_ylabel("kept for backward (GB, 10⁹ bytes)")
    return figure


def draw_curves(
    axes: Axes,
    sequences: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    states: Mapping[str, float],
    device: Device | None,
) -> None:
    """Put labelled `lines` of bytes by sequence on `axes`, and level lines of `states` bytes."""
    for (label, values), (color, dashes) in zip(lines.items(), LINES, strict=False):
        shown = [value / GIGA for value in values]
        axes.plot(sequences, shown, color=color, linestyle=dashes, label=label)
    for (label, state), dashes in zip(states.items(), LEVELS, strict=False):
        axes.axhline(state / GIGA, color=MUTED, linewidth=1, linestyle=dashes, label=label)
    if device:
        axes.axhline(device.memory / GIGA, **MEMORY, label=f"memory of one {device.name}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(sequences), [f"{s:,}" for s in sequences], rotation=45)
    axes.set_xlabel("sequence length (tokens)")
    axes.set_ylabel("memory (GB, 10⁹ bytes)")
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def draw_choice(rows: Sequence[Any], saving: str, sequence: int, device: Device) -> Figure:
    """An explorer's rows: left, the chosen buckets; right, the activations of every row.

    rows: with `saving`, `sequence`, `activations` and `buckets` (bytes by name); one of them has
    the chosen `saving` and `sequence`, and is marked.
    """
    (chosen,) = (row for row in rows if (row.saving, row.sequence) == (saving, sequence))
    figure = Figure(figsize=(10, 4), layout="constrained")
    bars, curves = figure.subplots(1, 2)
    alone = {name: {name: nbytes} for name, nbytes in chosen.buckets.items()}
    draw_bars(bars, {**alone, "together": chosen.buckets}, device.memory)
    sequences = sorted({row.sequence for row in rows})
    lines: dict[str, list[float]] = {}
    for row in rows:
        lines.setdefault(row.saving, []).append(row.activations)
    state = sum(chosen.buckets.values()) - chosen.activations
    draw_curves(curves, sequences, lines, {"model state": state}, device)
    here = chosen.activations / GIGA
    curves.plot([sequence], [here], "o", color=INK, fillstyle="none", markersize=10)
    return figure


@checked
def draw_walls(
    specs: Sequence[TransformerSpec],
    device: Device,
    recipe: Recipe | str = "mixed-adamw",
    tokens_per_parameter: float = 20.0,
    utilization: float = 0.4,
    number_format: str = "bf16",
) -> Figure:
    """The memory wall and the time wall: state in bytes, and years on one device, by parameters.

    Rings are the 16-bit weights alone, which is what running the model takes at least; a number of
    devices beside each dot is the fewest that hold its state.

    Years are 6 N D / (peak x utilization), with D = `tokens_per_parameter` x N tokens (20 is the
    compute-optimal ratio of Hoffmann et al. 2022).
    """
    some("specs", specs)
    positive("tokens_per_parameter", tokens_per_parameter)
    counts = [spec.parameters() for spec in specs]
    state = [model_state(n, recipe).total / GIGA for n in counts]
    years = [
        training_seconds(6 * n * tokens_per_parameter * n, device.rate(number_format), utilization)
        / YEAR
        for n in counts
    ]
    figure = plt.figure(figsize=(7, 7), layout="constrained")
    plt.close(figure)  # shown where it is returned, not a second time by its cell
    memory, time = figure.subplots(2, 1)
    held = device.memory / GIGA
    weights = [2 * n / GIGA for n in counts]
    memory.plot(counts, weights, "o", color="#D55E00", fillstyle="none", label="to run: weights")
    for axes, values, unit in (
        (memory, state, "memory (GB, 10⁹ bytes)"),
        (time, years, f"training time on one {device.name} (years)"),
    ):
        axes.plot(counts, values, "o", color="#0072B2", label="to train: model state, and devices")
        for i, (n, value, spec) in enumerate(zip(counts, values, specs, strict=True)):
            left = i >= len(specs) / 2
            axes.annotate(
                f"{spec.name}, {math.ceil(value / held)}" if axes is memory else spec.name,
                (n, value),
                xytext=(-7 if left else 7, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center",
                fontsize="small",
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.margins(0.1)
        axes.set_xlabel("parameters")
        axes.set_ylabel(unit)
    memory.legend(fontsize="small", loc="lower right")
    levels = [(memory, k * held, f"{k} x {device.name}") for k in (1, 8)]
    for axes, level, label in [*levels, (time, 1, "one year")]:
        axes.axhline(level, **MEMORY)
        axes.annotate(
            label,
            (counts[0], level),
            xytext=(0, 4),
            textcoords="offset points",
            ha="left",
            va="bottom",
            fontsize="small",
        )
    return figure
