"""What grading one notebook gives: plain data, stored as JSON and shown in every report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

GRADED = "graded"
REFUSED = "refused"  # what was handed in cannot be read; the reason says why
NOT_GRADED = "not graded"  # the grader failed, not the student: grade again
MISSING = "missing"  # on the roster, and nothing was handed in

LOOK = "A person has to look at this."  # ends each note that asks for one

RIGHT = "right"
PARTLY = "partly right"
WRONG = "wrong"
UNANSWERED = "not answered"
BROKE = "broke the kernel"


@dataclass(frozen=True)
class CheckResult:
    """One `same`: `message` is what the student may read, `expression` is empty where hidden.

    `hint` is the author's text for this wrong answer, or None; `kind` says in words what kind of
    value is expected ("a number"). `cost` and `best` are {"bytes": ..., ...} or None.
    """

    hidden: bool
    passed: bool
    expression: str = ""
    kind: str = ""
    message: str = ""
    hint: str | None = None
    cost: dict[str, float] | None = None
    best: dict[str, float] | None = None


@dataclass(frozen=True)
class QuestionResult:
    """A question: `earned` of `points`, and why. `error` is what its answer cell ended with."""

    id: str
    title: str
    points: float
    earned: float
    status: str
    checks: list[CheckResult] = field(default_factory=list)
    answer: str = ""
    error: str | None = None


@dataclass(frozen=True)
class WrittenAnswer:
    """The answer to a question that a person grades."""

    id: str
    title: str
    points: float
    answer: str
    answered: bool


@dataclass(frozen=True)
class Result:
    """The result for one student and assignment.

    `questions` and `written` are empty unless `status` is GRADED. `notes` are sentences for the
    student about the notebook as a whole. `seconds` is the time that grading took.
    """

    student: str
    slug: str
    status: str
    reason: str = ""
    questions: list[QuestionResult] = field(default_factory=list)
    written: list[WrittenAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    isolated: bool = True
    seconds: float = 0.0

    @property
    def earned(self) -> float | None:
        """Points of the questions that are graded by running; None where nothing was graded."""
        return sum(q.earned for q in self.questions) if self.status == GRADED else None

    def as_json(self) -> dict[str, Any]:
        """Plain data, from which `from_json` makes an equal result."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Result:
        """The result that `as_json` wrote."""
        questions = [
            QuestionResult(**{**each, "checks": [CheckResult(**one) for one in each["checks"]]})
            for each in data["questions"]
        ]
        written = [WrittenAnswer(**each) for each in data["written"]]
        return Result(**{**data, "questions": questions, "written": written})
