"""The walls: what training keeps in memory, how long it takes, and what it costs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlsys.memory_wall.plan import (
    RECIPES,
    ModelState,
    Recipe,
    devices_needed,
    largest_model,
    model_state,
)
from dlsys.memory_wall.price import (
    Energy,
    ImpossibleError,
    RentOrBuy,
    Waste,
    check_energy,
    energy,
    gpu_hours,
    rent_or_buy,
    training_seconds,
    utilization,
    waste,
)
from dlsys.transformer.activations import Activations, activations

if TYPE_CHECKING:
    from dlsys.memory_wall.draw import (
        draw_activations,
        draw_models,
        draw_recipes,
        draw_walls,
        draw_zero,
    )
    from dlsys.memory_wall.explorer import explore
    from dlsys.memory_wall.run import (
        MeasuredState,
        MixedPrecision,
        Saved,
        measure_activations,
        measure_state,
    )

__all__ = [
    "RECIPES",
    "Activations",
    "Energy",
    "ImpossibleError",
    "MeasuredState",
    "MixedPrecision",
    "ModelState",
    "Recipe",
    "RentOrBuy",
    "Saved",
    "Waste",
    "activations",
    "check_energy",
    "devices_needed",
    "draw_activations",
    "draw_models",
    "draw_recipes",
    "draw_walls",
    "draw_zero",
    "energy",
    "explore",
    "gpu_hours",
    "largest_model",
    "measure_activations",
    "measure_state",
    "model_state",
    "rent_or_buy",
    "training_seconds",
    "utilization",
    "waste",
]


def __getattr__(name: str) -> Any:
    # What measures imports torch and what draws Matplotlib: loaded where first asked for (PEP 562).
    if name in __all__:
        module = "draw" if name.startswith("draw") else "explorer" if name == "explore" else "run"
        return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
