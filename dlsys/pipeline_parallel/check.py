"""The proof that a plan can be executed, and that no rank holds more than it may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlsys.checks import count
from dlsys.pipeline_parallel.action import refused
from dlsys.pipeline_parallel.plan import Plan


def check(plan: Plan, most_in_flight: int | Sequence[int] | None = None) -> None:
    """What `Plan.check` says."""
    assert plan.order  # every action once, after what it needs, to the end; or this raises
    if most_in_flight is not None:
        _bounded(plan, most_in_flight)


def _bounded(plan: Plan, most: int | Sequence[int]) -> None:
    limits: Sequence[Any] = [most] * plan.p
    if isinstance(most, Sequence) and not isinstance(most, str):
        limits = most
    if len(limits) != plan.p:
        raise ValueError(
            f"most_in_flight has {len(limits)} numbers; give one for each of the {plan.p} ranks, "
            "or one for all."
        )
    for rank, (limit, order) in enumerate(zip(limits, plan.ranks, strict=True)):
        limit = count("most_in_flight", limit, least=0)
        for place, held in enumerate(plan.in_flight(order)):
            if held > limit:
                why = (
                    f" and then holds the activations of {held} (stage, micro-batch) pairs; at "
                    f"most {limit} are allowed."
                )
                raise refused(rank, place, order[place], why)
