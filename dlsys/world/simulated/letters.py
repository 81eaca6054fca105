"""Messages between simulated ranks: two sides that meet."""

from __future__ import annotations

from types import FrameType

import torch

from dlsys.world.agreement import changed_too_early, never_taken, unlike
from dlsys.world.call import in_words
from dlsys.world.errors import line_at, line_of
from dlsys.world.lent import Lent
from dlsys.world.simulated.rank import Pending, Rank
from dlsys.world.simulated.state import SimulatedGroup
from dlsys.world.traffic import Message


class Letter(Pending):
    """One side of a message in `group`: what `me` sends to, or receives from, rank `peer` of it."""

    __slots__ = ("group", "key", "lent", "peer", "posted", "sends", "tensor")

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
        self.lent: Lent | None = None

    def wait(self) -> torch.Tensor | None:
        """Wait until the message has arrived; a receive returns its tensor."""
        if self.lent is not None:
            self._take_back(self.lent)
        self.group.state.wait(self, "send" if self.sends else "recv")
        return None if self.sends else self.tensor

    def hand_out(self, frame: FrameType) -> None:
        """Give the program, at `frame`, a handle of this letter."""
        state = self.group.state
        state.scheduler.hand_out(self, frame)
        if self.sends:
            with state.hidden:
                self.lent = Lent(self.tensor)

    def _take_back(self, lent: Lent) -> None:
        with self.group.state.hidden:
            is_changed = lent.is_changed()
        if is_changed:
            raise changed_too_early(self.owner.number, self.call(), line_at(self.begun))
        self.lent = None

    def describe(self) -> str:
        """The call as an error message tells it."""
        peer = self.group.members[self.peer]
        tag = f" with tag {self.key[2]}" if self.key[2] else ""
        return f"send to rank {peer}{tag}" if self.sends else f"recv from rank {peer}{tag}"

    def call(self) -> str:
        """The call that gave a handle of it."""
        return f"i{self.describe()}"

    def left_over(self) -> str:
        """What is wrong when nobody ever took the other side."""
        return never_taken(self.owner.number, self.sends, in_words(self.tensor), self.describe())


def deliver(send: Letter, receive: Letter) -> None:
    """Carry the message of two sides that have met."""
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
        # A link serves in order of virtual time, and who meets later may have started earlier.
        state.scheduler.queue.push(time, 0, _deliver_at, send, receive)


def _deliver_at(time: float, send: Letter, receive: Letter) -> None:
    group, state = send.group, send.group.state
    src, dst, nbytes = send.owner.number, receive.owner.number, send.tensor.nbytes
    start, end = state.network.transfer(src, dst, nbytes, time)
    state.traffic.messages.append(Message(src, dst, nbytes, "send", group.axis, start, end))
    state.scheduler.complete(send, end)
    state.scheduler.complete(receive, end)


def _side(letter: Letter) -> str:
    return f"rank {letter.owner.number} ({line_of(letter.owner.frame())})"
