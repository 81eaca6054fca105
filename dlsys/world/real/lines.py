"""The lines between Python and the processes of one launch: a pipe to each rank, one to the keeper.

The end of either side of a pipe tells the other that it is alone.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.reduction import send_handle
from typing import Any

from dlsys.world.real.fork_server import fork_keeper
from dlsys.world.real.rank_process import Start

KEEPER = -1
_KILLED = 10.0  # seconds that the system has to clear a killed process

News = tuple[int, tuple[Any, ...] | None]
"""From which rank, and what; None where the rank has closed its end."""


class Lines:
    """The lines of one launch; `silent` are the ranks of which nothing more is to be heard."""

    def __init__(self) -> None:
        self.silent: set[int] = set()
        self._keeper, self._theirs = connection.Pipe()
        self._ranks: list[Any] = []
        self._inbox: deque[News] = deque()

    def __len__(self) -> int:
        """How many ranks have a line."""
        return len(self._ranks)

    def fork_keeper(self) -> None:
        """Have the keeper forked, which says when it is there."""
        with self._theirs as theirs:
            fork_keeper(theirs)

    def instruct(self, start: Start, work: bytes) -> None:
        """Tell the keeper what all ranks are to know."""
        with suppress(OSError):  # that it has ended is the next news
            self._keeper.send((start, work))

    def fork(self) -> None:
        """Have the next rank forked, at the other end of a pipe; raises OSError."""
        here, there = connection.Pipe()
        self._ranks.append(here)
        with there:
            send_handle(self._keeper, there.fileno(), None)

    def tell(self, ranks: Iterable[int], message: tuple[Any, ...]) -> None:
        """Say something to some ranks; one that has died is noticed when its end is read."""
        for rank in ranks:
            with suppress(OSError):
                self._ranks[rank].send(message)

    def next(self, seconds: float) -> News | None:
        """What is heard next, waiting at most `seconds` for it; None for nothing."""
        if not self._inbox:
            lines = {line: rank for rank, line in enumerate(self._ranks) if rank not in self.silent}
            if not self._keeper.closed:
                lines[self._keeper] = KEEPER
            for line in connection.wait(lines, max(0.0, seconds)) if lines else []:
                self._inbox.append(self._read(line, lines[line]))
        return self._inbox.popleft() if self._inbox else None

    def _read(self, line: Any, rank: int) -> News:
        """What comes by a line; by the keeper's, of which rank it is is part of it."""
        try:
            message: Any = pickle.loads(line.recv_bytes())
        except (EOFError, ConnectionError):
            if rank == KEEPER:
                line.close()
                return KEEPER, ("unkept",)
            self.silent.add(rank)
            return rank, None
        return message if rank == KEEPER else (rank, message)

    def end(self) -> None:
        """End every process of the launch, and all that those started."""
        for line in self._ranks:
            line.close()
        with suppress(OSError, EOFError):
            self._keeper.send_bytes(b"end")
            while self._ranks and self._keeper.poll(_KILLED):
                self._keeper.recv_bytes()
        self._keeper.close()
