"""One save at a time below a folder: a lock that ends with its process, whatever ends that.

It is the system's (flock), so a file that is left over locks nothing. On NFS the server keeps it
for all machines, unless a mount says `nolock` or `local_lock`: then each machine for itself. Where
a file system has no locks, nobody is held off.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import weakref
from contextlib import suppress
from pathlib import Path

from dlsys.resilience.refused import CheckpointError

LOCK = ".lock"
"""The name of the file that is locked, and says by whom."""
_LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_held: set[int] = set()


class Lock:
    """Keeps other saves from `root` until `release()`, which may be called again, or until nobody
    refers to it.

    Raises CheckpointError, which names the process and its host, where another save has it.
    """

    def __init__(self, root: Path) -> None:
        path = root.absolute() / LOCK
        while (fd := _locked(path)) is None:
            pass
        _held.add(fd)
        self.release = weakref.finalize(self, _release, fd, path)
        with suppress(OSError):  # a disk that is full: what is saved will tell
            os.truncate(fd, 0)
            os.pwrite(fd, f"process {os.getpid()} of {socket.gethostname()}".encode(), 0)


def _locked(path: Path) -> int | None:
    """The descriptor of the file, locked; None where it was deleted meanwhile, by who had it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        _lock(fd, path)
        if _is_at(fd, path):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 1000, 0).decode(errors="replace") or "another process"
        raise CheckpointError(
            f"{path.parent} is saved into by {holder}: wait until that save has ended (for an "
            "AsyncSaver's, call its wait()), or name another folder"
        ) from None
    except OSError as error:
        if error.errno not in _LOCKLESS:
            raise


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _release(fd: int, path: Path) -> None:
    """Delete the file, then let go: who has opened it before sees that it is there no more."""
    if fd not in _held:  # in a process that was forked, which never had it
        return
    _held.discard(fd)
    with suppress(OSError):
        if _is_at(fd, path):
            path.unlink()
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)  # and not for this descriptor alone: others may have forked
    os.close(fd)


def _forget() -> None:
    """In a process that Python forks: a lock is its parent's, and is not to outlive that."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget)
