"""The walls: what training keeps in memory, how long it takes, and what it costs."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.memory_wall.draw import draw_activations, draw_plans, draw_walls
    from dlsys.memory_wall.explorer import explore
    from dlsys.memory_wall.fitting import Fit, Split, fits
    from dlsys.memory_wall.measuring import (
        MeasuredState,
        Saved,
        measure_activations,
        measure_state,
    )
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
    from dlsys.memory_wall.stages import parameters_held
    from dlsys.memory_wall.when_to_scale import REMEDIES, Advice, should_scale
    from dlsys.transformer.activations import Activations, activations

lazy.exports(__name__)
