"""A plan carried out by one process: its rounds as point-to-point messages."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from dlsys.collectives import Plan, Transfer
from dlsys.collectives.buffers import OPS, Buffers
from dlsys.collectives.plan import disturbed
from dlsys.world.memory import as_bytes

PIECE = 2**20
"""Bytes. A long message that is to be added travels in pieces of this size: one is added while the
next is on its way, and both stay in the cache."""


def carry_out(
    plan: Plan,
    rank: int,
    buffers: Buffers,
    op: str,
    group: dist.ProcessGroup,
    tag: int,
    nccl: bool,
    on_round: Callable[[Sequence[Transfer]], None],
) -> None:
    """Send and receive what `rank` does in `plan`; `on_round(sends)` is called after each round.

    In a round all sends read what was held before a receive of that round is stored. Messages of
    0 bytes are not sent. Their tag is `tag`, so that they never match those of another collective.
    """
    for sent, received in plan.steps(rank):
        sends = [t for t in sent if buffers.nbytes(t)]
        receives = [t for t in received if buffers.nbytes(t)]
        changed = disturbed(sends, receives)
        outgoing = [(t, buffers.outgoing(t)) for t in sends]
        outgoing = [(t, m.clone() if t in changed else m) for t, m in outgoing]
        if nccl:
            _together(group, buffers, outgoing, receives)
        else:
            _one_by_one(group, tag, op, buffers, outgoing, receives)
        on_round(sends)


Messages = Sequence[tuple[Transfer, torch.Tensor]]


def _one_by_one(
    group: dist.ProcessGroup,
    tag: int,
    op: str,
    buffers: Buffers,
    outgoing: Messages,
    receives: Sequence[Transfer],
) -> None:
    from_one, to_one = Counter(t.src for t in receives), Counter(t.dst for t, _ in outgoing)
    arriving: list[_Arrival] = []
    for t in receives:
        if t.reduce:
            pieces = _pieces(buffers.outgoing(t), from_one[t.src])
            arriving.append(_Sum(group, t.src, tag, pieces, op))
        else:
            arriving.append(_Copy(group, t, tag, buffers))
    leaving = [
        group.send([as_bytes(piece)], t.dst, tag)
        for t, message in outgoing
        for piece in (_pieces(message, to_one[t.dst]) if t.reduce else [message])
    ]
    for arrival in arriving:
        arrival.wait()
    for work in leaving:
        work.wait()


def _pieces(message: torch.Tensor, messages: int) -> Sequence[torch.Tensor]:
    """A message as it travels: whole, where several go the same way in one round, since the
    receiver tells them apart by their order alone."""
    if messages > 1:
        return [message]
    return message.reshape(-1).split(max(1, PIECE // message.itemsize))


class _Copy:
    """A message that lands where it stays."""

    def __init__(self, group: dist.ProcessGroup, t: Transfer, tag: int, buffers: Buffers) -> None:
        self._buffers, self._transfer, self._landing = buffers, t, buffers.landing(t)
        self._work = group.recv([as_bytes(self._landing)], t.src, tag)

    def wait(self) -> None:
        self._work.wait()
        self._buffers.landed(self._transfer, self._landing)


class _Sum:
    """A message that is added, piece by piece, to what lies in `pieces`.

    Double buffering: two pieces are on their way, and the next one lands where one was just added.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        src: int,
        tag: int,
        pieces: Sequence[torch.Tensor],
        op: str,
    ) -> None:
        self._group, self._src, self._tag = group, src, tag
        self._pieces, self._op = pieces, op
        self._works: deque[tuple[torch.Tensor, Any]] = deque()
        for piece in pieces[:2]:
            self._expect(torch.empty_like(piece))

    def _expect(self, landing: torch.Tensor) -> None:
        work = self._group.recv([as_bytes(landing)], self._src, self._tag)
        self._works.append((landing, work))

    def wait(self) -> None:
        for index, piece in enumerate(self._pieces):
            landing, work = self._works.popleft()
            work.wait()
            OPS[self._op](piece, landing)
            if index + 2 < len(self._pieces):
                self._expect(landing[: len(self._pieces[index + 2])])


_Arrival = _Copy | _Sum


def _together(
    group: dist.ProcessGroup, buffers: Buffers, outgoing: Messages, receives: Sequence[Transfer]
) -> None:
    """NCCL takes a round's messages at once: one by one, ranks that all send first would hang."""
    landing = [(t, buffers.landing(t)) for t in receives]
    operations = [dist.P2POp(dist.irecv, m, group=group, group_peer=t.src) for t, m in landing]
    operations += [dist.P2POp(dist.isend, m, group=group, group_peer=t.dst) for t, m in outgoing]
    if operations:
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    for transfer, message in landing:
        buffers.landed(transfer, message)
