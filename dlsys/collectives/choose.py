"""Which algorithm for which message: candidates by name, the cheapest, and where they cross."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, some, unknown
from dlsys.collectives import halving, hierarchical, naive, ring_plan, tree
from dlsys.collectives.plan import KINDS, ROOTED, Plan, PlanError
from dlsys.hardware import Cluster, Link, dgx_h100

FLAT: dict[str, dict[str, Callable[..., Plan]]] = {
    "broadcast": {
        "tree": tree.tree_broadcast,
        "ring": ring_plan.ring_broadcast,
    },
    "reduce": {
        "tree": tree.tree_reduce,
        "ring": ring_plan.ring_reduce,
    },
    "scatter": {"tree": tree.tree_scatter},
    "gather": {"tree": tree.tree_gather},
    "all_gather": {
        "ring": ring_plan.ring_all_gather,
        "doubling": halving.doubling_all_gather,
    },
    "reduce_scatter": {
        "ring": ring_plan.ring_reduce_scatter,
        "halving": halving.halving_reduce_scatter,
    },
    "all_reduce": {
        "ring": ring_plan.ring_all_reduce,
        "tree": tree.tree_all_reduce,
        "halving_doubling": halving.halving_doubling_all_reduce,
        "recursive_doubling": halving.recursive_doubling_all_reduce,
        "naive": naive.naive_all_reduce,
    },
    "all_to_all": {"pairwise": ring_plan.pairwise_all_to_all},
}
"""Builders that take a number of ranks (and a root), by kind and algorithm; the default first."""

TWO_LEVEL: dict[str, Callable[..., Plan]] = {
    "all_reduce": hierarchical.hierarchical_all_reduce,
    "reduce_scatter": hierarchical.hierarchical_reduce_scatter,
    "all_gather": hierarchical.hierarchical_all_gather,
    "all_to_all": hierarchical.hierarchical_all_to_all,
    "broadcast": hierarchical.hierarchical_broadcast,
    "reduce": hierarchical.hierarchical_reduce,
    "scatter": hierarchical.hierarchical_scatter,
    "gather": hierarchical.hierarchical_gather,
}
"""Builders that take nodes and devices per node (and a root), by kind."""


@checked
def plan_for(kind: str, ranks: int, algorithm: str | None = None, root: int = 0) -> Plan:
    """The plan of a kind by its algorithm's name; the first of `FLAT[kind]` where None.

    Raises PlanError (a ValueError) for a kind or an algorithm that does not exist, ValueError for
    ranks below 1 or a root that is none of them.
    """
    builders = FLAT.get(kind)
    if builders is None:
        raise PlanError(unknown("collective", kind, KINDS))
    build = next(iter(builders.values())) if algorithm is None else builders.get(algorithm)
    if build is None:
        if algorithm == "hierarchical":
            raise PlanError(
                f"A hierarchical {kind} needs to know the nodes: pass "
                f"plan=candidates({kind!r}, cluster)['hierarchical'] instead of its name."
            )
        raise PlanError(unknown(f"{kind} algorithm", algorithm, builders))
    ranks, root = count("ranks", ranks), count("root", root, least=0)
    return build(ranks, root=root) if kind in ROOTED else build(ranks)


FOILS = frozenset({"naive"})
"""Algorithms that the chooser leaves out: the model charges nothing for starting many messages at
once, and would praise the naive one for it."""


@checked
def candidates(
    kind: str, link_or_cluster: Link | Cluster, ranks: int | None = None
) -> dict[str, Plan]:
    """The plans among which to choose, by algorithm; a Link needs the number of `ranks` with it.

    Raises ValueError for an unknown kind, or where the number of ranks is missing or another than
    the cluster's.
    """
    ranks = None if ranks is None else count("ranks", ranks)
    size = link_or_cluster.size if isinstance(link_or_cluster, Cluster) else ranks
    if size is None or (ranks is not None and ranks != size):
        raise ValueError(
            f"{ranks} ranks on {link_or_cluster!r}: a Link needs the number of ranks, a Cluster "
            "has its own."
        )
    plan_for(kind, size)  # an unknown kind is refused here
    plans = {name: plan_for(kind, size, name) for name in FLAT[kind] if name not in FOILS}
    if isinstance(link_or_cluster, Cluster) and link_or_cluster.nodes > 1:
        plans["hierarchical"] = TWO_LEVEL[kind](
            link_or_cluster.nodes, link_or_cluster.devices_per_node
        )
    return plans


@checked
def best(
    kind: str,
    nbytes: float,
    link_or_cluster: Link | Cluster,
    ranks: int | None = None,
    among: Mapping[str, Plan] | None = None,
) -> Plan:
    """The plan of `kind` with the lowest price for a buffer of `nbytes`; the first of equals.

    among: plans by name to choose from, `candidates(kind, link_or_cluster, ranks)` unless given.
    """
    plans = _among(kind, link_or_cluster, ranks, among)
    return plans[_fastest(plans, nbytes, link_or_cluster)]


@checked
def crossovers(
    kind: str,
    link_or_cluster: Link | Cluster,
    ranks: int | None = None,
    among: Mapping[str, Plan] | None = None,
    largest: float = 2.0**40,
) -> list[tuple[float, str]]:
    """From how many bytes on which algorithm is the best: [(1.0, first), (bytes, second), ...].

    Sizes are tried at powers of two from 1 byte to `largest`; each change is then narrowed down
    to a relative width of 0.1 %.
    """
    at_least("largest", largest, 1)
    plans = _among(kind, link_or_cluster, ranks, among)
    below, name = 1.0, _fastest(plans, 1.0, link_or_cluster)
    changes = [(below, name)]
    while below < largest:
        above = 2 * below
        while (other := _fastest(plans, above, link_or_cluster)) != name:
            low, high = below, above
            while high > 1.001 * low:
                middle = (low * high) ** 0.5
                found = _fastest(plans, middle, link_or_cluster)
                low, high, other = (middle, high, other) if found == name else (low, middle, found)
            below, name = high, other
            changes.append((high, name))
        below = above
    return changes


def _among(
    kind: str, where: Link | Cluster, ranks: int | None, among: Mapping[str, Plan] | None
) -> Mapping[str, Plan]:
    if among is None:
        return candidates(kind, where, ranks)
    some("among", among)
    if ranks is None:
        ranks = where.size if isinstance(where, Cluster) else next(iter(among.values())).ranks
    for name, plan in among.items():
        if (plan.kind, plan.ranks) != (kind, ranks):
            of = f"{name!r}, a plan of {plan.kind} among {plan.ranks} ranks"
            raise ValueError(f"among has {of}; it must be one of {kind} among {ranks}.")
    return among


def _fastest(plans: Mapping[str, Plan], nbytes: float, where: Link | Cluster) -> str:
    # Prices that differ by rounding are equal: the first named then wins.
    seconds = {name: plan.price(nbytes, where).seconds for name, plan in plans.items()}
    limit = min(seconds.values()) * (1 + 1e-9)
    return next(name for name, value in seconds.items() if value <= limit)


class Boundary(NamedTuple):
    """An all-reduce on so many nodes: bus bandwidths in bytes/s, latencies in seconds."""

    nodes: int
    predicted_busbw: float
    overlapped_busbw: float
    measured_busbw: tuple[float, float]
    predicted_latency: float
    measured_latency: float


@checked
def node_boundary(nbytes: float = 16e9) -> list[Boundary]:
    """All-reduce on one, two and sixteen nodes of eight H100: predicted, and as measured.

    Measured (The Smol Training Playbook, 2025; nodes of 8 H100 with 400 Gb/s of network for each):
    bus bandwidth 480 GB/s on one node, 479 on two, 320 to 350 on 3 to 16; latency of small messages
    13, 55 and 235 microseconds on one, two and sixteen.

    - predicted_busbw: the best plan of the chooser for `nbytes`, its phases one after the other.
    - overlapped_busbw: the bound if phases inside and between nodes overlapped perfectly, in which
      case only the slower level counts.
    - predicted_latency: the best plan for 8 bytes, from link latencies alone, which are those of
      NCCL's quickest protocol; measured ones grow faster with the nodes, as real hops cost more.

    Across nodes the measured bandwidth lies between the two predictions. Inside, it exceeds
    NVLink's 450 GB/s each way, which no plan can in which only ranks add: there the switches add
    (in-network reduction), each rank sends its buffer once, and busbw, which is algbw times
    2(n-1)/n by definition, is bounded by 787.5 GB/s.

    Raises ValueError for a size that is not above zero.
    """
    positive("nbytes", nbytes)
    measured = {
        1: ((480e9, 480e9), 13e-6),
        2: ((479e9, 479e9), 55e-6),
        16: ((320e9, 350e9), 235e-6),
    }
    sides = []
    for nodes, (busbw, latency) in measured.items():
        cluster = dgx_h100(nodes)
        g, n = cluster.devices_per_node, cluster.size
        predicted = best("all_reduce", nbytes, cluster).price(nbytes, cluster).busbw
        inside = 2 * (g - 1) / g / cluster.intra.bandwidth  # seconds for each byte
        between = 2 * (nodes - 1) / n / cluster.inter.bandwidth
        overlapped = 2 * (n - 1) / n / max(inside, between)
        first = best("all_reduce", 8, cluster).price(8, cluster).seconds
        sides.append(Boundary(nodes, predicted, overlapped, busbw, first, latency))
    return sides
