"""When one device no longer does: the limits that no remedy moves, and what to exhaust before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse, unknown
from dlsys.hardware import Device
from dlsys.memory_wall.fitting import fits
from dlsys.memory_wall.price import training_seconds
from dlsys.transformer import TransformerSpec
from dlsys.units import DAY

# In this order, for each costs more than the one before; and which limits it moves.
REMEDIES: Mapping[str, tuple[str, ...]] = {
    "mixed precision": ("memory", "time"),
    "input pipeline": ("time",),
    "accumulation": ("memory",),
    "recomputation": ("memory",),
}
NODE = 8  # devices
STORAGE = 10e12  # bytes of data that a node may hold; a rule of thumb, not a law


@dataclass(frozen=True)
class Advice:
    """What one device lacks for a run, and what to do before there are more.

    - `needs`: memory, time and data as a multiple of what one device (of data: one node) has, after
      every remedy; above 1 is a hard limit
    - `first`: remedies not yet in use that help with what is exceeded as the run stands
    - `devices`: the fewest that memory and time ask for, perfectly divided
    """

    needs: Mapping[str, float]
    first: tuple[str, ...]
    devices: int

    @property
    def limits(self) -> tuple[str, ...]:
        """The hard limits that the run exceeds: some of memory, time and data."""
        return tuple(name for name, need in self.needs.items() if need > 1)

    @property
    def where(self) -> str:
        """One device, one node or several, and whether data has to be streamed."""
        size = "one device" if self.devices == 1 else "one node"
        size = size if self.devices <= NODE else f"{math.ceil(self.devices / NODE):,} nodes"
        return f"{size}, data streamed" if self.needs["data"] > 1 else size


@checked
def should_scale(
    spec: TransformerSpec,
    device: Device,
    tokens: float,
    *,
    using: Sequence[str] = tuple(REMEDIES),
    batch: int = 1,
    days: float = 14.0,
    utilization: float = 0.4,
    dataset_bytes: float | None = None,
) -> Advice:
    """Whether a run of `tokens` tokens needs more than one device, and what to exhaust before.

    Three limits are hard, for none of the four remedies in `REMEDIES` moves them further:

    - memory: model state, and one sequence with every layer recomputed, against the device's
    - time: 6 N D at `utilization` of the 16-bit peak, against `days`
    - data: `dataset_bytes` (None: two bytes a token, or four where the vocabulary does not fit in
      two) against the 10 TB that a node may hold

    `using`: the remedies in use; `batch`: sequences at once without accumulation. State is divided
    perfectly and activations are not, so `devices` is a lower bound. Raises ValueError for unknown
    remedies or values out of range, ImpossibleError for a utilization above 1.
    """
    for name in using:
        if name not in REMEDIES:
            raise ValueError(unknown("remedy", name, REMEDIES))
    batch = count("batch", batch)
    positive("tokens", tokens)
    positive("days", days)
    data = (2 if spec.vocab <= 2**16 else 4) * tokens if dataset_bytes is None else dataset_bytes
    positive("dataset_bytes", data)
    best = _needs(spec, device, tokens, tuple(REMEDIES), batch, utilization)
    now = _needs(spec, device, tokens, using, batch, utilization)
    if math.isinf(max(best[1], now[1])):
        refuse("utilization", utilization, "more: such a run never ends")
    needs = {"memory": best[0], "time": best[1] / (days * DAY), "data": data / STORAGE}
    exceeded = {"memory": now[0] > 1, "time": now[1] > days * DAY}
    first = tuple(
        remedy
        for remedy, moves in REMEDIES.items()
        if remedy not in using and any(exceeded[limit] for limit in moves)
    )
    return Advice(needs, first, math.ceil(max(needs["memory"], needs["time"])))


def _needs(
    spec: TransformerSpec,
    device: Device,
    tokens: float,
    using: Sequence[str],
    batch: int,
    utilization: float,
) -> tuple[float, float]:
    """Memory as a multiple of the device's, and seconds, with some remedies in use."""
    mixed = "mixed precision" in using
    how: dict[str, Any] = {"recompute": "full"} if "recomputation" in using else {}
    held = fits(spec, device, batch=1 if "accumulation" in using else batch, **how).held
    # In 32 bits state has as many bytes, 16 a parameter, and activations have twice as many.
    activations = held["activations"] * (1 if mixed else 2)
    state = sum(held.values()) - held["activations"]
    half = "bf16" if "bf16" in device.flops else "fp16"
    rate = device.rate(half if mixed or "fp32" not in device.flops else "fp32")
    seconds = training_seconds(spec.approximate_training_flops(tokens), rate, utilization)
    return (state + activations) / device.memory, seconds
