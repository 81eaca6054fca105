"""The collectives of a group of simulated ranks, and its split."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch

from dlsys.collectives import Transfer
from dlsys.collectives.buffers import Buffers, as_rows, hold
from dlsys.collectives.execution import Execution
from dlsys.collectives.plan import disturbed
from dlsys.world.call import Call, divided
from dlsys.world.errors import members_text
from dlsys.world.matching import Collective, Site
from dlsys.world.simulated.rank import Pending, Rank
from dlsys.world.simulated.state import SimulatedGroup
from dlsys.world.traffic import CallRecord, Message


class Work(Pending):
    """One rank's part in a collective, the handle of it; `wait()` returns its result."""

    __slots__ = ("buffers", "collective", "entered", "rank", "value")

    def __init__(self, collective: PlannedCollective | Split, owner: Rank, rank: int) -> None:
        super().__init__(owner)
        self.collective, self.rank, self.entered = collective, rank, owner.clock
        self.buffers: Buffers | None = None
        self.value: Any = None

    def wait(self) -> Any:
        """Wait until this rank's part is done and return its result."""
        state = self.collective.group.state
        state.wait(self, self.collective.site.text)
        if self.buffers is not None:
            with state.quiet:
                self.value = self.buffers.result()
            self.buffers = None
        return self.value

    def call(self) -> str:
        """The call that gave a handle of it."""
        return self.collective.site.text

    def describe(self) -> str:
        """The call as an error message tells it."""
        others = self.collective.waits_for(self.rank)
        text = f"{self.collective.site.text} (collective number {self.collective.index + 1})"
        return f"{text} for {members_text(others)}" if others else text


class PlannedCollective(Collective):
    """A collective in flight: its plan goes forward message by message in the event queue."""

    group: SimulatedGroup

    def __init__(self, group: SimulatedGroup, index: int, site: Site, call: Call) -> None:
        super().__init__(group, index, site)
        assert call.plan is not None
        self.kind, self.op, self.plan = call.kind, call.op, call.plan
        self.works: list[Work | None] = [None] * group.size
        self._early: list[Work] = []  # of a scatter, until its root has come
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

    def enter(self, me: Rank, rank: int, call: Call) -> Work:
        """Let one rank, `rank` of the group, begin its part."""
        work = self.works[rank] = Work(self, me, rank)
        if call.kind == "scatter" and call.tensor is None and self._bytes_before is None:
            self._early.append(work)  # what it will get is unknown until the root comes
        else:
            with self.group.state.quiet:
                self._begin(work, call)
        self.arrive(rank)
        return work

    def waits_for(self, rank: int) -> Sequence[int]:
        """The world's numbers of the ranks that `rank` waits for."""
        if self.missing:
            return super().waits_for(rank)
        return [self.group.members[r] for r in self.execution.waits_for(rank)]

    def _begin(self, work: Work, call: Call) -> None:
        tensor, length = call.tensor, call.length
        if tensor is None:
            tensor, length = self._template, self._rows
        work.buffers = hold(self.plan, work.rank, tensor.detach(), length, self.op)
        if self._bytes_before is None:
            unit = work.buffers.unit_bytes
            self._bytes_before = [unit * edge for edge in work.buffers.edges]
            if call.kind == "scatter":
                rows = as_rows(tensor)
                self._template, self._rows = rows[:0].clone(), rows.shape[0]
                while self._early:
                    self._begin(self._early.pop(0), Call("scatter", None))
        self.execution.enter(work.rank, work.entered)

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
        work = self.works[rank]
        assert work is not None
        assert work.buffers is not None
        return work.buffers

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
        work = self.works[rank]
        assert work is not None
        state = self.group.state
        nbytes = self._buffers(rank).passed_bytes
        # Nobody reads its buffers any more: they live as long as the handle, not as this circle of
        # objects, which would keep them until the garbage collector comes by.
        self.works[rank] = None
        state.traffic.calls.append(
            CallRecord(work.owner.number, self.kind, self.group.axis, nbytes, work.entered, time)
        )
        state.scheduler.complete(work, time)


class Part(NamedTuple):
    """What a split gives one of its ranks: the group that it is in now, and its rank there."""

    group: SimulatedGroup
    rank: int


class _SplitRequest(NamedTuple):
    """What one rank asks of a split."""

    work: Work
    color: Hashable
    key: int | None
    axis: str


class Split(Collective):
    """A group that divides itself: members with one colour get a group of their own.

    `wait()` of a work returns its rank's Part, None where its colour is None.
    """

    group: SimulatedGroup

    def __init__(self, group: SimulatedGroup, index: int, site: Site) -> None:
        super().__init__(group, index, site)
        self._requests: dict[int, _SplitRequest] = {}

    def enter(self, me: Rank, rank: int, color: Hashable, key: int | None, axis: str) -> Work:
        """Take one rank's request; the last one makes the groups."""
        work = Work(self, me, rank)
        self._requests[rank] = _SplitRequest(work, color, key, axis)
        self.arrive(rank)
        if not self.missing:
            self._divide()
        return work

    def _divide(self) -> None:
        requests = [request for _, request in sorted(self._requests.items())]
        for ranks in divided([(request.color, request.key) for request in requests]):
            subgroup = self.group.subgroup(ranks, requests[ranks[0]].axis)
            for number, rank in enumerate(ranks):
                requests[rank].work.value = Part(subgroup, number)
        time = max(request.work.entered for request in requests)
        for request in self._requests.values():  # in the order of coming, which is that of going on
            self.group.state.scheduler.complete(request.work, time)
