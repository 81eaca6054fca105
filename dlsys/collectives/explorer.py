"""An explorer of collectives: how fast each algorithm is, and what its rounds carry where."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.collectives.choose import FLAT, FOILS, candidates
from dlsys.collectives.plan import KINDS, Plan
from dlsys.exploring import Choices, Explorer, option
from dlsys.hardware import DEVICES, LINKS, Cluster
from dlsys.units import format_bandwidth, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FASTEST = "the fastest"
NAMES = dict.fromkeys(name for name in itertools.chain(*FLAT.values()) if name not in FOILS)
ALGORITHMS = (FASTEST, *NAMES, "hierarchical")
INSIDE = [name for name in LINKS if name.startswith(("nvlink", "pcie"))]
BETWEEN = ["infiniband-hdr", "infiniband-ndr", "ethernet-100g"]
SIZES = tuple(10**power for power in range(2, 11))


class Row(NamedTuple):
    """What one algorithm costs: the bytes of its buffer, seconds, and bus bandwidth in bytes/s."""

    algorithm: str
    nbytes: int
    seconds: float
    busbw: float


class Round(NamedTuple):
    """The bytes that a round of the plan carries inside nodes and between them, of all ranks."""

    inside: float
    between: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a collective, its buffer, and a cluster with a network card for each device.

    algorithm: what is shown round by round; the fastest, too, where the collective has no such one.
    Raises ValueError for what no option has.
    """

    kind: str = option("Collective", KINDS, "all_reduce")
    algorithm: str = option("Algorithm", ALGORITHMS, FASTEST)
    nbytes: int = option("Bytes", SIZES, 10**9)
    nodes: int = option("Nodes", (1, 2, 3, 4, 6, 8, 12, 16), 2)
    devices: int = option("Devices a node", (2, 4, 6, 8), 8)
    inside: str = option("Link inside", INSIDE, "nvlink4")
    between: str = option("Link between", BETWEEN, "infiniband-ndr")

    def cluster(self) -> Cluster:
        """Where it runs; the price asks for its links alone."""
        links = LINKS[self.inside], LINKS[self.between]
        return Cluster(DEVICES["h100-sxm"], self.nodes, self.devices, *links)

    def plans(self) -> dict[str, Plan]:
        """The plans of this collective on this cluster, by algorithm."""
        return candidates(self.kind, self.cluster())

    def rows(self) -> list[Row]:
        """A row for each algorithm of the collective and each size of the buffer."""
        plans = self.plans().items()
        return [self._row(name, plan, size) for name, plan in plans for size in SIZES]

    def _row(self, name: str, plan: Plan, nbytes: int) -> Row:
        price = plan.price(nbytes, self.cluster())
        return Row(name, nbytes, price.seconds, price.busbw)

    def ranking(self) -> list[Row]:
        """The algorithms for this very buffer, the fastest first; of equals the simpler one."""
        here = [self._row(name, plan, self.nbytes) for name, plan in self.plans().items()]
        return sorted(here, key=lambda row: row.seconds)

    def shown(self) -> Row:
        """The algorithm that was chosen, where the collective has it, else the fastest."""
        ranking = self.ranking()
        return next((row for row in ranking if row.algorithm == self.algorithm), ranking[0])

    def rounds(self) -> list[Round]:
        """What each round of the shown plan carries."""
        plan = self.plans()[self.shown().algorithm]
        chunk = self.nbytes / plan.pieces
        node = [rank // self.devices for rank in range(plan.ranks)]
        carried = []
        for transfers in plan.rounds:
            totals = [0, 0]
            for t in transfers:
                totals[node[t.src] != node[t.dst]] += t.stop - t.first
            carried.append(Round(*(chunk * total for total in totals)))
        return carried

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        mine, rounds = self.shown(), self.rounds()
        links = [LINKS[self.inside], LINKS[self.between]][: self.nodes]
        return (
            f"{self.kind} of {format_bytes(self.nbytes)}, {mine.algorithm}, on {self.nodes} "
            f"node{'s' * (self.nodes > 1)} of {self.devices} devices takes "
            f"{format_seconds(mine.seconds)}, a bus bandwidth of {format_bandwidth(mine.busbw)}. "
            f"{' and '.join(f'{x.name} carries {format_bandwidth(x.bandwidth)}' for x in links)}, "
            f"in one direction. Its {len(rounds)} round{'s' * (len(rounds) != 1)} carry "
            f"{format_bytes(sum(r.inside for r in rounds))} inside nodes and "
            f"{format_bytes(sum(r.between for r in rounds))} between them. {self._best(mine)}"
        )

    def _best(self, mine: Row) -> str:
        """How the shown algorithm compares with the fastest one, or the fastest with the next."""
        first, *others = self.ranking()
        if mine.seconds > 1.005 * first.seconds:
            gain = mine.seconds / first.seconds
            return f"The fastest of these plans is {first.algorithm}, {gain:.3g} times as fast."
        if not others:
            return "It is the only algorithm here."
        loss = others[0].seconds / first.seconds
        if loss < 1.005:
            return "No other algorithm here is faster by half a percent."
        return f"The next, {others[0].algorithm}, takes {loss:.3g} times as long."

    def figure(self) -> Figure:
        """Left, seconds by the size of the buffer; right, what the shown plan's rounds carry."""
        from dlsys.collectives.draw import draw_choice

        return draw_choice(self.rows(), self.shown(), self.rounds())


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(kind="reduce", nodes=8)`."""
    return Explorer(Choice(**choice))
