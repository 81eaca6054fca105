"""A question's result in lines of plain text, for terminals and for platforms that show text."""

from __future__ import annotations

from dlsys.exercises import amounts
from dlsys.grading.result import BROKE, UNANSWERED, CheckResult, QuestionResult
from dlsys.grading.tables import cell
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
        shown = (f"  {visible(check.message)}" for check in hidden if not check.passed)
        lines += dict.fromkeys(line for line in shown if line.strip())
    return lines


def _check(check: CheckResult) -> str:
    lines = [f"{_mark(check.passed)} {visible(check.message or check.expression)}"]
    if check.cost:
        best = f"   best known: {amounts(check.best)}" if check.best else ""
        lines.append(f"  cost: {amounts(check.cost)}{best}")
    return "\n".join(lines)


def _mark(right: bool) -> str:
    return TICK if right else CROSS
