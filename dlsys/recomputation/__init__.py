"""Activation checkpointing: what is not kept for the backward pass, and is computed again there."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.recomputation.draw_tensors import draw_keepings, draw_lifetimes
    from dlsys.recomputation.graph import Graph, Operation, Value
    from dlsys.recomputation.keep_tensors import KeepTensors
    from dlsys.recomputation.keeping import (
        Keeping,
        keep_best,
        keeping_front,
        keeping_of,
        seconds_per_byte,
    )
    from dlsys.recomputation.layer_values import keep_in_layer
    from dlsys.recomputation.lifetimes import Lifetime, Lifetimes, lifetimes
    from dlsys.recomputation.orders import best_order, greedy_order
    from dlsys.recomputation.run_lifetimes import Execution, execute
    from dlsys.recomputation.tensor_graph import layer_graph
    from dlsys.recomputation.training_step import step_graph

lazy.exports(__name__)
