"""The notebook that a person sees in nbgrader's formgrader: written answers first, then the rest.

It is shown on the grader's own Jupyter server, so everything from a student is text in a fence that
it cannot end: no HTML, no mathematics, and no cell that could be run by mistake.
"""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from dlsys.grading.assignment import Assignment, Question, WrittenQuestion
from dlsys.grading.result import CheckResult, QuestionResult, Result
from dlsys.grading.text import visible


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
        rubric = f"*For whoever grades this.*\n\n{asked.rubric}"
        cells.append(_text(f"{asked.id}-rubric", "\n".join(f"> {x}" for x in rubric.split("\n"))))
        answer = written.get(asked.id)
        text = answer.answer if answer and answer.answered else ""
        shown = _fence(_wrapped(visible(text))) if text else "*Not answered.*"
        cells.append(_answer(asked, shown, text))
    cells.append(_text("graded-by-running", "# Graded by running"))
    for question in assignment.questions:
        name = f"{question.id}-question"
        cells.append(_text(name, texts.get(name, question.title)))
        came = graded.get(question.id)
        code = came.answer if came else question.blank
        shown = _fence(visible(code), "python")
        if came:
            shown += f"\n\n{_fence(_outcome(came))}"
        cells.append(_answer(question, shown, code))
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


def _answer(asked: Question | WrittenQuestion, shown: str, answer: str) -> dict[str, Any]:
    """A cell with room for points and a comment, by which `answer_digests` knows the answer."""
    cell = _text(asked.id, shown)
    cell["metadata"]["nbgrader"] |= {"grade": True, "solution": True, "locked": False}
    cell["metadata"]["nbgrader"]["points"] = asked.points
    digest = hashlib.sha256(answer.encode("utf-8", "surrogatepass")).hexdigest()
    cell["metadata"]["dlsys"] = {"answer": digest}
    return cell


def _text(name: str, source: str) -> dict[str, Any]:
    role = {"grade": False, "solution": False, "task": False, "locked": True}
    return {
        "cell_type": "markdown",
        "id": name,
        "metadata": {"nbgrader": {"schema_version": 3, "grade_id": name, **role}},
        "source": source,
    }


def _fence(text: str, language: str = "text") -> str:
    """`text` as a block of Markdown that nothing in it can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _wrapped(text: str) -> str:
    """Prose in lines that fit the page: a block in a fence does not wrap by itself."""
    return "\n".join(
        piece for line in text.split("\n") for piece in textwrap.wrap(line, 100) or [""]
    )


def _outcome(question: QuestionResult) -> str:
    """What the checks of a question gave."""
    lines = [f"{question.status}: {question.earned:g} of {question.points:g} points"]
    if question.error:
        lines += ["the answer ended with", *_indented(question.error)]
    return "\n".join([*lines, *(line for check in question.checks for line in _check(check))])


def _check(check: CheckResult) -> list[str]:
    asked = " ".join(visible(check.expression).split()) or "a hidden check"
    if check.passed:
        return [f"✔ {asked}"]
    said = [text for text in (check.message, check.hint) if text]
    return [f"✘ {asked}", *(line for text in said for line in _indented(text))]


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in visible(text, 4000).split("\n")]
