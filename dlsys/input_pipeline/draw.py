"""Pictures of input pipelines: timelines, and utilization over depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, some
from dlsys.figures import closed_figure, time_unit
from dlsys.input_pipeline.laws import exponential_utilization
from dlsys.input_pipeline.plan import InputPipeline, Stage
from dlsys.input_pipeline.simulation import simulate
from dlsys.input_pipeline.timeline import Timeline
from dlsys.palette import GRID, GROUND, LINES, ON_LIGHT

# Okabe and Ito's palette; hatches tell stages apart in grey.
BARS = (("#56B4E9", ""), ("#E69F00", "///"), ("#CC79A7", "..."), ("#009E73", "xxx"))
SPENT = (("busy", "#56B4E9", ""), ("starved", "#F0E442", ""), ("blocked", "#D55E00", "///"))


@checked
def draw_timeline(timeline: Timeline, most: int = 24) -> Figure:
    """Who works on which batch when: a row for each worker; the first `most` batches, numbered."""
    rows = sum(stage.workers for stage in timeline.pipeline.stages)
    figure, (axes,) = closed_figure(8, 1.0 + 0.3 * min(rows, 30))
    _bars(axes, timeline, count("most", most))
    return figure


def _bars(axes: Axes, timeline: Timeline, most: int) -> None:
    row, labels = 0, []
    shown = max(span.end for span in timeline.spans if span.batch < most) - timeline.begin
    unit, scale = time_unit(shown)
    for at, stage in enumerate(timeline.pipeline.stages):
        color, hatch = BARS[at % len(BARS)]
        for span in timeline.of(stage.name)[:most]:
            begin, width = scale * (span.start - timeline.begin), scale * (span.end - span.start)
            style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": GROUND}
            axes.barh(row + span.worker, width, 0.85, begin, linewidth=0.5, **style)
            x, y = begin + width / 2, row + span.worker
            if width > scale * shown / 80:
                box: dict[str, Any] = {"facecolor": color, "pad": 0.5, "linewidth": 0}
                text: dict[str, Any] = {
                    "color": ON_LIGHT,
                    "ha": "center",
                    "va": "center",
                    "fontsize": 7,
                }
                axes.text(x, y, str(span.batch), bbox=box, **text)
        many = stage.workers > 1
        labels += [f"{stage.name} {j}" if many else stage.name for j in range(stage.workers)]
        row += stage.workers
    axes.set_yticks(range(row), labels, fontsize="small")
    axes.set_ylim(row - 0.4, -0.6)
    axes.set_xlabel(f"time ({unit})")


@checked
def draw_depth(
    depths: Sequence[int], variations: Sequence[float], ratio: float = 1.0, batches: int = 4000
) -> Figure:
    """Utilization of the step over how many batches its one worker may be ahead, simulated.

    ratio: the worker's mean seconds for a batch, divided by the step's. A line for each variation
    of both; where it is 1, crosses show the law `exponential_utilization`.
    """
    some("depths", depths)
    some("variations", variations)
    positive("ratio", ratio)
    figure, (axes,) = closed_figure(7, 3.4)
    for index, variation in enumerate(variations):
        at_least("variations", variation, 0)
        color, line, marker = LINES[index % len(LINES)]
        used = [
            _used(count("A depth of depths", depth), variation, ratio, batches) for depth in depths
        ]
        style = {"color": color, "linestyle": line, "marker": marker, "markersize": 4}
        axes.plot(depths, used, label=f"variation {variation:g}", **style)
        if variation == 1:
            law = [exponential_utilization(ratio, depth) for depth in depths]
            axes.plot(depths, law, "x", color=color, markersize=9, label="the law")
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(depths), [str(depth) for depth in depths])
    axes.set_xlabel("batches ahead")
    axes.set_ylabel("utilization of the step")
    axes.grid(color=GRID)
    axes.legend(fontsize="small")
    return figure


def _used(depth: int, variation: float, ratio: float, batches: int) -> float:
    load = Stage("load", 0.0, ratio, prefetch=depth, variation=variation)
    step = Stage("step", 0.0, 1.0, variation=variation)
    timeline = simulate(InputPipeline((load, step)), batches)
    return timeline.spent("step").busy / timeline.seconds


def draw_choice(timeline: Timeline, rows: Sequence[Any]) -> Figure:
    """An explorer's timeline above, and below how each stage's workers spend their time."""
    figure, (above, below) = closed_figure(9, 7, 2)
    _bars(above, timeline, 20)
    names = [row.stage for row in rows]
    left = [0.0] * len(rows)
    for field, color, hatch in SPENT:
        shares = [getattr(row, field) for row in rows]
        style: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": GROUND}
        below.barh(names, shares, 0.7, left, label=field, **style)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    below.set_xlim(0, 1)
    below.invert_yaxis()
    below.set_xlabel("share of the stage's worker-seconds")
    below.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure
