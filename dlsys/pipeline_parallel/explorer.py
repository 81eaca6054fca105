"""An explorer of schedules: their sizes, the seconds of passes and transfers, and a slow rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.pipeline_parallel.dual_pipe import dual_pipe_v
from dlsys.pipeline_parallel.plan import Plan
from dlsys.pipeline_parallel.price import Price
from dlsys.pipeline_parallel.schedules import (
    breadth_first,
    eager_1f1b,
    gpipe,
    interleaved,
    one_f_one_b,
)
from dlsys.pipeline_parallel.zero_bubble import zero_bubble, zero_bubble_h2, zero_bubble_v

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEDULES: Mapping[str, Callable[[int, int, int], Plan]] = {
    "GPipe": lambda p, m, v: gpipe(p, m),
    "1F1B": lambda p, m, v: one_f_one_b(p, m),
    "eager 1F1B": lambda p, m, v: eager_1f1b(p, m),
    "interleaved": interleaved,
    "breadth-first": breadth_first,
    "zero bubble H1": lambda p, m, v: zero_bubble(p, m),
    "zero bubble H2": lambda p, m, v: zero_bubble_h2(p, m),
    "zero bubble V": lambda p, m, v: zero_bubble_v(p, m),
    "DualPipe V": lambda p, m, v: dual_pipe_v(p, m),
}
SECONDS = (0.5, 1.0, 1.5, 2.0)


class Row(NamedTuple):
    """When a rank runs an action ("F", "B" or "W") of one stage on one micro-batch, in seconds.

    held: the (stage, micro-batch) pairs whose activations the rank holds meanwhile.
    """

    rank: int
    kind: str
    stage: int
    micro_batch: int
    start: float
    end: float
    held: int


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a schedule, its sizes, the seconds of a rank's share, and what delays it.

    `stages` counts for interleaved and breadth-first; a V has two on each rank, and the others one.
    The slow rank is that in the middle, whose stages take `slow` times as long. Raises ValueError
    for what no option has.
    """

    schedule: str = option("Schedule", SCHEDULES, "1F1B")
    ranks: int = option("Ranks", (2, 4, 8), 4)
    micro_batches: int = option("Micro-batches", (1, 2, 4, 6, 8, 12, 16, 24, 32), 4)
    stages: int = option("Stages on a rank", (1, 2, 4), 2)
    forward: float = option("Seconds of F", SECONDS, 1.0)
    backward: float = option("Seconds of B, for inputs", SECONDS, 1.0)
    weights: float = option("Seconds of W, for weights", SECONDS, 1.0)
    transfer: float = option("Seconds of a transfer", (0.0, 0.1, 0.2, 0.5, 1.0), 0.0)
    slow: float = option("The slow rank takes, times", (1.0, 1.25, 1.5, 2.0), 1.0)

    def plan(self) -> Plan:
        """The schedule for these ranks, micro-batches and stages."""
        return SCHEDULES[self.schedule](self.ranks, self.micro_batches, self.stages)

    def seconds(self) -> dict[str, Any]:
        """What `Plan.price` and `Plan.draw` take: the times of every stage, and of a transfer."""
        plan = self.plan()
        middle, share = plan.p // 2, plan.p / plan.stages
        times = [share * (self.slow if rank == middle else 1.0) for rank in plan.placement]
        names = {
            "forward": self.forward,
            "backward": self.backward,
            "weight_backward": self.weights,
        }
        return {name: [each * t for t in times] for name, each in names.items()} | {
            "transfer": self.transfer
        }

    def price(self) -> Price:
        """The price of this very choice."""
        return self.plan().price(**self.seconds())

    def rows(self) -> list[Row]:
        """A row for each action, rank by rank in the order of time."""
        plan = self.plan()
        held = [plan.in_flight(order) for order in plan.ranks]
        return [
            Row(rank, kind, stage, k, start, end, pairs)
            for rank, spans in enumerate(self.price().spans)
            for ((kind, stage, k), start, end), pairs in zip(spans, held[rank], strict=True)
        ]

    def held(self) -> float:
        """Micro-batches of a rank's whole share that the fullest rank holds."""
        plan = self.plan()
        return max(plan.peak_in_flight) * plan.p / plan.stages

    def summary(self) -> str:
        """What the figure shows, and which schedules idle least with all else equal."""
        others = [dataclasses.replace(self, schedule=name) for name in SCHEDULES]
        small = [other for other in others if other.held() <= self.ranks]
        slow = f", rank {self.ranks // 2} takes {self.slow:g} times as long" * (self.slow > 1)
        return (
            f"{self.plan().name} on {self.ranks} ranks with {self.micro_batches} "
            f"micro-batch{'es' * (self.micro_batches > 1)}; {self.forward:g} s forward, "
            f"{self.backward:g} + {self.weights:g} s backward, transfers of {self.transfer:g} s"
            f"{slow}. A step takes {self._cost()}. The shortest has {_shortest(others)}; of those "
            f"that hold no more than 1F1B may, {self.ranks} micro-batches, {_shortest(small)}."
        )

    def _cost(self) -> str:
        cost = self.price()
        return (
            f"{cost.makespan:.4g} s, {cost.bubble_fraction:.1%} of it idle, and the fullest rank "
            f"holds {self.held():g} micro-batches of its whole share"
        )

    def figure(self) -> Figure:
        """Above, the rows; below, what each rank holds meanwhile."""
        figure: Figure = self.plan().draw(**self.seconds(), memory=True)
        return figure


def _shortest(choices: list[Choice]) -> str:
    best = min(choices, key=lambda choice: choice.price().makespan)
    cost = best.price()
    return (
        f"{best.schedule}: {cost.makespan:.4g} s, {cost.bubble_fraction:.1%} idle, "
        f"{best.held():g} held"
    )


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(ranks=8, transfer=0.2)`."""
    return Explorer(Choice(**choice))
