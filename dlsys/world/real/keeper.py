"""The process between Python and the ranks of one launch: it forks them, says how each ends, and
ends with them whatever they have started.

On Linux it is a subreaper: a process whose parent dies becomes its child, also one that has made
itself a daemon, so that killing its children until it has none ends everybody. Elsewhere each rank
leads a process group, which ends as one; what leaves its group escapes.
"""

from __future__ import annotations

import ctypes
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path

from dlsys.world.real.fork_server import heard
from dlsys.world.real.rank_process import Start, main

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_AGAIN = 0.02  # seconds between two looks at who is left


def keep(line: Connection) -> None:
    """Fork the ranks that `line` tells of; returns when nobody is left, which a word there brings
    about, as does the end of Python."""
    server = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    adopts = _adopt_orphans()
    line.send((-1, ("started",)))
    start, work = line.recv()
    _move_to(start)
    ranks: dict[int, int] = {}
    try:
        while len(ranks) < start.ranks and heard(line, server):
            ranks[_fork(line, start, len(ranks), work, adopts)] = len(ranks)
            line.send((len(ranks) - 1, ("started",)))
    except (EOFError, RuntimeError):  # the word to end comes early
        pass
    except OSError as error:
        line.send((len(ranks), ("unstarted", str(error))))
    groups = [] if adopts else list(ranks)
    threading.Thread(target=_end, args=(line, server, groups), daemon=True).start()
    _wait(line, ranks)


def _move_to(start: Start) -> None:
    """Be where the caller is."""
    os.environ.clear()
    os.environ.update(start.environment)
    with suppress(OSError):  # a folder that is gone
        os.chdir(start.folder)
    sys.path[:], sys.argv[:] = start.path, start.argv
    if start.source is not None:
        name, lines = start.source
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _fork(line: Connection, start: Start, rank: int, work: bytes, adopts: bool) -> int:
    """Fork a rank with the pipe that comes next; returns its process's number."""
    pipe = Connection(recv_handle(line))
    process = os.fork()
    if process == 0:
        try:
            line.close()
            if not adopts:
                os.setpgid(0, 0)
            main(pipe, start, rank, work)
        finally:
            os._exit(1)
    pipe.close()
    return process


def _wait(line: Connection, ranks: dict[int, int]) -> None:
    """Say how each rank ends, until this process has no child any more."""
    with suppress(ChildProcessError):
        while True:
            process, status = os.wait()
            if process in ranks:
                with suppress(OSError):  # nobody asks any more
                    code = os.waitstatus_to_exitcode(status)
                    line.send((ranks[process], ("ended", code)))


def _end(line: Connection, server: int, groups: list[int]) -> None:
    """End all children, and theirs as they become ours, when somebody says so or nobody can."""
    heard(line, server)
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    while True:
        for process in _children():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_AGAIN)


def _adopt_orphans() -> bool:
    """Have orphaned descendants become children of this process; False where no kernel can."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def _children() -> Iterator[int]:
    """The numbers of this process's children, by what /proc says of every process."""
    me = str(os.getpid())
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # number (name) state parent ...: a name may hold blanks and brackets
            if stat.read_text(errors="replace").rpartition(")")[2].split()[1] == me:
                yield int(stat.parent.name)
