"""Which algorithm for which message: candidates by name, the cheapest, and where they cross."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from dlsys.collectives import halving, hierarchical, naive, ring, tree
from dlsys.collectives.plan import KINDS, ROOTED, Plan, PlanError

FLAT: dict[str, dict[str, Callable[..., Plan]]] = {
    "broadcast": {
        "tree": tree.tree_broadcast,
        "ring": ring.ring_broadcast,
        "naive": naive.naive_broadcast,
    },
    "reduce": {"tree": tree.tree_reduce, "ring": ring.ring_reduce, "naive": naive.naive_reduce},
    "scatter": {"tree": tree.tree_scatter, "naive": naive.naive_scatter},
    "gather": {"tree": tree.tree_gather, "naive": naive.naive_gather},
    "all_gather": {
        "ring": ring.ring_all_gather,
        "bidirectional": ring.bidirectional_all_gather,
        "doubling": halving.doubling_all_gather,
        "naive": naive.naive_all_gather,
    },
    "reduce_scatter": {
        "ring": ring.ring_reduce_scatter,
        "bidirectional": ring.bidirectional_reduce_scatter,
        "halving": halving.halving_reduce_scatter,
        "naive": naive.naive_reduce_scatter,
    },
    "all_reduce": {
        "ring": ring.ring_all_reduce,
        "bidirectional": ring.bidirectional_all_reduce,
        "tree": tree.tree_all_reduce,
        "halving_doubling": halving.halving_doubling_all_reduce,
        "naive": naive.naive_all_reduce,
    },
    "all_to_all": {"pairwise": ring.pairwise_all_to_all, "naive": naive.naive_all_to_all},
}
"""Builders that take a number of ranks (and a root), by kind and algorithm; the default first."""

TWO_LEVEL: dict[str, Callable[[int, int], Plan]] = {
    "all_reduce": hierarchical.hierarchical_all_reduce,
    "reduce_scatter": hierarchical.hierarchical_reduce_scatter,
    "all_gather": hierarchical.hierarchical_all_gather,
    "all_to_all": hierarchical.hierarchical_all_to_all,
}
"""Builders that take nodes and devices per node, by kind."""


def plan_for(kind: str, ranks: int, algorithm: str | None = None, root: int = 0) -> Plan:
    """The plan of a kind by its algorithm's name; the first of `FLAT[kind]` where None.

    Raises PlanError (a ValueError) for a kind or an algorithm that does not exist.
    """
    builders = FLAT.get(kind)
    if builders is None:
        raise PlanError(f"There is no collective {kind!r}; {_nearest(kind, KINDS)}.")
    build = next(iter(builders.values())) if algorithm is None else builders.get(algorithm)
    if build is None:
        if algorithm == "hierarchical" and kind in TWO_LEVEL:
            raise PlanError(
                f"A hierarchical {kind} needs to know the nodes: pass "
                f"plan=hierarchical_{kind}(nodes, devices_per_node) instead of its name."
            )
        raise PlanError(
            f"There is no algorithm {algorithm!r} for {kind}; {_nearest(algorithm, builders)}."
        )
    return build(ranks, root=root) if kind in ROOTED else build(ranks)


def _nearest(name: object, known: object) -> str:
    names = [str(k) for k in known]  # type: ignore[attr-defined]
    near = difflib.get_close_matches(str(name), names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
