"""The proof that a step is the step of its whole batch, and what one learns where it is not."""

from __future__ import annotations

import math

from dlsys.training_loop.plan import KINDS, StepPlan


def check(plan: StepPlan) -> None:
    """See `StepPlan.check`."""
    kinds = [action.kind for action in plan.actions]
    if not kinds or kinds[0] != "zero":
        raise ValueError(
            "The step does not begin with zero: gradients of the step before would be added to."
        )
    _passes(plan)
    last = max(place for place, kind in enumerate(kinds) if kind == "backward")
    for kind, why in (
        ("zero", "what is set to zero later is lost"),
        ("reduce", "gradients are summed over ranks once, when all of them are there"),
        ("clip", "the norm is that of the whole batch's gradient"),
        ("update", "micro-batches share one update"),
        ("rate", "a schedule counts updates"),
    ):
        if kinds.count(kind) > 1:
            raise ValueError(f"The step has {kinds.count(kind)} times {kind}; {why}.")
        if kind != "zero" and kind in kinds[:last]:
            raise ValueError(f"{kind} comes before the last backward pass; {why}.")
    _order(kinds)


def _passes(plan: StepPlan) -> None:
    """Each micro-batch once forward, then once backward, with its part of the tokens."""
    forward: set[int] = set()
    done: dict[int, float] = {}
    for action in plan.actions:
        number = action.micro_batch
        if action.kind == "forward":
            if number in forward:
                raise ValueError(f"forward {number} comes twice: one of the two is for nothing.")
            forward.add(number)
        if action.kind == "backward":
            if number not in forward:
                raise ValueError(f"backward {number} comes before forward {number}.")
            if number in done:
                raise ValueError(f"backward {number} comes twice: its samples would count double.")
            done[number] = action.share
    for number, size in enumerate(plan.tokens):
        if number not in done:
            raise ValueError(f"Micro-batch {number} has no backward pass: its samples are lost.")
        right = size / sum(plan.tokens)
        if not math.isclose(done[number], right):
            raise ValueError(
                f"Micro-batch {number} counts for {done[number]:.4g} of the loss; it has {size} of "
                f"{sum(plan.tokens)} tokens, so it must count for {right:.4g}."
            )


def _order(kinds: list[str]) -> None:
    if "update" not in kinds:
        raise ValueError("The step has no update: nothing is learned.")
    after = [kind for kind in kinds if kind in KINDS[3:]]
    right = sorted(after, key=KINDS.index)
    if after != right:
        raise ValueError(f"{', '.join(after)} come in another order than {', '.join(right)}.")
