"""The walls: what training keeps in memory, how long it takes, and what it costs."""

from __future__ import annotations

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

__all__ = [
    "RECIPES",
    "Activations",
    "Energy",
    "ImpossibleError",
    "ModelState",
    "Recipe",
    "RentOrBuy",
    "Waste",
    "activations",
    "check_energy",
    "devices_needed",
    "energy",
    "gpu_hours",
    "largest_model",
    "model_state",
    "rent_or_buy",
    "training_seconds",
    "utilization",
    "waste",
]
