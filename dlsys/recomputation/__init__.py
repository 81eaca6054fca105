"""Recomputation (activation checkpointing): keep less for backward, and run a part again."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.recomputation.chain import chain_of, uniform
    from dlsys.recomputation.checkpointing import RecomputationError, checkpoint
    from dlsys.recomputation.keep_results import LINEAR, keeping_results
    from dlsys.recomputation.measure import Instant, Measured, measure
    from dlsys.recomputation.offload import Offload
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
    from dlsys.recomputation.rerun import Rerun
    from dlsys.recomputation.run import Checkpointed, Recomputing, run

lazy.exports(__name__)
