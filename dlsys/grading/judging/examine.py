"""One submission from its cells to its points."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from dlsys.exercises.judge import bare, complaint, kind, likely_mistake
from dlsys.grading import result as results
from dlsys.grading.assignment import (
    ANSWER,
    FREE,
    TEST,
    TRUSTED,
    Assignment,
    Question,
    names_in,
)
from dlsys.grading.boxes.warm import Boxes
from dlsys.grading.checks import Check, drawn
from dlsys.grading.collecting.rebuild import Step, Submission, unchanged
from dlsys.grading.judging.running import Ran, run
from dlsys.grading.result import CheckResult, QuestionResult, Result, WrittenAnswer

_NOTHING = ("error", "There is nothing to check.", "There is nothing to check.")


@dataclass(frozen=True)
class Prepared:
    """An assignment with its checks drawn for one grading run.

    `checks` are by question, each with what it expects; `kinds` says of a check, by (question,
    index), what kind of value the solution gives; `by_blank` holds those that the blank notebook
    passes.
    """

    assignment: Assignment
    seed: int
    checks: Mapping[str, tuple[Check, ...]]
    kinds: Mapping[tuple[str, int], str] = field(default_factory=dict)
    by_blank: frozenset[tuple[str, int]] = frozenset()


def prepare(assignment: Assignment, boxes: Boxes, seed: int) -> Prepared:
    """Draw the checks, and have the solution and the blank notebook examined.

    What a drawn check expects is what the solution gives. Raises ValueError where the solution has
    not full marks, or the blank notebook has any. Where solutions are not at hand, the checks are
    the visible ones as they are.
    """
    checks = {question.id: question.checks for question in assignment.questions}
    kinds: dict[tuple[str, int], str] = {}
    if any(question.solution for question in assignment.questions):
        checks, kinds = _solved(assignment, boxes, seed)
    prepared = Prepared(assignment, seed, checks, kinds)
    blank = {question.id: question.blank for question in assignment.questions}
    values = run(assignment, checks, _submission(assignment, blank), boxes).values
    passed = frozenset(place for place, (_, _, wrong) in values.items() if not wrong)
    prepared = replace(prepared, by_blank=passed)
    for question in assignment.questions:
        if not _telling(prepared, question):
            raise ValueError(
                f"{assignment.slug}: the blank answer {question.id!r} passes every check"
            )
    return prepared


def _solved(
    assignment: Assignment, boxes: Boxes, seed: int
) -> tuple[dict[str, tuple[Check, ...]], dict[tuple[str, int], str]]:
    """The checks as they are drawn, with what the solution gives for them, and of what kind."""
    checks = {
        question.id: tuple(
            drawn(check, Random(f"{seed}/{assignment.slug}/{question.id}/{index}"))
            for index, check in enumerate(question.checks)
        )
        for question in assignment.questions
    }
    solutions = {question.id: question.solution for question in assignment.questions}
    solved = run(assignment, checks, _submission(assignment, solutions), boxes, modules=True)
    for question in assignment.questions:
        expecting = []
        for index, check in enumerate(checks[question.id]):
            word, came, wrong = solved.values.get((question.id, index), _NOTHING)
            if word != "value":
                why = solved.errors.get(question.id) or came
                raise ValueError(
                    f"{assignment.slug}: the solution of {question.id!r} gives no value for "
                    f"`{check.expression}`: {why}"
                )
            if question.checks[index].vary:
                # As the literal in the notebook would be: it accepts lists and whole numbers, too.
                check = replace(check, expected=bare(came))
            elif wrong:
                raise ValueError(
                    f"{assignment.slug}: the solution of {question.id!r} does not pass its own "
                    f"check `{check.expression}`. {wrong}"
                )
            expecting.append(check)
        checks[question.id] = tuple(expecting)
    return checks, {place: kind(came) for place, (_, came, _) in solved.values.items()}


def examine(prepared: Prepared, submission: Submission, boxes: Boxes, student: str = "") -> Result:
    """Run a submission and judge it; nothing that the student's code does makes this raise."""
    began = time.monotonic()
    assignment = prepared.assignment
    ran = run(assignment, prepared.checks, submission, boxes)
    return Result(
        student,
        assignment.slug,
        results.GRADED,
        questions=[
            _question(prepared, question, submission.answers.get(question.id), ran)
            for question in assignment.questions
        ],
        written=[
            WrittenAnswer(
                w.id, w.title, w.points, text, bool(text.strip()) and not unchanged(text, w.blank)
            )
            for w in assignment.written
            for text in [submission.written.get(w.id) or ""]  # an empty answer needs nobody
        ],
        notes=[*submission.notes, *ran.notes],
        isolated=boxes.isolated,
        seconds=time.monotonic() - began,
    )


def _submission(assignment: Assignment, answers: Mapping[str, str]) -> Submission:
    """The released notebook with these answers."""
    steps = []
    for cell in assignment.cells:
        question = cell.id.removesuffix("-test") if cell.kind == TEST else cell.id
        if cell.kind in (TRUSTED, ANSWER, FREE, TEST):
            source = "" if cell.kind == TEST else answers.get(cell.id, cell.source)
            steps.append(Step(cell.kind, question, source))
    return Submission(tuple(steps), answers, {})


# -- judging -------------------------------------------------------------------------------------


def _telling(prepared: Prepared, question: Question) -> set[int]:
    """The checks that a right answer is known by: an answer that passes none of them earns nothing.

    They are those that the blank answer fails, and of these the hidden ones, if there are any: the
    numbers in the notebook may be known by heart.
    """
    checks = prepared.checks[question.id]
    failed = {i for i in range(len(checks)) if (question.id, i) not in prepared.by_blank}
    return {i for i in failed if checks[i].hidden} or failed


def _paid(prepared: Prepared, question: Question, passed: set[int]) -> set[int]:
    """Of the passed checks those that count, since something that tells a right answer passed too.

    For a check of a function that is a check of the same function, where there is one: what is
    right of a number beside it says nothing of the function.
    """
    checks, telling = prepared.checks[question.id], _telling(prepared, question)
    by_function = {i: names_in(checks[i].expression) & question.functions for i in passed | telling}
    found = set()
    for i in passed:
        of_it = {j for j in telling if by_function[i] & by_function[j]}
        if passed & (of_it or telling):
            found.add(i)
    return found


def _question(
    prepared: Prepared, question: Question, answer: str | None, ran: Ran
) -> QuestionResult:
    checks = prepared.checks[question.id]
    judged = [
        _check(
            check,
            prepared.kinds.get(place) or kind(check.expected),
            *ran.values.get(place, _NOTHING),
            ran.costs.get(place),
        )
        for place, check in (((question.id, i), check) for i, check in enumerate(checks))
    ]
    passed = {i for i, one in enumerate(judged) if one.passed}
    share = _share(checks, _paid(prepared, question, passed))
    blank = answer is None or unchanged(answer, question.blank)
    if share == 1:
        status = results.RIGHT
    elif share > 0:
        status = results.PARTLY
    elif question.id in ran.broke:
        status = results.BROKE
    else:
        status = results.UNANSWERED if blank else results.WRONG
    return QuestionResult(
        question.id,
        question.title,
        question.points,
        question.points * share,
        status,
        judged,
        answer or "",
        ran.broke.get(question.id) or ran.errors.get(question.id),
    )


def _share(checks: Sequence[Check], passed: set[int]) -> float:
    """What part of a question's points these checks are worth; exactly 1 for all of them."""
    if len(passed) == len(checks):
        return 1.0
    if any(check.needed and i not in passed for i, check in enumerate(checks)):
        return 0.0
    return sum(checks[i].weight for i in passed) / sum(check.weight for check in checks)


def _of_author(hint: str | None, check: Check) -> str | None:
    """A hint that the author wrote; for another, the one for any answer.

    What is said of how an answer is built, of its digits or length, the answer has in its hand: it
    could tell with them what the hidden check asks.
    """
    if hint is None or isinstance(check.hint, str):
        return hint and str(check.hint)
    pairs = [*check.hint.items()] if isinstance(check.hint, Mapping) else check.hint or []
    if any(hint == text for _, text in pairs):
        return hint
    return next((str(text) for wrong, text in pairs if wrong is None), None)


def _check(
    check: Check, expected: str, word: str, came: Any, wrong: str, cost: dict[str, float] | None
) -> CheckResult:
    """What is said of one check: all of it where it is shown, its hint alone where hidden."""
    expression = "" if check.hidden else check.expression
    if not wrong:
        best = dict(check.best) if check.best and cost else None
        return CheckResult(check.hidden, True, expression, expected, cost=cost, best=best)
    is_value = word == "value"
    hint = likely_mistake(came, check.expected, check.hint, check.rtol) if is_value else None
    if check.hidden:
        return CheckResult(True, False, "", expected, hint=_of_author(hint, check))
    if is_value:
        message = complaint(expression, came, check.expected, wrong, check.hint, check.rtol)
    elif word == "late":
        message = f"{expression} took too long."
    elif word == "not plain":
        message = f"{expression} cannot be compared.\n  {came}"
    else:
        message = f"{expression} ended with an error.\n  {came}"
    return CheckResult(False, False, expression, expected, message, hint)
