"""The proof that a step can be run, and that it trains what one device would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dlsys.zero.plan import (
    BACKWARD,
    FORWARD,
    FREE_GRADIENTS,
    FREE_WEIGHTS,
    GATHER,
    KINDS,
    REDUCE,
    UPDATE,
    WAIT,
    Action,
    StepPlan,
)

Rules = Iterator[tuple[bool, str]]
"""What has to hold, one after the other, and what is wrong where it does not."""


def check(plan: StepPlan) -> None:
    """What `StepPlan.check` says.

    Units go forward and backward once a micro-batch, with whole weights; every gradient is reduced
    once, after its last backward or after each, before the update; what is freed was there; and
    after the step a rank has at rest what its stage lets it have, with the new weights.
    """
    rank = _Rank(plan)
    for place, action in enumerate(plan.actions):
        for holds, why in rank.rules(action):
            if not holds:
                raise ValueError(f"Action {place}, {action}: {why}.")
        rank.do(action)
    for holds, why in rank.rules_at_the_end():
        if not holds:
            raise ValueError(f"After the last action {why}.")


class _Rank:
    """What a rank has at one point of a step, by unit."""

    def __init__(self, plan: StepPlan) -> None:
        self.stage, self.units, self.batches = plan.stage, len(plan.units), plan.micro_batches
        self.whole = set(range(self.units)) if plan.stage < 3 else set[int]()  # weights
        self.forward, self.backward = Counter[int](), Counter[int]()  # micro-batches
        self.kept = Counter[int]()  # micro-batches in whole gradients
        self.reduced = Counter[int]()  # micro-batches whose gradients were reduced
        self.pending = set[int]()  # whose reduction nobody has waited for
        self.updated = False

    def rules(self, action: Action) -> Rules:
        """Those of an action."""
        kind, unit, batch = action
        yield kind in KINDS, f"there is no such action; there are {', '.join(KINDS)}"
        if kind == WAIT:
            yield self.stage < 2 and bool(self.pending), "there is no reduction to wait for"
        elif kind == UPDATE:
            first = min(self.pending, default=None)
            yield first is None, f"nobody has waited for the reduction of unit {first}"
            for each in range(self.units):
                done = f"{self.reduced[each]} of {self.batches} micro-batches"
                why = f"unit {each} has reduced the gradients of {done}"
                yield self.reduced[each] == self.batches, why
            yield not self.updated, "the step has been taken"
        else:
            yield 0 <= unit < self.units, f"there are units 0 to {self.units - 1}"
            why = f"there are micro-batches 0 to {self.batches - 1}"
            yield 0 <= batch < self.batches, why
            yield from self._rules_of_unit(kind, unit, batch)

    def _rules_of_unit(self, kind: str, unit: int, batch: int) -> Rules:
        is_whole, is_pending = unit in self.whole, unit in self.pending
        if kind == GATHER:  # to gather new weights twice wastes bytes alone
            is_new = self.updated and self.stage in (1, 2)
            yield is_new or not is_whole, "its weights are whole already"
        elif kind == FORWARD:
            yield is_whole, "its weights are not whole: gather them before"
            why = "a unit goes forward once for each micro-batch, in order, before the update"
            yield self.forward[unit] == batch, why
        elif kind == BACKWARD:
            yield is_whole, "its weights are not whole: gather them before"
            why = "a unit goes backward once for each micro-batch, after its forward"
            yield self.backward[unit] == batch == self.forward[unit] - 1, why
            why = "its gradients were reduced and are still there"
            yield not is_pending, f"{why}: what is reduced twice counts twice"
        elif kind == REDUCE:
            why = "there are no gradients that were not reduced yet"
            yield self.kept[unit] > 0 and not is_pending, why
        elif kind == FREE_WEIGHTS:
            yield self.stage == 3, f"stage {self.stage} keeps whole weights"
            yield is_whole, "its weights are not whole"
        elif kind == FREE_GRADIENTS:
            yield self.stage >= 2, f"stage {self.stage} keeps whole gradients"
            yield is_pending, "its gradients were not reduced: they would be lost"

    def do(self, action: Action) -> None:
        """What an action changes."""
        kind, unit, _ = action
        if kind == GATHER:
            self.whole.add(unit)
        elif kind == FORWARD:
            self.forward[unit] += 1
        elif kind == BACKWARD:
            self.backward[unit] += 1
            self.kept[unit] += 1
        elif kind == REDUCE:
            self.reduced[unit] += self.kept[unit]
            self.pending.add(unit)
        elif kind == FREE_WEIGHTS:
            self.whole.discard(unit)
        elif kind == FREE_GRADIENTS:
            self.pending.discard(unit)
            self.kept[unit] = 0
        elif kind == WAIT:  # the mean stands in the place of the gradients
            for each in self.pending:
                self.kept[each] = 0
            self.pending.clear()
        else:
            self.updated = True
            if self.stage in (1, 2):
                self.whole.clear()

    def rules_at_the_end(self) -> Rules:
        """Those of the step."""
        yield self.updated, "nothing was updated"
        if self.stage == 3:
            first = min(self.whole, default=None)
            yield first is None, f"unit {first} has whole weights still"
        else:
            first = min({*range(self.units)} - self.whole, default=None)
            yield first is None, f"unit {first} has new weights in this rank's shard alone"
