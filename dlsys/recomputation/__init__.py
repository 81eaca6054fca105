"""Recomputation (activation checkpointing): keep less for backward, and run a part again."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.recomputation.chain import chain_of, uniform
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

lazy.exports(__name__)
