"""An explorer of the memory wall: model, device, recipe, batch, sequence, and what is sharded."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES
from dlsys.memory_wall.fitting import BUCKETS, Split, fits
from dlsys.memory_wall.plan import RECIPES
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import Activations, activations
from dlsys.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAVING: dict[str, dict[str, Any]] = {
    "keep everything": {},
    "flash attention": {"flash": True},
    "recompute attention": {"recompute": "selective"},
    "recompute every layer": {"recompute": "full"},
}
MODELS = [name for name, spec in CATALOGUE.items() if spec.positions != "relative"]
SEQUENCES = tuple(2**power for power in range(8, 18))


class Row(NamedTuple):
    """Bytes of the four buckets on one device; activations at their most."""

    saving: str
    sequence: int
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def buckets(self) -> dict[str, int]:
        """The bytes by the bucket's name."""
        return {name: getattr(self, name) for name in self._fields[2:]}


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: names of the catalogues, samples on a device, tokens of a sample, and sharing.

    Without dropout, as today's large models train, and with activations in 16 bits whatever the
    recipe is. Raises ValueError for what no option has.
    """

    model: str = option("Model", MODELS, "llama3-8b")
    device: str = option("Device", DEVICES, "h100-sxm")
    recipe: str = option("Recipe", RECIPES, "mixed-adamw")
    batch: int = option("Samples a device", [2**power for power in range(9)], 1)
    sequence: int = option("Tokens a sample", SEQUENCES, 8192)
    saving: str = option("Activations", SAVING, "keep everything")
    zero_stage: int = option("ZeRO stage", range(4), 0)
    devices: int = option("Devices", [2**power for power in range(11)], 1)

    def activations(self) -> Activations:
        """What the forward pass keeps on one device, and what backward rebuilds."""
        spec = dataclasses.replace(CATALOGUE[self.model], sequence=self.sequence)
        return activations(spec, self.batch, **SAVING[self.saving], dropout=False)

    def row(self) -> Row:
        """The row of this very choice."""
        spec = dataclasses.replace(CATALOGUE[self.model], sequence=self.sequence)
        split = Split(data=self.devices, zero_stage=self.zero_stage)
        how = SAVING[self.saving] | {"recipe": self.recipe}
        held = fits(spec, DEVICES[self.device], split, self.batch, **how).held
        return Row(self.saving, self.sequence, *(held[name] for name in BUCKETS))

    def rows(self) -> list[Row]:
        """A row for each way of saving activations and each length of a sample, all else equal."""
        return [
            dataclasses.replace(self, saving=saving, sequence=sequence).row()
            for saving in SAVING
            for sequence in SEQUENCES
        ]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        buckets, device = self.row().buckets, DEVICES[self.device]
        total = sum(buckets.values())
        share = total / device.memory
        sharing = f", ZeRO stage {self.zero_stage} over {self.devices:,} devices"
        parts = ", ".join(f"{name} {format_bytes(n)}" for name, n in buckets.items())
        if rebuilt := self.activations().recomputed:
            parts += f" ({format_bytes(rebuilt)} of it one layer being recomputed)"
        verdict = f"fits: {share:.0%} of" if share <= 1 else f"does not fit: {share:.3g} times"
        return (
            f"{CATALOGUE[self.model].name} with {self.recipe}, {self.batch:,} x "
            f"{self.sequence:,} tokens a device, {self.saving}"
            f"{sharing if self.zero_stage else ''}. On each device: {parts}; together "
            f"{format_bytes(total)}. It {verdict} the {format_bytes(device.memory)} of one "
            f"{device.name}."
        )

    def figure(self) -> Figure:
        """Left, the buckets against the device's memory; right, activations against sequence."""
        from dlsys.memory_wall.draw import draw_choice

        return draw_choice(self.rows(), self.saving, self.sequence, DEVICES[self.device])


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(model="gpt2-xl", batch=8)`."""
    return Explorer(Choice(**choice))
