"""The walls: what training keeps in memory, how long it takes, and what it costs."""

from __future__ import annotations

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
from dlsys.memory_wall.saved import Activations, activations

if TYPE_CHECKING:
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
    "energy",
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
    # What measures imports torch, so it is loaded where it is first asked for (PEP 562).
    if name in __all__:
        from dlsys.memory_wall import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
