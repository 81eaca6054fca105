"""Collective operations as plans that can be checked, priced, run and drawn."""

from dlsys.collectives.plan import Plan, PlanError, Step, Transfer
from dlsys.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter

__all__ = [
    "Plan",
    "PlanError",
    "Step",
    "Transfer",
    "plan_for",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
]

from dlsys.collectives.named import plan_for  # noqa: E402 (looks the builders above up by name)
