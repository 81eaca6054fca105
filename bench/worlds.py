"""How fast the worlds are, each figure beside another of the same run.

    python bench/worlds.py            all of it, about a minute
    python bench/worlds.py ring       one part: start, ring, simulated or imports

Medians; ratios say more than microseconds, since both sides of one share the machine's mood.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from dlsys import world
from dlsys.collectives import ring_all_reduce

KIB, MIB = 2**10, 2**20


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def nothing(comm: world.Communicator) -> None:
    """The empty program."""


# -- starting ------------------------------------------------------------------------------------


def bare(*_: object) -> None:
    """What a plain process does; its module imports torch as a user's would."""


def spawn(ranks: int) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=bare) for _ in range(ranks)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def start() -> None:
    first = median_seconds(lambda: world.launch(nothing, 4), 1)
    later = median_seconds(lambda: world.launch(nothing, 4), 15)
    plain = median_seconds(lambda: spawn(4), 1)
    print(f"launch of 4 empty ranks     first {first:6.3f} s    later {later:6.3f} s")
    print(f"4 spawned processes         {plain:6.3f} s, {plain / later:.0f} times a later launch")


# -- ring against gloo ---------------------------------------------------------------------------


def compare(comm: world.Communicator, sizes: list[int]) -> list[list[float]]:
    """Per size the median seconds of gloo in place, gloo as a function, and the ring by plan."""
    rows = []
    for nbytes in sizes:
        x, repeats = torch.ones(nbytes // 4), max(5, min(60, 256 * MIB // nbytes))
        ways = (
            lambda x=x: dist.all_reduce(x),
            lambda x=x: comm.all_reduce(x),
            lambda x=x: comm.all_reduce(x, plan="ring"),
        )
        times: list[list[float]] = [[] for _ in ways]
        for repeat in range(repeats + 1):
            for way, mine in zip(ways, times, strict=True):
                x.fill_(1.0)
                comm.barrier()
                begin = time.perf_counter()
                way()
                if repeat:
                    mine.append(time.perf_counter() - begin)
        rows.append([statistics.median(mine) for mine in times])
    return rows


def ring() -> None:
    sizes = [KIB * 4**k for k in range(9)]
    for ranks in (2, 4):
        run = world.launch(compare, ranks, args=(sizes,), check=False, timeout=300)
        print(f"all-reduce of {ranks} processes, microseconds (slowest rank)")
        print("       bytes   gloo in place            gloo    ring by plan   ring / gloo")
        for nbytes, *rows in zip(sizes, *run.results, strict=True):
            place, native, plan = (max(row[k] for row in rows) * 1e6 for k in range(3))
            ratio = f"{plan / native:13.2f}"
            print(f"{nbytes:12,} {place:15,.0f} {native:15,.0f} {plan:15,.0f} {ratio}")
    checked, unchecked = (
        median_of_small(world.launch(many_small, 2, check=check)) for check in (True, False)
    )
    print(f"check=True adds {(checked - unchecked) * 1e6:.0f} microseconds to a small all-reduce")


def many_small(comm: world.Communicator) -> float:
    x = torch.ones(256)
    return median_seconds(lambda: comm.all_reduce(x), 200)


def median_of_small(run: world.Run) -> float:
    return max(run.results)


# -- simulated ranks -----------------------------------------------------------------------------


def baton(passes: int) -> None:
    """Two threads that hand each other a lock: the least that one message between ranks costs."""
    mine, theirs = threading.Lock(), threading.Lock()
    mine.acquire()
    theirs.acquire()

    def other() -> None:
        for _ in range(passes // 2):
            theirs.acquire()
            mine.release()

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(passes // 2):
        theirs.release()
        mine.acquire()
    thread.join()


def ring_by_hand(comm: world.Communicator, x: torch.Tensor) -> torch.Tensor:
    n, after, before = comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    parts = list(x.clone().tensor_split(n))
    landing = torch.empty_like(parts[0])
    for k in range(2 * (n - 1)):
        sending = comm.isend(parts[(comm.rank - k) % n], after)
        comm.recv(landing, before)
        sending.wait()
        place = parts[(comm.rank - k - 1) % n]
        place.add_(landing) if k < n - 1 else place.copy_(landing)
    return x


def simulated() -> None:
    empty = median_seconds(lambda: world.simulate(nothing, 4), 30)
    print(f"simulate of 4 empty ranks   {empty * 1e3:.2f} ms")
    n = 256
    x, messages = torch.ones(n * 4), 2 * n * (n - 1)
    plan = ring_all_reduce(n)
    handed = median_seconds(lambda: baton(20_000), 3) / 20_000
    by_plan = median_seconds(lambda: world.simulate(lambda c: plan.run(c, x), n), 3) / messages
    by_hand = median_seconds(lambda: world.simulate(ring_by_hand, n, args=(x,)), 3) / messages
    print(f"a lock handed over          {handed * 1e6:.1f} microseconds")
    for name, seconds in (("by plan", by_plan), ("by hand", by_hand)):
        print(
            f"a message of a {n}-rank ring {name}: {seconds * 1e6:.1f} microseconds, "
            f"{seconds / handed:.1f} hand-overs"
        )


# -- imports -------------------------------------------------------------------------------------


def imports() -> None:
    def seconds(statement: str) -> float:
        command = [sys.executable, "-c", statement]
        return median_seconds(lambda: subprocess.run(command, check=True), 7)

    python = seconds("pass")
    for module in ("dlsys", "dlsys.collectives", "dlsys.world"):
        extra = seconds(f"import {module}") - python
        print(f"import {module:20} {extra * 1e3:5.0f} ms, {extra / python:.1f} of Python's start")


PARTS = {f.__name__: f for f in (start, ring, simulated, imports)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
