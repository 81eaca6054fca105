"""Collective operations as plans that can be checked, priced, run and drawn."""

from dlsys.collectives.plan import Plan, PlanError, Step, Transfer
from dlsys.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter

__all__ = [
    "Plan",
    "PlanError",
    "Step",
    "Transfer",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
]
