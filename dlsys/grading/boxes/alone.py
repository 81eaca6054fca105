"""A process that can tell nobody anything but over its line: what a simulated rank runs in.

It is forked from one that ran the student's code, which could have shared memory, pipes and files
with it beforehand. So its memory becomes its own, what it has open is closed, and a filter refuses
whatever another process could notice. The student's code has been in this process before: who
patches this module, or the C library, is not stopped by it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import tempfile
from pathlib import Path

from dlsys.grading.boxes import sandbox, seccomp

# The same numbers on each machine that `seccomp` knows.
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_DIR, PATH_BENEATH = 4, 8, 1
PR_SET_NO_NEW_PRIVS = 38
PROT_READ, PROT_WRITE, PROT_EXEC = 1, 2, 4
MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 0x02, 0x10, 0x20, 0x4000
_PIECE = 1 << 20  # bytes of memory that are copied at once


def be_alone(line: int) -> None:
    """Keep `line`, a file descriptor, and give up all else that another process could notice.

    What a kernel does not offer is left: on macOS no more than open files are closed.
    """
    tempfile.gettempdir()  # looked for by writing a file, and kept; torch.optim asks for it
    linux = sys.platform == "linux"
    if linux:
        # Becoming another user has hidden this process from itself.
        sandbox.call("prctl", sandbox.PR_SET_DUMPABLE, 1, 0, 0, 0)
        own_memory()
    close_all_but(line)
    if linux:
        if os.getuid() >= sandbox.MANY_USERS or os.getuid() in sandbox.FEW_USERS:
            # Hidden also from what cells have left behind in the box; where no root counts what
            # memory it has, that would be hidden as well.
            sandbox.call("prctl", sandbox.PR_SET_DUMPABLE, 0, 0, 0, 0)
        with contextlib.suppress(OSError):
            see_no_process()
        with contextlib.suppress(OSError, ValueError):
            seccomp.install(seccomp.filter_of_ranks(os.getpid()))


def own_memory() -> None:
    """Put a copy in the place of all memory that is shared with others."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE
    rows = [row.split()[:2] for row in Path("/proc/self/maps").read_bytes().splitlines()]
    for place, may in rows:
        if not may.endswith(b"s"):
            continue
        start, end = (int(each, 16) for each in place.split(b"-"))
        copies = _content(start, end)
        if libc.mmap(start, end - start, PROT_READ | PROT_WRITE, flags, -1, 0) != start:
            raise OSError(ctypes.get_errno(), "shared memory could not be replaced")
        for at, piece in copies:
            ctypes.memmove(at, piece, len(piece))
        kinds = zip(b"rwx", (PROT_READ, PROT_WRITE, PROT_EXEC), strict=True)
        libc.mprotect(start, end - start, sum(bit for kind, bit in kinds if kind in may))


def _content(start: int, end: int) -> list[tuple[int, bytes]]:
    """What stands in memory, without pieces of zeros, and without what cannot be read, as where a
    file is shorter than what was mapped of it."""
    found = []
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for at in range(start, end, _PIECE):
            with contextlib.suppress(OSError):
                piece = os.pread(memory.fileno(), min(_PIECE, end - at), at)
                if piece.strip(b"\0"):
                    found.append((at, piece))
    return found


def close_all_but(line: int) -> None:
    """Put the null device in the place of every open file but this one.

    Their numbers stay taken: who closes one later, as Python does with files that nobody has any
    more, does not close what has come to have its number.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    listed = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    for each in {0, 1, 2, *map(int, os.listdir(listed))} - {line, nothing}:
        os.dup2(nothing, each, inheritable=False)
    os.close(nothing)


def see_no_process() -> None:
    """Have files everywhere but in /proc, where the kernel tells of processes; raises OSError where
    it has no Landlock. To other processes, what is in there of this one is as it was."""
    libc = ctypes.CDLL(None, use_errno=True)
    rights = READ_FILE | READ_DIR
    handled = struct.pack("=Q", rights)
    rules = _done(libc.syscall(LANDLOCK_CREATE_RULESET, handled, len(handled), 0))
    for entry in os.scandir("/"):
        if entry.name == "proc" or not entry.is_dir(follow_symlinks=False):
            continue
        folder = os.open(entry.path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", rights, folder)
        _done(libc.syscall(LANDLOCK_ADD_RULE, rules, PATH_BENEATH, rule, 0))
        os.close(folder)
    _done(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _done(libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0))
    os.close(rules)


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
