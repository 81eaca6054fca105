"""Recomputation (activation checkpointing): keep less for backward, and run a part again."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.recomputation.chain import chain_of, uniform
    from dlsys.recomputation.offloaded import Offloaded, offloaded
    from dlsys.recomputation.optimal import Best, Optimum, front, optimal, smallest
    from dlsys.recomputation.plan import (
        MODES,
        Chain,
        Layer,
        Plan,
        Segment,
        every,
        every_layer,
        first_layers,
        keep_all,
        segments,
        selective,
        square_root,
    )
    from dlsys.recomputation.price import Moment, Price, closed_form, moments, price
    from dlsys.recomputation.checkpointing import RecomputationError, checkpoint
    from dlsys.recomputation.keep_results import LINEAR, keeping_results
    from dlsys.recomputation.measure import Instant, Measured, measure
    from dlsys.recomputation.offload import Offload
    from dlsys.recomputation.rerun import Rerun
    from dlsys.recomputation.run import Checkpointed, Recomputing, run
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
