"""How the ranks of a run that is over are ended, though their threads may not want to.

A thread that waits for the baton gets it and finds that the run is over. One that computes is
raised in; one that takes whatever is raised is parked, since Python tears down no thread that
stands still.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence

from dlsys.world.simulated.rank import Rank

_PATIENCE = 0.2  # seconds that an ended run gives a rank to notice
_LAST = 5.0  # seconds that it gives all ranks that compute on after that


class Aborted(BaseException):
    """Raised in the ranks that are still running when the run has ended."""


def end(ranks: Sequence[Rank]) -> None:
    """End the ranks that still run, one after the other, through their `finally` blocks."""
    until = None
    for rank in ranks:
        thread = rank.thread
        if thread is None or not thread.is_alive():
            continue
        if rank.baton.locked():
            rank.baton.release()
        thread.join(timeout=_PATIENCE)
        if not thread.is_alive():
            continue
        # It computes and asks nobody.
        until = until or time.monotonic() + _LAST
        _raise_in(thread, Aborted)
        thread.join(timeout=max(_PATIENCE, until - time.monotonic()))
        if thread.is_alive():  # and takes whatever is raised; or is inside a call into C
            _park(thread, max(_PATIENCE, until - time.monotonic()))


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """Have Python raise `error` in another thread, before its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error)
    )


def _park(thread: threading.Thread, seconds: float) -> None:
    """Stop a thread that catches everything: it waits for ever in the making of an exception.

    Python may not end while a thread computes, which it would tear out of PyTorch's C++. So up to
    `seconds` are for the thread to get there.
    """
    there, forever = threading.Event(), threading.Lock()

    class Parked(BaseException):
        def __init__(self) -> None:
            there.set()
            with forever:
                forever.acquire()

    _raise_in(thread, Parked)
    there.wait(seconds)
