"""An explorer of the loop: one step of a model on one device, by optimizer and accumulation."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES
from dlsys.training_loop.plan import micro_batch_sizes, step_plan
from dlsys.training_loop.price import OPTIMIZERS, Price, model_state_bytes
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import activations
from dlsys.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UTILIZATION, RANK = 0.4, 128
"""The part of a device's peak that passes reach, and the rank of GaLore's projections."""
DEVICES_16_BIT = [name for name, device in DEVICES.items() if "bf16" in device.flops]
MODELS = [n for n in CATALOGUE if n.startswith(("gpt", "llama")) and "405b" not in n]
BATCHES = [2**power for power in range(11)]
WEIGHTS, MASTER, GRADIENTS = 2, 4, 4
"""Bytes a parameter: BF16 weights, their FP32 copy, and FP32 gradients, which are added up."""


class Row(NamedTuple):
    """A micro-batch in sequences: bytes of parameters, state, activations; seconds, the update's
    among them."""

    micro_batch: int
    micro_batches: int
    parameters: int
    state: int
    activations: int
    update: float
    seconds: float

    @property
    def memory(self) -> int:
        """All bytes."""
        return self.parameters + self.state + self.activations


@cache
def _activations(model: str, micro_batch: int) -> int:
    return activations(CATALOGUE[model], micro_batch, flash=True, dropout=False).everything


@cache
def _state(optimizer: str, model: str) -> int:
    return model_state_bytes(optimizer, CATALOGUE[model], RANK)


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: mixed precision with FP32 gradient sums, flash attention, nothing recomputed.

    Passes run at 40 % of the device's peak, updates at the speed of its memory. Raises ValueError
    for what no option has.
    """

    model: str = option("Model", MODELS, "gpt2-xl")
    device: str = option("Device", DEVICES_16_BIT, "h100-sxm")
    optimizer: str = option("Optimizer", OPTIMIZERS, "adamw")
    batch: int = option("Sequences a step", BATCHES, 64)
    micro_batch: int = option("At once", BATCHES, 8)

    def price(self, micro_batch: int | None = None) -> Price:
        """The step's spans."""
        spec, device = CATALOGUE[self.model], DEVICES[self.device]
        sizes = micro_batch_sizes(self.batch, micro_batch or self.micro_batch)
        forward = spec.forward_flops(max(sizes)) / (UTILIZATION * device.rate("bf16"))
        plan = step_plan([size * spec.sequence for size in sizes], clip=False)
        return plan.price(forward, 2 * forward, self.update_seconds())

    def update_seconds(self) -> float:
        """Seconds to read gradients, to read and write master weights and state; 16-bit copies."""
        parameters = CATALOGUE[self.model].parameters()
        moved = (GRADIENTS + 2 * MASTER + WEIGHTS) * parameters
        moved += 2 * _state(self.optimizer, self.model)
        return moved / DEVICES[self.device].memory_bandwidth

    def row(self, micro_batch: int | None = None) -> Row:
        """The row of a micro-batch, its own by default."""
        at_once = min(self.batch, micro_batch or self.micro_batch)
        return Row(
            at_once,
            -(-self.batch // at_once),
            (WEIGHTS + MASTER + GRADIENTS) * CATALOGUE[self.model].parameters(),
            _state(self.optimizer, self.model),
            _activations(self.model, at_once),
            self.update_seconds(),
            self.price(at_once).seconds,
        )

    def rows(self) -> list[Row]:
        """A row for each micro-batch up to the batch, all else equal."""
        return [self.row(size) for size in BATCHES if size <= self.batch]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row, whole, device = self.row(), self.row(self.batch), DEVICES[self.device]
        fits = "fits" if row.memory <= device.memory else "does not fit"
        times = "once" if row.micro_batches == 1 else f"in {row.micro_batches} micro-batches"
        return (
            f"{CATALOGUE[self.model].name} with {self.optimizer}, {self.batch} sequences a step, "
            f"{times} of {row.micro_batch}: weights and gradients {format_bytes(row.parameters)}, "
            f"state of the optimizer {format_bytes(row.state)}, activations "
            f"{format_bytes(row.activations)} (of the whole batch at once: "
            f"{format_bytes(whole.activations)}). {format_bytes(row.memory)} {fits} in the "
            f"{format_bytes(device.memory)} of an {device.name}. A step takes "
            f"{format_seconds(row.seconds)}, of which the update is {row.update / row.seconds:.1%}."
        )

    def figure(self) -> Figure:
        """Above, the step's spans; below, micro-batches up to a few times the device's memory."""
        from dlsys.training_loop.draw import draw_choice

        memory, at_once = DEVICES[self.device].memory, self.row().micro_batch
        seen = [r for r in self.rows() if r.memory < 4 * memory or r.micro_batch <= at_once]
        return draw_choice(self.price().spans, seen, at_once, memory)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these: `explore(optimizer="sgd", micro_batch=4)`."""
    return Explorer(Choice(**choice))
