"""The schedules that run a backward pass in one piece: GPipe, 1F1B and its kin, breadth-first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import SupportsIndex

from dlsys.checks import count
from dlsys.pipeline_parallel.action import Work, numbered
from dlsys.pipeline_parallel.plan import Plan, planned


def gpipe(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """All forward passes, then all backward passes (Huang et al. 2019), with a stage per rank.

    Every rank holds the activations of all m micro-batches at its peak. m=1 is naive model
    parallelism, in which one rank works at a time. Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    ranks = tuple(numbered([("F", rank)] * m + [("B", rank)] * m) for rank in range(p))
    return Plan("GPipe", p, m, ranks)


def one_f_one_b(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """Backward passes as early as they can be (Narayanan et al. 2019), with a stage per rank.

    Rank s runs p-s forward passes, then one backward and one forward in turn, then the backward
    passes left: it holds min(m, p-s) micro-batches. Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    ranks = tuple(
        numbered(in_turn([("F", rank)] * m, [("B", rank)] * m, ahead=p - rank)) for rank in range(p)
    )
    return Plan("1F1B", p, m, ranks)


def eager_1f1b(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """1F1B that runs further ahead: rank s begins with 2(p-1-s)+1 forward passes, not p-s.

    Its step is that of 1F1B, and holds up to 2p-1 micro-batches on the first rank. While a message
    travels the rank that waits for it has another micro-batch to work on: transfers that take no
    longer than (T_F + T_B)/2 delay a step by 2(p-1) of them, as they delay GPipe (Zhuang et al.
    2022, arXiv 2211.05322, call it eager-1F1B). Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    ranks = tuple(
        numbered(in_turn([("F", rank)] * m, [("B", rank)] * m, ahead=2 * (p - 1 - rank) + 1))
        for rank in range(p)
    )
    return Plan("eager 1F1B", p, m, ranks)


def interleaved(
    p: SupportsIndex, m: SupportsIndex, v: SupportsIndex, per_round: SupportsIndex | None = None
) -> Plan:
    """1F1B with v stages per rank (Narayanan et al. 2021): rank s holds stages s, p+s, 2p+s, ...

    Rounds of micro-batches run through a rank's stages one after another, forward in rising and
    backward in falling order. The bubble shrinks by v, the messages grow by v, and rank s runs
    2(p-1-s) + (v-1)r + 1 forward passes before its first backward one, r being those of the first
    round. v=1 is 1F1B.

    per_round: the micro-batches of a round, from p to m; what is left over, none or at least p, is
    the last one. Those above p hide transfers and are held in addition; r = m has the forward
    passes of breadth-first. Llama 3 sets it (Grattafiori et al. 2024, section 3.3.2), and
    Megatron-LM by --microbatch-group-size-per-virtual-pipeline-stage. None leaves it to m:

    - m is a multiple of p: every round has r = p micro-batches, as in the paper.
    - any other m above p: there are floor(m/p) rounds, as even as can be. Where they are equal this
      is the order of torch's ScheduleInterleaved1F1B, which refuses all else; here the first rounds
      have one micro-batch more (smaller ones first could leave ranks waiting for each other).
    - m below p: one round, in which ranks wait between their stages.

    Raises ValueError for p, m or v below 1, and for rounds that are no p to m.
    """
    p, m, v = planned(p, m, v)
    rounds = _rounds(p, m) if per_round is None else _rounds_of(p, m, per_round)
    if v == 1:
        return one_f_one_b(p, m)
    ranks = []
    for rank in range(p):
        stages = range(rank, v * p, p)
        forward = [("F", stage) for size in rounds for stage in stages for _ in range(size)]
        backward = [("B", s) for size in rounds for s in reversed(stages) for _ in range(size)]
        ahead = 2 * (p - 1 - rank) + (v - 1) * rounds[0] + 1
        ranks.append(numbered(in_turn(forward, backward, ahead)))
    name = f"interleaved 1F1B, {v} stages per rank"
    return Plan(
        name if per_round is None else f"{name}, rounds of {rounds[0]}", v * p, m, tuple(ranks)
    )


def breadth_first(p: SupportsIndex, m: SupportsIndex, v: SupportsIndex) -> Plan:
    """GPipe with v stages per rank (Lamy-Poirier 2022): every micro-batch through a stage, then on.

    Rank s holds stages s, p+s, 2p+s, ...; it uses each stage's weights in one run per pass, so
    sharded weights are gathered once, and holds all v m activations at its peak. The bubble is that
    of interleaved 1F1B for m of at least p; below, ranks wait between their stages.
    Raises ValueError for p, m or v below 1.
    """
    p, m, v = planned(p, m, v)
    ranks = []
    for rank in range(p):
        stages = range(rank, v * p, p)
        forward = [("F", stage) for stage in stages for _ in range(m)]
        backward = [("B", stage) for stage in reversed(stages) for _ in range(m)]
        ranks.append(numbered(forward + backward))
    return Plan(f"breadth-first, {v} stages per rank", v * p, m, tuple(ranks))


def in_turn(forward: Sequence[Work], backward: Sequence[Work], ahead: int) -> list[Work]:
    """`ahead` of the forward passes, then backward and forward in turn until both are used up."""
    pairs = zip_longest(backward, forward[ahead:])
    return [*forward[:ahead], *(work for pair in pairs for work in pair if work)]


def _rounds(p: int, m: int) -> list[int]:
    """The micro-batches of each round: at least p where there are as many, the larger first."""
    number = max(1, m // p)
    return [m // number + (i < m % number) for i in range(number)]


def _rounds_of(p: int, m: int, per_round: SupportsIndex) -> list[int]:
    """Rounds of so many micro-batches, and what is left over.

    A last round of fewer than p could leave ranks waiting for each other; Megatron-LM refuses it.
    """
    size = count("per_round", per_round)
    if not p <= size <= m:
        raise ValueError(
            f"per_round is {size}; a round has at least as many micro-batches as there are ranks "
            f"(p is {p}), and no more than the step (m is {m})."
        )
    if 0 < m % size < p:
        raise ValueError(
            f"{m} micro-batches in rounds of {size} leave {m % size} over; give a per_round that "
            f"leaves none, or at least as many as there are ranks (p is {p})."
        )
    return [min(size, m - start) for start in range(0, m, size)]
