"""Expert parallelism: a mixture of experts whose experts lie on different ranks."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.expert_parallel.animate import animate_dispatch
    from dlsys.expert_parallel.dispatch import exchange
    from dlsys.expert_parallel.draw import draw_dispatch, draw_hidden, draw_loads, draw_sorted
    from dlsys.expert_parallel.explorer import explore
    from dlsys.expert_parallel.gpt import MixtureGPT
    from dlsys.expert_parallel.gradients import average_gradients
    from dlsys.expert_parallel.laws import (
        copies_leaving,
        k_to_overtake,
        nodes_reached,
        volume_ratio,
        width_to_hide,
    )
    from dlsys.expert_parallel.layer import MoE
    from dlsys.expert_parallel.plan import Dispatch, DispatchError, count_copies, drawn
    from dlsys.expert_parallel.price import Price, price

lazy.exports(__name__)
