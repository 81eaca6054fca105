"""What a pipeline schedule costs: seconds, idle ranks and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlsys.pipeline_parallel.plan import Plan


@dataclass(frozen=True)
class Price:
    """What the simulation of a plan found."""

    makespan: float


def price(
    plan: Plan,
    forward: float | Sequence[float],
    backward: float | Sequence[float],
    transfer: float = 0.0,
    weight_backward: float | Sequence[float] | None = None,
) -> Price:
    """Simulate the plan."""
    raise NotImplementedError
