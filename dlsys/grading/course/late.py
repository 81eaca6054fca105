"""What lateness takes: one policy for the reports here and, as a plugin, for nbgrader itself.

In `nbgrader_config.py`:

    c.AssignLatePenalties.plugin_class = "dlsys.grading.course.late.LatePenalty"
    c.LatePenalty.rate = "10%/day"

Only this module needs nbgrader, so it is imported where a due date is given and not before.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, time

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import TraitError, Unicode, validate

_SECONDS = {"hour": 3600, "day": 86400, "week": 7 * 86400}
_RATE = re.compile(
    r"(?P<amount>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>%|percent|points?)"
    r"(?:\s*(?:/|per)\s*(?P<period>hour|day|week))?"
)


@dataclass(frozen=True)
class Rate:
    """What is taken for each begun period: a fraction of the score, or points.

    `seconds` is the length of a period; None takes the amount once, however late it is.
    """

    amount: float
    of_score: bool
    seconds: int | None

    def penalty(self, score: float, seconds_late: float) -> float:
        """Points to take from `score`: never more than all of it, nothing where it is on time."""
        if seconds_late <= 0:
            return 0.0
        periods = 1 if self.seconds is None else math.ceil(seconds_late / self.seconds)
        return min(score, periods * self.amount * (score if self.of_score else 1))


def parse_rate(text: str) -> Rate:
    """The rate that "10%/day", "5%/hour", "20%" or "1 point/day" stands for; raises ValueError."""
    found = _RATE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is no rate of lateness: write for example '10%/day', '5%/hour', "
            "'20%' (once) or '1 point/day'."
        )
    of_score = not found["unit"].startswith("point")
    amount = float(found["amount"]) / (100 if of_score else 1)
    if of_score and amount > 1:
        raise ValueError(f"{text!r} takes more than there is: 100% is the most.")
    return Rate(amount, of_score, _SECONDS.get(found["period"] or ""))


def parse_due(text: str) -> datetime:
    """The moment that "2026-12-01T23:59" stands for, always with a time zone; raises ValueError.

    A time without a zone ("+01:00", "Z") is this machine's local time; a date alone is its end.
    """
    try:
        due = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is no date: write for example 2026-12-01T23:59 (this machine's local "
            "time) or 2026-12-01T23:59+01:00."
        ) from None
    if re.fullmatch(r"[\dW-]+", text.strip()):
        due = datetime.combine(due.date(), time.max)
    return due.astimezone()


class LatePenalty(LateSubmissionPlugin):
    """The policy as nbgrader's plugin for late submissions."""

    rate = Unicode("10%/day", help="What lateness takes: '10%/day', '20%', '1 point/day'.")
    rate.tag(config=True)

    @validate("rate")
    def _readable(self, proposal: dict[str, str]) -> str:
        try:
            parse_rate(proposal["value"])
        except ValueError as error:
            raise TraitError(str(error)) from None
        return proposal["value"]

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float:
        """Points to take from the score of a notebook that is so many seconds late."""
        return parse_rate(self.rate).penalty(score, total_seconds_late)
