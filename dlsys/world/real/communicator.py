"""A communicator over torch.distributed: in `launch`'s processes, under torchrun, in any program.

Collectives are torch.distributed's own unless a plan is named; then the plan's messages go point to
point. Where there is no native form (rows that do not divide, types that gloo cannot reduce,
tensors without elements) the library's default plan does the work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dlsys.checks import at_least, text
from dlsys.collectives import Transfer, plan_for
from dlsys.collectives.buffers import as_rows, hold
from dlsys.world.arguments import check_split
from dlsys.world.call import Call, Handle, divided, in_words
from dlsys.world.communicator import TAGS, Communicator
from dlsys.world.errors import line_of
from dlsys.world.in_flight import InFlight
from dlsys.world.matching import Site, changed_too_early
from dlsys.world.memory import as_bytes
from dlsys.world.real import native
from dlsys.world.real.point_to_point import carry_out
from dlsys.world.real.session import Session
from dlsys.world.traffic import CallRecord, Message, Traffic


class TorchCommunicator(Communicator):
    """A rank's communicator over a torch.distributed process group (None: the default group).

    Its `traffic` holds what this rank alone sent and called. That every handle is waited for is
    checked by `launch`, which hears of every call, and by nobody under torchrun. A collective by a
    named plan with `async_op=True` goes on in a thread of its own on gloo; NCCL, whose calls must
    come from one thread, carries it out before the handle is returned. NCCL ignores tags.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        axis: str = "",
        session: Session | None = None,
        name: str = "",
    ) -> None:
        group = group or dist.group.WORLD
        if group is None:
            raise RuntimeError("torch.distributed has no default group yet: initialise it first")
        self.axis, self._name = axis, name
        self._members = dist.get_process_group_ranks(group)
        self.rank, self.size = dist.get_rank(group), len(self._members)
        self._session = session or Session(dist.get_world_size())
        self._session.groups[name] = group
        self._world_rank = self._members[self.rank]
        self._worker: ThreadPoolExecutor | None = None
        self._calls = 0
        self._session.announce("group", name, self._members)

    @property
    def session(self) -> Session:
        """What it shares with the other communicators of this process."""
        return self._session

    @property
    def _group(self) -> dist.ProcessGroup:
        self._session.check_alive()
        return self._session.groups[self._name]

    def __repr__(self) -> str:
        return f"TorchCommunicator(rank={self.rank}, size={self.size}, axis={self.axis!r})"

    @property
    def seconds(self) -> float:
        """Seconds of the wall's clock since the world began."""
        return self._session.seconds

    @property
    def traffic(self) -> Traffic:
        """What this rank has sent and called so far."""
        return self._session.traffic

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Nothing: time is real here, and computing takes what it takes."""
        at_least("The seconds of compute", seconds, 0)
        text("name", name)

    def barrier(self) -> None:
        """Wait until every rank of the group is here."""
        self._collective(Call("barrier", torch.zeros(1, dtype=torch.uint8))).wait()

    def split(self, color: Hashable, key: int | None = None, axis: str = "") -> Communicator | None:
        """See `Communicator.split`; no traffic is recorded for it."""
        check_split(color, key, axis)
        number = self._announce("split", "split")
        requests: list[Any] = [None] * self.size
        with self._session.wait(self._world_rank, number, "split"):
            dist.all_gather_object(requests, (color, key, axis), group=self._group)
        mine: Communicator | None = None
        for place, ranks in enumerate(divided([(color, key) for color, key, _ in requests])):
            if self.rank in ranks:
                mine = self._subgroup(
                    ranks, requests[ranks[0]][2], f"{self._name}/{self._calls}.{place}"
                )
        return mine

    def _subgroup(self, ranks: Sequence[int], axis: str, name: str) -> TorchCommunicator:
        members = [self._members[rank] for rank in ranks]
        in_order: dict[str, Any] = {} if members == sorted(members) else {"sort_ranks": False}
        # Only the members of a new group may be here: the others are in another one's making.
        group = dist.new_group(members, use_local_synchronization=True, **in_order)
        return TorchCommunicator(group, axis, self._session, name)

    # -- point to point --------------------------------------------------------------------------

    def _isend(self, tensor: torch.Tensor, dst: int, tag: int) -> Handle:
        number, text, line = self._announce_message("send to", tensor, dst, tag)
        session, me, other = self._session, self._world_rank, self._members[dst]
        start = session.seconds
        message = Message(me, other, tensor.nbytes, "send", self.axis, start, start)
        record = session.record(session.traffic.messages, message)
        session.in_flight[number] = work = self._group.send([as_bytes(tensor)], dst, tag)
        in_flight = None if session.tell is None else InFlight(tensor)

        def finish() -> None:
            if in_flight is not None and in_flight.is_changed():
                raise changed_too_early(me, f"i{text}", line)
            with session.wait(me, number, text):
                work.wait()
            record(session.seconds)

        return Work(finish)

    def _irecv(self, tensor: torch.Tensor, src: int, tag: int) -> Handle:
        number, text, _ = self._announce_message("recv from", tensor, src, tag)
        session, target = self._session, tensor.detach()
        # What is not contiguous is received beside its place, then copied.
        landing = target if target.is_contiguous() else torch.empty_like(target).contiguous()
        session.in_flight[number] = work = self._group.recv([as_bytes(landing)], src, tag)

        def finish() -> torch.Tensor:
            with session.wait(self._world_rank, number, text):
                work.wait()
            if landing is not target:
                target.copy_(landing)
            return tensor

        return Work(finish)

    def _announce_message(
        self, action: str, tensor: torch.Tensor, peer: int, tag: int
    ) -> tuple[int, str, str]:
        """Tell of a send or a receive; returns its number, the call in words, and its line."""
        _refuse_meta(tensor)
        other, line = self._members[peer], ""
        text = f"{action} rank {other}" + (f" with tag {tag}" if tag else "")
        sends, about = action == "send to", ""
        if self._session.tell is not None:
            line, about = line_of(sys._getframe(3)), in_words(tensor)
        details = self._name, other, tag, sends, about, text, line
        return self._session.announce("message", *details), text, line

    # -- collectives -----------------------------------------------------------------------------

    def _collective(self, call: Call) -> Handle:
        session = self._session
        if call.tensor is not None:
            _refuse_meta(call.tensor)
        text = call.describe()
        number = self._announce(call.signature(), text)
        start = session.seconds
        nbytes = 0 if call.tensor is None else call.tensor.nbytes
        record = session.record(
            session.traffic.calls,
            CallRecord(self._world_rank, call.kind, self.axis, nbytes, start, start),
        )
        if call.kind == "scatter":
            with session.wait(self._world_rank, number, text):
                call = self._described(call)
        if call.plan is None and native.is_native(call, self.size):
            work, result = native.start(call, self._group, self.rank, self.size)
            carry = work.wait
        else:
            carry, result = self._by_plan(call)

        def finish() -> torch.Tensor | None:
            with session.wait(self._world_rank, number, text):
                carry()
            record(session.seconds)
            return result()

        return Work(finish)

    def _described(self, call: Call) -> Call:
        """A scatter as its receivers need it: a template (no memory) of the root's tensor."""
        about: list[Any] = [None]
        if call.tensor is not None:
            about = [(call.tensor.shape, call.tensor.dtype, call.tensor.device.type)]
        dist.broadcast_object_list(about, group=self._group, group_src=call.root)
        if call.tensor is not None:
            return call
        shape, dtype, device = about[0]
        return replace(call, tensor=torch.empty((), dtype=dtype, device=device).expand(shape))

    def _by_plan(self, call: Call) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """What carries out a collective by a plan, and what then gives its result."""
        plan = call.plan or plan_for(call.kind, self.size, root=call.root)
        tensor, length, tag = call.tensor, call.length, TAGS + self._calls % TAGS
        assert tensor is not None
        tensor = tensor.detach()
        if call.kind == "scatter" and self.rank != plan.root:
            rows = as_rows(tensor)
            tensor, length = rows[:0], len(rows)
        buffers = hold(plan, self.rank, tensor, length, call.op)
        start = self.seconds

        def carry() -> None:
            carry_out(plan, self.rank, buffers, call.op, self._group, tag, tensor.is_cuda, record)

        def record(sends: Sequence[Transfer]) -> None:
            nonlocal start
            end = self.seconds
            me, members = self._world_rank, self._members
            self.traffic.messages += [
                Message(me, members[t.dst], buffers.nbytes(t), call.kind, self.axis, start, end)
                for t in sends
            ]
            start = end

        if not call.async_op:
            return carry, buffers.result
        if not tensor.is_cuda:
            self._worker = self._worker or ThreadPoolExecutor(1, "plans")
            return self._worker.submit(carry).result, buffers.result
        carry()
        return lambda: None, buffers.result

    def _announce(self, same: Hashable, text: str) -> int:
        """Tell of the group's next collective call, which all its ranks make alike."""
        self._calls += 1
        site = None
        if self._session.tell is not None:
            site = Site(self._world_rank, same, text, sys._getframe(1))
        return self._session.announce("call", self._name, self._calls - 1, self.rank, site)


class Work:
    """An operation in flight that `finish` waits for; `wait` may be called again."""

    def __init__(self, finish: Callable[[], torch.Tensor | None]) -> None:
        self._finish: Callable[[], torch.Tensor | None] | None = finish
        self._result: torch.Tensor | None = None

    def wait(self) -> torch.Tensor | None:
        """Wait for it and return its result."""
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish()
        return self._result


def _refuse_meta(tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise ValueError(
            "a tensor on the meta device has no data to send; world.simulate takes such tensors"
        )
