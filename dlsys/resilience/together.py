"""The ranks that save or restore together: each hears the others, and all fail where one does."""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

import torch

from dlsys.resilience.refused import CheckpointError
from dlsys.world import Communicator, current
from dlsys.world.errors import text_of

_SHORT = 4096  # bytes


class Together:
    """A communicator's ranks; where there is no world, this process alone.

    What they tell each other is JSON, compressed. Raises RuntimeError in a process that torchrun
    has started and that is in no world yet, where each would take itself to be alone.
    """

    def __init__(self, comm: Communicator | None = None) -> None:
        self.comm = comm if comm is not None else _world()
        self.rank, self.size = (self.comm.rank, self.comm.size) if self.comm else (0, 1)

    def hear(self, mine: Any) -> list[Any]:
        """What every rank brings, by rank, on every rank."""
        if self.comm is None or self.size == 1:
            return [mine]
        letters = zlib.compress(json.dumps(mine).encode(), level=1)
        # A short text is told with its length, in one message; a long one follows in another.
        rows = self._rows(len(letters).to_bytes(8, "little") + letters, _SHORT)
        lengths = [int.from_bytes(row[:8], "little") for row in rows]
        rows = [row[8:] for row in rows]
        if max(lengths) > _SHORT - 8:
            rows = self._rows(letters, max(lengths))
        return [
            json.loads(zlib.decompress(row[:length]))
            for row, length in zip(rows, lengths, strict=True)
        ]

    def _rows(self, letters: bytes, length: int) -> list[bytes]:
        """The first `length` letters of every rank, shorter texts with zeros behind them."""
        assert self.comm is not None
        padded = bytearray(letters[:length].ljust(length, b"\0"))
        every = self.comm.all_gather(torch.frombuffer(padded, dtype=torch.uint8))
        return [row.numpy().tobytes() for row in every.view(self.size, length)]

    def agree(self, doing: str, error: BaseException | None = None, mine: Any = None) -> list[Any]:
        """`hear`, unless a rank has an error: then CheckpointError on all, with every one's text.

        Until all have heard nobody goes on, as behind a barrier.
        """
        told = None if error is None else f"{type(error).__name__}: {text_of(error)}"
        heard = self.hear([told, mine])
        failed = [f"rank {rank}: {said}" for rank, (said, _) in enumerate(heard) if said]
        if failed:
            raise CheckpointError(f"{doing}: {'; '.join(failed)}") from error
        return [each for _, each in heard]


def _world() -> Communicator | None:
    try:
        return current()
    except RuntimeError:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise
        return None
