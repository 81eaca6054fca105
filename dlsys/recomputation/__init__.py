"""Recomputation (activation checkpointing): keep less for backward, and run a part again."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.recomputation.chain import chain_of, uniform
    from dlsys.recomputation.checkpoint_wrapper import Checkpointed, Recomputing
    from dlsys.recomputation.checkpointing import RecomputationError, checkpoint
    from dlsys.recomputation.draw import draw_front
    from dlsys.recomputation.draw_tensors import draw_keepings, draw_lifetimes
    from dlsys.recomputation.explorer import explore
    from dlsys.recomputation.fitting import smallest
    from dlsys.recomputation.graph import Graph, Operation, Value
    from dlsys.recomputation.keep_results import LINEAR, keeping_results
    from dlsys.recomputation.keep_tensors import KeepTensors
    from dlsys.recomputation.keeping import (
        Keeping,
        keep_best,
        keeping_front,
        keeping_of,
        seconds_per_byte,
    )
    from dlsys.recomputation.laws import (
        Law,
        against_tensor_parallel,
        core_bytes_share,
        core_flops_share,
        full_share,
        least_peak,
        micro_batch_overhead,
        recompute_beats_offload,
        square_root_peak,
        stage_layers,
        width_to_offload,
    )
    from dlsys.recomputation.layer_values import keep_in_layer
    from dlsys.recomputation.lifetimes import Lifetime, Lifetimes, lifetimes
    from dlsys.recomputation.measuring import Instant, Measured, measure
    from dlsys.recomputation.offload import Offload
    from dlsys.recomputation.offload_price import OffloadPrice, offload_price
    from dlsys.recomputation.optimum import Best, Optimum, front, optimal
    from dlsys.recomputation.orders import best_order, greedy_order
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
    from dlsys.recomputation.price import Moment, Price, closed_form, price
    from dlsys.recomputation.run_lifetimes import Execution, execute
    from dlsys.recomputation.tensor_graph import layer_graph
    from dlsys.recomputation.training_step import step_graph

lazy.exports(__name__)
