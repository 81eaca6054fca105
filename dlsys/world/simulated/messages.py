"""Messages between simulated ranks: a send and a receive that match."""

from __future__ import annotations

from types import FrameType

import torch

from dlsys.world.call import in_words
from dlsys.world.errors import line_at, line_of
from dlsys.world.in_flight import InFlight
from dlsys.world.matching import changed_too_early, never_taken, unlike
from dlsys.world.simulated.rank import Pending, Rank
from dlsys.world.simulated.state import SimulatedGroup
from dlsys.world.traffic import Message


class Request(Pending):
    """A request of `me` to send to, or to receive from, rank `peer` of `group`."""

    __slots__ = ("group", "in_flight", "key", "peer", "posted", "sends", "tensor")

    def __init__(
        self,
        group: SimulatedGroup,
        me: Rank,
        tensor: torch.Tensor,
        peer: int,
        key: tuple[int, int, int],
        sends: bool,
    ) -> None:
        super().__init__(me)
        self.group, self.tensor, self.peer, self.key, self.sends = group, tensor, peer, key, sends
        self.posted = me.clock
        self.in_flight: InFlight | None = None

    def wait(self) -> torch.Tensor | None:
        """Wait until the message has arrived; a receive returns its tensor."""
        if self.in_flight is not None:
            self._check_unchanged(self.in_flight)
        self.group.state.wait(self, "send" if self.sends else "recv")
        return None if self.sends else self.tensor

    def hand_out(self, frame: FrameType) -> None:
        """Give the program, at `frame`, this request as its handle."""
        state = self.group.state
        state.scheduler.hand_out(self, frame)
        if self.sends:
            with state.hidden:
                self.in_flight = InFlight(self.tensor)

    def _check_unchanged(self, in_flight: InFlight) -> None:
        with self.group.state.hidden:
            is_changed = in_flight.is_changed()
        if is_changed:
            raise changed_too_early(self.owner.number, self.call(), line_at(self.begun))
        self.in_flight = None

    def describe(self) -> str:
        """The call as an error message tells it."""
        peer = self.group.members[self.peer]
        tag = f" with tag {self.key[2]}" if self.key[2] else ""
        return f"send to rank {peer}{tag}" if self.sends else f"recv from rank {peer}{tag}"

    def call(self) -> str:
        """The call that gave a handle of it."""
        return f"i{self.describe()}"

    def left_over(self) -> str:
        """What is wrong when nobody ever posted the other side."""
        return never_taken(self.owner.number, self.sends, in_words(self.tensor), self.describe())


def deliver(send: Request, receive: Request) -> None:
    """Carry the message of two requests that match."""
    source, target = send.tensor, receive.tensor
    if source.shape != target.shape or source.dtype != target.dtype:
        raise unlike(_side(send), in_words(source), _side(receive), in_words(target))
    state, time = send.group.state, max(send.posted, receive.posted)
    if source.requires_grad or target.requires_grad:
        source, target = source.detach(), target.detach()
    with state.hidden:
        target.copy_(source)
    if state.network.where is None:
        _deliver_at(time, send, receive)
    else:
        # A link serves in order of virtual time, and a later match may have started earlier.
        state.scheduler.queue.push(time, 0, _deliver_at, send, receive)


def _deliver_at(time: float, send: Request, receive: Request) -> None:
    group, state = send.group, send.group.state
    src, dst, nbytes = send.owner.number, receive.owner.number, send.tensor.nbytes
    start, end = state.network.transfer(src, dst, nbytes, time)
    state.traffic.messages.append(Message(src, dst, nbytes, "send", group.axis, start, end))
    state.scheduler.complete(send, end)
    state.scheduler.complete(receive, end)


def _side(request: Request) -> str:
    return f"rank {request.owner.number} ({line_of(request.owner.frame())})"
