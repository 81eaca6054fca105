"""Run a submission: the student's cells, then the checks that the notebook shows, then the hidden.

Whatever a report may show, what a cell ended with or what came of a shown check, was there before
anything hidden was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlsys.exercises.judge import difference
from dlsys.grading.assignment import ANSWER, FREE, TEST, TRUSTED, Assignment
from dlsys.grading.boxes.warm import Boxes
from dlsys.grading.checks import Check
from dlsys.grading.collecting.rebuild import Step, Submission
from dlsys.grading.judging.parties import Broke, Referee, StudentBox

_MOST_LATE = 2  # checks of a question that may run out of time before the rest is left


@dataclass
class Ran:
    """What came of a submission: of its checks by (question, index), and of its answer cells.

    A check's outcome is as the referee gives it, and what is wrong with it, "" where nothing is.
    """

    values: dict[tuple[str, int], tuple[str, Any, str]] = field(default_factory=dict)
    costs: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)  # by answer cell
    broke: dict[str, str] = field(default_factory=dict)  # by answer cell
    notes: list[str] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)  # numbers of steps that are not to run again
    breaks: int = 0


def run(
    assignment: Assignment,
    checks: Mapping[str, tuple[Check, ...]],
    submission: Submission,
    boxes: Boxes,
    modules: bool = False,
) -> Ran:
    """What comes of a submission; with `modules`, which is for the author's, all boxes that are
    opened later, the referee's too, have what its cells import."""
    ran = Ran()
    until = time.monotonic() + boxes.limits.submission_seconds
    student = _run_cells(assignment, submission, boxes, ran, until)
    if modules:
        boxes.prepare(student.imported())
    referee = Referee(boxes, boxes.limits, assignment, student.snapshots)
    spoiled: set[str] = set()
    try:
        for hidden in (False, True):
            for question in assignment.questions:
                while question.id in student.snapshots and question.id not in spoiled:
                    referee.question(question.id)
                    fine = _evaluate(referee, question.id, checks[question.id], hidden, ran, until)
                    if ran.breaks > boxes.limits.restarts or student.is_well(thoroughly=not fine):
                        break
                    # The other questions are not to suffer for what one has done to the box.
                    referee.close()
                    student.close()
                    if greedy := student.greedy:
                        _leave_out_greedy(assignment, submission.steps, *greedy, ran, ran)
                    else:
                        spoiled.add(question.id)
                        _leave_out(submission.steps, question.id, ran)
                    student = _run_cells(assignment, submission, boxes, ran, until, silent=hidden)
                    referee = Referee(boxes, boxes.limits, assignment, student.snapshots)
        if modules:
            boxes.prepare(referee.imported())
    finally:
        referee.close()
        student.close()
    return ran


def _run_cells(
    assignment: Assignment,
    submission: Submission,
    boxes: Boxes,
    ran: Ran,
    until: float,
    silent: bool = False,
) -> StudentBox:
    """The student's box after all cells; those that broke the kernel are left out.

    Where this is `silent`, for hidden checks were run, what cells end with is not told: they could
    have found out what these were.
    """
    limits = boxes.limits
    steps = list(submission.steps)
    told = Ran() if silent else ran
    while True:
        box = StudentBox(boxes, limits, assignment.files)
        told.errors.clear()
        for index, step in enumerate(steps):
            if index in ran.left_out:
                continue
            try:
                seconds = max(0.1, min(limits.cell_seconds, until - time.monotonic()))
                error = box.run(step, seconds)
            except Broke as broke:
                box.close()
                if greedy := box.greedy:
                    _leave_out_greedy(assignment, steps, *greedy, ran, told)
                else:
                    _blame(steps, index, ran)
                    _tell(assignment, step, str(broke), told)
                if ran.breaks > limits.restarts or time.monotonic() > until:
                    del steps[index:]
                    told.notes.append(
                        f"More than {limits.restarts} cells broke the kernel, or all of them took "
                        "too long; the cells after the last of these were not run."
                    )
                    until = time.monotonic() + limits.cell_seconds
                break
            if error is not None and step.kind == ANSWER:
                told.errors[step.id] = error
        else:
            return box


def _blame(steps: Sequence[Step], index: int, ran: Ran) -> None:
    """Leave out the cell that broke the kernel: where a snapshot could not be made, what the
    student ran since the one before, and where that is left out already, before that one."""
    ran.breaks += 1
    guilty, since = {index}, index
    if steps[index].kind == TEST:
        while since and guilty == {index}:
            end, since = since, since - 1
            while since and steps[since - 1].kind != TEST:
                since -= 1
            theirs = {i for i in range(since, end) if steps[i].kind in (ANSWER, FREE)}
            guilty = theirs - ran.left_out or guilty
    ran.left_out |= guilty


def _leave_out_greedy(
    assignment: Assignment, steps: Sequence[Step], greedy: Step, how: str, ran: Ran, told: Ran
) -> None:
    """Leave out a cell for which the memory did not suffice, or that left no room for processes,
    wherever it ran out."""
    ran.breaks += 1
    ran.left_out |= {i for i, step in enumerate(steps) if step is greedy}
    _tell(assignment, greedy, how, told)


def _leave_out(steps: Sequence[Step], question: str, ran: Ran) -> None:
    """Leave out an answer whose check broke the kernel."""
    ran.breaks += 1
    ran.broke[question] = "Its check broke the kernel."
    ran.left_out |= {
        i for i, step in enumerate(steps) if (step.kind, step.id) == (ANSWER, question)
    }


def _tell(assignment: Assignment, step: Step, how: str, ran: Ran) -> None:
    if step.kind in (ANSWER, TEST):
        ran.broke[step.id] = how
    titles = {question.id: question.title for question in assignment.questions}
    name = {
        ANSWER: f"The answer cell of “{titles.get(step.id)}”",
        FREE: "A cell of your own",
        TRUSTED: f"The cell {step.id!r}",
        TEST: f"The cell before the check of “{titles.get(step.id)}”",
    }[step.kind]
    ran.notes.append(f"{name} broke the kernel, and the notebook was run without it. {how}")


def _evaluate(
    referee: Referee,
    question: str,
    checks: tuple[Check, ...],
    hidden: bool,
    ran: Ran,
    until: float,
) -> bool:
    """Evaluate the checks of a question; whether each has a value."""
    fine = True
    late = sum(ran.values.get((question, i), ("",))[0] == "late" for i in range(len(checks)))
    for index, check in enumerate(checks):
        if check.hidden is not hidden:
            continue
        if late >= _MOST_LATE or time.monotonic() > until:
            ran.values[question, index] = "late", "", "It took too long."
            continue
        word, came = referee.evaluate(check.expression)
        late += word == "late"
        fine = fine and word in ("value", "not plain")
        wrong = "There is no value." if word != "value" else _wrong(check, came)
        ran.values[question, index] = word, came, wrong
        if check.cost and not hidden and not wrong:
            word, cost = referee.evaluate(check.cost, cost=True)
            if word == "value":
                ran.costs[question, index] = cost
    return fine


def _wrong(check: Check, came: Any) -> str:
    return difference(came, check.expected, check.rtol, check.atol) or ""
