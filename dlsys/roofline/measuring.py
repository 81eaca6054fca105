"""The roof of the machine at hand: bandwidth by streams, peak by products, and what is below."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import torch

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive
from dlsys.hardware import Device
from dlsys.roofline.counter import count_operations
from dlsys.roofline.plan import Operation
from dlsys.roofline.price import price

STREAMS = {"copy": 2, "add": 3, "triad": 3}
"""Tensors that each stream reads and writes, as McCalpin 1995 (STREAM) counts: a cache that fetches
a line before it is written moves one more."""


@checked
@dataclass(frozen=True)
class Machine:
    """What was measured of a machine, in float32, on as many threads as torch uses.

    peak: FLOP/s of the best product; streams: bytes/s of each of STREAMS; launch: seconds that the
    smallest operation takes, which none can fall below.
    """

    peak: float
    streams: Mapping[str, float]
    launch: float

    def __post_init__(self) -> None:
        positive("peak", self.peak)
        at_least("launch", self.launch, 0)
        for name, rate in self.streams.items():
            positive(f"streams[{name!r}]", rate)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the quickest stream."""
        return max(self.streams.values())

    @property
    def device(self) -> Device:
        """This machine as a Device, for prices; the size of its memory is made up."""
        return Device("this machine", {"fp32": self.peak}, 1.0, self.bandwidth)


@checked
def measure(megabytes: int = 64, side: int = 512, repeats: int = 3) -> Machine:
    """Measure this machine: some tenths of a second.

    - megabytes: of each stream's tensors, more than caches hold.
    - side: of the largest square product; smaller ones are tried, too.
    - repeats: the best of so many counts, for others may be at work beside.
    """
    numbers = count("megabytes", megabytes, most=1024) * 250_000
    side, times = count("side", side, least=16, most=4096), count("repeats", repeats, most=100)
    streams = _streams(numbers, times)
    peak = max(_product_rate(size, times) for size in (side, max(16, side // 2)))
    one = torch.ones(1)
    launch = best_seconds(lambda: [torch.add(one, one, out=one) for _ in range(200)], times) / 200
    return Machine(peak, streams, launch)


def _streams(numbers: int, repeats: int) -> dict[str, float]:
    a, b, c = (torch.full((numbers,), float(i)) for i in range(3))
    runs: dict[str, Callable[[], Any]] = {
        "copy": lambda: c.copy_(a),
        "add": lambda: torch.add(a, b, out=c),
        "triad": lambda: torch.add(a, b, alpha=3.0, out=c),
    }
    return {
        name: STREAMS[name] * a.nbytes / best_seconds(run, repeats) for name, run in runs.items()
    }


def _product_rate(side: int, repeats: int) -> float:
    a, b, c = (torch.ones(side, side) for _ in range(3))
    often = max(1, 512**3 // side**3)  # short ones together, so that the clock can tell them

    def run() -> None:
        for _ in range(often):
            torch.mm(a, b, out=c)

    return 2 * side**3 * often / best_seconds(run, repeats)


@checked
def best_seconds(run: Callable[[], Any], repeats: int = 3) -> float:
    """Seconds of the quickest of some calls, after one that fills caches."""
    run()
    best = math.inf
    for _ in range(count("repeats", repeats, most=10_000)):
        start = perf_counter()
        run()
        best = min(best, perf_counter() - start)
    return best


class UnderRoof(NamedTuple):
    """What a program counted, the seconds that it took, and those that its roofs allow.

    launches: seconds that its operations' number alone asks for.
    """

    operation: Operation
    operations: int
    seconds: float
    roof_seconds: float
    launches: float

    @property
    def share(self) -> float:
        """The part of its roof that it reached. Above 1 where caches spared memory what was
        counted, or the roof was measured in a slow moment."""
        return self.roof_seconds / self.seconds


@checked
def under_roof(program: Callable[[], Any], machine: Machine, repeats: int = 3) -> UnderRoof:
    """Count a program's operations, price them one after the other, and time it.

    Raises ValueError where it runs no operation.
    """
    counted = count_operations(program)
    priced = price(counted.operations, machine.device, "fp32")
    seconds = best_seconds(program, repeats)
    number = len(counted.operations)
    return UnderRoof(counted.total, number, seconds, priced.seconds, number * machine.launch)
