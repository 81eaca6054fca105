"""An explorer of schedules: ranks, micro-batches, the seconds of a transfer, and a slow rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.pipeline_parallel.plan import Plan
from dlsys.pipeline_parallel.price import Price
from dlsys.pipeline_parallel.schedules import breadth_first, gpipe, interleaved, one_f_one_b
from dlsys.pipeline_parallel.zero_bubble import zero_bubble, zero_bubble_h2, zero_bubble_v

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEDULES: Mapping[str, Callable[[int, int], Plan]] = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "interleaved": lambda p, m: interleaved(p, m, 2),
    "breadth-first": lambda p, m: breadth_first(p, m, 2),
    "zero bubble H1": zero_bubble,
    "zero bubble H2": zero_bubble_h2,
    "zero bubble V": zero_bubble_v,
}
FORWARD, BACKWARD = 1.0, 2.0  # seconds of a rank's share, for one micro-batch


class Row(NamedTuple):
    """When a rank runs an action ("F", "B" or "W") of one stage on one micro-batch, in seconds."""

    rank: int
    kind: str
    stage: int
    micro_batch: int
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a schedule, its sizes, and what delays it.

    Interleaved and breadth-first have two stages on a rank. The slow rank is that in the middle,
    whose stages take `slow` times as long. Raises ValueError for what no option has.
    """

    schedule: str = option("Schedule", SCHEDULES, "1F1B")
    ranks: int = option("Ranks", (2, 4, 8), 4)
    micro_batches: int = option("Micro-batches", (1, 2, 4, 6, 8, 12, 16, 24, 32), 4)
    transfer: float = option("Seconds of a transfer", (0.0, 0.1, 0.2, 0.5, 1.0), 0.0)
    slow: float = option("The slow rank takes, times", (1.0, 1.25, 1.5, 2.0), 1.0)

    def plan(self) -> Plan:
        """The schedule for these ranks and micro-batches."""
        return SCHEDULES[self.schedule](self.ranks, self.micro_batches)

    def seconds(self) -> dict[str, Any]:
        """What `Plan.price` and `Plan.draw` take: the times of every stage, and of a transfer."""
        plan = self.plan()
        middle, share = plan.p // 2, plan.p / plan.stages
        times = [share * (self.slow if rank == middle else 1.0) for rank in plan.placement]
        forward, backward = ([each * t for t in times] for each in (FORWARD, BACKWARD))
        return {"forward": forward, "backward": backward, "transfer": self.transfer}

    def price(self) -> Price:
        """The price of this very choice."""
        return self.plan().price(**self.seconds())

    def rows(self) -> list[Row]:
        """A row for each action, rank by rank in the order of time."""
        return [
            Row(rank, *action, start, end)
            for rank, spans in enumerate(self.price().spans)
            for action, start, end in spans
        ]

    def held(self) -> float:
        """Micro-batches of a rank's whole share that the fullest rank holds."""
        plan = self.plan()
        return max(plan.peak_in_flight) * plan.p / plan.stages

    def summary(self) -> str:
        """What the figure shows, and which schedule idles least with all else equal."""
        cost = self.price()
        others = [dataclasses.replace(self, schedule=name) for name in SCHEDULES]
        best = min(others, key=lambda other: other.price().makespan)
        slow = f", rank {self.ranks // 2} takes {self.slow:g} times as long" * (self.slow > 1)
        return (
            f"{self.schedule} on {self.ranks} ranks with {self.micro_batches} "
            f"micro-batch{'es' * (self.micro_batches > 1)}; {FORWARD:g} s forward, {BACKWARD:g} s "
            f"backward, transfers of {self.transfer:g} s{slow}. A step takes {cost.makespan:.4g} "
            f"s, {cost.bubble_fraction:.1%} of it idle; the fullest rank holds {self.held():g} "
            f"micro-batches. The shortest step has {best.schedule}: {best.price().makespan:.4g} s, "
            f"{best.price().bubble_fraction:.1%} idle, {best.held():g} held."
        )

    def figure(self) -> Figure:
        """Above, the rows; below, what each rank holds meanwhile."""
        figure: Figure = self.plan().draw(**self.seconds(), memory=True)
        return figure


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(ranks=8, transfer=0.2)`."""
    return Explorer(Choice(**choice))
