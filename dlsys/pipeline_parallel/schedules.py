"""The schedules that run a backward pass in one piece: GPipe, 1F1B, interleaved, breadth-first."""

from __future__ import annotations

from typing import SupportsIndex

from dlsys.pipeline_parallel.plan import Action, Plan, sizes


def gpipe(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """All forward passes, then all backward passes (Huang et al. 2019), with a stage per rank.

    Every rank holds the activations of all m micro-batches at its peak. m=1 is naive model
    parallelism, in which one rank works at a time. Raises ValueError for p or m below 1.
    """
    p, m = sizes(p, m)
    ranks = tuple(
        tuple(Action(kind, rank, k) for kind in "FB" for k in range(m)) for rank in range(p)
    )
    return Plan("GPipe", p, m, ranks)


def one_f_one_b(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """Backward passes as early as they can be (Narayanan et al. 2019), with a stage per rank.

    Rank s runs p-s forward passes, then one backward and one forward in turn, then the backward
    passes left: it holds min(m, p-s) micro-batches. Raises ValueError for p or m below 1.
    """
    p, m = sizes(p, m)
    return Plan("1F1B", p, m, tuple(tuple(_in_turn(rank, p, m)) for rank in range(p)))


def _in_turn(rank: int, p: int, m: int) -> list[Action]:
    ahead = min(m, p - rank)
    order = [Action("F", rank, k) for k in range(ahead)]
    for k in range(m):
        order.append(Action("B", rank, k))
        if k + ahead < m:
            order.append(Action("F", rank, k + ahead))
    return order
