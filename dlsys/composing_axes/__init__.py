"""Composing the axes: one program on any mesh, and a planner that is held against measured runs."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.composing_axes.draw import (
        draw_front,
        draw_holders,
        draw_mesh,
        draw_plans,
        draw_step,
        draw_traffic,
    )
    from dlsys.composing_axes.explorer import explore
    from dlsys.composing_axes.laws import sharding_degree, tokens_to_hide
    from dlsys.composing_axes.machines import machine
    from dlsys.composing_axes.planner import plan
    from dlsys.composing_axes.price import between_nodes, step_bytes
    from dlsys.composing_axes.strategies import megatron, playbook
    from dlsys.composing_axes.training import train

lazy.exports(__name__)
