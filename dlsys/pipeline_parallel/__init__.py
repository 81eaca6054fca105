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
from dlsys.pipeline_parallel.schedules import breadth_first, gpipe, interleaved, one_f_one_b
from dlsys.pipeline_parallel.zero_bubble import zero_bubble, zero_bubble_v

__all__ = [
    "Action",
    "Plan",
    "PlanError",
    "Price",
    "Span",
    "breadth_first",
    "bubble_fraction",
    "gpipe",
    "interleaved",
    "message_bytes",
    "min_microbatches",
    "one_f_one_b",
    "step_seconds",
    "zero_bubble",
    "zero_bubble_v",
]
