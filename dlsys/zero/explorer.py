"""An explorer of ZeRO: what a device holds and sends at each stage, and what a step waits for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES, LINKS, Cluster, Link, dgx_h100
from dlsys.streams import Overlap
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes, format_seconds
from dlsys.zero.plan import StepPlan, Unit, step_plan
from dlsys.zero.price import Held, held, overlap, sent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVICES_16_BIT = [name for name, device in DEVICES.items() if "bf16" in device.flops]
STAGES = (0, 1, 2, 3)
NODES = "nodes of 8, NVLink and InfiniBand"
UTILIZATION = 0.4
"""The part of its peak that a device achieves."""
MOST_DRAWN = 6
"""Units of a step that is drawn: more would be stripes."""


class Row(NamedTuple):
    """Bytes that a device holds and sends, and seconds of a step: compute, and what is exposed."""

    stage: int
    weights: int
    gradients: int
    optimizer: int
    gathered: int
    unreduced: int
    sent: int
    compute: float
    exposed: float

    @property
    def held(self) -> Held:
        """What a device holds."""
        return Held(*self[1:6])

    @property
    def seconds(self) -> float:
        """The step."""
        return self.compute + self.exposed


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting. Weights, gradients and messages in 16 bits, 12 bytes of optimizer's state.

    Every layer is a unit, and what is around them an outer one; 6 FLOPs for each parameter that a
    token meets. A link by its name is one flat ring. Activations are not counted. Raises ValueError
    for what no option has.
    """

    model: str = option("Model", CATALOGUE, "llama2-7b")
    device: str = option("Device", DEVICES_16_BIT, "h100-sxm")
    link: str = option("Network", (NODES, *LINKS), NODES)
    devices: int = option("Devices", [2**power for power in range(1, 11)], 64)
    tokens: int = option("Tokens a device", [2**power for power in range(9, 18)], 4096)
    stage: int = option("ZeRO stage", STAGES, 3)
    reshard: str = option("After forward", ("give back", "keep"), "give back")

    def plan(self, most: int | None = None) -> StepPlan:
        """The step: the model's layers in order, equal on average, and its ends around them; or of
        so many of these units."""
        spec = CATALOGUE[self.model]
        counts = spec.parameter_counts()
        layers = sum(counts[name] for name in ("attention", "ffn", "norms"))
        edges = [layers * i // spec.layers for i in range(spec.layers + 1)]
        units = [Unit("ends", sum(counts.values()) - layers, outer=True)]
        units += [Unit(f"layer {i}", edges[i + 1] - edges[i]) for i in range(spec.layers)]
        gives_back = self.reshard == "give back"
        return step_plan(self.stage, units[:most], self.devices, reshard=gives_back)

    def where(self) -> Cluster | Link:
        """The network: nodes of eight devices, or one link for all."""
        if self.link != NODES:
            return LINKS[self.link]
        return dgx_h100(self.devices // 8) if self.devices >= 8 else LINKS["nvlink4"]

    def step(self, plan: StepPlan) -> Overlap:
        """Seconds of its plan, with the network beside compute."""
        spec = CATALOGUE[self.model]
        share = plan.elements / spec.parameters()
        flops = share * spec.approximate_training_flops(self.tokens)
        seconds = flops / (UTILIZATION * DEVICES[self.device].rate("bf16"))
        return overlap(plan, seconds / 3, 2 * seconds / 3, self.where())

    def row(self) -> Row:
        """The row of this very choice."""
        plan = self.plan()
        step, rest = self.step(plan), dataclasses.asdict(held(plan))
        compute, exposed = step.compute_seconds, step.exposed_seconds
        return Row(self.stage, **rest, sent=sent(plan), compute=compute, exposed=exposed)

    def rows(self) -> list[Row]:
        """A row for each stage, all else equal."""
        return [dataclasses.replace(self, stage=stage).row() for stage in STAGES]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row, device = self.row(), DEVICES[self.device]
        share = row.held.most / device.memory
        verdict = f"{share:.0%} of" if share <= 1 else f"{share:.3g} times"
        beside = format_bytes(row.gathered + row.unreduced)
        return (
            f"{CATALOGUE[self.model].name} under ZeRO stage {self.stage} on {self.devices:,} x "
            f"{device.name} at {UTILIZATION:.0%} of their peak, over {self.network()}, each "
            f"with {self.tokens:,} tokens a step. A device holds {format_bytes(row.held.at_rest)} "
            f"at rest and at most {beside} of gathered weights and whole gradients beside it: "
            f"{verdict} its {format_bytes(device.memory)}, activations apart. It sends "
            f"{format_bytes(row.sent)} a step. Compute takes {format_seconds(row.compute)}, and "
            f"{format_seconds(row.exposed)} of communication are exposed: a step takes "
            f"{format_seconds(row.seconds)}."
        )

    def network(self) -> str:
        """Its name."""
        return self.link if self.link == NODES else LINKS[self.link].name

    def figure(self) -> Figure:
        """Above, what a device holds at each stage; below, the chosen step with its first units."""
        from dlsys.zero.draw import draw_choice

        few, memory = self.plan(MOST_DRAWN), DEVICES[self.device].memory
        title = f"the step with {len(few.units)} of {len(self.plan().units)} units"
        return draw_choice(self.rows(), self.stage, self.step(few), memory, title)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(model="gpt2-xl", stage=2)`."""
    return Explorer(Choice(**choice))
