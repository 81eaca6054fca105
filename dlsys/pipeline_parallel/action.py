"""Actions: what a rank does with one micro-batch, one after another, and errors that name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import index_of
from dlsys.plain_data import plain_data

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


@checked
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


def refused(rank: int, place: int, action: Action, why: str) -> PlanError:
    """The error that says where `action` stands, and then why it cannot stand there."""
    return PlanError(f"{at(rank, place, action)}{why}", rank, place, action)


def at(rank: int, place: int, action: Action) -> str:
    """Where an action stands, in words."""
    return f"Rank {rank} runs {action} as its action {place}"


def fault(entry: Any, stages: int, micro_batches: int) -> str | None:
    """Why `entry` is no action of these stages and micro-batches; None where it is one."""
    if not (isinstance(entry, tuple | list) and len(entry) == 3):
        return "write Action(kind, stage, micro_batch)"
    kind, stage, micro_batch = entry
    if not (isinstance(kind, str) and kind in KINDS):
        return "the kinds are " + ", ".join(f"{k!r} ({words})" for k, words in KINDS.items())
    if not _index(stage, stages):
        return f"its stage {stage!r} is none of 0 to {stages - 1}"
    if not _index(micro_batch, micro_batches):
        return f"its micro-batch {micro_batch!r} is none of 0 to {micro_batches - 1}"
    return None


def _index(number: Any, end: int) -> bool:
    whole = index_of(number)
    return whole is not None and 0 <= whole < end
