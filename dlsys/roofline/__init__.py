"""Roofs: what a device can reach, where operations lie under that, and where a step's time goes."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.roofline.counter import Counted, as_one, count_operations
    from dlsys.roofline.counting_steps import count_step
    from dlsys.roofline.diagnosis import (
        FULL,
        LIMITS,
        REMEDIES,
        Diagnosis,
        by_utilization_alone,
        diagnose,
    )
    from dlsys.roofline.draw import (
        draw_beside,
        draw_measured,
        draw_roofline,
        draw_shares,
        draw_trace,
        draw_waterfall,
        draw_waves,
    )
    from dlsys.roofline.energy import PICOJOULES, energy_ridge, joules, operand_cost
    from dlsys.roofline.explorer import explore
    from dlsys.roofline.kernels import (
        ExpTable,
        autotune,
        blocked_matmul,
        conv2d,
        gelu,
        gelu_tanh,
        im2col,
    )
    from dlsys.roofline.laws import UNITS, axis_ridge, decode_batch, exact_decode_batch
    from dlsys.roofline.measurements import Measurements, Rung, Timed, on_h100
    from dlsys.roofline.measuring import Machine, UnderRoof, best_seconds, measure, under_roof
    from dlsys.roofline.plan import (
        Operation,
        all_reduce,
        convolution,
        elementwise,
        embedding,
        layer_norm,
        layer_operations,
        matmul,
        scores,
        softmax,
        together,
    )
    from dlsys.roofline.price import ROOFS, Placed, Price, attainable, place, price
    from dlsys.roofline.profiling import Step, profile_step
    from dlsys.roofline.slow_training import REPAIRS, Profile, SlowTraining, profile_repairs
    from dlsys.roofline.tiles import (
        PROCESSORS,
        TILES,
        Processor,
        Tile,
        Tiled,
        blocked_elements,
        choose_tile,
        tiled,
        wave_utilization,
        waves,
    )
    from dlsys.roofline.traces import CATEGORIES, Event, Trace, read_trace
    from dlsys.roofline.utilization import (
        RUNS,
        PublishedRun,
        Stair,
        accepted_tokens,
        hfu,
        inferred_bubble,
        mfu,
        padding_share,
        waterfall,
    )

lazy.exports(__name__)
