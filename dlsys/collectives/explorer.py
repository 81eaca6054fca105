"""An explorer of the all-reduce: its algorithm, its buffer, and the cluster that it runs on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.collectives.halving import halving_doubling_all_reduce, recursive_doubling_all_reduce
from dlsys.collectives.hierarchical import hierarchical_all_reduce
from dlsys.collectives.plan import Plan
from dlsys.collectives.ring import ring_all_reduce
from dlsys.collectives.tree import tree_all_reduce
from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES, LINKS, Cluster
from dlsys.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Each takes a number of nodes and of devices in each.
ALGORITHMS: dict[str, Callable[[int, int], Plan]] = {
    "ring": lambda nodes, devices: ring_all_reduce(nodes * devices),
    "tree": lambda nodes, devices: tree_all_reduce(nodes * devices),
    "recursive doubling": lambda nodes, devices: recursive_doubling_all_reduce(nodes * devices),
    "halving-doubling": lambda nodes, devices: halving_doubling_all_reduce(nodes * devices),
    "hierarchical": hierarchical_all_reduce,
}
INSIDE = [name for name in LINKS if name.startswith(("nvlink", "pcie"))]
BETWEEN = ["infiniband-hdr", "infiniband-ndr", "ethernet-100g"]
SIZES = tuple(10**power for power in range(2, 11))


class Row(NamedTuple):
    """What an all-reduce costs: the bytes of its buffer, seconds, and bus bandwidth in bytes/s."""

    algorithm: str
    nbytes: int
    seconds: float
    busbw: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: an algorithm, the bytes of its buffer, and a cluster with a card a device.

    Raises ValueError for what no option has.
    """

    algorithm: str = option("Algorithm", ALGORITHMS, "ring")
    nbytes: int = option("Bytes", SIZES, 10**9)
    nodes: int = option("Nodes", (1, 2, 3, 4, 6, 8, 12, 16), 2)
    devices: int = option("Devices a node", (2, 4, 6, 8), 8)
    inside: str = option("Link inside", INSIDE, "nvlink4")
    between: str = option("Link between", BETWEEN, "infiniband-ndr")

    def cluster(self) -> Cluster:
        """Where it runs; the price asks for its links alone."""
        links = LINKS[self.inside], LINKS[self.between]
        return Cluster(DEVICES["h100-sxm"], self.nodes, self.devices, *links)

    def row(self) -> Row:
        """The row of this very choice."""
        plan = ALGORITHMS[self.algorithm](self.nodes, self.devices)
        price = plan.price(self.nbytes, self.cluster())
        return Row(self.algorithm, self.nbytes, price.seconds, price.busbw)

    def rows(self) -> list[Row]:
        """A row for each algorithm and each size of the buffer, on the same cluster."""
        return [
            dataclasses.replace(self, algorithm=algorithm, nbytes=nbytes).row()
            for algorithm in ALGORITHMS
            for nbytes in SIZES
        ]

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        mine, links = self.row(), [LINKS[self.inside], LINKS[self.between]][: self.nodes]
        return (
            f"An all-reduce of {format_bytes(self.nbytes)}, {self.algorithm}, on {self.nodes} "
            f"node{'s' * (self.nodes > 1)} of {self.devices} devices takes "
            f"{format_seconds(mine.seconds)}, a bus bandwidth of {format_bandwidth(mine.busbw)}. "
            f"{' and '.join(f'{x.name} carries {format_bandwidth(x.bandwidth)}' for x in links)}, "
            f"in one direction. {self._best(mine)}"
        )

    def _best(self, mine: Row) -> str:
        """Whether another algorithm is faster for this buffer; the first of equals is named."""
        ways = [dataclasses.replace(self, algorithm=algorithm).row() for algorithm in ALGORITHMS]
        first = min(ways, key=lambda row: row.seconds)
        gain = mine.seconds / first.seconds
        if gain < 1.005:
            return "No other algorithm here is faster by half a percent."
        return f"The fastest algorithm here is {first.algorithm}, {gain:.3g} times as fast."

    def figure(self) -> Figure:
        """Left, seconds by the size of the buffer; right, bus bandwidth, with that of the links."""
        from dlsys.collectives.draw import draw_choice

        return draw_choice(self.rows(), self.algorithm, self.nbytes, self.cluster())


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(algorithm="tree", nodes=8)`."""
    return Explorer(Choice(**choice))
