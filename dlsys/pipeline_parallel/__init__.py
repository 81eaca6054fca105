"""Pipeline parallelism: the layers cut into stages, and the order that keeps the ranks busy."""

from __future__ import annotations

from dlsys.pipeline_parallel.plan import Action, Plan, PlanError
from dlsys.pipeline_parallel.price import (
    Price,
    Span,
    bubble_fraction,
    message_bytes,
    min_microbatches,
    step_seconds,
)
from dlsys.pipeline_parallel.schedules import gpipe, one_f_one_b

__all__ = [
    "Action",
    "Plan",
    "PlanError",
    "Price",
    "Span",
    "bubble_fraction",
    "gpipe",
    "message_bytes",
    "min_microbatches",
    "one_f_one_b",
    "step_seconds",
]
