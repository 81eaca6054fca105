"""Which rank a thread is, where ranks are threads of one process."""

from __future__ import annotations

import threading

from dlsys.world.communicator import Communicator


class _Here(threading.local):
    """A thread-local variable: every thread has a `comm` of its own, None until it sets one."""

    comm: Communicator | None = None


here = _Here()
"""`here.comm` is the communicator of the rank that this thread is. The code that starts a
rank in a thread sets it there."""
