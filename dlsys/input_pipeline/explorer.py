"""An explorer of input pipelines: sizes, rates, workers and depth; the timeline, and who waits."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import LINKS
from dlsys.input_pipeline.plan import InputPipeline, Stage
from dlsys.input_pipeline.price import Price
from dlsys.input_pipeline.simulation import simulate
from dlsys.input_pipeline.timeline import Timeline
from dlsys.units import KILO, MEGA, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES, BATCH = 960, 64
SEED = 2  # of a run whose first batch, which the picture begins with, takes a usual time


class Kind(NamedTuple):
    """Bytes of a sample in storage and on its way to the device: assumptions of a usual size."""

    stored: float
    sent: float


KINDS = {
    "text, 2,048 tokens": Kind(2048 * 2, 2048 * 8),
    "image, 224 x 224": Kind(110 * KILO, 3 * 224 * 224 * 4),
    "clip, 16 images": Kind(800 * KILO, 16 * 3 * 224 * 224 * 4),
}


class Row(NamedTuple):
    """A stage: what it could do alone, in samples a second, and its shares of worker-seconds."""

    stage: str
    samples_per_second: float
    busy: float
    starved: float
    blocked: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting of a pipeline of batches of 64 samples.

    Raises ValueError for what no option has.
    """

    sample: str = option("Sample", KINDS, "image, 224 x 224")
    storage: int = option("Storage (MB/s)", (20, 50, 100, 200, 500, 1750, 3500, 7000), 500)
    transform: float = option("Transform (ms a sample)", (0.05, 0.2, 1.0, 5.0, 10.0, 30.0), 10.0)
    workers: int = option("Workers", (1, 2, 4, 6, 8, 12, 16, 24, 32), 4)
    prefetch: int = option("Prefetch", (1, 2, 4, 8, 16), 2)
    step: int = option("Step (ms)", (10, 20, 50, 80, 100, 200, 400), 80)
    variation: float = option("Variation", (0.0, 0.25, 0.5, 1.0, 2.0), 0.0)

    def pipeline(self) -> InputPipeline:
        """Storage, which all share; workers; the way to the device; its step."""
        size = KINDS[self.sample]
        read = size.stored / (self.storage * MEGA)
        ahead, at_once = self.workers * self.prefetch, self.transform / KILO
        moved = size.sent / LINKS["pcie4"].bandwidth
        stages = (
            Stage("read", read, prefetch=ahead, sample_bytes=size.stored),
            Stage(
                "transform", at_once, 0.0, self.workers, self.prefetch, size.sent, self.variation
            ),
            Stage("transfer", moved, sample_bytes=size.sent),
            Stage("step", 0.0, self.step / KILO),
        )
        return InputPipeline(stages, BATCH)

    def price(self) -> Price:
        """The price of the pipeline."""
        return self.pipeline().price()

    def timeline(self) -> Timeline:
        """Some hundred batches of it, simulated."""
        return simulate(self.pipeline(), BATCHES, SEED)

    def rows(self) -> list[Row]:
        """A row for each stage."""
        timeline, rates = self.timeline(), self.price().rates
        rows = []
        for stage in timeline.pipeline.stages:
            spent = timeline.spent(stage.name)
            shares = [part / (stage.workers * timeline.seconds) for part in spent[:3]]
            rows.append(Row(stage.name, rates[stage.name], *shares))
        return rows

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        price, timeline, rows = self.price(), self.timeline(), self.rows()
        waits = "; ".join(
            f"{row.stage} {row.busy:.0%} busy, {row.starved:.0%} starved, {row.blocked:.0%} blocked"
            for row in rows
        )
        return (
            f"Samples: {self.sample}. {self.workers} workers with {self.prefetch} batches each. "
            f"The slowest stage is {price.bottleneck}: {price.samples_per_second:,.0f} samples/s, "
            f"and the device works {price.utilization:.0%} of the time, if nothing varies. "
            f"Of {BATCHES} batches, simulated with variation {self.variation:g}, the second half "
            f"came at {timeline.samples_per_second:,.0f} samples/s. The first step began after "
            f"{format_seconds(timeline.first_batch_seconds)}. Batches held "
            f"{format_bytes(timeline.peak_bytes)} at most, of {format_bytes(price.memory_bytes)} "
            f"that the plan allows. From the first read to the last step: {waits}."
        )

    def figure(self) -> Figure:
        """Above, who works on which batch when; below, how each stage spends its time."""
        from dlsys.input_pipeline.draw import draw_choice

        return draw_choice(self.timeline(), self.rows())


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(workers=8, step=50)`."""
    return Explorer(Choice(**choice))
