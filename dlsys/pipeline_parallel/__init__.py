"""Pipeline parallelism: the layers cut into stages, and the order that keeps the ranks busy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from dlsys.pipeline_parallel.draw import draw_bubbles, draw_comparison

__all__ = [
    "Action",
    "Plan",
    "PlanError",
    "Price",
    "Span",
    "breadth_first",
    "bubble_fraction",
    "draw_bubbles",
    "draw_comparison",
    "gpipe",
    "interleaved",
    "message_bytes",
    "min_microbatches",
    "one_f_one_b",
    "step_seconds",
    "zero_bubble",
    "zero_bubble_v",
]


def __getattr__(name: str) -> Any:
    # What draws imports Matplotlib: loaded where it is first asked for (PEP 562).
    if name in __all__:
        return getattr(import_module(f"{__name__}.draw"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
