"""Where simulated ranks meet: the collectives of a group, and its division."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from dlsys.collectives import Transfer
from dlsys.collectives.buffers import Buffers, as_rows, hold
from dlsys.collectives.execution import Execution
from dlsys.collectives.plan import REDUCING, ROOTED, disturbed
from dlsys.world.call import Call, divided
from dlsys.world.errors import MismatchError, place, program_frame
from dlsys.world.simulated.scheduler import Pending, Rank, members_text
from dlsys.world.traffic import CallRecord, Message

if TYPE_CHECKING:
    from dlsys.world.simulated.simulation import Group, SimulatedCommunicator


class Site:
    """One rank's call of a collective: what must agree (`same`), in words, and from which line."""

    __slots__ = ("file", "line", "number", "same", "text")

    def __init__(self, number: int, same: Hashable, text: str, frame: FrameType) -> None:
        self.number, self.same, self.text = number, same, text
        program = program_frame(frame) or frame
        self.file, self.line = program.f_code.co_filename, program.f_lineno

    def __str__(self) -> str:
        return f"rank {self.number} called {self.text} at {place(self.file, self.line)}"


class Meeting:
    """The n-th collective call of a group: every member comes once, with the same call."""

    def __init__(self, group: Group, index: int, site: Site) -> None:
        self.group, self.index, self.site = group, index, site
        self.missing = set(range(group.size))

    def check_same(self, site: Site) -> None:
        """Raise MismatchError unless `site` calls what the first to come called."""
        if site.same != self.site.same:
            raise MismatchError(
                f"Collective number {self.index + 1} differs between ranks: "
                f"{self.site}, but {site}. Every rank of a group calls the same collectives "
                "in the same order, with the same shapes and dtypes"
            )

    def arrive(self, rank: int) -> None:
        """Count `rank` in; the last to come closes the door."""
        self.missing.discard(rank)
        if not self.missing:
            del self.group.meetings[self.index]

    def waits_for(self, rank: int) -> Sequence[int]:
        """The world's numbers of the ranks that `rank` waits for."""
        return [self.group.members[r] for r in sorted(self.missing)]

    def left_over(self) -> str:
        """What is wrong when not everybody came."""
        return f"{self.site} and {members_text(self.waits_for(-1))} never did"


class Share(Pending):
    """One rank's part in a meeting; `wait()` returns its result."""

    __slots__ = ("buffers", "entered", "meeting", "rank", "value")

    def __init__(self, meeting: Meeting, owner: Rank, rank: int) -> None:
        super().__init__(owner)
        self.meeting, self.rank, self.entered = meeting, rank, owner.clock
        self.buffers: Buffers | None = None
        self.value: Any = None

    def wait(self) -> Any:
        """Wait until this rank's part is done and return its result."""
        simulation = self.meeting.group.simulation
        simulation.wait(self, self.meeting.site.text)
        if self.buffers is not None:
            with simulation.quiet:
                self.value = self.buffers.result()
            self.buffers = None
        return self.value

    def describe(self) -> str:
        """The call as an error message tells it."""
        others = self.meeting.waits_for(self.rank)
        text = f"{self.meeting.site.text} (collective number {self.meeting.index + 1})"
        return f"{text} for {members_text(others)}" if others else text


class Collective(Meeting):
    """A collective under way: its plan goes forward message by message in the event queue."""

    def __init__(self, group: Group, index: int, site: Site, call: Call) -> None:
        super().__init__(group, index, site)
        assert call.plan is not None
        self.kind, self.op, self.plan = call.kind, call.op, call.plan
        self.shares: list[Share | None] = [None] * group.size
        self._early: list[Share] = []  # of a scatter, until its root has come
        self._template, self._rows = torch.empty(0), 0
        self._bytes_before: list[int] | None = None
        simulation = group.simulation
        self.execution = Execution(
            call.plan,
            self._sizes,
            simulation.network,
            simulation.scheduler.queue,
            group.members,
            self._on_message,
            self._on_done,
            # Only a plan written by hand may send and receive the same chunk in one round.
            self._on_round if isinstance(call.plan.rounds, tuple) else None,
        )
        self._kept: dict[Transfer, torch.Tensor] = {}

    def enter(self, comm: SimulatedCommunicator, call: Call) -> Share:
        """Let one rank begin its part."""
        share = self.shares[comm.rank] = Share(self, comm._me, comm.rank)
        if call.kind == "scatter" and call.tensor is None and self._bytes_before is None:
            self._early.append(share)  # what it will get is unknown until the root comes
        else:
            with self.group.simulation.quiet:
                self._begin(share, call)
        self.arrive(comm.rank)
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
        with self.group.simulation.hidden:
            for send in disturbed(sends, receives):
                self._kept[send] = self._buffers(rank).outgoing(send).clone()

    def _buffers(self, rank: int) -> Buffers:
        share = self.shares[rank]
        assert share is not None
        assert share.buffers is not None
        return share.buffers

    def _on_message(self, transfer: Transfer, nbytes: float, start: float, end: float) -> None:
        simulation = self.group.simulation
        with simulation.hidden:
            message = self._kept.pop(transfer, None)
            if message is None:
                message = self._buffers(transfer.src).outgoing(transfer)
            self._buffers(transfer.dst).incoming(transfer, message)
        members = self.group.members
        simulation.traffic.messages.append(
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
        simulation = self.group.simulation
        nbytes = self._buffers(rank).passed_bytes
        # Nobody reads its buffers any more: they live as long as the handle, not as this circle of
        # objects, which would keep them until the garbage collector comes by.
        self.shares[rank] = None
        simulation.traffic.calls.append(
            CallRecord(share.owner.number, self.kind, self.group.axis, nbytes, share.entered, time)
        )
        simulation.scheduler.complete(share, time)


class Split(Meeting):
    """A group that divides itself: members with one colour get a communicator of their own."""

    def __init__(self, group: Group, index: int, site: Site) -> None:
        super().__init__(group, index, site)
        self._asked: dict[int, tuple[Share, SimulatedCommunicator, Hashable, int | None, str]] = {}

    def enter(
        self, comm: SimulatedCommunicator, color: Hashable, key: int | None, axis: str
    ) -> Share:
        """Take one rank's wish; the last to come makes the groups."""
        share = Share(self, comm._me, comm.rank)
        self._asked[comm.rank] = (share, comm, color, key, axis)
        self.arrive(comm.rank)
        if not self.missing:
            self._divide()
        return share

    def _divide(self) -> None:
        time = max(share.entered for share, *_ in self._asked.values())
        wishes = [(color, key) for _, (_, _, color, key, _) in sorted(self._asked.items())]
        for ranks in divided(wishes):
            first = self._asked[ranks[0]]
            subgroup = first[1]._group.subgroup(ranks, first[4])
            for number, rank in enumerate(ranks):
                share, comm, *_ = self._asked[rank]
                share.value = type(comm)(subgroup, comm._me, number)
        for share, *_ in self._asked.values():
            self.group.simulation.scheduler.complete(share, time)


def signature(call: Call) -> Hashable:
    """What must be the same in every rank's call of a collective."""
    same: list[Hashable] = [call.kind, call.length]
    if call.kind in REDUCING:
        same.append(call.op)
    if call.kind in ROOTED:
        same.append(call.root)
    if call.plan is not None:
        same += [call.plan.algorithm, call.plan.chunks, len(call.plan.rounds)]
    if call.tensor is not None and call.kind != "scatter":
        rows = call.tensor.shape[1:] if call.length is not None else call.tensor.shape
        same += [call.tensor.dtype, tuple(rows)]
    return tuple(same)
