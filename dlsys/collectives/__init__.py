"""Collective operations as plans that can be checked, priced, run and drawn."""

from typing import TYPE_CHECKING

from dlsys import lazy

if TYPE_CHECKING:
    from dlsys.collectives.choose import best, candidates, crossovers, node_boundary, plan_for
    from dlsys.collectives.draw import draw_crossovers
    from dlsys.collectives.explorer import explore
    from dlsys.collectives.halving import halving_doubling_all_reduce, recursive_doubling_all_reduce
    from dlsys.collectives.hierarchical import hierarchical_all_reduce
    from dlsys.collectives.naive import naive_all_reduce
    from dlsys.collectives.plan import Plan, PlanError, Transfer
    from dlsys.collectives.price import Price
    from dlsys.collectives.ring_plan import (
        pairwise_all_to_all,
        ring_all_gather,
        ring_all_reduce,
        ring_broadcast,
        ring_reduce,
        ring_reduce_scatter,
    )
    from dlsys.collectives.sketch import draw_products, draw_two_levels
    from dlsys.collectives.tree import tree_all_reduce, tree_broadcast

lazy.exports(__name__)
