"""The simulated world: every rank in this process, in virtual time, every message on record."""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch

from dlsys.collectives import plan_for
from dlsys.hardware import Cluster, Device, Link
from dlsys.network import Network
from dlsys.units import at_least, count
from dlsys.world.call import Call, Handle
from dlsys.world.communicator import Communicator
from dlsys.world.errors import (
    MismatchError,
    WorldError,
    check_program,
    last_frame,
    line_of,
    rank_error,
)
from dlsys.world.run import Run
from dlsys.world.simulated.compute import Meter, Quiet
from dlsys.world.simulated.letters import Letter, deliver
from dlsys.world.simulated.meetings import Collective, Meeting, Site, Split, signature
from dlsys.world.simulated.scheduler import Pending, Rank, Scheduler
from dlsys.world.timeline import Span, timeline_of
from dlsys.world.traffic import Traffic

current = threading.local()
"""`current.comm` is the communicator of the simulated rank that this thread is."""


def simulate(
    program: Callable[..., Any],
    ranks: int | None = None,
    cluster: Cluster | None = None,
    *,
    link: Link | None = None,
    device: Device | None = None,
    args: Sequence[Any] = (),
    seed: int = 0,
    track_memory: bool = False,
) -> Run:
    """Run `program(comm, *args)` on `ranks` simulated ranks, one at a time, deterministically.

    Virtual time passes as messages cross `cluster` (two levels), or `link` (one link per rank and
    direction), and as torch operations run on the cluster's device, or `device`: each takes
    max(FLOPs / peak, bytes / memory bandwidth). With none of them everything takes 0 s. `ranks`
    defaults to the cluster's size. Rank r's torch generator starts from `seed + r`. Peak memory is
    counted where there is a device, or with `track_memory`.

    Raises RankError (also of the original's type) when a rank raises, DeadlockError when no rank
    can move, MismatchError when ranks call different collectives.
    """
    ranks = _rank_count(ranks, cluster)
    if cluster is not None and link is not None:
        raise ValueError("simulate got both a cluster and a link; give the one that ranks run on")
    check_program("simulate", program, args)
    if device is None and cluster is not None:
        device = cluster.device
    simulation = Simulation(ranks, cluster or link, device, seed, track_memory)
    threads, thresholds = torch.get_num_threads(), gc.get_threshold()
    torch.set_num_threads(1)  # a rank is a device: no rank borrows the others' cores
    # The records of messages are many small objects that stay; looking through them for garbage
    # every 700 new ones takes as long as the run itself.
    gc.set_threshold(max(10_000, thresholds[0]), *thresholds[1:])
    try:
        return simulation.run(program, args)
    finally:
        torch.set_num_threads(threads)
        gc.set_threshold(*thresholds)


def _rank_count(ranks: int | None, cluster: Cluster | None) -> int:
    if ranks is None:
        if cluster is None:
            raise ValueError("simulate got neither ranks nor a cluster; give ranks=4, say")
        return cluster.size
    if isinstance(ranks, Cluster):
        raise ValueError("simulate got a Cluster as its number of ranks: write cluster=...")
    return count("ranks", ranks)


class Simulation:
    """The state that all ranks of one run share."""

    def __init__(
        self,
        ranks: int,
        where: Link | Cluster | None,
        device: Device | None,
        seed: int,
        track_memory: bool,
    ) -> None:
        self.network = Network(ranks, where)
        self.scheduler = Scheduler(ranks, seed)
        self.traffic = Traffic(ranks)
        self.spans: list[Span] = []
        self.quiet, self.hidden = Quiet(), Quiet()
        self.meters = (
            [
                Meter(rank, device, self.spans, self.quiet, self.hidden)
                for rank in self.scheduler.ranks
            ]
            if device is not None or track_memory
            else None
        )

    def run(self, program: Callable[..., Any], args: Sequence[Any]) -> Run:
        """Run the program in every rank and gather what the run gives back."""
        scheduler = self.scheduler
        world = Group(self, range(len(scheduler.ranks)), "")

        def body(rank: Rank) -> Any:
            comm = current.comm = SimulatedCommunicator(world, rank, rank.number)
            if self.meters is None:
                return program(comm, *args)
            with self.meters[rank.number]:
                return program(comm, *args)

        scheduler.run(body)
        if scheduler.failure is not None:
            raise self._error(*scheduler.failure)
        world.check_nothing_left()
        return Run(
            results=[rank.result for rank in scheduler.ranks],
            traffic=self.traffic,
            seconds=max(rank.clock for rank in scheduler.ranks),
            timeline=timeline_of(self.traffic, self.spans),
            peak_memory=None if self.meters is None else [m.peak_bytes for m in self.meters],
        )

    def wait(self, pending: Pending, name: str) -> None:
        """Block the calling rank until `pending` is done, and record how long it waited."""
        self.scheduler.check_alive()
        jump = self.scheduler.wait(pending)
        if jump:
            me = pending.owner
            self.spans.append(Span(me.number, me.clock - jump, me.clock, "wait", name))

    def _error(self, rank: Rank | None, error: BaseException, others: str) -> BaseException:
        if rank is None or isinstance(error, WorldError | KeyboardInterrupt):
            return error
        line = line_of(error.__traceback__ and last_frame(error.__traceback__))
        message = (
            f"rank {rank.number} of {len(self.scheduler.ranks)} raised "
            f"{type(error).__name__} at {line}: {error}\nMeanwhile:\n{others}"
        )
        return rank_error(message, error)


class Group:
    """The ranks of one communicator: their mail, and the collectives that they are in."""

    def __init__(self, simulation: Simulation, members: Sequence[int], axis: str) -> None:
        self.simulation, self.members, self.axis = simulation, members, axis
        self.size = len(members)
        self.mail: dict[tuple[int, int, int], deque[Letter]] = {}
        self.meetings: dict[int, Meeting] = {}
        self.subgroups: list[Group] = []

    def subgroup(self, ranks: Sequence[int], axis: str) -> Group:
        """The group of some of its members, by their ranks here."""
        group = Group(self.simulation, [self.members[rank] for rank in ranks], axis)
        self.subgroups.append(group)
        return group

    def check_nothing_left(self) -> None:
        """Complain about messages and collectives that were started and never met."""
        for letters in self.mail.values():
            for letter in letters:
                raise MismatchError(f"Every rank has finished, but {letter.left_over()}")
        for meeting in self.meetings.values():
            raise MismatchError(f"Every rank has finished, but {meeting.left_over()}")
        for group in self.subgroups:
            group.check_nothing_left()


class SimulatedCommunicator(Communicator):
    """A rank's communicator in the simulated world."""

    def __init__(self, group: Group, me: Rank, rank: int) -> None:
        self.rank, self.size, self.axis = rank, group.size, group.axis
        self._group, self._me, self._simulation = group, me, group.simulation
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
        return self._simulation.traffic

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Advance this rank's clock by `seconds` of computing."""
        self._simulation.scheduler.check_alive()
        at_least("The seconds of compute", seconds, 0)
        start = self._me.clock
        self._me.clock = start + seconds
        self._simulation.spans.append(Span(self._me.number, start, self._me.clock, "compute", name))

    def barrier(self) -> None:
        """Wait until every rank of the group is here: an all-reduce of one byte along a tree."""
        plan = plan_for("all_reduce", self.size, "tree")
        self._collective(Call("barrier", torch.zeros(1, dtype=torch.uint8), plan)).wait()

    def split(self, color: Hashable, key: int | None = None, axis: str = "") -> Communicator | None:
        """See `Communicator.split`; no traffic is recorded for it."""
        split = self._join("split", "split", lambda site: Split(self._group, self._calls, site))
        return split.enter(self, color, key, axis).wait()

    def _isend(self, tensor: torch.Tensor, dst: int, tag: int) -> Handle:
        return self._post(Letter(self, tensor, dst, (self.rank, dst, tag), sends=True))

    def _irecv(self, tensor: torch.Tensor, src: int, tag: int) -> Handle:
        return self._post(Letter(self, tensor, src, (src, self.rank, tag), sends=False))

    def _post(self, mine: Letter) -> Letter:
        self._simulation.scheduler.check_alive()
        mail = self._group.mail
        box = mail.get(mine.key)
        if box is None:
            box = mail[mine.key] = deque()
        if not box or box[0].sends == mine.sends:
            box.append(mine)
        else:
            other = box.popleft()
            send, receive = (mine, other) if mine.sends else (other, mine)
            deliver(self._group, send, receive)
        return mine

    def _collective(self, call: Call) -> Handle:
        if call.plan is None:
            call = replace(call, plan=plan_for(call.kind, self.size, root=call.root))
        collective = self._join(
            signature(call),
            call.describe(),
            lambda site: Collective(self._group, self._calls, site, call),
        )
        return collective.enter(self, call)

    def _join(self, same: Hashable, text: str, create: Callable[[Site], Any]) -> Any:
        """The meeting of the group that this call belongs to: the n-th call of every rank."""
        self._simulation.scheduler.check_alive()
        site = Site(self._me.number, same, text, sys._getframe(3))
        meeting = self._group.meetings.get(self._calls)
        if meeting is None:
            meeting = self._group.meetings[self._calls] = create(site)
        else:
            meeting.check_same(site)
        self._calls += 1
        return meeting
