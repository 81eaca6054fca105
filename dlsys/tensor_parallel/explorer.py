"""An explorer of tensor parallelism: a model on 1 to 32 ranks, what a step sends, and what fits."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import Cluster, dgx_a100, dgx_b200, dgx_h100
from dlsys.tensor_parallel.plan import layout
from dlsys.tensor_parallel.price import activation_bytes
from dlsys.transformer import CATALOGUE
from dlsys.transformer.activations import beyond_dense
from dlsys.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKS = (1, 2, 4, 8, 16, 32)
CLUSTERS = {"DGX A100": dgx_a100, "DGX H100": dgx_h100, "DGX B200": dgx_b200}
# The models whose layers `layout` describes and whose heads all of RANKS can share.
MODELS = [
    name
    for name, spec in CATALOGUE.items()
    if not beyond_dense(spec) and not spec.heads % RANKS[-1]
]
STATE_BYTES = 16
"""Bytes of a parameter: weight and gradient in 16 bits, the rest of mixed AdamW in 32."""


class Row(NamedTuple):
    """A step of one micro-batch on one of `ranks`: seconds of it, and bytes of its memory."""

    ranks: int
    computing: float
    communication: float
    state: int
    activations: int

    @property
    def share(self) -> float:
        """The part of the step that goes into communication, where none of it is hidden."""
        return self.communication / (self.computing + self.communication)

    @property
    def memory(self) -> int:
        """Bytes of state and activations."""
        return self.state + self.activations


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a model, the cluster that it is cut over, and the tokens of a micro-batch.

    Each message takes the cheapest algorithm. Without dropout, and with an attention that stores no
    scores. Raises ValueError for what no option has.
    """

    model: str = option("Model", MODELS, "llama3-8b")
    cluster: str = option("Nodes of eight", CLUSTERS, "DGX H100")
    ranks: int = option("Ranks", RANKS, 8)
    sequence_parallel: bool = option("Sequence parallelism", (False, True), False)
    batch: int = option("Sequences", [2**power for power in range(6)], 1)
    sequence: int = option("Tokens each", [2**power for power in range(10, 16)], 8192)
    percent: int = option("Percent of the peak", (30, 40, 50, 60, 100), 100)

    def nodes(self) -> Cluster:
        """As many nodes as the largest group needs."""
        return CLUSTERS[self.cluster](RANKS[-1] // 8)

    def row(self) -> Row:
        """The row of this very choice."""
        return _row(self)

    def rows(self) -> list[Row]:
        """A row for each number of ranks, all else equal."""
        return [dataclasses.replace(self, ranks=ranks).row() for ranks in RANKS]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row, device = self.row(), self.nodes().device
        fits = "fits into" if row.memory <= device.memory else "does not fit into"
        also = " and sequence" if self.sequence_parallel else ""
        return (
            f"{CATALOGUE[self.model].name} on {self.ranks} tensor{also} parallel ranks of "
            f"{self.cluster}, {self.batch} x {self.sequence:,} tokens, at {self.percent} % of the "
            f"peak. Computing takes {format_seconds(row.computing)}, communication "
            f"{format_seconds(row.communication)}: {100 * row.share:.1f} % of the step. "
            f"On each rank: state {format_bytes(row.state)}, activations "
            f"{format_bytes(row.activations)}; together {format_bytes(row.memory)}, which {fits} "
            f"{format_bytes(device.memory)}."
        )

    def figure(self) -> Figure:
        """Left, the seconds of a step over the ranks; right, the memory of each."""
        from dlsys.tensor_parallel.draw import draw_choice

        return draw_choice(self.rows(), self.ranks, self.nodes().device.memory)


@cache
def _row(choice: Choice) -> Row:
    spec = dataclasses.replace(CATALOGUE[choice.model], sequence=choice.sequence)
    cut, nodes = layout(spec, choice.ranks, choice.sequence_parallel), choice.nodes()
    rate = choice.percent / 100 * nodes.device.rate("bf16")
    price = cut.price(choice.batch, nodes, algorithm="best", rate=rate)
    kept = activation_bytes(
        spec, choice.batch, choice.ranks, choice.sequence_parallel, dropout=False
    )
    activations = spec.layers * (kept.between + kept.inside)
    return Row(
        choice.ranks, price.compute_seconds, price.seconds, STATE_BYTES * cut.held(), activations
    )


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(model="gpt3-6.7b")`."""
    return Explorer(Choice(**choice))
