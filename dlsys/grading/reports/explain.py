"""A question's result in lines of plain text, for terminals and for platforms that show text."""

from __future__ import annotations

from dlsys.exercises.cost import cost_line
from dlsys.grading.reports.tables import cell
from dlsys.grading.result import BROKE, UNANSWERED, CheckResult, QuestionResult
from dlsys.grading.text import visible

TICK, CROSS = "✔", "✘"


def headline(question: QuestionResult) -> str:
    """Title and points of a question."""
    return f"{question.title}: {cell(question.earned)} of {cell(question.points)} points"


def explain(question: QuestionResult) -> list[str]:
    """What is right and wrong with an answer, one line or paragraph for each check."""
    if question.status == UNANSWERED:
        return ["Not answered."]
    lines = [visible(question.error)] if question.error else []
    if question.status == BROKE:
        lines.append("This cell ended the kernel; the rest of the notebook ran without it.")
    lines += [_check(check) for check in question.checks if not check.hidden]
    hidden = [check for check in question.checks if check.hidden]
    if hidden:
        right = sum(check.passed for check in hidden)
        lines.append(f"{_mark(right == len(hidden))} {right} of {len(hidden)} hidden checks pass")
        hints = (check.hint for check in hidden if not check.passed)
        lines += dict.fromkeys(f"  likely:    {visible(hint)}" for hint in hints if hint)
    return lines


def _check(check: CheckResult) -> str:
    line = f"{_mark(check.passed)} {visible(check.message or check.expression)}"
    if not check.cost:
        return line
    try:
        return f"{line}\n{cost_line(check.cost, check.best)}"
    except (TypeError, ValueError, OverflowError):  # an answer may price itself at nonsense
        return f"{line}\n  cost: none that can be shown"


def _mark(right: bool) -> str:
    return TICK if right else CROSS
