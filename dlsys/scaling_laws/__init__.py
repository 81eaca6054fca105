"""Scaling laws: what a loss costs in parameters, tokens and FLOPs, from runs that are cheap."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.scaling_laws.sweep import KINDS, Row, Run, Sweep, pieces, text, tiny_sweep, token_ids
    from dlsys.scaling_laws.tiny import initialized, train

lazy.exports(__name__)
