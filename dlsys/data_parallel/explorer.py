"""An explorer of data parallelism: what a step hides, and what is left of n ranks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.data_parallel.laws import BACKWARD
from dlsys.data_parallel.price import all_reduce_seconds
from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES, LINKS
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUCKETS = {"1 MB": 1e6, "25 MB": 25e6, "250 MB": 250e6, "2.5 GB": 2.5e9, "all in one": float("inf")}
DEVICES_16_BIT = [name for name, device in DEVICES.items() if "bf16" in device.flops]
RANKS = tuple(2**power for power in range(1, 11))
UTILIZATION = 0.4
"""The part of its peak that a device achieves."""


class Row(NamedTuple):
    """Seconds of a step: compute, and of the all-reduces what it hides and what it waits for."""

    bucket: str
    ranks: int
    forward: float
    backward: float
    hidden: float
    exposed: float

    @property
    def seconds(self) -> float:
        """The step."""
        return self.forward + self.backward + self.exposed

    @property
    def efficiency(self) -> float:
        """What is left of a rank: compute as a part of the step."""
        return (self.forward + self.backward) / self.seconds


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting. Each rank keeps its micro-batches as ranks are added: weak scaling.

    Gradients in 16 bits, one flat ring, 6 FLOPs for each parameter that a token meets. Raises
    ValueError for what no option has.
    """

    model: str = option("Model", CATALOGUE, "llama2-7b")
    device: str = option("Device", DEVICES_16_BIT, "h200")
    link: str = option("Network", LINKS, "ethernet-100g")
    ranks: int = option("Ranks", RANKS, 8)
    tokens: int = option("Tokens a micro-batch", [2**power for power in range(10, 18)], 16384)
    micro_batches: int = option("Micro-batches a step", [2**power for power in range(7)], 1)
    bucket: str = option("Bucket", BUCKETS, "25 MB")

    @property
    def gradients(self) -> float:
        """Bytes of all gradients, of experts too."""
        return 2.0 * CATALOGUE[self.model].parameters()

    def row(self) -> Row:
        """The row of this very choice."""
        flops = CATALOGUE[self.model].approximate_training_flops(self.tokens)
        seconds = flops / (UTILIZATION * DEVICES[self.device].rate("bf16"))
        backward = BACKWARD * seconds  # of the last micro-batch, which alone can hide something
        forward = self.micro_batches * seconds - backward
        count = max(1, round(self.gradients / BUCKETS[self.bucket]))
        one = all_reduce_seconds(self.gradients / count, self.ranks, LINKS[self.link])
        # As `overlap` has it for equal buckets: the network rests before the last one, or never.
        exposed = max(one, backward / count + count * one - backward)
        return Row(self.bucket, self.ranks, forward, backward, count * one - exposed, exposed)

    def rows(self) -> list[Row]:
        """A row for each size of buckets and each number of ranks, all else equal."""
        return [
            dataclasses.replace(self, bucket=bucket, ranks=ranks).row()
            for bucket in BUCKETS
            for ranks in RANKS
        ]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row = self.row()
        all_reduces = row.hidden + row.exposed
        batch = self.ranks * self.micro_batches * self.tokens
        return (
            f"{CATALOGUE[self.model].name} on {self.ranks:,} x {DEVICES[self.device].name} at "
            f"{UTILIZATION:.0%} of their peak, over {LINKS[self.link].name}: each with "
            f"{self.micro_batches:,} x {self.tokens:,} tokens a step, {batch:,} together. Compute "
            f"takes {format_seconds(row.forward + row.backward)}, the all-reduces of "
            f"{format_bytes(self.gradients)} {format_seconds(all_reduces)} (buckets: "
            f"{self.bucket}), of which {row.hidden / all_reduces:.0%} are hidden under the last "
            f"backward pass. A step takes {format_seconds(row.seconds)}: the ranks do the work of "
            f"{self.ranks * row.efficiency:,.3g}, {row.efficiency:.0%} of their number."
        )

    def figure(self) -> Figure:
        """Left, the step; right, what is left of the ranks, by their number and by bucket."""
        from dlsys.data_parallel.draw import draw_choice

        return draw_choice(self.rows(), self.bucket, self.ranks)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(ranks=64, bucket="1 MB")`."""
    return Explorer(Choice(**choice))
