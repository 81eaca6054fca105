"""An explorer of recomputation: what a policy keeps, the memory over a step, and what it costs."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES
from dlsys.recomputation.chain import chain_of
from dlsys.recomputation.fitting import cheapest
from dlsys.recomputation.plan import (
    RECOMPUTE,
    SELECTIVE,
    Chain,
    Plan,
    every_layer,
    first_layers,
    keep_all,
    selective,
    square_root,
)
from dlsys.recomputation.price import Price, price
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import beyond_dense
from dlsys.units import GIGA, format_bytes, format_seconds

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.figure import Figure

DEVICE, UTILIZATION = DEVICES["h100-sxm"], 0.4
POLICIES = {
    "keep everything": keep_all,
    "attention core": selective,
    "every layer": every_layer,
    "square root": square_root,
}
FITTING, CHEAPEST = "as many layers as must", "cheapest that fits"
NAMES = (*POLICIES, FITTING, CHEAPEST)
MODELS = [name for name, spec in CATALOGUE.items() if not beyond_dense(spec)]
SEQUENCES = tuple(2**power for power in range(9, 16))


class Row(NamedTuple):
    """A policy: bytes kept and at the peak, what runs again as a part of a step, whole layers."""

    policy: str
    kept: int
    peak: int
    share: float
    layers: int


@cache
def _chain(model: str, batch: int, sequence: int) -> Chain:
    spec = dataclasses.replace(CATALOGUE[model], sequence=sequence)
    return chain_of(spec, batch)


_cheapest = cache(cheapest)


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a model's layers on one device, with dropout and without flash attention.

    The budget is what the device has for activations. Raises ValueError for what no option has.
    """

    model: str = option("Model", MODELS, "gpt2-xl")
    batch: int = option("Samples a device", [2**power for power in range(7)], 8)
    sequence: int = option("Tokens a sample", SEQUENCES, 1024)
    budget: int = option("Budget (GB)", [2**power for power in range(11)], 32)
    policy: str = option("Run again", NAMES, "attention core")

    def chain(self) -> Chain:
        """The model's chain: embedding, layers, head."""
        return _chain(self.model, self.batch, self.sequence)

    def plan(self) -> Plan:
        """What the policy says of the layers; embedding and head are kept, if anything so fits."""
        if self.policy == CHEAPEST:
            return _cheapest(self.chain(), self.budget * GIGA)
        n = len(self.chain()) - 2
        return _between_ends(
            first_layers(n, self._n()) if self.policy == FITTING else POLICIES[self.policy](n)
        )

    def _n(self) -> int:
        """How many layers, from the first on, must be run again to fit; all where none do."""
        n = len(self.chain()) - 2
        low, high = 0, n  # a layer more never needs more
        while low < high:
            middle = (low + high) // 2
            plan = _between_ends(first_layers(n, middle))
            if price(plan, self.chain()).peak_bytes <= self.budget * GIGA:
                high = middle
            else:
                low = middle + 1
        return low

    def price(self) -> Price:
        """The price of a step."""
        return price(self.plan(), self.chain())

    def row(self) -> Row:
        """The row of this very choice."""
        cost = self.price()
        kept, peak = int(cost.kept_bytes), int(cost.peak_bytes)
        return Row(self.policy, kept, peak, cost.share_of_step, self._in(RECOMPUTE))

    def _in(self, mode: str) -> int:
        """How many layers have segments of this mode."""
        layers = range(1, len(self.chain()) - 1)
        return sum(i in layers for part in self.plan() if part.mode == mode for i in part.layers)

    def rows(self) -> list[Row]:
        """A row for each policy, all else equal."""
        return [dataclasses.replace(self, policy=name).row() for name in NAMES]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        cost, row = self.price(), self.row()
        again = cost.recomputed / (UTILIZATION * DEVICE.rate("bf16"))
        place = self.chain().layers[cost.peak.layer].name
        fits = "fits" if row.peak <= self.budget * GIGA else "does not fit"
        n, cores = len(self.chain()) - 2, self._in(SELECTIVE)
        layers = f"{row.layers} of {n} layers" if row.layers or not cores else ""
        one, every = "the core of 1 layer", "the cores of all layers"
        which = {0: "", 1: one, n: every}.get(cores, f"the cores of {cores} layers")
        what = " and ".join(filter(None, (layers, which)))
        samples = "1 sample" if self.batch == 1 else f"{self.batch} samples"
        return (
            f"{CATALOGUE[self.model].name}, {samples} of {self.sequence:,} tokens: with "
            f"everything kept, {format_bytes(cost.saved_bytes)} would be held for backward. "
            f"Policy: {self.policy}. Forward leaves {format_bytes(row.kept)}; the most is "
            f"{format_bytes(row.peak)}, in {cost.peak.action} of {place}, which {fits} in "
            f"{self.budget:,} GB. Run again: {what}, {row.share:.1%} of a step by FLOPs, "
            f"{format_seconds(again)} of an {DEVICE.name} at {UTILIZATION:.0%} of its peak."
        )

    def figure(self) -> Figure:
        """Left, what each policy holds; right, the memory over the chosen step."""
        from dlsys.recomputation.draw import draw_choice

        return draw_choice(self.rows(), self.policy, self.price(), self.budget * GIGA)


def _between_ends(layers: Plan) -> Plan:
    return keep_all(1) + layers + keep_all(1)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these: `explore(model="gpt2-xl", budget=16)`."""
    return Explorer(Choice(**choice))
