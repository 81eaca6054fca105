"""Pipeline parallelism: the layers cut into stages, and the order that keeps the ranks busy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlsys.pipeline_parallel.partition import (
    partition,
    piece_flops,
    piece_parameters,
    stage_seconds,
)
from dlsys.pipeline_parallel.plan import Action, Plan, PlanError, numbered
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
    from dlsys.pipeline_parallel.run import Pipeline
    from dlsys.pipeline_parallel.stage import Stage, split
    from dlsys.pipeline_parallel.weight_backward import DeferredWeights

__all__ = [
    "Action",
    "DeferredWeights",
    "Pipeline",
    "Plan",
    "PlanError",
    "Price",
    "Span",
    "Stage",
    "breadth_first",
    "bubble_fraction",
    "draw_bubbles",
    "draw_comparison",
    "gpipe",
    "interleaved",
    "message_bytes",
    "min_microbatches",
    "numbered",
    "one_f_one_b",
    "partition",
    "piece_flops",
    "piece_parameters",
    "split",
    "stage_seconds",
    "step_seconds",
    "zero_bubble",
    "zero_bubble_v",
]

_RUN = {
    "DeferredWeights": "weight_backward",
    "Pipeline": "run",
    "Stage": "stage",
    "split": "stage",
}


def __getattr__(name: str) -> Any:
    # What runs imports torch and what draws Matplotlib: loaded where first asked for (PEP 562).
    if name in __all__:
        module = _RUN.get(name, "draw")
        return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
