"""A simulated rank, what it can wait for, and what it is doing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch

from dlsys.world.errors import Spot, line_of, of_each


class Pending:
    """Something a rank can wait for: done at `done_at` seconds, None while that is unknown.

    `begun` is where the program got its handle, None where it got none.
    """

    __slots__ = ("begun", "done_at", "owner")

    def __init__(self, owner: Rank) -> None:
        self.owner = owner
        self.done_at: float | None = None
        self.begun: Spot | None = None

    def describe(self) -> str:
        """What it is and whom it waits for, to follow 'waits in'."""
        raise AssertionError("every kind of Pending says what it is")

    def call(self) -> str:
        """The call that gave a handle of it, such as 'isend to rank 1'."""
        raise AssertionError("every kind of Pending says what it is")


class Rank:
    """One simulated rank: its thread, its clock and its random state."""

    __slots__ = (
        "baton",
        "clock",
        "ended",
        "number",
        "random",
        "result",
        "thread",
        "unwaited",
        "waiting",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.clock = 0.0
        # A lock as a baton: it is taken while others run, and who releases it hands the baton over.
        self.baton = threading.Lock()
        self.baton.acquire()
        self.waiting: Pending | None = None
        self.unwaited: dict[Pending, None] = {}  # what it has handles of, the oldest first
        self.random: torch.Tensor | None = None
        self.ended = False
        self.result: Any = None
        self.thread: threading.Thread | None = None  # made when its first turn comes

    def frame(self) -> FrameType | None:
        """Where its thread is; None where it has none."""
        thread = self.thread
        return sys._current_frames().get(thread.ident) if thread and thread.ident else None

    def doing(self) -> str:
        """What it is doing, to follow its number; it stands still, so its frame tells."""
        if self.ended:
            return "has finished"
        if self.waiting is None:
            return "was ready to go on"
        return f"waits in {self.waiting.describe()} at {line_of(self.frame())}"


def states(ranks: Sequence[Rank], but: Rank | None = None) -> str:
    """What every rank is doing, a line each, as far as a reader would look."""
    others = [rank.number for rank in ranks if rank is not but]
    return of_each(others, lambda number: ranks[number].doing())
