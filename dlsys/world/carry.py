"""A plan carried out by one process: its rounds as point-to-point messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from dlsys.collectives import Plan, Transfer
from dlsys.collectives.buffers import Buffers
from dlsys.collectives.plan import disturbed
from dlsys.world.native import as_bytes


def carry_out(
    plan: Plan,
    rank: int,
    buffers: Buffers,
    group: dist.ProcessGroup,
    tag: int,
    on_round: Callable[[Sequence[Transfer]], None],
) -> None:
    """Send and receive what `rank` does in `plan`; `on_round(sends)` is called after each round.

    In a round all sends read what was held before a receive of that round is stored. Messages of
    0 bytes are not sent. Their tag is `tag`, so that they never meet those of another collective.
    """
    for step in plan.steps(rank):
        sends = [t for t in step.sends if buffers.nbytes(t)]
        receives = [t for t in step.receives if buffers.nbytes(t)]
        changed = disturbed(sends, receives)
        outgoing = [(t, buffers.outgoing(t)) for t in sends]
        outgoing = [(t, m.clone() if t in changed else m) for t, m in outgoing]
        landing = [(t, buffers.landing(t)) for t in receives]
        exchange = _together if any(m.is_cuda for _, m in outgoing + landing) else _one_by_one
        exchange(group, tag, buffers, outgoing, landing)
        on_round(sends)


Messages = Sequence[tuple[Transfer, torch.Tensor]]


def _one_by_one(
    group: dist.ProcessGroup, tag: int, buffers: Buffers, outgoing: Messages, landing: Messages
) -> None:
    arriving = [(t, m, group.recv([as_bytes(m)], t.src, tag)) for t, m in landing]
    leaving = [group.send([as_bytes(m)], t.dst, tag) for t, m in outgoing]
    for transfer, message, work in arriving:
        work.wait()
        buffers.landed(transfer, message)
    for work in leaving:
        work.wait()


def _together(
    group: dist.ProcessGroup, tag: int, buffers: Buffers, outgoing: Messages, landing: Messages
) -> None:
    """NCCL takes a round's messages at once: one by one, ranks that all send first would hang."""
    operations = [dist.P2POp(dist.irecv, m, group=group, group_peer=t.src) for t, m in landing]
    operations += [dist.P2POp(dist.isend, m, group=group, group_peer=t.dst) for t, m in outgoing]
    if operations:
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    for transfer, message in landing:
        buffers.landed(transfer, message)
