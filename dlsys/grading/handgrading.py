"""The notebook that a person sees in nbgrader's formgrader: written answers first, then the rest.

It is shown on the grader's own Jupyter server, so everything from a student is text in a fence that
it cannot end: no HTML, no mathematics, and no cell that could be run by mistake.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from dlsys.grading.assignment import Assignment
from dlsys.grading.result import CheckResult, QuestionResult, Result
from dlsys.grading.text import visible


def test_name(question: str) -> str:
    """The name of the cell that holds the points of a question graded by running."""
    return f"{question}-test"


def notebook(assignment: Assignment, result: Result | None) -> str:
    """The notebook for grading `result`, as JSON; for None, the one that nobody has answered."""
    texts = {cell.id: cell.source for cell in assignment.cells}
    written = {answer.id: answer for answer in result.written} if result else {}
    graded = {question.id: question for question in result.questions} if result else {}
    cells = [_text("title", f"# {assignment.title}")]
    if result and not result.isolated:
        cells.append(_text("not-isolated", "**NOT ISOLATED**: graded without a sandbox."))
    for asked in assignment.written:
        cells.append(_text(f"{asked.id}-question", texts.get(f"{asked.id}-question", asked.title)))
        rubric = f"**How to grade it**, {asked.points:g} points in all\n\n{asked.rubric}"
        cells.append(_text(f"{asked.id}-rubric", "\n".join(f"> {x}" for x in rubric.split("\n"))))
        answer = written.get(asked.id)
        fenced = _fence(answer.answer) if answer and answer.answered else "*Not answered.*"
        cells.append(
            _cell("markdown", asked.id, fenced, points=asked.points, solution=True)
            | {"digest": _digest(answer.answer if answer else "")}
        )
    cells.append(_text("graded-by-running", "# Graded by running"))
    for question in assignment.questions:
        name = f"{question.id}-question"
        cells.append(_text(name, texts.get(name, question.title)))
        came = graded.get(question.id)
        code = came.answer if came else question.blank
        cells.append(
            _cell("markdown", question.id, _fence(code, "python"), solution=True)
            | {"digest": _digest(code)}
        )
        outcome = _outcome(came) if came else "# Nothing has run."
        cells.append(_cell("code", test_name(question.id), outcome, points=question.points))
    for cell in cells:
        if "digest" in cell:
            cell["metadata"]["dlsys"] = {"answer": cell.pop("digest")}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    data = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(data, indent=1) + "\n"


def answer_digests(text: str) -> Mapping[str, str]:
    """What `notebook` recorded of each answer, by question; empty where `text` is no notebook."""
    try:
        cells = json.loads(text)["cells"]
        return {
            cell["metadata"]["nbgrader"]["grade_id"]: cell["metadata"]["dlsys"]["answer"]
            for cell in cells
            if "dlsys" in cell["metadata"]
        }
    except (ValueError, KeyError, TypeError):
        return {}


def _cell(
    kind: str, name: str, source: str, points: float | None = None, solution: bool = False
) -> dict[str, Any]:
    nbgrader = {
        "schema_version": 3,
        "grade_id": name,
        "grade": points is not None,
        "solution": solution,
        "task": False,
        "locked": not solution,
        "cell_type": kind,
    }
    if points is not None:
        nbgrader["points"] = points
    # An id of nbformat may hold fewer characters, and fewer of them, than a name of nbgrader.
    cell_id = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64]
    cell = {
        "cell_type": kind,
        "id": cell_id,
        "metadata": {"nbgrader": nbgrader},
        "source": source,
    }
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _text(name: str, source: str) -> dict[str, Any]:
    return _cell("markdown", name, source)


def _fence(text: str, language: str = "text") -> str:
    """`text` as a block of Markdown that nothing in it can end."""
    shown = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def _outcome(question: QuestionResult) -> str:
    """What the checks of a question gave, as comments."""
    lines = [f"{question.status}: {question.earned:g} of {question.points:g} points"]
    if question.error:
        lines += ["the answer ended with", *_indented(question.error)]
    for check in question.checks:
        lines += _check(check)
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _check(check: CheckResult) -> list[str]:
    asked = " ".join(visible(check.expression).split()) or "a hidden check"
    if check.passed:
        return [f"✔ {asked}"]
    said = [text for text in (check.message, check.hint) if text]
    return [f"✘ {asked}", *(line for text in said for line in _indented(text))]


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in visible(text, 4000).split("\n")]


def _digest(answer: str) -> str:
    return hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()
