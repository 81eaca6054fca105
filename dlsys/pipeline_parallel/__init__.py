"""Pipeline parallelism: the layers cut into stages, and the order that keeps the ranks busy."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.pipeline_parallel.action import Action, PlanError, numbered
    from dlsys.pipeline_parallel.asynchronous import PipeDream
    from dlsys.pipeline_parallel.draw import draw_comparison
    from dlsys.pipeline_parallel.dual_pipe import dual_pipe_v
    from dlsys.pipeline_parallel.explorer import explore
    from dlsys.pipeline_parallel.laws import (
        best_micro_batch,
        fixed_sequences,
        transfer_share,
        transfers_waited_for,
    )
    from dlsys.pipeline_parallel.partition import (
        partition,
        piece_flops,
        piece_parameters,
        stage_seconds,
    )
    from dlsys.pipeline_parallel.pipeline import Pipeline
    from dlsys.pipeline_parallel.plan import Plan
    from dlsys.pipeline_parallel.price import (
        Price,
        bubble_fraction,
        message_bytes,
        min_microbatches,
        step_seconds,
    )
    from dlsys.pipeline_parallel.replicas import exposed_seconds
    from dlsys.pipeline_parallel.schedules import (
        breadth_first,
        eager_1f1b,
        gpipe,
        interleaved,
        one_f_one_b,
    )
    from dlsys.pipeline_parallel.stage import Stage, split
    from dlsys.pipeline_parallel.weight_backward import DeferredWeights
    from dlsys.pipeline_parallel.weight_versions import pipedream, staleness
    from dlsys.pipeline_parallel.zero_bubble import zero_bubble, zero_bubble_h2, zero_bubble_v

lazy.exports(__name__)
