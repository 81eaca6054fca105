"""Recomputation (activation checkpointing): keep less for backward, and run a part again."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
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

lazy.exports(__name__)
