"""One line of the grade book: a result, whose it is, and what people and lateness made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dlsys.grading.result import GRADED, Result

NOT_ISOLATED = "NOT ISOLATED"
NOT_LISTED = "No student on the roster goes by this name, or more than one."
Penalty = Callable[[float, float], float]  # points to take, of a score and the seconds it is late


@dataclass(frozen=True)
class Grade:
    """A result with the points that a person gave (by question) and what lateness takes.

    `person` holds what the roster says ("name", "email", ...), and `listed` is False where there is
    a roster and it does not say. `submitted` is the time of handing in, in seconds since 1970, and
    `due` when it was due, for this student; either may be None.
    """

    result: Result
    person: Mapping[str, str] = field(default_factory=dict)
    submitted: float | None = None
    due: float | None = None
    by_hand: Mapping[str, float] = field(default_factory=dict)
    penalty_for: Penalty | None = None
    listed: bool = True

    @property
    def isolation(self) -> str:
        """Whether the student's code ran in a box; empty where none ran."""
        if self.result.status != GRADED:
            return ""
        return "isolated" if self.result.isolated else NOT_ISOLATED

    @property
    def notes(self) -> list[str]:
        """What was noted of the notebook, after what the roster says of the student, which may
        change without a new result."""
        return [*([] if self.listed else [NOT_LISTED]), *self.result.notes]

    def points(self) -> dict[str, float]:
        """What each question earned; a written one is there once it was graded by hand.

        An unanswered written question has 0 and asks for nobody's attention. What a person gave
        counts in the place of what running gave.
        """
        earned = {each.id: each.earned for each in self.result.questions}
        earned |= {each.id: 0.0 for each in self.result.written if not each.answered}
        graded = {*earned, *(each.id for each in self.result.written)}
        return earned | {id_: given for id_, given in self.by_hand.items() if id_ in graded}

    @property
    def unread(self) -> dict[str, float]:
        """The written answers that nobody has graded yet, with their points."""
        earned = self.points()
        return {each.id: each.points for each in self.result.written if each.id not in earned}

    @property
    def waiting(self) -> float:
        """Points of the written answers that nobody has graded yet."""
        return sum(self.unread.values())

    @property
    def beyond(self) -> list[str]:
        """Sentences on points that a person gave and that are more than there are, or less than 0:
        extra credit, or a slip of the hand."""
        most = {each.id: (each.title, each.points) for each in self.result.questions}
        most |= {each.id: (each.title, each.points) for each in self.result.written}
        given = [(*most[id_], points) for id_, points in self.by_hand.items() if id_ in most]
        return [
            f"Given by hand for {title!r}: {points:g} of {maximum:g} points."
            for title, maximum, points in given
            if not 0 <= points <= maximum
        ]

    @property
    def seconds_late(self) -> float:
        """How late it was handed in; 0 where it was in time or the time is not known."""
        if self.submitted is None or self.due is None:
            return 0.0
        return max(0.0, self.submitted - self.due)

    @property
    def late_penalty(self) -> float:
        """Points that lateness takes from what was earned so far; none where its policy failed."""
        return self._lateness[0]

    @property
    def policy_failed(self) -> str:
        """What the policy for lateness failed with, as a sentence; empty where it did not."""
        return self._lateness[1]

    @cached_property  # a policy may be an instructor's own, and is asked once
    def _lateness(self) -> tuple[float, str]:
        if self.result.status != GRADED or self.penalty_for is None:
            return 0.0, ""
        try:
            return self.penalty_for(sum(self.points().values()), self.seconds_late), ""
        except ValueError as error:
            return 0.0, f"{error} Nothing was taken for lateness."

    @property
    def total(self) -> float | None:
        """Points earned so far less the penalty; None where nothing was graded, never 0 for it."""
        if self.result.status != GRADED:
            return None
        return sum(self.points().values()) - self.late_penalty
