"""One submission from its cells to its points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlsys.grading.assignment import Assignment, Check
from dlsys.grading.rebuild import Submission
from dlsys.grading.result import Result
from dlsys.grading.warm import Boxes


@dataclass(frozen=True)
class Prepared:
    """An assignment with its checks drawn for one grading run.

    `checks` are by question, each with what it expects; `earned_by_blank` holds (question, index)
    of the checks that the blank notebook passes.
    """

    assignment: Assignment
    seed: int
    checks: dict[str, tuple[Check, ...]]
    earned_by_blank: frozenset[tuple[str, int]]


def prepare(assignment: Assignment, boxes: Boxes, seed: int) -> Prepared:
    """Draw the checks, and have the solution and the blank notebook examined.

    Raises ValueError where the solution has not full marks or the blank notebook any.
    """
    raise NotImplementedError


def examine(
    prepared: Prepared,
    submission: Submission,
    boxes: Boxes,
    student: str = "",
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Run a submission and judge it; nothing that the student's code does makes this raise."""
    raise NotImplementedError
