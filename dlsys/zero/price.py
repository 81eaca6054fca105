"""What a step under ZeRO costs: bytes sent, bytes held, and seconds that compute does not hide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from dlsys.annotated import checked
from dlsys.checks import at_least, count
from dlsys.collectives import plan_for
from dlsys.hardware import Cluster, Link
from dlsys.network import Where
from dlsys.streams import Overlap, Streams
from dlsys.zero.plan import (
    BACKWARD,
    FORWARD,
    FREE_GRADIENTS,
    FREE_WEIGHTS,
    GATHER,
    REDUCE,
    WAIT,
    StepPlan,
    check_stage,
)

COLLECTIVES: dict[int, tuple[str, ...]] = {
    0: ("all_reduce",),
    1: ("reduce_scatter", "all_gather"),
    2: ("reduce_scatter", "all_gather"),
    3: ("all_gather", "all_gather", "reduce_scatter"),
}
"""What each stage does with all weights or gradients in a step of one micro-batch."""


@dataclass(frozen=True)
class Price:
    """What a stage's collectives cost in a step: bytes that the busiest rank sends, and the seconds
    of all of them one after the other, with nothing hidden."""

    bytes_per_rank: float
    seconds: float
    collectives: tuple[str, ...]


@checked
def price(stage: int, nbytes: float, n: int, where: Where = None) -> Price:
    """The price of a step of one micro-batch: 2(n-1)/n of `nbytes`, in stage 3 it is 3(n-1)/n.

    - nbytes: of all weights, and as many of gradients, in the format in which they are sent.
    - where: the link or cluster of the n ranks, for seconds; None is free.

    An all-reduce is a reduce-scatter and an all-gather, so to shard the optimizer's state or the
    gradients costs no byte; stage 3 gathers once more, for backward. Seconds are those of
    `collective_seconds`.
    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 7.
    """
    check_stage(stage)
    n = count("n", n, most=10_000)
    kinds = COLLECTIVES[stage]
    return Price(
        sum(plan_for(kind, n).price(nbytes, None).bytes_per_rank for kind in kinds),
        sum(collective_seconds(kind, nbytes, n, where) for kind in kinds),
        kinds,
    )


@checked
def collective_seconds(kind: str, nbytes: float, n: int, where: Where = None) -> float:
    """Seconds of an all-gather, reduce-scatter or all-reduce of `nbytes` among n ranks.

    It goes round one ring, or, where that is quicker on a cluster of several nodes, in two levels:
    every device has a ring with those of its place in the other nodes, for its part of a node's
    bytes, and a ring inside its node for all. Both send (n-1)/n of the bytes; one ring crosses
    nodes by one card, two levels use all that a node has.
    """
    n = count("n", n)
    flat = plan_for(kind, n).price(nbytes, where).seconds
    if not isinstance(where, Cluster) or 1 in (where.nodes, where.devices_per_node):
        return flat
    return min(flat, sum(two_levels(kind, nbytes, where)))


def two_levels(kind: str, nbytes: float, cluster: Cluster) -> tuple[float, float]:
    """Seconds inside nodes and across them of a collective of `nbytes` among all devices."""
    node = cluster.devices_per_node
    # The devices of a node send to others at one time, and share what cards it has.
    share = cluster.inter.bandwidth * cluster.nics / node
    card = Link(cluster.inter.name, cluster.inter.latency, share)
    inside = plan_for(kind, node).price(nbytes, cluster.intra).seconds
    return inside, plan_for(kind, cluster.nodes).price(nbytes / node, card).seconds


@checked
def sent(plan: StepPlan, itemsize: int = 2) -> int:
    """Bytes that the busiest rank sends in a step, whole elements and padding counted.

    A gather or a reduction sends n-1 shards of its unit; stage 0's ring all-reduce does not pad.
    """
    size = count("itemsize", itemsize)
    total = 0
    for action in plan.actions:
        if action.kind == REDUCE and plan.stage == 0:
            total += _all_reduced(plan.units[action.unit].elements, plan.ranks) * size
        elif action.kind in (GATHER, REDUCE):
            total += (plan.ranks - 1) * plan.shard(action.unit) * size
    return total


@lru_cache(maxsize=1024)
def _all_reduced(elements: int, ranks: int) -> int:
    """Elements that the busiest rank of a ring all-reduce sends: in each half all chunks but one,
    which in the second half is the neighbor of that in the first."""
    edges = plan_for("all_reduce", ranks).bounds(elements)
    chunks = [stop - start for start, stop in pairwise(edges)]
    skipped = min(a + b for a, b in zip(chunks, [*chunks[1:], chunks[0]], strict=True))
    return 2 * elements - skipped


@dataclass(frozen=True)
class Held:
    """Bytes that a rank holds: at rest in each bucket, and at most beside them during a step.

    `gathered` is of whole weights in stage 3, `unreduced` of whole gradients in stages 2 and 3; in
    the stages before, whole ones are what is at rest.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    unreduced: int

    @property
    def at_rest(self) -> int:
        """The three buckets."""
        return self.weights + self.gradients + self.optimizer

    @property
    def most(self) -> int:
        """At rest and beside it."""
        return self.at_rest + self.gathered + self.unreduced


@checked
def held(plan: StepPlan, weights: int = 2, gradients: int = 2, optimizer: int = 12) -> Held:
    """Bytes that a rank holds, with so many a parameter in each bucket.

    At rest 16, 4 + 12/n, 2 + 14/n and 16/n a parameter in stages 0 to 3, padding apart. Beside it
    stage 3 has the units that are whole at one time, and stages 2 and 3 the gradients of the unit
    in backward and of the one whose reduction goes on.
    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), figure 1.
    """
    shards = sum(plan.shard(unit) for unit in range(len(plan.units)))
    at_rest = [shards if plan.stage >= first else plan.elements for first in (3, 2, 1)]
    weights, gradients = count("weights", weights, 0), count("gradients", gradients, 0)
    gathered = max(_whole(plan, GATHER, FREE_WEIGHTS)) if plan.stage == 3 else 0
    unreduced = max(_whole(plan, BACKWARD, FREE_GRADIENTS)) if plan.stage >= 2 else 0
    return Held(
        weights=weights * at_rest[0],
        gradients=gradients * at_rest[1],
        optimizer=count("optimizer", optimizer, 0) * at_rest[2],
        gathered=weights * gathered,
        unreduced=gradients * unreduced,
    )


def _whole(plan: StepPlan, begins: str, ends: str) -> Iterator[int]:
    """Elements of the units that are whole, after each action; padding counts with weights."""
    there: dict[int, int] = {}
    yield 0
    for action in plan.actions:
        if action.kind == begins:
            padded = plan.shard(action.unit) * plan.ranks
            there[action.unit] = padded if begins == GATHER else plan.units[action.unit].elements
        elif action.kind == ends:
            there.pop(action.unit, None)
        yield sum(there.values())


@checked
def overlap(
    plan: StepPlan,
    forward: float | Sequence[float],
    backward: float | Sequence[float],
    where: Where,
    itemsize: int = 2,
) -> Overlap:
    """Simulate a step: the device does what the plan says in order, the network as it is told.

    - forward, backward: seconds of one micro-batch, shared by elements, or a number for each unit.
    - where: the link or cluster of the plan's ranks; itemsize: bytes of an element that is sent.

    The network takes one collective at a time, in the order of the plan. A pass waits for its
    weights, a freed gradient for its reduction, and the end for all.
    """
    size = count("itemsize", itemsize)
    length = {
        FORWARD: _shared(plan, "forward", forward),
        BACKWARD: _shared(plan, "backward", backward),
    }
    reduction = "reduce_scatter" if plan.stage else "all_reduce"

    @cache  # those of equal size are priced once
    def seconds(kind: str, elements: int) -> float:
        name = "all_gather" if kind == GATHER else reduction
        return collective_seconds(name, elements * size, plan.ranks, where)

    streams, there = Streams(), dict[tuple[str, int], float]()
    for action in plan.actions:
        kind, unit, _ = action
        if kind in (GATHER, REDUCE):
            whole = plan.units[unit].elements
            carried = plan.shard(unit) * plan.ranks if plan.stage else whole
            there[kind, unit] = streams.carry(action, seconds(kind, carried))
        elif kind in (FORWARD, BACKWARD):
            streams.wait(there.get((GATHER, unit), 0.0))
            streams.compute(action, streams.now + length[kind][unit])
        elif kind == FREE_GRADIENTS:
            streams.wait(there[REDUCE, unit])
        elif kind == WAIT:
            streams.wait(streams.free)
    return streams.overlap()


def _shared(plan: StepPlan, name: str, given: float | Sequence[float]) -> list[float]:
    """Seconds of each unit."""
    each = [*given] if isinstance(given, Sequence) else [given]
    for one in each:
        at_least(name, one, 0)
    if not isinstance(given, Sequence):
        seconds = float(given)  # one of NumPy's narrow kinds would round
        return [seconds * unit.elements / (plan.elements or 1) for unit in plan.units]
    if len(each) != len(plan.units):
        units = f"each of the {len(plan.units)} units"
        raise ValueError(f"{name} has {len(each)} numbers; give one for {units}, or one for all.")
    return each
