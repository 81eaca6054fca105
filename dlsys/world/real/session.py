"""What one process of a world of real processes keeps about itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from dlsys.world.errors import line_of
from dlsys.world.span import Span
from dlsys.world.traffic import Traffic


class Session:
    """What all communicators of one process share: its clock and the records of what it did.

    `tell`, where there is one, hears of every call before it is made and of every wait.
    `waiting` says what the program waits in at present, "" when it does not. `in_flight` holds the
    messages nobody has waited for: torch cancels those that nobody holds. `groups` are the process
    groups of its communicators, by name, and under None the default group of its time.
    """

    def __init__(self, ranks: int, tell: Callable[[tuple], None] | None = None) -> None:
        self.traffic = Traffic(ranks)
        self.spans: list[Span] = []
        self.tell = tell
        self.waiting = ""
        self.start = time.perf_counter()
        self.groups: dict[str | None, Any] = {None: dist.group.WORLD}
        self.in_flight: dict[int, Any] = {}
        self._told = 0

    @property
    def seconds(self) -> float:
        """Seconds since the world began."""
        return time.perf_counter() - self.start

    @property
    def is_over(self) -> bool:
        """Whether its default group has ended."""
        world = self.groups.get(None)
        return world is None or world is not dist.group.WORLD

    def check_alive(self) -> None:
        """Raise RuntimeError for a communicator or a handle that was kept for after its world."""
        if self.is_over:
            raise RuntimeError(
                "this communicator or handle belongs to a default group of torch.distributed that "
                "has ended: ask world.from_environment() for that of the present one"
            )

    def announce(self, what: str, *details: Any) -> int:
        """Tell of something that the program begins; returns the number to wait for it by."""
        self._told += 1
        if self.tell is not None:
            self.tell((what, self._told, *details))
        return self._told

    @staticmethod
    def record(records: list[Any], record: Any) -> Callable[[float], None]:
        """Append a record of something that begins; returns what sets the time of its end."""
        index = len(records)
        records.append(record)

        def end(seconds: float) -> None:
            records[index] = record._replace(end=seconds)

        return end

    @contextmanager
    def wait(self, rank: int, number: int, text: str) -> Iterator[None]:
        """Around a call that blocks until number `number` is done."""
        self.check_alive()
        start, self.waiting = self.seconds, text
        if self.tell is not None:
            self.tell(("wait", number, line_of(sys._getframe(2))))
        yield
        if self.tell is not None:
            self.tell(("done",))
        self.waiting = ""
        self.in_flight.pop(number, None)
        self.spans.append(Span(rank, start, self.seconds, "wait", text))
