"""The state of a run that is simulated: it works, saves, fails, goes back, and comes up again.

Between two events nothing surprises, so whole periods of work and saving are counted by a division
instead of being stepped through: the time of a simulation grows with its events alone. All times
are whole ticks, so that what was spent adds up exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from dlsys.checks import refuse
from dlsys.resilience.price import Cadence, Disk
from dlsys.resilience.troubles import Pool, ticks

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


class Mark(NamedTuple):
    """A checkpoint: when it was taken, what had been spent by then, and which turn follows."""

    at: int
    useful: int
    writing: int
    slowed: int
    turn: int


class State:
    """A run that may fail; all times in ticks.

    failing: the instants of failures; which: random numbers that say which of them the checkpoint
    in host memory does not survive; pool: the spares, None where there is always one.
    """

    def __init__(
        self,
        cadence: Cadence,
        disk: Disk | None,
        end: int,
        down: tuple[int, int],
        failing: Iterator[int],
        which: random.Random,
        pool: Pool | None,
    ) -> None:
        if disk and cadence.behind:
            refuse("behind", cadence.behind, "0 where every so many checkpoints go to disk")
        self.work = max(1, ticks("interval", cadence.interval))
        self.stall, self.behind = ticks("stall", cadence.stall), ticks("behind", cadence.behind)
        self.every = disk.every if disk else 0
        self.disk_share = disk.share if disk else 0.0
        self.disk_stall = ticks("stall", disk.stall) if disk else 0
        self.detection, self.restart = down
        self.disk_restart = ticks("restart_seconds", disk.restart_seconds) if disk else 0
        self.failing, self.which, self.pool = failing, which, pool
        self.now, self.end, self.failure = 0, end, next(failing, end)
        self.spent = dict.fromkeys(SPENT_ON, 0)
        self.failures = 0
        self.slow, self.slowdown = 0, 1.0  # how many devices are slow, and what that does to a step
        self.memory_lost = False  # until the run is up again
        self.spans: list[tuple[int, int, str]] = []
        self.undone: list[tuple[int, int]] = []  # back to when, and when that was
        # The last snapshot, written from `due` on; the last one before; the last one on disk.
        self.snapshot = self.before = self.on_disk = Mark(0, 0, 0, 0, 1)
        self.due = 0
        self.last_good: Mark | None = None  # where what came later was computed wrongly
        self.begin(1)

    # -- work and checkpoints --------------------------------------------------------------------

    def begin(self, turn: int) -> None:
        """A period of work and a stall, which every so many turns is that of the disk, too."""
        self.turn, self.left = turn, self.work
        self.stall_left = self.stall + (self.disk_stall if turn == self.every else 0)

    def mark(self, turn: int) -> Mark:
        """A checkpoint of now."""
        spent = self.spent
        return Mark(self.now, spent[USEFUL], spent[WRITING], spent[SLOWED], turn)

    def saved(self) -> None:
        """A snapshot is complete; the one before has been written, as `behind` is in a period."""
        to_disk = self.turn == self.every
        mark = self.mark(1 if to_disk else self.turn + 1)
        self.before, self.snapshot, self.due = self.snapshot, mark, self.now + self.behind
        if to_disk:
            self.on_disk = mark
        self.begin(mark.turn)

    def run_until(self, until: int) -> None:
        """Work, and save when it is time to."""
        start, spent = self.now, self.spent
        while self.now < until:
            if self.left == self.work:
                self.run_periods(until)
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
                self.saved()
        if start < self.now:
            self.spans.append((start, self.now, RUNNING))

    def run_periods(self, until: int) -> None:
        """Run all whole periods that fit at once, up to the next one that goes to disk."""
        wall = round(self.work * self.slowdown) if self.slow else self.work
        period, spent = wall + self.stall, self.spent
        fit = (until - self.now) // period
        if self.every:
            fit = min(fit, self.every - self.turn)
        if fit > 1:
            spent[USEFUL] += (fit - 1) * self.work
            spent[WRITING] += (fit - 1) * self.stall
            spent[SLOWED] += (fit - 1) * (wall - self.work)
            self.now += (fit - 1) * period
            self.turn += fit - 2
            self.saved()  # the last of them; one period more fits, in which it is written

    # -- going back ------------------------------------------------------------------------------

    def back_to(self, mark: Mark) -> None:
        """Go back to a checkpoint: what was done since is to be done again."""
        spent = self.spent
        for kind, then in ((USEFUL, mark.useful), (WRITING, mark.writing), (SLOWED, mark.slowed)):
            spent[REDONE] += spent[kind] - then
            spent[kind] = then
        self.undone.append((mark.at, self.now))
        self.snapshot = self.before = mark
        self.due = self.now
        if mark.at < self.on_disk.at:
            self.on_disk = mark
        if self.last_good and mark.at <= self.last_good.at:
            self.last_good = None  # whatever was wrong is gone, seen or unseen
        self.begin(mark.turn)

    def durable(self) -> Mark:
        """The last checkpoint that has been written."""
        return self.snapshot if self.now >= self.due else self.before

    def fail(self) -> None:
        """A device fails: the run goes back to where that leaves it a checkpoint."""
        self.failures += 1
        self.failure = next(self.failing, self.end)
        if self.pool:
            self.pool.lose(self.now)
        if self.disk_share and self.which.random() < self.disk_share:
            self.memory_lost = True
        self.back_to(self.on_disk if self.memory_lost else self.durable())

    # -- being down ------------------------------------------------------------------------------

    def spend(self, kind: str, length: int) -> bool:
        """Spend time on that; False where a failure, which then has happened, or the end came."""
        start, stop = self.now, min(self.now + length, max(self.now, self.failure), self.end)
        self.spent[kind] += stop - start
        self.now = stop
        if start < stop:
            self.spans.append((start, stop, kind))
        if stop < start + length and stop < self.end:
            self.fail()
        return stop == start + length

    def come_up(self) -> bool:
        """Restart; whether that succeeds."""
        up = self.spend(RESTARTING, self.disk_restart if self.memory_lost else self.restart)
        self.memory_lost = self.memory_lost and not up
        return up

    def recover(self) -> None:
        """From a failure to the first step; a failure in between begins that anew."""
        while self.now < self.end:
            if self.spend(DETECTING, self.detection):
                ready = self.pool.ready(self.now) if self.pool else self.now
                if self.spend(WAITING, ready - self.now) and self.come_up():
                    return

    def stop(self, length: int) -> None:
        """A stop that is planned: save first, at every level, so that nothing is lost."""
        if self.spend(WRITING, self.stall + self.behind + self.disk_stall):
            self.turn = self.every or self.turn
            self.saved()
            self.due = self.now
            if self.spend(MAINTAINED, length) and self.come_up():
                return
        self.recover()
