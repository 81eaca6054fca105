"""DualPipe, folded into a V: a forward and a backward pass in pairs hide each other's messages."""

from __future__ import annotations

from typing import SupportsIndex

from dlsys.pipeline_parallel.action import Action, Work, numbered
from dlsys.pipeline_parallel.plan import Plan, planned


def dual_pipe_v(p: SupportsIndex, m: SupportsIndex) -> Plan:
    """DualPipe in the V of `zero_bubble_v`: rank s holds stages s and 2p-1-s.

    DeepSeek-V3 (DeepSeek-AI 2024, section 3.2) feeds micro-batches into both ends of a pipeline,
    for which two ranks hold each stage; cut in half and folded it needs every stage only once, and
    this is torch's ScheduleDualPipeV. In the steady state every forward pass stands beside a whole
    backward pass of another micro-batch, and the arithmetic of each hides the other's all-to-all.
    `price` runs the two one after the other, and knows of no all-to-all. A pair that begins only
    when both of its passes can makes the bubble twice as long, and with T_F = T_B = T_W it is the
    published one, (p-1)(F&B + B - 3W) for chunks of half a share, B in full (DualPipe's README).
    W stands apart from its B only where the step fills and drains.

    With T_F = T_B = T_W and m of at least 2p-1 a step takes as long as that of `zero_bubble_v`,
    with up to 2p+1 half shares held instead of 2p. Raises ValueError for p or m below 1.
    """
    p, m, _ = planned(p, m, 2)
    # The V begins as if there were 2p micro-batches: what is beyond m is left out.
    ranks = tuple(
        tuple(action for action in _folded(rank, p, m) if action.micro_batch < m)
        for rank in range(p)
    )
    return Plan("DualPipe V", 2 * p, m, ranks)


def _folded(rank: int, p: int, m: int) -> tuple[Action, ...]:
    """Down the V as stage `rank` (0), and up again as stage 2p-1-rank (1).

    - fill: run ahead on the way down, then both ways, then serve the way up while it begins;
    - steady: pairs of a forward pass one way and a backward pass the other;
    - drain: the later half of the last backward passes put their W off until they would wait.
    """
    (f0, b0, w0), (f1, b1, w1) = (
        [(kind, stage) for kind in "FBW"] for stage in (rank, 2 * p - 1 - rank)
    )
    below = p - 1 - rank  # ranks further down the V
    fill = [f0] * (2 * below) + [f0, f1] * (rank + 1) + [b1, w1, f1] * below
    pair0, pair1 = [f0, b1, w1], [f1, b0, w0]
    steady = (pair0 + pair1) * (m - 2 * p + rank + 1) + [b1, w1, *pair1] * below
    drain, put_off = _drain(rank, (b1, w1), (b0, w0))
    for _ in range(below):
        drain += [put_off.pop(0), b0]
        put_off.append(w0)
    return numbered(fill + steady + drain + put_off)


def _drain(
    rank: int, up: tuple[Work, Work], down: tuple[Work, Work]
) -> tuple[list[Work], list[Work]]:
    """The last rank + 1 backward passes each way in turn; of the later half W is put off."""
    drain: list[Work] = []
    put_off: list[Work] = []
    for i, (b, w) in enumerate([up, down] * (rank + 1)):
        drain.append(b)
        (drain if i <= rank else put_off).append(w)
    return drain, put_off
