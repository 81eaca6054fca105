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

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import TraitError, Unicode, validate

from dlsys.checks import shown
from dlsys.grading.course.grade import Penalty
from dlsys.grading.course.plugins import call, is_plugin, load
from dlsys.grading.times import SECONDS, SPAN, parse_span

_RATE = re.compile(
    r"(?P<amount>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>%|percent|points?)"
    r"(?:\s*(?:/|per)\s*(?P<period>hour|day|week))?"
    rf"(?:\s*after\s+(?P<grace>{SPAN}))?"
)


@dataclass(frozen=True)
class Rate:
    """What is taken for each begun period: a fraction of the score, or points.

    `seconds` is the length of a period; None takes the amount once, however late it is. Up to
    `grace` seconds take nothing; whoever is later is late from the due date on.
    """

    amount: float
    of_score: bool
    seconds: int | None
    grace: float = 0.0

    def penalty(self, score: float, seconds_late: float) -> float:
        """Points to take from `score`: never more than all of it, nothing where it is on time."""
        if seconds_late <= self.grace:
            return 0.0
        periods = 1 if self.seconds is None else math.ceil(seconds_late / self.seconds)
        return min(score, periods * self.amount * (score if self.of_score else 1))


def parse_rate(text: str) -> Rate:
    """The rate that "10%/day", "20%", "1 point/day" or "10%/day after 15 minutes" stands for.

    Raises ValueError.
    """
    found = _RATE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(
            f"{text!r} is no rate of lateness: write for example '10%/day', '5%/hour', "
            "'20%' (once) or '1 point/day', with a grace period '10%/day after 15 minutes', or "
            "a policy of your own as FILE.py:FUNCTION."
        )
    of_score = not found["unit"].startswith("point")
    amount = float(found["amount"]) / (100 if of_score else 1)
    if of_score and amount > 1:
        raise ValueError(f"{text!r} takes more than there is: 100% is the most.")
    grace = parse_span(found["grace"]) if found["grace"] else 0.0
    return Rate(amount, of_score, SECONDS.get(found["period"] or ""), grace)


def policy(late: str) -> Penalty:
    """What lateness takes by a rate, or by the function that FILE.py:FUNCTION names.

    It is told the score and the seconds, and asked only where there are any. Raises ValueError
    here where there is no such policy, and later, naming it, for what is no number of points.
    """
    takes: Penalty = load(late) if is_plugin(late) else parse_rate(late).penalty

    def penalty(score: float, seconds_late: float) -> float:
        if seconds_late <= 0:
            return 0.0
        most = max(score, 0.0)
        points = call(late, takes, most, seconds_late)
        if type(points) not in (int, float) or not 0 <= points <= most:
            raise ValueError(
                f"{late}({most:g}, {seconds_late:g}) returned {shown(points)}; it must return the "
                f"points to take, a number from 0 to the score of {most:g}."
            )
        return float(points)

    return penalty


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
