"""How much memory and how many threads the processes of a box hold, and which these are."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil


def family(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    """These processes and all that descend from them."""
    found = []
    for root in roots:
        with contextlib.suppress(psutil.Error):
            found += [*root.children(recursive=True), root]
    return found


def _family_at_a_glance(roots: Sequence[psutil.Process]) -> list[psutil.Process]:
    """As `family`, often and cheaply: one that comes or goes at this moment may be missed."""
    if not Path("/proc/thread-self/children").exists():
        return family(roots)
    found = []
    left = [root.pid for root in roots]
    while left:
        number = left.pop()
        with contextlib.suppress(psutil.Error, OSError):
            found.append(psutil.Process(number))
            for listed in Path(f"/proc/{number}/task").glob("*/children"):
                left += map(int, listed.read_text().split())
    return found


def threads(roots: Sequence[psutil.Process]) -> int:
    """How many threads these processes and their descendants have, the first of each among them."""
    found = 0
    for one in _family_at_a_glance(roots):
        with contextlib.suppress(psutil.Error):
            found += one.num_threads()
    return found


QUEUED = re.compile(r"^ *\d+: \S+ \S+ \S+ (\w+):(\w+) ", re.MULTILINE)  # sent, received


def in_sockets(process: psutil.Process) -> int:
    """Bytes that all sockets of a process's own network may hold of the kernel's memory, which
    belongs to no process; 0 for one that shares this network.

    What stands in TCP's queues is known, and counted twice for what is around it. Any other socket
    counts with the most that it is let have, as it may not ask for more.
    """
    place = Path(f"/proc/{process.pid}")
    found = 0
    with contextlib.suppress(OSError):
        if os.readlink(place / "ns/net") == os.readlink("/proc/self/ns/net"):
            return 0
        for name in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):  # of a kernel without IPv6
                queues = QUEUED.findall((place / "net" / name).read_text())
                found += sum(2 * int(each, 16) for pair in queues for each in pair)
        most = int(Path("/proc/sys/net/core/wmem_default").read_text())
        for name in ("unix", "udp", "udp6", "netlink"):
            with contextlib.suppress(FileNotFoundError):
                found += most * ((place / "net" / name).read_bytes().count(b"\n") - 1)
    return found


def uses_more(
    roots: Sequence[psutil.Process], memory_bytes: int, socket_bytes: float = math.inf
) -> bool:
    """Whether these processes and their descendants hold more memory than `memory_bytes`, or the
    sockets of the last one's network more than `socket_bytes`."""
    if roots and in_sockets(roots[-1]) > socket_bytes:
        return True
    every = _family_at_a_glance(roots)

    def total(held: Callable[[psutil.Process], int]) -> int:
        found = 0
        for one in every:
            with contextlib.suppress(psutil.Error):
                found += held(one)
        return found

    # The first is quick to read, and never less: it counts what is shared once for each.
    return total(_resident) > memory_bytes < total(_proportional)


def _resident(process: psutil.Process) -> int:
    return process.memory_info().rss + _page_tables(process)


def _page_tables(process: psutil.Process) -> int:
    """Bytes of the kernel's tables of a process's memory, as far as that is to be known: to read
    from everywhere in an empty terabyte takes gigabytes of them, and nothing else."""
    with contextlib.suppress(OSError):
        found = re.search(rb"VmPTE:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_bytes())
        return int(found[1]) * 1024 if found else 0
    return 0


def _proportional(process: psutil.Process) -> int:
    """As `_resident`, with what is shared divided by those who share it, if that is to be known: a
    process can hide it from everybody but root."""
    try:
        return process.memory_full_info().pss + _page_tables(process)
    except (psutil.AccessDenied, AttributeError):
        return _resident(process)
