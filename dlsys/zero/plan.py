"""A training step under ZeRO: what a rank does, one action after another, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, index_of, refuse, some
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from dlsys.network import Where
    from dlsys.streams import Overlap

GATHER, FORWARD, BACKWARD, REDUCE = "gather", "forward", "backward", "reduce"
FREE_WEIGHTS, FREE_GRADIENTS = "free weights", "free gradients"
WAIT, UPDATE = "wait", "update"
KINDS = {
    GATHER: "all-gather of a unit's weights",
    FORWARD: "forward pass of a unit",
    BACKWARD: "backward pass of a unit",
    REDUCE: "mean of a unit's gradients over the ranks: whole in stage 0, else this rank's shard",
    FREE_WEIGHTS: "what is not this rank's shard of a unit's weights is given back",
    FREE_GRADIENTS: "a unit's whole gradients are given back, once they are reduced",
    WAIT: "all reductions have ended, and the mean stands where the gradients were",
    UPDATE: "the optimizer's step on what this rank has to update",
}
"""What an action does."""
MOST_ACTIONS = 1_000_000


@checked
@plain_data
@dataclass(frozen=True)
class Unit:
    """Parameters that are gathered and reduced together: `elements` of them.

    An `outer` unit is whole from the first unit's forward to the last one's and again in backward,
    as the embedding around the blocks of a model is.
    """

    name: str
    elements: int
    outer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "elements", count("elements", self.elements, least=0))


@plain_data
class Action(NamedTuple):
    """One action of `KINDS`, on the unit and for the micro-batch of these numbers, from 0; `unit`
    is -1 where it is for all."""

    kind: str
    unit: int
    micro_batch: int = 0

    def __str__(self) -> str:
        of = "" if self.unit < 0 else f" {self.unit}"
        return f"{self.kind}{of} of micro-batch {self.micro_batch}"


@plain_data
@dataclass(frozen=True)
class StepPlan:
    """The actions of one optimizer step, in the order in which every rank issues them.

    Gathers and reductions are issued and go on beside what follows: what needs their result waits.
    Stage 0 shards nothing, 1 the optimizer's state, 2 the gradients too, 3 the weights too.
    Made by `step_plan`.
    """

    stage: int
    ranks: int
    units: tuple[Unit, ...]
    actions: tuple[Action, ...]
    micro_batches: int = 1

    @property
    def elements(self) -> int:
        """Parameters of all units."""
        return sum(unit.elements for unit in self.units)

    def shard(self, unit: int) -> int:
        """Elements of one rank's shard of a unit: ceil(elements / ranks)."""
        place = count("unit", unit, least=0, most=len(self.units) - 1)
        return -(-self.units[place].elements // self.ranks)

    def check(self) -> None:
        """Prove that the step can be run and is right; raises ValueError that names the action.

        See `check.check`.
        """
        from dlsys.zero.check import check

        check(self)

    def price(self, forward: Any, backward: Any, where: Where, **more: Any) -> Overlap:
        """Seconds of the step with gathers and reductions beside compute; see `price.overlap`."""
        from dlsys.zero.price import overlap

        return overlap(self, forward, backward, where, **more)

    def draw(self, *args: Any, **options: Any) -> Any:
        """A Matplotlib figure of the step; see `draw.draw`."""
        from dlsys.zero.draw import draw

        return draw(self, *args, **options)


@checked
def step_plan(
    stage: int,
    units: Mapping[str, int] | Sequence[Unit],
    ranks: int,
    micro_batches: int = 1,
    reduce: Literal["each", "last"] = "each",
    reshard: bool = True,
    prefetch: int = 1,
) -> StepPlan:
    """The plan of a step of ZeRO's stage 0 to 3.

    - units: elements by name in the order of forward, or `Unit`s; an outer one comes first.
    - micro_batches: of a step; `reduce` says whether the gradients of each are reduced, and added
      to what is kept, or those of all together with the last (`no_sync` before that).
    - reshard: stage 3 gives weights back after forward and gathers them again for backward.
    - prefetch: how many units ahead stage 3 gathers while it computes; 0 waits for each.

    Raises ValueError for another stage, no unit, or an outer unit that is not the first.
    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5 and figure 1; the order of
    stage 3 is that of Zhao et al. 2023 (PyTorch FSDP, arXiv 2304.11277), section 3.3.
    """
    check_stage(stage)
    some("units", units)
    made = [Unit(*pair) for pair in units.items()] if isinstance(units, Mapping) else [*units]
    if not all(isinstance(unit, Unit) for unit in made):  # an iterator's are not seen before
        refuse("units", units, "a dictionary of elements by name, or a sequence of Units")
    for place, unit in enumerate(made):
        if place and unit.outer:
            first = f"the first unit, which is {made[0].name!r}: it is around all"
            refuse("outer", unit.name, first)
    most = max(1, MOST_ACTIONS // 8 // len(made))
    batches = count("micro_batches", micro_batches, most=most)
    n, ahead = count("ranks", ranks, most=1_000_000), count("prefetch", prefetch, least=0)
    order = _Order(stage, len(made), made[0].outer, reshard, ahead)
    actions = []
    for batch in range(batches):
        reduces = reduce == "each" or batch == batches - 1
        work = [*order.forward(), *order.backward(reduces)]
        actions += [Action(kind, unit, batch) for kind, unit in work]
    gathered = len(made) if stage in (1, 2) else 0  # a rank has new weights of its shards alone
    actions.append(Action(UPDATE, -1, batches - 1))
    actions += [Action(GATHER, unit, batches - 1) for unit in range(gathered)]
    return StepPlan(stage, n, tuple(made), tuple(actions), batches)


def check_stage(stage: object) -> None:
    """Raise ValueError where `stage` is none of ZeRO's."""
    if index_of(stage) not in (0, 1, 2, 3):
        refuse("stage", stage, "0 (nothing sharded), 1, 2 or 3")


Work = Iterator[tuple[str, int]]
"""Kinds of action and units, not yet for a certain micro-batch."""


class _Order:
    """What a rank does with a micro-batch."""

    def __init__(self, stage: int, units: int, outer: bool, reshard: bool, prefetch: int) -> None:
        self.stage, self.prefetch = stage, prefetch
        self.outer, self.inner = [0] * outer, [*range(outer, units)]
        self.reshards = stage == 3 and reshard

    def forward(self) -> Work:
        """An outer unit's own part, such as the head of a model, comes last."""
        for place, unit in enumerate([*self.inner, *self.outer]):
            if self.stage == 3:
                yield from self.gathers(self.inner, place)
            yield FORWARD, unit
            if self.reshards:
                yield FREE_WEIGHTS, unit

    def backward(self, reduces: bool) -> Work:
        """Units from the last to the first.

        A reduction is waited for when the next one begins, so beside a unit's whole gradients
        there are at most those of the one before.
        """
        order, before = self.inner[::-1], list[int]()
        for place, unit in enumerate([*order, *self.outer]):
            if self.reshards:
                yield from self.gathers(order, place)
            yield BACKWARD, unit
            if reduces:
                yield from ((FREE_GRADIENTS, one) for one in before)
                yield REDUCE, unit
                before = [unit] if self.stage >= 2 else []
            if self.stage == 3:
                yield FREE_WEIGHTS, unit
        yield from ((FREE_GRADIENTS, one) for one in before)
        if reduces and self.stage < 2:
            yield WAIT, -1

    def gathers(self, order: list[int], place: int) -> Work:
        """Those before the unit at `place` of an order: of the one `prefetch` places on, and before
        the first of the outer one and of all up to there."""
        last = place + self.prefetch
        ahead = order[last : last + 1] if place else [*self.outer, *order[: last + 1]]
        return ((GATHER, unit) for unit in ahead)
