"""A simulated rank's communicator: its messages and collectives match those of the other ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from dlsys.checks import at_least, text
from dlsys.collectives import plan_for
from dlsys.world.arguments import check_split
from dlsys.world.call import Call, Handle
from dlsys.world.communicator import Communicator
from dlsys.world.matching import Collective, Site
from dlsys.world.simulated.collectives import PlannedCollective, Split
from dlsys.world.simulated.messages import Request, deliver
from dlsys.world.simulated.rank import Rank
from dlsys.world.simulated.state import SimulatedGroup
from dlsys.world.span import Span
from dlsys.world.traffic import Traffic

M = TypeVar("M", bound=Collective)


class SimulatedCommunicator(Communicator):
    """A rank's communicator in the simulated world."""

    def __init__(self, group: SimulatedGroup, me: Rank, rank: int) -> None:
        self.rank, self.size, self.axis = rank, group.size, group.axis
        self._group, self._me, self._state = group, me, group.state
        self._calls = 0

    def __repr__(self) -> str:
        return f"SimulatedCommunicator(rank={self.rank}, size={self.size}, axis={self.axis!r})"

    @property
    def seconds(self) -> float:
        """This rank's virtual clock."""
        return self._me.clock

    @property
    def traffic(self) -> Traffic:
        """What the whole run has sent so far."""
        return self._state.traffic

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Advance this rank's clock by `seconds` of computing."""
        self._state.scheduler.check_alive(self._me)
        at_least("The seconds of compute", seconds, 0)
        text("name", name)
        start = self._me.clock
        self._me.clock = start + float(seconds)
        self._state.spans.append(Span(self._me.number, start, self._me.clock, "compute", name))

    def barrier(self) -> None:
        """Wait until every rank of the group is here: an all-reduce of one byte along a tree."""
        plan = plan_for("all_reduce", self.size, "tree")
        self._collective(Call("barrier", torch.zeros(1, dtype=torch.uint8), plan)).wait()

    def split(self, color: Hashable, key: int | None = None, axis: str = "") -> Communicator | None:
        """See `Communicator.split`; no traffic is recorded for it."""
        check_split(color, key, axis)
        group = self._group
        split = self._join("split", "split", lambda n, site: Split(group, n, site))
        part = split.enter(self._me, self.rank, color, key, axis).wait()
        return None if part is None else SimulatedCommunicator(part.group, self._me, part.rank)

    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> Request:
        """See `Communicator.isend`."""
        return self._handed_out(super().isend(tensor, dst, tag))

    def irecv(self, tensor: torch.Tensor, src: int, tag: int = 0) -> Request:
        """See `Communicator.irecv`."""
        return self._handed_out(super().irecv(tensor, src, tag))

    @staticmethod
    def _handed_out(request: Any) -> Request:
        request.hand_out(sys._getframe(2))
        return request

    def _isend(self, tensor: torch.Tensor, dst: int, tag: int) -> Handle:
        key = (self.rank, dst, tag)
        return self._post(Request(self._group, self._me, tensor, dst, key, sends=True))

    def _irecv(self, tensor: torch.Tensor, src: int, tag: int) -> Handle:
        key = (src, self.rank, tag)
        return self._post(Request(self._group, self._me, tensor, src, key, sends=False))

    def _post(self, mine: Request) -> Request:
        self._state.scheduler.check_alive(self._me)
        other = self._group.post(mine)
        if other is not None:
            deliver(*((mine, other) if mine.sends else (other, mine)))
        return mine

    def _collective(self, call: Call) -> Handle:
        if call.plan is None:
            call = replace(call, plan=plan_for(call.kind, self.size, root=call.root))
        group = self._group
        collective = self._join(
            call.signature(),
            call.describe(),
            lambda n, site: PlannedCollective(group, n, site, call),
        )
        work = collective.enter(self._me, self.rank, call)
        if call.async_op:
            self._state.scheduler.hand_out(work, sys._getframe(3))
        return work

    def _join(self, same: Hashable, text: str, new: Callable[[int, Site], M]) -> M:
        """The collective of the group that this call belongs to: the n-th call of every rank."""
        self._state.scheduler.check_alive(self._me)
        number, site = self._calls, Site(self._me.number, same, text, sys._getframe(3))
        collective = self._group.join(number, site, lambda: new(number, site))
        self._calls += 1
        return collective
