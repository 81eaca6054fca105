"""Matching, as MPI calls it: a send with its receive, and the collective calls of all ranks.

Each world holds what its ranks do against this: simulated ranks while they do it, real ones, which
cannot look at each other, as they tell of it to the process that launched them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import Any, Protocol, TypeVar

from dlsys.world.errors import (
    MismatchError,
    UnwaitedError,
    members_text,
    place,
    program_frame,
)


class Side(Protocol):
    """One side of a message."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Source and destination, and the tag: what both sides have in common."""

    @property
    def sends(self) -> bool:
        """Whether this is the sender's side."""

    def left_over(self) -> str:
        """What is wrong when nobody ever posted the other side."""


class Site:
    """One rank's call of a collective: what must agree (`same`), in words, and from which line."""

    __slots__ = ("file", "line", "number", "same", "text")

    def __init__(self, number: int, same: Hashable, text: str, frame: FrameType) -> None:
        self.number, self.same, self.text = number, same, text
        program = program_frame(frame) or frame
        self.file, self.line = program.f_code.co_filename, program.f_lineno

    def __str__(self) -> str:
        return f"rank {self.number} called {self.text} at {place(self.file, self.line)}"


S = TypeVar("S", bound=Side)
M = TypeVar("M", bound="Collective")


class Group:
    """The ranks of one communicator, with their unmatched messages and collectives.

    `members` are their numbers in the whole world. `unmatched` holds sends and receives whose other
    side has not been posted; `collectives` those that not every member has called, by their place
    in the group's order of calls.
    """

    def __init__(self, members: Sequence[int]) -> None:
        self.members, self.size = members, len(members)
        self.unmatched: dict[tuple[int, int, int], deque[Any]] = {}
        self.collectives: dict[int, Any] = {}

    def post(self, mine: S) -> S | None:
        """Post one side of a message; returns the other one where that waits here.

        A queue holds sends alone or receives alone, in the order in which they were posted.
        """
        queue = self.unmatched.get(mine.key)
        if queue is None:
            queue = self.unmatched[mine.key] = deque()
        if not queue or queue[0].sends == mine.sends:
            queue.append(mine)
            return None
        return queue.popleft()

    def join(self, index: int, site: Site, new: Callable[[], M]) -> M:
        """The collective that a rank's call number `index` belongs to, `new()` for the first call.

        Raises MismatchError where the first call was another one.
        """
        collective = self.collectives.get(index)
        if collective is None:
            collective = self.collectives[index] = new()
        else:
            collective.check_same(site)
        return collective


class Collective:
    """The n-th collective of a group: every member makes the same call, once."""

    def __init__(self, group: Group, index: int, site: Site) -> None:
        self.group, self.index, self.site = group, index, site
        self.missing = set(range(group.size))

    def check_same(self, site: Site) -> None:
        """Raise MismatchError unless `site` calls what the first call was."""
        if site.same != self.site.same:
            raise MismatchError(
                f"Collective number {self.index + 1} differs between ranks: "
                f"{self.site}, but {site}. Every rank of a group calls the same collectives "
                "in the same order, with the same shapes and dtypes"
            )

    def arrive(self, rank: int) -> None:
        """Count `rank` in; with the last one the collective is matched."""
        self.missing.discard(rank)
        if not self.missing:
            del self.group.collectives[self.index]

    def waits_for(self, rank: int) -> Sequence[int]:
        """The world's numbers of the ranks that `rank` waits for."""
        return [self.group.members[r] for r in sorted(self.missing)]

    def left_over(self) -> str:
        """What is wrong when not every member called it."""
        return f"{self.site} and {members_text(self.waits_for(-1))} never did"


def unlike(sender: str, sent: str, receiver: str, into: str) -> MismatchError:
    """The error for a message whose sides differ, each named with its line."""
    return MismatchError(
        f"{sender} sends {sent} to {receiver}, which receives into {into}: "
        "shape and dtype must be the same on both sides"
    )


def never_taken(rank: int, sends: bool, tensor: str, text: str) -> str:
    """What is wrong with a message of which only `rank` did its side, with the call `text`."""
    do, other = ("sends", "receives") if sends else ("receives", "sends")
    return f"rank {rank} {do} {tensor} ({text}) and the other side never {other} it"


def never_waited(rank: int, text: str, line: str) -> UnwaitedError:
    """The error for a handle that `rank` let go of: `text` is its call, `line` where it stands."""
    return UnwaitedError(
        f"rank {rank} never waited for its {text}, begun at {line}. Only wait() says that a "
        "message has left its tensor, or has come: keep the handle, and call its wait() before the "
        "tensor is used again and before the program returns"
    )


def changed_too_early(rank: int, text: str, line: str) -> UnwaitedError:
    """The error for a tensor that `rank` wrote to while it was being sent."""
    return UnwaitedError(
        f"rank {rank} changed the tensor of its {text}, begun at {line}, before it had waited for "
        "it, so the old numbers may be sent or the new ones. Call the handle's wait() before you "
        "write to the tensor, or send a copy of it, tensor.clone()"
    )
