"""The proof that a step can be run, and that it trains what one device would."""

from __future__ import annotations

from dataclasses import dataclass, field

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


def check(plan: StepPlan) -> None:
    """What `StepPlan.check` says.

    Units go forward and backward once a micro-batch, with whole weights; every gradient is reduced
    once, after its last backward or after each, before the update; what is freed was there; and
    after the step a rank has at rest what its stage lets it have, with the new weights.
    """
    state = _State(plan)
    for place, action in enumerate(plan.actions):
        why = state.take(action)
        if why:
            raise ValueError(f"Action {place}, {action}: {why}.")
    why = state.unfinished()
    if why:
        raise ValueError(f"After the last action {why}.")


@dataclass
class _State:
    """What a rank has at one point of a step, by unit."""

    plan: StepPlan
    whole: set[int] = field(default_factory=set)  # weights
    kept: dict[int, int] = field(default_factory=dict)  # whole gradients: batches in them
    reduced: dict[int, int] = field(default_factory=dict)  # batches that were reduced
    forward: dict[int, int] = field(default_factory=dict)
    backward: dict[int, int] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)  # whose reduction nobody has waited for
    updated: bool = False

    def __post_init__(self) -> None:
        if self.plan.stage < 3:
            self.whole = set(range(len(self.plan.units)))

    def take(self, action: Action) -> str:
        """Do an action; what is wrong with it, "" where nothing is."""
        if action.kind not in KINDS:
            return f"there is no such action; there are {', '.join(KINDS)}"
        if action.kind in (UPDATE, WAIT):
            return self._update() if action.kind == UPDATE else self._wait()
        if not 0 <= action.unit < len(self.plan.units):
            return f"there are units 0 to {len(self.plan.units) - 1}"
        if not 0 <= action.micro_batch < self.plan.micro_batches:
            return f"there are micro-batches 0 to {self.plan.micro_batches - 1}"
        take = {
            GATHER: self._gather,
            FORWARD: self._forward,
            BACKWARD: self._backward,
            REDUCE: self._reduce,
            FREE_WEIGHTS: self._free_weights,
            FREE_GRADIENTS: self._free_gradients,
        }
        return take[action.kind](action.unit, action.micro_batch)

    def _gather(self, unit: int, batch: int) -> str:
        if self.updated and self.plan.stage in (1, 2):
            self.whole.add(unit)
            return ""
        if unit in self.whole:
            return "its weights are whole already"
        self.whole.add(unit)
        return ""

    def _forward(self, unit: int, batch: int) -> str:
        if unit not in self.whole:
            return "its weights are not whole: gather them before"
        if self.forward.get(unit, 0) != batch or self.updated:
            return "a unit goes forward once for each micro-batch, in order, before the update"
        self.forward[unit] = batch + 1
        return ""

    def _backward(self, unit: int, batch: int) -> str:
        if unit not in self.whole:
            return "its weights are not whole: gather them before"
        if self.backward.get(unit, 0) != batch or self.forward.get(unit, 0) != batch + 1:
            return "a unit goes backward once for each micro-batch, after its forward"
        if unit in self.pending:
            return (
                "its gradients were reduced and are still there: what is reduced twice counts twice"
            )
        self.backward[unit] = batch + 1
        self.kept[unit] = self.kept.get(unit, 0) + 1
        return ""

    def _reduce(self, unit: int, batch: int) -> str:
        if not self.kept.get(unit) or unit in self.pending:
            return "there are no gradients that were not reduced yet"
        self.reduced[unit] = self.reduced.get(unit, 0) + self.kept[unit]
        self.pending.add(unit)
        return ""

    def _wait(self) -> str:
        """The mean stands in the place of the gradients."""
        if self.plan.stage >= 2 or not self.pending:
            return "there is no reduction to wait for"
        self.kept |= dict.fromkeys(self.pending, 0)
        self.pending.clear()
        return ""

    def _free_weights(self, unit: int, batch: int) -> str:
        if self.plan.stage < 3:
            return f"stage {self.plan.stage} keeps whole weights"
        if unit not in self.whole:
            return "its weights are not whole"
        self.whole.discard(unit)
        return ""

    def _free_gradients(self, unit: int, batch: int) -> str:
        if self.plan.stage < 2:
            return f"stage {self.plan.stage} keeps whole gradients"
        if unit not in self.pending:
            return "its gradients were not reduced: they would be lost"
        self.pending.discard(unit)
        self.kept[unit] = 0
        return ""

    def _update(self) -> str:
        if self.pending:
            return f"nobody has waited for the reduction of unit {min(self.pending)}"
        for unit in range(len(self.plan.units)):
            if self.reduced.get(unit, 0) != self.plan.micro_batches:
                return (
                    f"unit {unit} has reduced the gradients of {self.reduced.get(unit, 0)} of "
                    f"{self.plan.micro_batches} micro-batches"
                )
        if self.updated:
            return "the step has been taken"
        self.updated = True
        if self.plan.stage in (1, 2):
            self.whole.clear()
        return ""

    def unfinished(self) -> str:
        """What is wrong at the end of the step."""
        if not self.updated:
            return "nothing was updated"
        if self.plan.stage == 3 and self.whole:
            return f"unit {min(self.whole)} has whole weights still"
        missing = {*range(len(self.plan.units))} - self.whole
        if self.plan.stage < 3 and missing:
            return f"unit {min(missing)} has new weights in this rank's shard alone"
        return ""
