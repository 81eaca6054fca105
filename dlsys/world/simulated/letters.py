"""Messages between simulated ranks: two sides that meet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from dlsys.world.call import in_words
from dlsys.world.errors import MismatchError, line_of
from dlsys.world.simulated.scheduler import Pending
from dlsys.world.traffic import Message

if TYPE_CHECKING:
    from dlsys.world.simulated.simulation import Group, SimulatedCommunicator


class Letter(Pending):
    """One side of a message: what `comm` sends to, or receives from, `peer`."""

    __slots__ = ("comm", "key", "peer", "posted", "sends", "tensor")

    def __init__(
        self,
        comm: SimulatedCommunicator,
        tensor: torch.Tensor,
        peer: int,
        key: tuple[int, int, int],
        sends: bool,
    ) -> None:
        super().__init__(comm._me)
        self.comm, self.tensor, self.peer, self.key, self.sends = comm, tensor, peer, key, sends
        self.posted = comm._me.clock

    def wait(self) -> torch.Tensor | None:
        """Wait until the message has arrived; a receive returns its tensor."""
        self.comm._simulation.wait(self, "send" if self.sends else "recv")
        return None if self.sends else self.tensor

    def describe(self) -> str:
        """The call as an error message tells it."""
        peer = self.comm._group.members[self.peer]
        tag = f" with tag {self.key[2]}" if self.key[2] else ""
        return f"send to rank {peer}{tag}" if self.sends else f"recv from rank {peer}{tag}"

    def left_over(self) -> str:
        """What is wrong when nobody ever took the other side."""
        do, other = ("sends", "receives") if self.sends else ("receives", "sends")
        return (
            f"rank {self.owner.number} {do} {in_words(self.tensor)} "
            f"({self.describe()}) and the other side never {other} it"
        )


def deliver(group: Group, send: Letter, receive: Letter) -> None:
    """Carry the message of two sides that have met."""
    source, target = send.tensor, receive.tensor
    if source.shape != target.shape or source.dtype != target.dtype:
        raise unlike(_side(send), in_words(source), _side(receive), in_words(target))
    simulation = group.simulation
    if source.requires_grad or target.requires_grad:
        source, target = source.detach(), target.detach()
    with simulation.hidden:
        target.copy_(source)
    if simulation.network.where is None:
        _deliver_at(max(send.posted, receive.posted), group, send, receive)
    else:
        simulation.scheduler.queue.push(
            max(send.posted, receive.posted), 0, _deliver_at, group, send, receive
        )


def _deliver_at(time: float, group: Group, send: Letter, receive: Letter) -> None:
    simulation = group.simulation
    src, dst, nbytes = send.owner.number, receive.owner.number, send.tensor.nbytes
    start, end = simulation.network.transfer(src, dst, nbytes, time)
    simulation.traffic.messages.append(Message(src, dst, nbytes, "send", group.axis, start, end))
    simulation.scheduler.complete(send, end)
    simulation.scheduler.complete(receive, end)


def unlike(sender: str, sent: str, receiver: str, into: str) -> MismatchError:
    """The error for a message whose sides differ, each named with its line."""
    return MismatchError(
        f"{sender} sends {sent} to {receiver}, which receives into {into}: "
        "shape and dtype must be the same on both sides"
    )


def _side(letter: Letter) -> str:
    thread = letter.owner.thread
    frame = sys._current_frames().get(thread.ident) if thread and thread.ident else None
    return f"rank {letter.owner.number} ({line_of(frame)})"
