"""An explorer of expert parallelism: what a layer's exchanges cost beside tensor parallelism's."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.collectives import best
from dlsys.expert_parallel.laws import k_to_overtake, width_to_hide
from dlsys.expert_parallel.plan import Dispatch, drawn
from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import LINKS, Cluster, Link, dgx_h100
from dlsys.transformer import CATALOGUE, MixtureOfExperts
from dlsys.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES = "nodes of 8 H100, NVLink and InfiniBand"
STRAIGHT, ONCE = "each copy to its rank", "each token once to a node"
RATE = 400e12
"""FLOP/s that a device reaches."""
DRAWN = 2**18
"""Experts whose numbers are drawn: tokens of all ranks together, times the experts."""
ITEMSIZE = 2


class Row(NamedTuple):
    """A layer's forward pass: seconds of both exchanges, and bytes that the busiest device sends.

    Dispatch and combine, and seconds that the busiest rank and the mean one compute; or tensor
    parallelism's two all-reduces of the same batch, whose `tp` ranks have the same tokens, with 0.0
    of compute.
    """

    way: str
    first: float
    second: float
    busiest: float
    mean: float
    sent: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting, in 16 bits. Ranks are at most as many as experts."""

    model: str = option(
        "Model", [name for name, spec in CATALOGUE.items() if spec.moe], "deepseek-v3"
    )
    link: str = option("Network", (NODES, *LINKS), NODES)
    ranks: int = option("Ranks", (8, 16, 32, 64), 64)
    tokens: int = option("Tokens of a rank", (256, 512, 1024, 2048, 4096), 4096)
    skew: float = option("Skew of the experts' popularity", (0.0, 0.5, 1.0), 0.0)
    most_nodes: str = option("Most nodes of a token", ("all", "1", "2", "4"), "4")
    tp: int = option("Tensor-parallel degree to compare with", (2, 4, 8), 8)

    @property
    def n(self) -> int:
        """Ranks that share the experts."""
        return min(self.ranks, self.mixture.experts)

    @property
    def mixture(self) -> MixtureOfExperts:
        """The model's."""
        moe = CATALOGUE[self.model].moe
        assert moe is not None
        return moe

    @property
    def width(self) -> int:
        """Neurons of an expert."""
        return self.mixture.ffn_hidden or CATALOGUE[self.model].ffn_hidden

    def where(self) -> Cluster | Link:
        """The network: nodes of eight devices, or one link for all."""
        return dgx_h100(self.n // 8) if self.link == NODES else LINKS[self.link]

    def dispatch(self) -> Dispatch:
        """The expected one: every rank's tokens choose as all that are drawn do together.

        Where experts are all alike, so is what they read.
        """
        moe, n, size = self.mixture, self.n, 8 if self.link == NODES else self.n
        most = n // size if self.most_nodes == "all" else min(int(self.most_nodes), n // size)
        copies, nodes, tokens = _pooled(
            moe.experts, moe.experts_per_token, n, self.skew, size, most
        )
        row = [round(self.tokens * number / tokens) for number in copies]
        reached = []
        for node, number in enumerate(nodes):
            there = sum(row[node * size : (node + 1) * size])
            reached.append(min(there, max(there > 0, round(self.tokens * number / tokens))))
        return Dispatch((tuple(row),) * n, (tuple(reached),) * n)

    def rows(self) -> list[Row]:
        """A row for each way of the copies, and one for tensor parallelism inside a node."""
        spec, where, dispatch, rows = CATALOGUE[self.model], self.where(), self.dispatch(), []
        inside = where.intra if isinstance(where, Cluster) else where
        for way in (STRAIGHT, ONCE)[: 1 + (len(dispatch.nodes[0]) > 1)]:
            priced = dispatch.price(
                where,
                spec.hidden,
                ITEMSIZE,
                once_a_node=way == ONCE,
                width=self.width,
                matrices=2 + spec.gated,
                rate=RATE,
            )
            sent = float(priced.dispatch_bytes + priced.combine_bytes)
            mean = priced.compute / dispatch.imbalance
            rows.append(Row(way, priced.dispatch, priced.combine, priced.compute, mean, sent))
        nbytes = self.tp * self.tokens * spec.hidden * ITEMSIZE  # the same batch on as many devices
        reduced = best("all_reduce", nbytes, inside, self.tp).price(nbytes, inside)
        seconds, sent = reduced.seconds, 2 * reduced.bytes_per_rank
        name = f"all-reduces of {self.tp} ranks"
        return [*rows, Row(name, seconds, seconds, 0.0, 0.0, sent)]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        spec, moe, where = CATALOGUE[self.model], self.mixture, self.where()
        *ways, reduced = self.rows()
        network = self.link if isinstance(where, Cluster) else where.name
        busy = ways[0].busiest
        words = [
            f"{self.tokens:,} tokens on each of {self.n} ranks, over {network}: a layer of "
            f"{spec.name}, {moe.experts_per_token} of {moe.experts} experts a token, forward. The "
            f"busiest rank computes {format_seconds(busy)}, {busy / ways[0].mean:.2f} times the "
            "mean."
        ]
        words += [
            f"{row.way[0].upper()}{row.way[1:]}: dispatch {format_seconds(row.first)}, combine "
            f"{format_seconds(row.second)}; a device sends {format_bytes(row.sent)}."
            for row in ways
        ]
        copies, both = (row.first + row.second for row in (min(ways, key=_seconds), reduced))
        longer = "Dispatch and combine take" if copies > both else "The all-reduces take"
        slowest, inside = _bandwidths(where)
        law = self.tp * k_to_overtake(self.n, self.tp, slowest / inside)
        needed = width_to_hide(RATE, slowest, self.n, 2 + spec.gated, ITEMSIZE)
        words.append(
            f"The same batch on as many devices, {self.tp} of them to each group of tensor "
            f"parallelism: two all-reduces take {format_seconds(both)}, and a device sends "
            f"{format_bytes(reduced.sent)}. {longer} longer: "
            f"{max(copies, both) / min(copies, both):.2f} times. By bytes alone, balanced and each "
            f"copy to its rank, dispatch and combine take longer from {law:.2g} experts a token "
            f"on. To hide them, an expert would need {needed:,.0f} neurons; it has {self.width:,}."
        )
        return " ".join(words)

    def figure(self) -> Figure:
        """A bar for each row."""
        from dlsys.expert_parallel.draw import draw_exchanges

        return draw_exchanges(
            {row.way: (row.first, row.second, row.busiest, row.mean) for row in self.rows()}
        )


@cache
def _pooled(
    experts: int, k: int, n: int, skew: float, size: int, most: int
) -> tuple[list[float], list[float], int]:
    """Of drawn tokens: copies for each rank, tokens with a copy on each node, and their number."""
    each = max(1, min(256, DRAWN // (n * experts)))
    one = drawn(each, experts, k, n, skew, size, most)
    copies, nodes = ([*map(float, map(sum, zip(*t, strict=True)))] for t in (one.copies, one.nodes))
    if not skew:
        copies, nodes = ([sum(each) / len(each)] * len(each) for each in (copies, nodes))
    return copies, nodes, each * n


def _seconds(row: Row) -> float:
    return row.first + row.second


def _bandwidths(where: Cluster | Link) -> tuple[float, float]:
    """Of the slowest link that copies take, and of tensor parallelism's."""
    if isinstance(where, Link):
        return where.bandwidth, where.bandwidth
    slowest = where.inter if where.nodes > 1 else where.intra
    return slowest.bandwidth, where.intra.bandwidth


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(ranks=8, skew=1.0)`."""
    return Explorer(Choice(**choice))
