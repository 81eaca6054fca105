"""Alpha and beta of the machine you sit at, from real processes, and what they predict.

A plan's price is linear in alpha, the latency of a message, and in 1 / beta, the seconds of a byte:
so many latencies on the longest path and so many bytes. A ring all-reduce, measured at several
sizes, gives both numbers, with all that the processes share on one machine; what they are worth
shows when they predict other plans.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

import torch

from dlsys.annotated import checked
from dlsys.checks import count, refuse, some
from dlsys.collectives import Plan, ring_all_reduce
from dlsys.hardware import Link
from dlsys.palette import LINES
from dlsys.world.communicator import Communicator
from dlsys.world.real.processes import launch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES = tuple(2**k for k in range(10, 23, 2))
"""Bytes: 1 KiB to 4 MiB."""
_TOGETHER = 2**22  # bytes; short runs are timed many at once, so that the start does not count


class Sample(NamedTuple):
    """Seconds that a plan took for `nbytes` bytes: the median of the repeats, and the range."""

    nbytes: int
    seconds: float
    fastest: float
    slowest: float


@dataclass(frozen=True)
class Fit:
    """The link that explains best how long `plan` took: latency in s, bandwidth in bytes/s."""

    plan: Plan
    link: Link
    samples: tuple[Sample, ...]

    @checked
    def predict(self, plan: Plan, nbytes: float) -> float:
        """Seconds of `plan` for a buffer of `nbytes` bytes: its price on the fitted link."""
        return plan.price(nbytes, self.link).seconds

    def draw(self, *measured: tuple[Plan, Sequence[Sample]]) -> Figure:
        """Seconds by size: points with their range as measured, lines as predicted, for the fitted
        plan and for others as `measure_plan` measured them."""
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(7, 4), layout="constrained")
        plt.close(figure)  # a cell shows it once, as its value
        axes = figure.subplots()
        every = [(self.plan, self.samples), *measured]
        for (plan, samples), (color, style, marker) in zip(every, cycle(LINES), strict=False):
            sizes = [s.nbytes for s in samples]
            below = [s.seconds - s.fastest for s in samples]
            above = [s.slowest - s.seconds for s in samples]
            axes.errorbar(
                sizes,
                [s.seconds for s in samples],
                yerr=[below, above],
                fmt=marker,
                color=color,
                capsize=2,
                label=f"{plan.algorithm} {plan.kind}",
            )
            axes.plot(sizes, [self.predict(plan, n) for n in sizes], color=color, linestyle=style)
        axes.set(xscale="log", yscale="log", xlabel="buffer (bytes)", ylabel="time (s)")
        axes.set_title(f"{self.plan.ranks} processes: measured (points) and predicted (lines)")
        axes.legend()
        return figure


@checked
def measure(ranks: int = 2, sizes: Sequence[int] = SIZES, repeats: int = 15) -> Fit:
    """Measure ring all-reduces of `sizes` bytes among real processes; fit latency and bandwidth.

    Raises ValueError for fewer than two ranks, two sizes or one repeat.
    """
    plan = ring_all_reduce(count("ranks", ranks, least=2))  # a message needs two
    if len(set(sizes)) < 2:
        refuse("sizes", sizes, "of two sizes or more, to tell latency from bandwidth")
    samples = measure_plan(plan, sizes, repeats)
    return Fit(plan, fit(plan, samples), tuple(samples))


@checked
def measure_plan(plan: Plan, sizes: Sequence[int] = SIZES, repeats: int = 15) -> list[Sample]:
    """Measure `plan` on float32 buffers of `sizes` bytes in as many real processes as it has ranks.

    Raises ValueError for sizes that do not give every rank's part whole numbers.
    """
    parts = plan.ranks if plan.kind in ("all_gather", "gather") else 1
    some("sizes", sizes)
    if any(count("sizes", n, 0) % (4 * parts) or not n for n in sizes):
        refuse("sizes", sizes, f"multiples of {4 * parts}, for this plan")
    repeats = count("repeats", repeats)

    def program(comm: Communicator) -> list[list[float]]:
        times = []
        for nbytes in sizes:
            x = torch.ones(nbytes // 4 // parts)
            together = max(1, min(32, _TOGETHER // nbytes))
            plan.run(comm, x)
            times.append([seconds(comm, x, together) for _ in range(repeats)])
        return times

    def seconds(comm: Communicator, x: torch.Tensor, together: int) -> float:
        comm.barrier()
        start = time.perf_counter()
        for _ in range(together):
            plan.run(comm, x)
        return (time.perf_counter() - start) / together

    results = launch(program, plan.ranks, check=False).results
    samples = []
    for nbytes, *by_rank in zip(sizes, *results, strict=True):
        slowest = [max(times) for times in zip(*by_rank, strict=True)]
        samples.append(Sample(nbytes, statistics.median(slowest), min(slowest), max(slowest)))
    return samples


def fit(plan: Plan, samples: Sequence[Sample]) -> Link:
    """The link on which the plan's price is nearest to the samples' medians.

    With price = a latency + b / bandwidth, where a and b are the price of the size with the other
    term left out: least squares of the relative errors, so that short messages, which tell the
    latency, count as much as long ones, which tell the bandwidth. Where other programs disturb so
    much that one of the two comes out below zero, a latency becomes 0, and a bandwidth the least
    that the samples show.
    """
    only_latency, only_bytes = Link("1 s a message", 1.0, 1e30), Link("1 byte/s", 0.0, 1.0)
    a = [plan.price(s.nbytes, only_latency).seconds / s.seconds for s in samples]
    b = [plan.price(s.nbytes, only_bytes).seconds / s.seconds for s in samples]
    aa, ab, bb = _dot(a, a), _dot(a, b), _dot(b, b)
    determinant = aa * bb - ab * ab
    latency = (sum(a) * bb - sum(b) * ab) / determinant
    per_byte = (sum(b) * aa - sum(a) * ab) / determinant
    if latency < 0:
        latency, per_byte = 0.0, sum(b) / bb
    if per_byte <= 0:
        latency, per_byte = sum(a) / aa, 1 / max(b)
    return Link("this machine", latency, 1 / per_byte, "measured between processes on gloo")


def _dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(p * q for p, q in zip(x, y, strict=True))
