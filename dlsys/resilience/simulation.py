"""A long run, event by event: what befalls it, and what its time went into."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse, some
from dlsys.resilience.price import Cadence, Disk
from dlsys.resilience.running import REDONE, RUNNING, SPENT_ON, USEFUL, WRITING, State
from dlsys.resilience.troubles import (
    TICKS,
    Corruption,
    Maintenance,
    Pool,
    Spares,
    Stragglers,
    Weibull,
    instants,
    ticks,
)

MOST_EVENTS, MOST_ON_DISK = 50_000, 1_000_000

Action = Callable[[int], None]
"""What is done at an event, which is given its own tick: the run may be later, if it was down."""


class Stretch(NamedTuple):
    """[start, end) seconds of a run; kind is "running" for useful, writing and slowed together, or
    another one of what time is spent on."""

    start: float
    end: float
    kind: str


@dataclass(frozen=True)
class SimulatedRun:
    """What became of a run.

    nanoseconds: by what they were spent on, whole numbers whose sum is the run's, exactly. events:
    how many failures and other troubles there were. stretches: from the first to the last second.
    """

    nanoseconds: dict[str, int]
    events: dict[str, int]
    stretches: tuple[Stretch, ...]

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(self.nanoseconds.values()) / TICKS

    @property
    def goodput(self) -> float:
        """The useful share of its time."""
        return self.share(USEFUL)

    def share(self, kind: str) -> float:
        """The part of its time spent on that; raises ValueError for what is not in SPENT_ON."""
        if not isinstance(kind, str) or kind not in SPENT_ON:
            refuse("kind", kind, f"one of {', '.join(map(repr, SPENT_ON))}")
        return self.nanoseconds[kind] / sum(self.nanoseconds.values())


@checked
def simulate_run(
    cadence: Cadence,
    seconds: float,
    failures: float | Weibull | Sequence[float],
    restart_seconds: float = 0.0,
    detection_seconds: float = 0.0,
    *,
    disk: Disk | None = None,
    spares: Spares | None = None,
    stragglers: Stragglers | None = None,
    corruption: Corruption | None = None,
    maintenance: Maintenance | None = None,
    seed: int = 0,
) -> SimulatedRun:
    """Simulate `seconds` of a run that saves by a cadence, and goes back when it fails.

    - failures: their mean distance in seconds (a Poisson process), a `Weibull`, or their instants.
    - restart_seconds, detection_seconds: of each failure; one in between begins both anew.
    - spares: who replaces a failed device; None: somebody always does, at once.
    - seed: each trouble has random numbers of its own, so a change of one leaves the others alone,
      and every cadence meets the same failures.

    Work since the last checkpoint counts as useful where the run ends. Raises ValueError where more
    than 50,000 events are to be expected, or a million checkpoints on disk, of which each is one.
    """
    end = ticks("seconds", seconds)
    if not end:
        refuse("seconds", seconds, "at least a nanosecond")
    _check_events(seconds, failures, stragglers, corruption, maintenance)
    if disk and seconds > MOST_ON_DISK * disk.every * (cadence.interval + cadence.stall):
        refuse("seconds", seconds, f"so few that at most {MOST_ON_DISK:,} checkpoints go to disk")
    down = ticks("detection_seconds", detection_seconds), ticks("restart_seconds", restart_seconds)
    seed = count("seed", seed, least=0)
    failing, which = (random.Random(f"{seed} {name}") for name in ("failures", "which"))
    pool = Pool(spares) if spares else None
    run = _Run(cadence, disk, end, down, instants(failures, failing), which, pool)
    run.expect(seed, stragglers, corruption, maintenance)
    return run.outcome()


def _check_events(
    seconds: float, failures: float | Weibull | Sequence[float], *troubles: Any
) -> None:
    if isinstance(failures, Sequence):
        if isinstance(failures, str) or any(a > b for a, b in itertools.pairwise(failures)):
            refuse("failures", failures, "instants in seconds, in their order")
        expected = float(len(failures))
    elif isinstance(failures, Weibull):
        expected = seconds / failures.mtbf_seconds
    else:
        positive("failures", failures)
        expected = seconds / failures
    for trouble in filter(None, troubles):
        apart = trouble.every_seconds if isinstance(trouble, Maintenance) else trouble.mtbf_seconds
        expected += seconds / apart
    if expected > MOST_EVENTS:
        allowed = f"so few that of failures and other troubles at most {MOST_EVENTS:,} are expected"
        refuse("seconds", seconds, allowed)


class _Run(State):
    """A run with its agenda: what befalls it besides failures, and when."""

    agenda: list[tuple[int, int, Action]]
    events: dict[str, int]
    numbers: Iterator[int]

    def expect(self, seed: int, *troubles: Stragglers | Corruption | Maintenance | None) -> None:
        """Put the first of each on the agenda, which puts the next one there."""
        self.agenda, self.events, self.numbers = [], {}, itertools.count()
        for trouble in troubles:
            rng = random.Random(f"{seed} {type(trouble).__name__}")
            if isinstance(trouble, Maintenance):
                self._maintain(trouble)
            elif isinstance(trouble, Stragglers):
                self.slowdown = trouble.slowdown
                found = ticks("found_seconds", trouble.found_seconds)
                self._befall("straggler", instants(trouble.mtbf_seconds, rng), self._slow, found)
            elif trouble:
                found = ticks("found_seconds", trouble.found_seconds)
                self._befall("corruption", instants(trouble.mtbf_seconds, rng), self._wrong, found)

    def _at(self, tick: int, action: Action) -> None:
        if tick < self.end:
            heapq.heappush(self.agenda, (tick, next(self.numbers), action))

    def _befall(
        self, name: str, times: Iterator[int], begin: Callable[[], Action], found: int
    ) -> None:
        """Let something begin at these times; what is to be done is done when it is found."""
        self.events[name] = 0

        def happen(tick: int) -> None:
            self.events[name] += 1
            self._at(tick + found, begin())
            self._at(next(times), happen)

        self._at(next(times), happen)

    def _slow(self) -> Action:
        self.slow += 1

        def replace(_: int) -> None:
            self.slow -= 1
            self.stop(0)

        return replace

    def _wrong(self) -> Action:
        if self.last_good is not None:  # it is wrong already, and goes back to before that
            return lambda _: None
        # A copy of its own, that none of an earlier time is taken for.
        good = self.last_good = (self.on_disk if self.every else self.snapshot)._replace()

        def go_back(_: int) -> None:
            if self.last_good is not good:
                return  # a failure has gone back behind it, unseen
            durable = self.durable()
            self.back_to(durable if durable.at < good.at else good)
            if not self.come_up():
                self.recover()

        return go_back

    def _maintain(self, maintenance: Maintenance) -> None:
        every = ticks("every_seconds", maintenance.every_seconds)
        lasts = ticks("lasts_seconds", maintenance.lasts_seconds)
        self.events["maintenance"] = 0

        def maintain(tick: int) -> None:
            self._at(max(tick, self.now // every * every) + every, maintain)
            self.events["maintenance"] += 1
            self.stop(lasts)

        self._at(every, maintain)

    def outcome(self) -> SimulatedRun:
        """Run to the end."""
        while self.now < self.end:
            due = max(self.now, self.agenda[0][0]) if self.agenda else self.end
            self.run_until(min(due, self.failure, self.end))
            if self.now == self.failure < self.end:
                self.fail()
                self.recover()
            elif self.now < self.end:
                tick, _, act = heapq.heappop(self.agenda)
                act(tick)
        events = {"failure": self.failures, **self.events}
        return SimulatedRun(self.spent, events, tuple(self._stretches()))

    def _stretches(self) -> Iterator[Stretch]:
        """The spans, joined where they are alike; running that was undone is called redone."""
        back, low, spans = self.undone[:], self.end, list[tuple[int, str]]()
        for start, end, kind in reversed(self.spans):
            while back and back[-1][1] >= end:
                low = min(low, back.pop()[0])
            if kind in (RUNNING, WRITING):
                # All from `low` on was undone, by what came later.
                spans += [(max(start, low), REDONE)] if low < end else []
                spans += [(start, RUNNING)] if start < low else []
            else:
                spans.append((start, kind))
        start, last = 0, ""
        for begin, kind in [*reversed(spans), (self.end, "")]:
            if kind != last:
                if last:
                    yield Stretch(start / TICKS, begin / TICKS, last)
                start, last = begin, kind


@dataclass(frozen=True)
class Found:
    """A cadence, the mean goodput of its simulated runs, and the standard error of that mean."""

    cadence: Cadence
    goodput: float
    standard_error: float


@checked
def search(cadences: Sequence[Cadence], runs: int = 8, **run: Any) -> tuple[Found, ...]:
    """Each cadence with its goodput over `runs` simulations of seeds 0, 1, ...

    The rest is given to `simulate_run`. All cadences meet the same failures, so that two of them
    differ by less noise than their standard errors say.
    """
    some("cadences", cadences)
    runs = count("runs", runs, least=2, most=10_000)

    def tried(cadence: Cadence) -> Found:
        found = [simulate_run(cadence, **run, seed=seed).goodput for seed in range(runs)]
        mean = math.fsum(found) / runs
        variance = math.fsum((each - mean) ** 2 for each in found) / (runs - 1)
        return Found(cadence, mean, math.sqrt(variance / runs))

    return tuple(map(tried, cadences))
