"""A long run, event by event: what fails, where the run goes back to, what its time went into.

Between two events nothing surprises, so whole periods of work and saving are counted by a division
instead of being stepped through: the time of a simulation grows with its events alone.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, fraction, positive, refuse, some
from dlsys.resilience.price import Cadence, Disk
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

USEFUL, WRITING, SLOWED, REDONE = "useful", "writing", "slowed", "redone"
DETECTING, WAITING, RESTARTING, MAINTAINED = "detecting", "waiting", "restarting", "maintenance"
SPENT_ON = {
    USEFUL: "work that stays",
    WRITING: "stalls for checkpoints that stay",
    SLOWED: "what a slow device adds to work that stays",
    REDONE: "work and stalls that a failure undid, to be done again",
    DETECTING: "until a failure is noticed",
    WAITING: "for a device, where no spare is left",
    RESTARTING: "from a failure to the first step",
    MAINTAINED: "scheduled maintenance",
}
"""What the time of a run goes into."""
RUNNING = "running"
MOST_EVENTS = 50_000


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
        """Of the whole run."""
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
    than 50,000 events are to be expected.
    """
    end = ticks("seconds", seconds)
    if not end:
        refuse("seconds", seconds, "at least a nanosecond")
    _check_events(seconds, failures, stragglers, corruption, maintenance)
    restart, detection = (
        ticks("restart_seconds", restart_seconds),
        ticks("detection_seconds", detection_seconds),
    )
    seed = count("seed", seed, least=0)
    run = _Run(cadence, disk, end, (restart, detection), failures, seed)
    run.pool = Pool(spares) if spares else None
    for trouble in (stragglers, corruption, maintenance):
        if trouble:
            run.expect(trouble, random.Random(f"{seed} {type(trouble).__name__}"))
    return run.outcome()


def _check_events(
    seconds: float, failures: float | Weibull | Sequence[float], *troubles: Any
) -> None:
    if isinstance(failures, Sequence):
        if isinstance(failures, str) or any(a > b for a, b in zip(failures, failures[1:])):
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
        refuse("seconds", seconds, f"so few that at most {MOST_EVENTS:,} events are to be expected")


class _Mark(NamedTuple):
    """A checkpoint: when it was taken, what had been spent on what stays, and which turn follows."""

    at: int
    useful: int
    writing: int
    slowed: int
    turn: int


class _Run:
    """The state of a run; all times in ticks."""

    def __init__(
        self,
        cadence: Cadence,
        disk: Disk | None,
        end: int,
        down: tuple[int, int],
        failures: float | Weibull | Sequence[float],
        seed: int,
    ) -> None:
        if disk and cadence.behind:
            refuse("behind", cadence.behind, "0 where every so many checkpoints go to disk")
        self.work = max(1, ticks("interval", cadence.interval))
        self.stall, self.behind = ticks("stall", cadence.stall), ticks("behind", cadence.behind)
        self.every = disk.every if disk else 0
        self.disk_share = disk.share if disk else 0.0
        self.disk_stall = ticks("stall", disk.stall) if disk else 0
        self.restart, self.detection = down
        self.disk_restart = ticks("restart_seconds", disk.restart_seconds) if disk else 0
        self.now, self.end = 0, end
        self.spent = dict.fromkeys(SPENT_ON, 0)
        self.slow, self.slowdown = 0, 1.0
        self.pool: Pool | None = None
        self.agenda: list[tuple[int, int, Callable[[int], None]]] = []
        self.pushed = 0
        self.events = {"failure": 0}
        self.spans: list[tuple[int, int, str]] = []
        self.undone: list[tuple[int, int]] = []  # back to when, and when that was
        self.failing = instants(failures, random.Random(f"{seed} failures"))
        self.failure = next(self.failing, end)
        self.which = random.Random(f"{seed} which")
        self.bad_after: _Mark | None = None
        self._back_to(_Mark(0, 0, 0, 0, 1))

    # -- work and checkpoints --------------------------------------------------------------------

    def _begin(self, turn: int) -> None:
        """A period of work and a stall, which every so many turns is that of the disk, too."""
        self.turn, self.left = turn, self.work
        self.stall_left = self.stall + (self.disk_stall if turn == self.every else 0)

    def _mark(self, turn: int) -> _Mark:
        spent = self.spent
        return _Mark(self.now, spent[USEFUL], spent[WRITING], spent[SLOWED], turn)

    def _saved(self) -> None:
        """A snapshot is complete; the one before has been written, as `behind` is in a period."""
        to_disk = self.turn == self.every
        mark = self._mark(1 if to_disk else self.turn + 1)
        self.before, self.snapshot, self.due = self.snapshot, mark, self.now + self.behind
        if to_disk:
            self.on_disk = mark
        self._begin(mark.turn)

    def _run_until(self, until: int) -> None:
        """Work, and save when it is time to."""
        start, spent = self.now, self.spent
        while self.now < until:
            if self.left == self.work:
                self._run_periods(until)
            if self.left:
                wall = round(self.left * self.slowdown) if self.slow else self.left
                passed = min(wall, until - self.now)
                done = self.left if passed == wall else self.left * passed // wall
                spent[USEFUL] += done
                spent[SLOWED] += passed - done
                self.left -= done
            else:
                passed = min(self.stall_left, until - self.now)
                spent[WRITING] += passed
                self.stall_left -= passed
            self.now += passed
            if not (self.left or self.stall_left):
                self._saved()
        if start < self.now:
            self.spans.append((start, self.now, RUNNING))

    def _run_periods(self, until: int) -> None:
        """As many whole periods as fit, at once: up to the next one that goes to disk."""
        wall = round(self.work * self.slowdown) if self.slow else self.work
        period, spent = wall + self.stall, self.spent
        fit = (until - self.now) // period
        if self.every:
            fit = min(fit, self.every - self.turn)
        if fit > 0:
            spent[USEFUL] += (fit - 1) * self.work
            spent[WRITING] += (fit - 1) * self.stall
            spent[SLOWED] += (fit - 1) * (wall - self.work)
            self.now += (fit - 1) * period
            self.snapshot = self._mark(self.turn + fit - 1)
            spent[USEFUL] += self.work
            spent[WRITING] += self.stall
            spent[SLOWED] += wall - self.work
            self.now += period
            self.turn += fit - 1
            self._saved()

    # -- going back ------------------------------------------------------------------------------

    def _back_to(self, mark: _Mark) -> None:
        spent = self.spent
        for kind, then in ((USEFUL, mark.useful), (WRITING, mark.writing), (SLOWED, mark.slowed)):
            spent[REDONE] += spent[kind] - then
            spent[kind] = then
        self.undone.append((mark.at, self.now))
        self.before = self.snapshot = mark
        self.due = self.now
        if mark.turn == 1:
            self.on_disk = mark
        if self.bad_after and mark.useful <= self.bad_after.useful:
            self.bad_after = None
        self._begin(mark.turn)

    def _durable(self) -> _Mark:
        """The last checkpoint that has been written."""
        return self.snapshot if self.now >= self.due else self.before

    def _fail(self) -> None:
        """A device fails: the run goes back to where that leaves it a checkpoint."""
        self.events["failure"] += 1
        self.failure = next(self.failing, self.end)
        if self.pool:
            self.pool.lose(self.now)
        if self.disk_share and self.which.random() < self.disk_share:
            self.memory_lost = True
        self._back_to(self.on_disk if self.memory_lost else self._durable())

    memory_lost = False
    """Whether the checkpoint in host memory is gone, until the run is up again."""

    def _recover(self) -> None:
        """From a failure to the first step; a failure in between begins that anew."""
        while self.now < self.end:
            if self._pass(DETECTING, self.detection):
                ready = self.pool.ready(self.now) if self.pool else self.now
                if self._pass(WAITING, ready - self.now) and self._restart():
                    return

    def _restart(self) -> bool:
        """Whether the restart succeeds."""
        up = self._pass(RESTARTING, self.disk_restart if self.memory_lost else self.restart)
        self.memory_lost = self.memory_lost and not up
        return up

    def _pass(self, kind: str, length: int) -> bool:
        """Spend time on that; False where a failure, which then has happened, or the end came."""
        start, stop = self.now, min(self.now + length, max(self.now, self.failure), self.end)
        self.spent[kind] += stop - start
        self.now = stop
        if start < stop:
            self.spans.append((start, stop, kind))
        if stop < start + length and stop < self.end:
            self._fail()
        return stop == start + length

    # -- other troubles --------------------------------------------------------------------------

    def expect(self, trouble: Stragglers | Corruption | Maintenance, rng: random.Random) -> None:
        """Put the first of it on the agenda, which puts the next one there."""
        if isinstance(trouble, Maintenance):
            self._maintain_every(trouble)
            return
        begin = self._becomes_slow if isinstance(trouble, Stragglers) else self._goes_wrong
        self.slowdown = getattr(trouble, "slowdown", self.slowdown)
        found, mtbf = ticks("found_seconds", trouble.found_seconds), trouble.mtbf_seconds
        self.events["straggler" if isinstance(trouble, Stragglers) else "corruption"] = 0
        times = instants(mtbf, rng)

        def happen(tick: int) -> None:
            self._at(next(times), happen)
            begin(tick, found)

        self._at(next(times), happen)

    def _at(self, tick: int, action: Callable[[int], None]) -> None:
        if tick < self.end:
            self.pushed += 1
            heapq.heappush(self.agenda, (tick, self.pushed, action))

    def _becomes_slow(self, tick: int, found: int) -> None:
        def replace(_: int) -> None:
            self.slow -= 1
            self._stop(MAINTAINED, 0)

        self.slow += 1
        self.events["straggler"] += 1
        self._at(tick + found, replace)

    def _goes_wrong(self, tick: int, found: int) -> None:
        self.events["corruption"] += 1
        if self.bad_after:
            return  # the run is wrong already, and goes back to before that
        good = self.bad_after = self.on_disk if self.every else self.snapshot

        def go_back(_: int) -> None:
            if self.bad_after is good:  # a failure may have undone it, unseen
                durable = self._durable()
                self._back_to(durable if durable.useful < good.useful else good)
                if not self._restart():
                    self._recover()

        self._at(tick + found, go_back)

    def _maintain_every(self, maintenance: Maintenance) -> None:
        every = ticks("every_seconds", maintenance.every_seconds)
        lasts = ticks("lasts_seconds", maintenance.lasts_seconds)
        self.events["maintenance"] = 0

        def maintain(tick: int) -> None:
            self._at(max(tick, self.now // every * every) + every, maintain)
            self.events["maintenance"] += 1
            self._stop(MAINTAINED, lasts)

        self._at(every, maintain)

    def _stop(self, kind: str, length: int) -> None:
        """A stop that is planned: save first, so that nothing is lost, then restart."""
        save = self.stall + self.behind + self.disk_stall
        if not self._pass(WRITING, save):
            self._recover()
            return
        self.turn = self.every or self.turn
        self._saved()
        self.due = self.now
        if not (self._pass(kind, length) and self._restart()):
            self._recover()

    # -- the whole -------------------------------------------------------------------------------

    def outcome(self) -> SimulatedRun:
        """Run to the end."""
        while self.now < self.end:
            due = max(self.now, self.agenda[0][0]) if self.agenda else self.end
            until = min(due, max(self.now, self.failure), self.end)
            self._run_until(until)
            if until == self.end:
                break
            if until == self.failure:
                self._fail()
                self._recover()
            else:
                tick, _, action = heapq.heappop(self.agenda)
                action(tick)
        return SimulatedRun(self.spent, self.events, tuple(self._stretches()))

    def _stretches(self) -> Iterator[Stretch]:
        """The spans, joined where they are alike; running that was undone is called redone."""
        back, low, spans = self.undone[:], self.end, list[tuple[int, int, str]]()
        for start, end, kind in reversed(self.spans):
            while back and back[-1][1] >= end:
                low = min(low, back.pop()[0])
            if kind in (RUNNING, WRITING) and low < end:
                spans.append((max(start, low), end, REDONE))
                end = max(start, low)
            if start < end:
                spans.append((start, end, RUNNING if kind == WRITING else kind))
        start, last = 0, ""
        for begin, _, kind in [*reversed(spans), (self.end, 0, "")]:
            if kind != last:
                if last:
                    yield Stretch(start / TICKS, begin / TICKS, last)
                start, last = begin, kind


class Found(NamedTuple):
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
