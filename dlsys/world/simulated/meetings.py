"""Where simulated ranks meet: the collectives of a group, and its division."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch

from dlsys.collectives import Transfer
from dlsys.collectives.buffers import Buffers, as_rows, hold
from dlsys.collectives.execution import Execution
from dlsys.collectives.plan import disturbed
from dlsys.world.agreement import Meeting, Site
from dlsys.world.call import Call, divided
from dlsys.world.errors import members_text
from dlsys.world.simulated.rank import Pending, Rank
from dlsys.world.simulated.state import SimulatedGroup
from dlsys.world.traffic import CallRecord, Message


class Share(Pending):
    """One rank's part in a meeting; `wait()` returns its result."""

    __slots__ = ("buffers", "entered", "meeting", "rank", "value")

    def __init__(self, meeting: Collective | Split, owner: Rank, rank: int) -> None:
        super().__init__(owner)
        self.meeting, self.rank, self.entered = meeting, rank, owner.clock
        self.buffers: Buffers | None = None
        self.value: Any = None

    def wait(self) -> Any:
        """Wait until this rank's part is done and return its result."""
        state = self.meeting.group.state
        state.wait(self, self.meeting.site.text)
        if self.buffers is not None:
            with state.quiet:
                self.value = self.buffers.result()
            self.buffers = None
        return self.value

    def call(self) -> str:
        """The call that gave a handle of it."""
        return self.meeting.site.text

    def describe(self) -> str:
        """The call as an error message tells it."""
        others = self.meeting.waits_for(self.rank)
        text = f"{self.meeting.site.text} (collective number {self.meeting.index + 1})"
        return f"{text} for {members_text(others)}" if others else text


class Collective(Meeting):
    """A collective under way: its plan goes forward message by message in the event queue."""

    group: SimulatedGroup

    def __init__(self, group: SimulatedGroup, index: int, site: Site, call: Call) -> None:
        super().__init__(group, index, site)
        assert call.plan is not None
        self.kind, self.op, self.plan = call.kind, call.op, call.plan
        self.shares: list[Share | None] = [None] * group.size
        self._early: list[Share] = []  # of a scatter, until its root has come
        self._template, self._rows = torch.empty(0), 0
        self._bytes_before: list[int] | None = None
        state = group.state
        self.execution = Execution(
            call.plan,
            self._sizes,
            state.network,
            state.scheduler.queue,
            group.members,
            self._on_message,
            self._on_done,
            self._on_round if call.plan.swaps else None,
        )
        self._kept: dict[Transfer, torch.Tensor] = {}

    def enter(self, me: Rank, rank: int, call: Call) -> Share:
        """Let one rank, `rank` of the group, begin its part."""
        share = self.shares[rank] = Share(self, me, rank)
        if call.kind == "scatter" and call.tensor is None and self._bytes_before is None:
            self._early.append(share)  # what it will get is unknown until the root comes
        else:
            with self.group.state.quiet:
                self._begin(share, call)
        self.arrive(rank)
        return share

    def waits_for(self, rank: int) -> Sequence[int]:
        """The world's numbers of the ranks that `rank` waits for."""
        if self.missing:
            return super().waits_for(rank)
        return [self.group.members[r] for r in self.execution.waits_for(rank)]

    def _begin(self, share: Share, call: Call) -> None:
        tensor, length = call.tensor, call.length
        if tensor is None:
            tensor, length = self._template, self._rows
        share.buffers = hold(self.plan, share.rank, tensor.detach(), length, self.op)
        if self._bytes_before is None:
            unit = share.buffers.unit_bytes
            self._bytes_before = [unit * edge for edge in share.buffers.edges]
            if call.kind == "scatter":
                rows = as_rows(tensor)
                self._template, self._rows = rows[:0].clone(), rows.shape[0]
                while self._early:
                    self._begin(self._early.pop(0), Call("scatter", None))
        self.execution.enter(share.rank, share.entered)

    def _sizes(self, first: int, stop: int) -> int:
        assert self._bytes_before is not None
        return self._bytes_before[stop] - self._bytes_before[first]

    def _on_round(self, rank: int, transfers: Sequence[Transfer]) -> None:
        """Keep what is sent of a chunk that is also received: sends come before receives."""
        sends = [t for t in transfers if t.src == rank]
        receives = [t for t in transfers if t.dst == rank]
        with self.group.state.hidden:
            for send in disturbed(sends, receives):
                self._kept[send] = self._buffers(rank).outgoing(send).clone()

    def _buffers(self, rank: int) -> Buffers:
        share = self.shares[rank]
        assert share is not None
        assert share.buffers is not None
        return share.buffers

    def _on_message(self, transfer: Transfer, nbytes: float, start: float, end: float) -> None:
        state = self.group.state
        with state.hidden:
            message = self._kept.pop(transfer, None)
            if message is None:
                message = self._buffers(transfer.src).outgoing(transfer)
            self._buffers(transfer.dst).incoming(transfer, message)
        members = self.group.members
        state.traffic.messages.append(
            Message(
                members[transfer.src],
                members[transfer.dst],
                int(nbytes),
                self.kind,
                self.group.axis,
                start,
                end,
            )
        )

    def _on_done(self, rank: int, time: float) -> None:
        share = self.shares[rank]
        assert share is not None
        state = self.group.state
        nbytes = self._buffers(rank).passed_bytes
        # Nobody reads its buffers any more: they live as long as the handle, not as this circle of
        # objects, which would keep them until the garbage collector comes by.
        self.shares[rank] = None
        state.traffic.calls.append(
            CallRecord(share.owner.number, self.kind, self.group.axis, nbytes, share.entered, time)
        )
        state.scheduler.complete(share, time)


class Part(NamedTuple):
    """What a split gives one of its ranks: the group that it is in now, and its rank there."""

    group: SimulatedGroup
    rank: int


class _Wish(NamedTuple):
    """One rank's call of a split."""

    share: Share
    color: Hashable
    key: int | None
    axis: str


class Split(Meeting):
    """A group that divides itself: members with one colour get a group of their own.

    `wait()` of a share returns its rank's Part, None where its colour is None.
    """

    group: SimulatedGroup

    def __init__(self, group: SimulatedGroup, index: int, site: Site) -> None:
        super().__init__(group, index, site)
        self._wishes: dict[int, _Wish] = {}

    def enter(self, me: Rank, rank: int, color: Hashable, key: int | None, axis: str) -> Share:
        """Take one rank's wish; the last to come makes the groups."""
        share = Share(self, me, rank)
        self._wishes[rank] = _Wish(share, color, key, axis)
        self.arrive(rank)
        if not self.missing:
            self._divide()
        return share

    def _divide(self) -> None:
        wishes = [wish for _, wish in sorted(self._wishes.items())]
        for ranks in divided([(wish.color, wish.key) for wish in wishes]):
            subgroup = self.group.subgroup(ranks, wishes[ranks[0]].axis)
            for number, rank in enumerate(ranks):
                wishes[rank].share.value = Part(subgroup, number)
        time = max(wish.share.entered for wish in wishes)
        for wish in self._wishes.values():  # in the order of coming, which is that of going on
            self.group.state.scheduler.complete(wish.share, time)
