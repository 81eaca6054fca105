"""Hot spares, stragglers, corruption and maintenance: inputs of a simulated run."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse

TICKS = 10**9
"""Ticks of a second: whole nanoseconds, which add up exactly where seconds would be rounded."""
MOST_SECONDS = 1e15


@checked
@dataclass(frozen=True)
class Weibull:
    """Failures whose distances follow Weibull's law, `mtbf_seconds` on average.

    With a `shape` of 1 they are a Poisson process. Below, they come in bursts, as repairs that did
    not help and young machines make them; logs of large clusters show 0.7 to 0.8 (Schroeder and
    Gibson 2010, "A large-scale study of failures in high-performance computing systems").
    """

    mtbf_seconds: float
    shape: float

    def __post_init__(self) -> None:
        positive("mtbf_seconds", self.mtbf_seconds)
        positive("shape", self.shape)
        if not 0.1 <= self.shape <= 100:
            refuse("shape", self.shape, "from 0.1 to 100")


@checked
@dataclass(frozen=True)
class Spares:
    """`count` devices that wait beside the run; one takes a broken device's place at once.

    A broken device is back after `repair_seconds`, as a spare. Where none is there the run waits
    for the next that is repaired.
    """

    count: int
    repair_seconds: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", count("count", self.count, least=0))
        at_least("repair_seconds", self.repair_seconds, 0)


@checked
@dataclass(frozen=True)
class Stragglers:
    """Every `mtbf_seconds` on average a device becomes slow, and with it every step of the run,
    which takes `slowdown` times as long. `found_seconds` later it is found: the run saves and
    restarts without it."""

    mtbf_seconds: float
    slowdown: float
    found_seconds: float

    def __post_init__(self) -> None:
        positive("mtbf_seconds", self.mtbf_seconds)
        at_least("slowdown", self.slowdown, 1)
        at_least("found_seconds", self.found_seconds, 0)
        if self.slowdown > 1e6:
            refuse("slowdown", self.slowdown, "at most 1e6")


@checked
@dataclass(frozen=True)
class Corruption:
    """Every `mtbf_seconds` on average a device silently computes something wrong, which is found
    `found_seconds` later: each checkpoint since is bad, and the run goes back behind it."""

    mtbf_seconds: float
    found_seconds: float

    def __post_init__(self) -> None:
        positive("mtbf_seconds", self.mtbf_seconds)
        at_least("found_seconds", self.found_seconds, 0)


@checked
@dataclass(frozen=True)
class Maintenance:
    """Every `every_seconds` the run saves, stands still for `lasts_seconds`, and restarts."""

    every_seconds: float
    lasts_seconds: float

    def __post_init__(self) -> None:
        positive("every_seconds", self.every_seconds)
        at_least("lasts_seconds", self.lasts_seconds, 0)
        if self.lasts_seconds >= self.every_seconds:
            allowed = f"less than every_seconds, {self.every_seconds:g}"
            refuse("lasts_seconds", self.lasts_seconds, allowed)


class Pool:
    """The devices beside a run: `ready` says when none of its own is missing."""

    def __init__(self, spares: Spares) -> None:
        self.idle, self.repair = spares.count, ticks("repair_seconds", spares.repair_seconds)
        self.broken = deque[int]()  # when each is back, in order: all repairs take as long

    def lose(self, now: int) -> None:
        """A device of the run breaks."""
        self.idle -= 1
        self.broken.append(now + self.repair)

    def ready(self, now: int) -> int:
        """The first tick from `now` on at which the run has all its devices."""
        while self.broken and self.broken[0] <= now:
            self.broken.popleft()
            self.idle += 1
        return now if self.idle >= 0 else self.broken[-self.idle - 1]


def ticks(name: str, seconds: float) -> int:
    """Seconds in ticks."""
    at_least(name, seconds, 0)
    if seconds > MOST_SECONDS:
        refuse(name, seconds, f"at most {MOST_SECONDS:g} seconds")
    return round(seconds * TICKS)


def instants(failures: float | Weibull | Sequence[float], rng: random.Random) -> Iterator[int]:
    """The ticks of failures: of a Poisson process of that mean distance, of `Weibull`, or given."""
    if isinstance(failures, Sequence):
        yield from (ticks("An instant of failures", instant) for instant in failures)
        return
    if isinstance(failures, Weibull):
        scale = failures.mtbf_seconds / math.gamma(1 + 1 / failures.shape)
        gap = lambda: rng.weibullvariate(scale, failures.shape)  # noqa: E731
    else:
        gap = lambda: rng.expovariate(1 / failures)  # noqa: E731
    now = 0
    while True:
        now += round(min(gap(), 10 * MOST_SECONDS) * TICKS)
        yield now
