"""How data parallelism scales with the number of ranks: Amdahl's curve, and the priced ones.

Speedups are against one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive
from dlsys.data_parallel.price import equal_buckets, overlap
from dlsys.network import Where
from dlsys.streams import Overlap

BACKWARD = 2 / 3
"""Backward's part of compute: it does two matrix products where forward does one."""


@checked
def amdahl_speedup(ranks: int, r: float) -> float:
    """Speedup n / (1 + (n-1) r) where a part `r` of the ONE-rank step does not get shorter.

    r: a fraction of one rank's time, 0 to 1; the limit for many ranks is 1/r. At n ranks the same
    seconds are a larger part of the step, n r / (1 + (n-1) r). Amdahl 1967. (Where every rank
    spends the part r of its OWN step on communication, the speedup is (1-r) n.)
    """
    n = count("ranks", ranks)
    fraction("r", r)
    return n / (1 + (n - 1) * r)


@dataclass(frozen=True)
class Scaling:
    """A step on `ranks` ranks, and how much faster `ranks` ranks train than one."""

    ranks: int
    step: Overlap
    speedup: float

    @property
    def efficiency(self) -> float:
        """Speedup over ranks."""
        return self.speedup / self.ranks

    @property
    def network_bound(self) -> bool:
        """The network wall: communication takes longer than backward, which alone can hide it."""
        backward = self.step.compute_seconds - self.step.compute[0].seconds
        return self.step.communication_seconds > backward


@checked
def weak_scaling(
    ranks: Sequence[int],
    compute_seconds: float,
    gradient_bytes: float,
    where: Where,
    algorithm: str = "ring",
    bucket_bytes: float | None = None,
) -> list[Scaling]:
    """Every rank keeps its batch: n ranks do n times the work of one; speedup = n T(1) / T(n).

    ranks: the numbers to try. compute_seconds: forward and backward of one rank's batch.
    gradient_bytes: of all gradients. bucket_bytes: size of equal buckets that are all-reduced under
    backward (2/3 of compute); None sends everything in one after backward.
    """
    positive("compute_seconds", compute_seconds)
    rest = (gradient_bytes, where, algorithm, bucket_bytes)
    return [_scaled(n, count("ranks", n) * compute_seconds, *rest) for n in ranks]


@checked
def strong_scaling(
    ranks: Sequence[int],
    compute_seconds: float,
    gradient_bytes: float,
    where: Where,
    algorithm: str = "ring",
    bucket_bytes: float | None = None,
) -> list[Scaling]:
    """The ranks share one batch: each computes 1/n of it; speedup = T(1) / T(n).

    compute_seconds: forward and backward of the WHOLE batch on one rank; the rest as in
    `weak_scaling`. Kernels are taken to lose nothing on smaller batches.
    """
    positive("compute_seconds", compute_seconds)
    rest = (gradient_bytes, where, algorithm, bucket_bytes)
    return [_scaled(n, compute_seconds, *rest) for n in ranks]


def _scaled(
    n: int,
    work: float,
    gradient_bytes: float,
    where: Where,
    algorithm: str,
    bucket_bytes: float | None,
) -> Scaling:
    """n ranks that share what one rank would compute in `work` seconds."""
    n = count("ranks", n)
    at_least("gradient_bytes", gradient_bytes, 0)
    most = max(gradient_bytes, 1.0) if bucket_bytes is None else bucket_bytes
    backward = BACKWARD * work / n
    sizes = equal_buckets(gradient_bytes, most)
    step = overlap(sizes, backward, n, where, algorithm, work / n - backward)
    return Scaling(n, step, work / step.seconds)
