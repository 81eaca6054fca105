"""How data parallelism scales with the number of ranks: two published curves, and the priced ones.

Speedups are against one rank; `r` is always said with what it is a fraction of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive
from dlsys.data_parallel.price import equal_buckets, overlap
from dlsys.network import Where
from dlsys.streams import Overlap

BACKWARD = 2 / 3
"""Backward's part of compute: it does two matrix products where forward does one."""


def amdahl_speedup(ranks: int, r: float) -> float:
    """Speedup n / (1 + (n-1) r) where a part `r` of the ONE-rank step does not get shorter.

    r: a fraction of one rank's time, 0 to 1; the limit for many ranks is 1/r. At n ranks the same
    seconds are a larger part of the step, n r / (1 + (n-1) r). Amdahl 1967.
    """
    n = count("ranks", ranks)
    return n / (1 + (n - 1) * _fraction(r))


def constant_fraction_speedup(ranks: int, r: float) -> float:
    """Speedup (1-r) n where EVERY rank spends the part `r` of its step on communication.

    r: a fraction of the step as measured with n ranks, the same for all n: what weak scaling on a
    ring comes to. For n = 1, where nobody communicates, it is 1.
    """
    n = count("ranks", ranks)
    return (1 - _fraction(r)) * n if n > 1 else 1.0


def _fraction(r: float) -> float:
    at_least("r", r, 0)
    if r > 1:
        raise ValueError(f"r is {r!r}; it is a fraction, at most 1.")
    return r


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
    where: Where | Callable[[int], Where],
    algorithm: str = "ring",
    bucket_bytes: float | None = None,
) -> list[Scaling]:
    """Every rank keeps its batch: n ranks do n times the work of one; speedup = n T(1) / T(n).

    ranks: the numbers to try. compute_seconds: forward and backward of one rank's batch.
    gradient_bytes: of all gradients. where: a Link, or a function from the number of ranks to a
    Link or Cluster of that size. bucket_bytes: size of equal buckets that are all-reduced under
    backward (2/3 of compute); None sends everything in one after backward.
    """
    positive("compute_seconds", compute_seconds)
    rest = (gradient_bytes, where, algorithm, bucket_bytes)
    sizes = [count("ranks", n) for n in ranks]
    return [_scaled(n, compute_seconds, n * compute_seconds, *rest) for n in sizes]


@checked
def strong_scaling(
    ranks: Sequence[int],
    compute_seconds: float,
    gradient_bytes: float,
    where: Where | Callable[[int], Where],
    algorithm: str = "ring",
    bucket_bytes: float | None = None,
) -> list[Scaling]:
    """The ranks share one batch: each computes 1/n of it; speedup = T(1) / T(n).

    compute_seconds: forward and backward of the WHOLE batch on one rank; the rest as in
    `weak_scaling`. Kernels are taken to lose nothing on smaller batches.
    """
    positive("compute_seconds", compute_seconds)
    rest = (gradient_bytes, where, algorithm, bucket_bytes)
    sizes = [count("ranks", n) for n in ranks]
    return [_scaled(n, compute_seconds / n, compute_seconds, *rest) for n in sizes]


def _scaled(
    n: int,
    seconds: float,
    alone: float,
    gradient_bytes: float,
    where: Where | Callable[[int], Where],
    algorithm: str,
    bucket_bytes: float | None,
) -> Scaling:
    """n ranks that each compute for `seconds` what one rank would compute in `alone`."""
    at_least("gradient_bytes", gradient_bytes, 0)
    most = max(gradient_bytes, 1.0) if bucket_bytes is None else bucket_bytes
    sizes = equal_buckets(gradient_bytes, most)
    place = where(n) if callable(where) else where
    backward = BACKWARD * seconds
    step = overlap(sizes, backward, n, place, algorithm, seconds - backward)
    return Scaling(n, step, alone / step.seconds)
