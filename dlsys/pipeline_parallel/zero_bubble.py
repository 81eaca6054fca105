"""The schedules that split the backward pass: weight gradients fill what would be idle.

Only the part of a backward pass for the inputs (B) is waited for by another rank; the part for
the weights (W) can run whenever a rank has nothing better to do (Qi et al. 2023, arXiv 2401.10241).
"""

from __future__ import annotations

from typing import SupportsIndex

from dlsys.pipeline_parallel.action import Action, Work, numbered
from dlsys.pipeline_parallel.plan import Plan, planned


def zero_bubble(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """ZB-H1: 1F1B in which rank s runs a W only after s more B (Qi et al. 2023, section 2.3).

    For m of at least p a rank idles (p-1)(T_F + T_B - min(T_W, T_F)) seconds, where 1F1B has it
    idle (p-1)(T_F + T_B + T_W), and holds p micro-batches, as 1F1B's first rank does.
    Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    ranks = [_h_shaped(s, m, ahead=p - s, lag=s) for s in range(p)]
    return Plan("zero bubble H1", p, m, tuple(ranks))


def zero_bubble_h2(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """ZB-H2: rank s starts with 2(p-s)-1 forward passes, and runs a W only after 2s more B.

    What H1 leaves idle before a rank's first backward pass is filled with forward passes, in up to
    twice the memory: every rank holds 2p-1 micro-batches. With m of at least 2p-1, a rank idles
    (p-1)(T_F + T_B + 2 T_comm - 2 T_W) seconds between its first action and its last where that is
    not negative; with T_F = T_B = T_W and free transfers none does (Qi et al. 2023, section 2.2).
    Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    ranks = [_h_shaped(s, m, ahead=2 * (p - s) - 1, lag=2 * s) for s in range(p)]
    return Plan("zero bubble H2", p, m, tuple(ranks))


def _h_shaped(stage: int, m: int, ahead: int, lag: int) -> tuple[Action, ...]:
    """`ahead` forward passes, then B, W and F in turn, with each W for the B of `lag` turns ago."""
    ahead, lag = min(m, ahead), min(m, lag)
    script: list[Work] = [("F", stage)] * ahead
    for k in range(m):
        script.append(("B", stage))
        script += [("W", stage)] * (k >= lag)
        script += [("F", stage)] * (k + ahead < m)
    return numbered(script + [("W", stage)] * lag)


def zero_bubble_v(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """ZB-V: two stages per rank, down one side of a V and up the other (Qi et al. 2023, section 6).

    Rank s holds stages s and 2p-1-s, so the last rank turns a micro-batch round and the first one
    starts its backward pass. With T_F = T_B = T_W and m of at least 2p-1 no rank idles between its
    first action and its last, while none holds more than 2p half shares: the memory of 1F1B.
    Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m)
    # With fewer micro-batches than fill the V, those beyond m are left out.
    _, full, _ = planned(p, max(m, 2 * p - 1), 2)
    ranks = tuple(
        tuple(action for action in _v_shaped(rank, p, full) if action.micro_batch < m)
        for rank in range(p)
    )
    return Plan("zero bubble V", 2 * p, m, ranks)


def _v_shaped(rank: int, p: int, m: int) -> tuple[Action, ...]:
    """Down the V as stage `rank` (f1, b1, w1), and up again as stage 2p-1-rank (f2, b2, w2).

    - fill: run ahead on the way down, then serve the way up, until a gradient has gone round the V;
    - steady: both passes of one micro-batch on the way down, and of one on the way up;
    - drain: W, for which nobody waits, makes way for every B that another rank waits for.
    """
    (f1, b1, w1), (f2, b2, w2) = (
        [(kind, stage) for kind in "FBW"] for stage in (rank, 2 * p - 1 - rank)
    )
    below = p - 1 - rank  # ranks further down the V
    fill = [f1] * (2 * below + 1) + [f2, f1] * rank + [f2, b2, w2] * (below + 1)
    steady = [f1, b1, w1, f2, b2, w2] * (m - p - below) + [b1, w1, f2, b2, w2] * below
    drain = [b1, b2] * rank + [b1, w1] * (below + 1) + [w2] * rank + [w1] * rank
    return numbered(fill + steady + drain)
