"""An explorer of context parallelism: what attention costs when ranks share a long sequence."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.context_parallel.plan import layout
from dlsys.context_parallel.price import Method, price
from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import LINKS, Cluster, Link, dgx_h100
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS: tuple[Method, ...] = ("ring", "gathered", "ulysses")
NODES = "nodes of 8 H100, NVLink and InfiniBand"
RATE = 400e12
"""FLOP/s that a device reaches."""


class Row(NamedTuple):
    """One layer's attention, forward and backward: bytes that a device sends and has of others at
    most, seconds that the busiest device computes, and seconds beyond that."""

    method: str
    sent: float
    buffer: int
    compute: float
    exposed: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting. One sequence in 16 bits; a link by its name is one flat network."""

    model: str = option("Model", CATALOGUE, "llama3-405b")
    link: str = option("Network", (NODES, *LINKS), NODES)
    ranks: int = option("Ranks", (2, 4, 8, 16, 32), 16)
    length: int = option("Tokens of the sequence", [2**power for power in range(12, 21)], 2**17)
    kind: str = option("Tokens of a rank", ("zigzag", "striped", "contiguous"), "zigzag")

    def where(self) -> Cluster | Link:
        """The network: nodes of eight devices, or one link for all."""
        if self.link != NODES:
            return LINKS[self.link]
        return dgx_h100(self.ranks // 8) if self.ranks >= 8 else LINKS["nvlink4"]

    def rows(self) -> list[Row]:
        """A row for each method that can share out the model's heads."""
        spec, rows = CATALOGUE[self.model], []
        shares = layout(self.length, self.ranks, self.kind)  # type: ignore[arg-type]
        for method in METHODS:
            if method == "ulysses" and not self.shares_heads():
                continue
            both = price(shares, spec, self.where(), method, RATE)
            passes = both.forward, both.backward
            rows.append(
                Row(
                    method,
                    both.bytes_per_rank,
                    max(one.buffer_bytes for one in passes),
                    sum(one.compute_seconds for one in passes),
                    sum(one.exposed_seconds for one in passes),
                )
            )
        return rows

    def shares_heads(self) -> bool:
        """Whether Ulysses can give every rank as many heads, and a head of keys."""
        spec = CATALOGUE[self.model]
        keys = spec.kv_heads % self.ranks == 0 or self.ranks % spec.kv_heads == 0
        return spec.heads % self.ranks == 0 and keys

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        spec, rows = CATALOGUE[self.model], self.rows()
        where = self.link if self.link == NODES else LINKS[self.link].name
        words = [
            f"{self.length:,} tokens on {self.ranks} ranks, {self.kind}, over {where}: the "
            f"attention of a layer of {spec.name}, forward and backward."
        ]
        words += [
            f"{row.method.capitalize()}: {format_seconds(row.compute)} of compute and "
            f"{format_seconds(row.exposed)} exposed; a device sends {format_bytes(row.sent)}, and "
            f"has at most {format_bytes(row.buffer)} of others."
            for row in rows
        ]
        if len(rows) < len(METHODS):
            words.append(f"Ulysses cannot share out {spec.heads} heads.")
        return " ".join(words)

    def figure(self) -> Figure:
        """A bar for each method."""
        from dlsys.context_parallel.draw import draw_waiting

        return draw_waiting({row.method: (row.compute, row.exposed) for row in self.rows()})


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(ranks=4, kind="striped")`."""
    return Explorer(Choice(**choice))
