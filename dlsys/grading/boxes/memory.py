"""How much memory the processes of a box hold together, and which these are."""

from __future__ import annotations

import contextlib
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


def uses_more(roots: Sequence[psutil.Process], memory_bytes: int) -> bool:
    """Whether these processes and their descendants hold more memory than `memory_bytes`."""
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
