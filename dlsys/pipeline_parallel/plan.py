"""A pipeline schedule is a plan: for every rank the order of its actions, as plain data."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from dlsys.plain_data import plain_data
from dlsys.units import count, counts

if TYPE_CHECKING:
    from dlsys.pipeline_parallel.price import Price

KINDS = {"F": "forward", "B": "backward", "W": "backward for weights"}
"""What an action does with one micro-batch on one stage."""


@plain_data
class Action(NamedTuple):
    """One stage's work on one micro-batch; everything counts from 0.

    kind: "F" the forward pass; "B" the backward pass, of which in a plan with W only the part for
    the stage's inputs, which the stage before waits for; "W" the part for its weights, which
    nobody waits for.
    """

    kind: str
    stage: int
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch} of stage {self.stage}"


Work = tuple[str, int]
"""A kind of action and a stage, not yet for a certain micro-batch."""


def numbered(script: Iterable[Work]) -> tuple[Action, ...]:
    """A rank's order from kinds and stages: the k-th time that one comes up it is for batch k."""
    seen: Counter[Work] = Counter()
    order = []
    for kind, stage in script:
        order.append(Action(kind, stage, seen[kind, stage]))
        seen[kind, stage] += 1
    return tuple(order)


class PlanError(ValueError):
    """A plan that cannot be executed, with the rank, the place in its order and the action."""

    def __init__(
        self,
        message: str,
        rank: int | None = None,
        place: int | None = None,
        action: Action | None = None,
    ) -> None:
        super().__init__(message)
        self.rank, self.place, self.action = rank, place, action


@plain_data
@dataclass(frozen=True)
class Plan:
    """A pipeline schedule: `micro_batches` run through `stages`, in the order `ranks` gives.

    ranks: for each rank the actions it runs, one after another; each starts as soon as the rank is
    free and what it needs has arrived. A stage's weights live on the one rank that runs it.
    Raises PlanError where an entry is no action of these stages and micro-batches; whether the
    orders fit together is for `check`.
    """

    name: str
    stages: int
    micro_batches: int
    ranks: tuple[tuple[Action, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        counts(self, "stages", "micro_batches")
        ranks = tuple(self._actions(rank, given) for rank, given in enumerate(_rows(self.ranks)))
        if not ranks:
            raise PlanError("The plan has no ranks; give the order of actions of at least one.")
        object.__setattr__(self, "ranks", ranks)

    @property
    def p(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @property
    def m(self) -> int:
        """The number of micro-batches."""
        return self.micro_batches

    @cached_property
    def v(self) -> int:
        """The most stages that a rank holds."""
        return max(map(self.placement.count, range(self.p)))

    @cached_property
    def placement(self) -> tuple[int, ...]:
        """The rank of every stage; raises PlanError where a stage has none, or two."""
        found: dict[int, int] = {}
        for rank, order in enumerate(self.ranks):
            for place, action in enumerate(order):
                if found.setdefault(action.stage, rank) != rank:
                    raise PlanError(
                        f"{at(rank, place, action)}, but stage {action.stage} lives on rank "
                        f"{found[action.stage]}: a stage has one rank, which holds its weights.",
                        rank,
                        place,
                        action,
                    )
        missing = [stage for stage in range(self.stages) if stage not in found]
        if missing:
            raise PlanError(f"No rank runs stage {missing[0]} of the {self.stages} stages.")
        return tuple(found[stage] for stage in range(self.stages))

    @cached_property
    def splits_backward(self) -> bool:
        """Whether the backward pass for weights is an action of its own."""
        return any(action.kind == "W" for order in self.ranks for action in order)

    @cached_property
    def peak_in_flight(self) -> tuple[int, ...]:
        """For each rank the most (stage, micro-batch) pairs whose activations it holds at once.

        A forward pass makes them; the backward pass frees them, or where it is split its weight
        part. The order of a rank decides, whatever its actions take.
        """
        return tuple(max(held, default=0) for held in map(self.in_flight, self.ranks))

    def in_flight(self, order: Sequence[Action]) -> list[int]:
        """The pairs held during each action of a rank's `order`."""
        frees = "W" if self.splits_backward else "B"
        held, during = 0, []
        for action in order:
            held += action.kind == "F"
            during.append(held)
            held -= action.kind == frees
        return during

    @cached_property
    def messages(self) -> tuple[int, ...]:
        """For each rank how many messages it sends: activations onward, gradients back."""
        sent = [0] * self.p
        for here, after in pairwise(self.placement):
            if here != after:
                sent[here] += self.micro_batches
                sent[after] += self.micro_batches
        return tuple(sent)

    @cached_property
    def order(self) -> tuple[Action, ...]:
        """Every action, in an order in which one device could run them; raises as `check` does."""
        from dlsys.pipeline_parallel.check import executed

        return tuple(executed(self))

    def needs(self, action: Action) -> tuple[Action, ...]:
        """The actions that must have ended before `action` can start."""
        kind, stage, micro_batch = action
        if kind == "F":
            return (Action("F", stage - 1, micro_batch),) if stage else ()
        if kind == "W":
            return (Action("B", stage, micro_batch),)
        forward = Action("F", stage, micro_batch)
        last = stage == self.stages - 1
        return (forward,) if last else (forward, Action("B", stage + 1, micro_batch))

    def check(self, most_in_flight: int | Sequence[int] | None = None) -> None:
        """Prove that the plan runs every action once, in an order that ends.

        most_in_flight: the most (stage, micro-batch) pairs a rank may hold at once, one number or
        one for each rank. Raises PlanError with the rank, the place and the action at fault.
        """
        from dlsys.pipeline_parallel.check import check

        check(self, most_in_flight)

    def price(
        self,
        forward: float | Sequence[float],
        backward: float | Sequence[float],
        transfer: float = 0.0,
        weight_backward: float | Sequence[float] | None = None,
    ) -> Price:
        """Simulate the plan: `dlsys.pipeline_parallel.price.price` says what is given."""
        from dlsys.pipeline_parallel.price import price

        return price(self, forward, backward, transfer, weight_backward)

    def draw(self, *args: Any, **options: Any) -> Any:
        """A Gantt chart as a Matplotlib figure: `dlsys.pipeline_parallel.draw.draw`."""
        from dlsys.pipeline_parallel.draw import draw

        return draw(self, *args, **options)

    def _actions(self, rank: int, given: object) -> tuple[Action, ...]:
        made = []
        for place, entry in enumerate(_rows(given, rank)):
            fault = self._fault(entry)
            if fault:
                here = f"Rank {rank} has {entry!r} as its action {place}"
                raise PlanError(f"{here}; {fault}.", rank, place)
            kind, stage, micro_batch = entry
            made.append(Action(str(kind), operator.index(stage), operator.index(micro_batch)))
        return tuple(made)

    def _fault(self, entry: Any) -> str | None:
        if not (isinstance(entry, tuple | list) and len(entry) == 3):
            return "write Action(kind, stage, micro_batch)"
        kind, stage, micro_batch = entry
        if not (isinstance(kind, str) and kind in KINDS):
            return "the kinds are " + ", ".join(f"{k!r} ({words})" for k, words in KINDS.items())
        if not _index(stage, self.stages):
            return f"its stage {stage!r} is none of 0 to {self.stages - 1}"
        if not _index(micro_batch, self.micro_batches):
            return f"its micro-batch {micro_batch!r} is none of 0 to {self.micro_batches - 1}"
        return None


def at(rank: int, place: int, action: Action) -> str:
    """Where an action stands, in words."""
    return f"Rank {rank} runs {action} as its action {place}"


def sizes(p: SupportsIndex, m: SupportsIndex) -> tuple[int, int]:
    """The numbers of ranks and micro-batches as ints; raises ValueError for one below 1."""
    return count("p (the number of ranks)", p), count("m (the number of micro-batches)", m)


def _index(number: Any, end: int) -> bool:
    whole = hasattr(number, "__index__") and not isinstance(number, bool)
    return whole and 0 <= operator.index(number) < end


def _rows(given: object, rank: int | None = None) -> Sequence[Any]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return given
    if rank is None:
        raise PlanError(f"ranks is {given!r}; give for each rank the sequence of its actions.")
    raise PlanError(f"Rank {rank} has {given!r}; give the sequence of its actions.", rank)
