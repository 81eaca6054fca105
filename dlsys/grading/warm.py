"""Start boxes quickly: processes forked from one that has torch loaded, each moved into its box."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from dlsys.grading.sandbox import Limits


class Box:
    """A process in a box of its own. `socket` is connected to it; `died` says why the box was
    ended from outside ("memory"), or is None."""

    socket: socket.socket
    died: str | None

    def close(self) -> None:
        """End everything that runs in the box, and wait until it has ended. May be called twice."""
        raise NotImplementedError


class Boxes:
    """Where boxes come from; a context manager. Raises SandboxError on entry where they cannot be
    had, unless `isolated` is false: then there are limits on resources alone."""

    def __init__(
        self, limits: Limits = Limits(), *, isolated: bool = True, preload: Sequence[str] = ()
    ) -> None:
        raise NotImplementedError

    def __enter__(self) -> Boxes:
        raise NotImplementedError

    def __exit__(self, *error: object) -> None:
        raise NotImplementedError

    def open(self, role: str) -> Box:
        """A box in which `dlsys.grading.<role>.main(socket, limits)` runs. Called by any thread."""
        raise NotImplementedError
