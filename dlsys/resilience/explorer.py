"""An explorer of cadence: what is left of a run's time, and what a month of it looks like."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.resilience.laws import waiting_share
from dlsys.resilience.price import Cadence, best_cadence, shares
from dlsys.resilience.simulation import SimulatedRun, simulate_run
from dlsys.resilience.troubles import Spares
from dlsys.units import DAY, HOUR, MINUTE, YEAR, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEST = "the best"
INTERVALS = {
    "1 min": MINUTE,
    "2 min": 2 * MINUTE,
    "5 min": 5 * MINUTE,
    "10 min": 10 * MINUTE,
    "20 min": 20 * MINUTE,
    "30 min": 30 * MINUTE,
    "1 h": HOUR,
    "2 h": 2 * HOUR,
    "4 h": 4 * HOUR,
    "12 h": 12 * HOUR,
    "1 day": DAY,
}
DETECTION, REPAIR, MONTH = MINUTE, DAY, 30 * DAY
"""Seconds until a failure is noticed, until a node is repaired, and of what is simulated."""


class Row(NamedTuple):
    """An interval in seconds, and the expected shares of a run that saves so often; waiting for
    spares apart."""

    interval: float
    useful: float
    writing: float
    redone: float
    detecting: float
    restarting: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting. Saves block; a failure is noticed after a minute, its node repaired in a day.

    Raises ValueError for what no option has.
    """

    devices: int = option("Devices", [2**power for power in range(6, 18)], 16384)
    failures: float = option("Failures a device-year", (0.02, 0.05, 0.1, 0.17, 0.3, 1.0), 0.17)
    write: int = option("Write (s)", (1, 2, 5, 10, 30, 60, 120, 300, 600), 60)
    restart: int = option("Restart (s)", (10, 30, 60, 120, 300, 600, 1800), 300)
    interval: str = option("Interval", (BEST, *INTERVALS), BEST)
    spares: int = option("Spare nodes", (0, 1, 2, 4, 8, 16, 32, 64, 128, 256), 32)

    def mtbf(self) -> float:
        """Mean seconds between failures of the whole."""
        return YEAR / (self.devices * self.failures)

    def best(self) -> Cadence:
        """The cadence of the least expected time."""
        return best_cadence(self.write, self.mtbf())

    def cadence(self) -> Cadence:
        """The chosen one."""
        if self.interval == BEST:
            return self.best()
        return Cadence(INTERVALS[self.interval], self.write)

    def row(self, cadence: Cadence | None = None) -> Row:
        """The row of a cadence, its own by default."""
        cadence = cadence or self.cadence()
        expected = shares(cadence, self.mtbf(), self.restart, DETECTION)
        return Row(cadence.interval, *expected)

    def rows(self) -> list[Row]:
        """A row for each interval, the best among them, all else equal."""
        cadences = [Cadence(seconds, self.write) for seconds in INTERVALS.values()]
        by_length = sorted([*cadences, self.best()], key=lambda cadence: cadence.interval)
        return [self.row(cadence) for cadence in by_length]

    def month(self) -> SimulatedRun:
        """Thirty days of the run, simulated."""
        spares = Spares(self.spares, REPAIR)
        return simulate_run(
            self.cadence(), MONTH, self.mtbf(), self.restart, DETECTION, spares=spares
        )

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        row, best, month = self.row(), self.row(self.best()), self.month()
        waiting = waiting_share(self.spares, REPAIR, self.mtbf())
        return (
            f"{self.devices:,} devices with {self.failures:g} failures a year each: one every "
            f"{format_seconds(self.mtbf())}. A write takes {format_seconds(self.write)}, and the "
            f"best interval is {format_seconds(best.interval)}, with {best.useful:.1%} of the time "
            f"useful. Saving every {format_seconds(row.interval)} leaves {row.useful:.1%}: "
            f"{row.writing:.1%} goes into writing, {row.redone:.1%} is done again, "
            f"{row.detecting + row.restarting:.1%} passes until the run is up. With {self.spares} "
            f"spare nodes and repairs of {format_seconds(REPAIR)}, too few are there in "
            f"{waiting:.1%} of the time. The month that is drawn had "
            f"{month.events['failure']:,} failures and a goodput of {month.goodput:.1%}."
        )

    def figure(self) -> Figure:
        """Above, a month of the run; below, the goodput of each interval."""
        from dlsys.resilience.draw import draw_choice

        return draw_choice(self.month(), self.rows(), self.cadence().interval, self.best().interval)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(devices=1024, write=10)`."""
    return Explorer(Choice(**choice))
