"""A pipeline schedule is a plan: for every rank the order of its actions, as plain data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any, SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import count, counts, shown, text
from dlsys.pipeline_parallel.action import Action, PlanError, at, fault, refused
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.pipeline_parallel.price import Price


MOST_PASSES = 2**20


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
        text("name", self.name)
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
                    why = (
                        f", but stage {action.stage} lives on rank {found[action.stage]}: a stage "
                        "has one rank, which holds its weights."
                    )
                    raise refused(rank, place, action, why)
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
        return tuple(_Traversal(self).run())

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

    @checked
    def price(
        self,
        forward: float | Sequence[float],
        backward: float | Sequence[float],
        transfer: float = 0.0,
        weight_backward: float | Sequence[float] | None = None,
        *,
        send: float = 0.0,
        receive: float = 0.0,
        update: float | Sequence[float] = 0.0,
    ) -> Price:
        """Simulate the plan: `dlsys.pipeline_parallel.price.price` says what is given."""
        from dlsys.pipeline_parallel.price import price

        return price(
            self,
            forward,
            backward,
            transfer,
            weight_backward,
            send=send,
            receive=receive,
            update=update,
        )

    def draw(self, *args: Any, **options: Any) -> Any:
        """A Gantt chart as a Matplotlib figure: `dlsys.pipeline_parallel.draw.draw`."""
        from dlsys.pipeline_parallel.draw import draw

        return draw(self, *args, **options)

    def _actions(self, rank: int, given: object) -> tuple[Action, ...]:
        made = []
        for place, entry in enumerate(_rows(given, rank)):
            why = fault(entry, self.stages, self.micro_batches)
            if why:
                here = f"Rank {rank} has {entry!r} as its action {place}"
                raise PlanError(f"{here}; {why}.", rank, place)
            kind, stage, micro_batch = entry
            made.append(Action(str(kind), operator.index(stage), operator.index(micro_batch)))
        return tuple(made)


def sizes(p: SupportsIndex, m: SupportsIndex = 1, v: SupportsIndex = 1) -> tuple[int, int, int]:
    """The numbers that describe a schedule as ints; raises ValueError for one below 1."""
    return (
        count("p (the number of ranks)", p),
        count("m (the number of micro-batches)", m),
        count("v (the number of stages per rank)", v),
    )


def planned(p: SupportsIndex, m: SupportsIndex, v: SupportsIndex = 1) -> tuple[int, int, int]:
    """`sizes` of a schedule whose actions are going to be written down: not too many."""
    numbers = sizes(p, m, v)
    if prod(numbers) > MOST_PASSES:
        raise ValueError(
            f"p is {shown(p)}, m {shown(m)} and v {shown(v)}: schedules are written down for p x m "
            f"x v of at most {MOST_PASSES:,}, the passes forward."
        )
    return numbers


def _rows(given: object, rank: int | None = None) -> Sequence[Any]:
    if isinstance(given, Sequence) and not isinstance(given, str):
        return given
    if rank is None:
        raise PlanError(f"ranks is {given!r}; give for each rank the sequence of its actions.")
    raise PlanError(f"Rank {rank} has {given!r}; give the sequence of its actions.", rank)


class _Traversal:
    """Every rank runs as far as it can, again and again, until all have ended or none can.

    This is Kahn's topological sort, a rank's whole run at a time: an action that ends wakes the one
    rank that waits for it. Whoever still waits at the end waits in a circle.

    places: of every action its rank and its place in the rank's order. reached: of every rank the
    place of the action it is at.
    """

    def __init__(self, plan: Plan) -> None:
        assert plan.placement  # a stage lives on one rank, or this raises
        self.plan, self.places = plan, _once(plan)
        self.reached = [0] * plan.p

    def run(self) -> list[Action]:
        """The actions in an order in which they can run; raises PlanError where there is none."""
        ended: dict[Action, None] = {}  # a set that keeps its order
        waiting: dict[Action, int] = {}  # the rank that waits for it; two never wait for the same
        ready = list(range(self.plan.p))
        while ready:
            rank = ready.pop()
            order = self.plan.ranks[rank]
            while self.reached[rank] < len(order):
                action = order[self.reached[rank]]
                need = next((need for need in self.plan.needs(action) if need not in ended), None)
                if need is not None:
                    if self.places[need][0] == rank:
                        raise self._too_early(rank, action, need)
                    waiting[need] = rank
                    break
                self.reached[rank] += 1
                ended[action] = None
                if action in waiting:
                    ready.append(waiting.pop(action))
        if waiting:
            raise self._deadlock({rank: need for need, rank in waiting.items()})
        return list(ended)

    def _too_early(self, rank: int, action: Action, need: Action) -> PlanError:
        why = f", but {need} must come first and is its action {self.places[need][1]}."
        return refused(rank, self.reached[rank], action, why)

    def _deadlock(self, waits: dict[int, Action]) -> PlanError:
        """The error that names the ranks which wait for each other, in a circle."""
        seen: list[int] = []
        rank = next(iter(waits))
        while rank not in seen:  # who waits for whom ends in a circle: follow it until it closes
            seen.append(rank)
            rank = self.places[waits[rank]][0]
        text = "; ".join(self._waits(one, waits[one]) for one in seen[seen.index(rank) :])
        here = self.reached[rank]
        message = f"The ranks wait for each other: {text}."
        return PlanError(message, rank, here, self.plan.ranks[rank][here])

    def _waits(self, rank: int, need: Action) -> str:
        here, (owner, place) = self.reached[rank], self.places[need]
        runs = at(rank, here, self.plan.ranks[rank][here]).replace("Rank", "rank")
        return f"{runs}, which needs {need}, action {place} of rank {owner}"


def _once(plan: Plan) -> dict[Action, tuple[int, int]]:
    """Rank and place of every action; raises PlanError where one is missing or runs twice."""
    places: dict[Action, tuple[int, int]] = {}
    for rank, order in enumerate(plan.ranks):
        for place, action in enumerate(order):
            if action in places:
                why = f", which it already ran as its action {places[action][1]}."
                raise refused(rank, place, action, why)
            places[action] = rank, place
    kinds = "FBW" if plan.splits_backward else "FB"
    for kind, stage, k in product(kinds, range(plan.stages), range(plan.micro_batches)):
        action = Action(kind, stage, k)
        if action not in places:
            why = ": a plan with W actions needs one for every B" * (kind == "W")
            rank = plan.placement[stage]
            raise PlanError(f"Rank {rank} never runs {action}{why}.", rank, None, action)
    return places
