"""What the ranks of one simulated run share, below all that they do with it."""

from __future__ import annotations

from collections.abc import Sequence

from dlsys.hardware import Cluster, Link
from dlsys.network import Network
from dlsys.world.errors import MismatchError
from dlsys.world.matching import Group
from dlsys.world.simulated.compute import Quiet
from dlsys.world.simulated.rank import Pending
from dlsys.world.simulated.scheduler import Scheduler
from dlsys.world.span import Span
from dlsys.world.traffic import Traffic


class State:
    """The network, the scheduler and the records of one run.

    `quiet` and `hidden` are entered around what the world does itself, so that no rank is charged
    for it (see `Charge`).
    """

    def __init__(self, ranks: int, where: Link | Cluster | None, seed: int) -> None:
        self.network = Network(ranks, where)
        self.scheduler = Scheduler(ranks, seed)
        self.traffic = Traffic(ranks)
        self.spans: list[Span] = []
        self.quiet, self.hidden = Quiet(), Quiet()

    def wait(self, pending: Pending, name: str) -> None:
        """Block the calling rank until `pending` is done, and record how long it waited."""
        self.scheduler.check_alive(pending.owner)
        jump = self.scheduler.wait(pending)
        if jump:
            me = pending.owner
            self.spans.append(Span(me.number, me.clock - jump, me.clock, "wait", name))


class SimulatedGroup(Group):
    """The ranks of one communicator of a run, and the groups that it was split into."""

    def __init__(self, state: State, members: Sequence[int], axis: str) -> None:
        super().__init__(members)
        self.state, self.axis = state, axis
        self.subgroups: list[SimulatedGroup] = []

    def subgroup(self, ranks: Sequence[int], axis: str) -> SimulatedGroup:
        """The group of some of its members, by their ranks here."""
        group = SimulatedGroup(self.state, [self.members[rank] for rank in ranks], axis)
        self.subgroups.append(group)
        return group

    def check_nothing_left(self) -> None:
        """Complain about messages and collectives that were started and never matched."""
        for requests in self.unmatched.values():
            for request in requests:
                raise MismatchError(f"Every rank has finished, but {request.left_over()}")
        for collective in self.collectives.values():
            raise MismatchError(f"Every rank has finished, but {collective.left_over()}")
        for group in self.subgroups:
            group.check_nothing_left()
