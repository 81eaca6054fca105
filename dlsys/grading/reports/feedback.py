"""A page for each student: what is right, what is not and why, and what the best answer costs.

The page needs nothing else and runs nothing: it has no script, and a policy by which a browser
would load and run none. Whatever the template shows is text, made visible first (`text.visible`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlsys.exercises.cost import BEATEN, amounts, beats
from dlsys.files import holds
from dlsys.files import write as write_file
from dlsys.grading import result as results
from dlsys.grading.assignment import Assignment
from dlsys.grading.course.grade import Grade
from dlsys.grading.reports.pdf import pdf_of
from dlsys.grading.reports.tables import cell
from dlsys.grading.result import CheckResult, QuestionResult
from dlsys.grading.text import file_name, visible

if TYPE_CHECKING:
    from jinja2 import Environment

Comments = Mapping[tuple[str, str, str], str]  # by student, slug and question

_TEMPLATES = Path(__file__).parent / "templates"
# Told apart by shape, and by the word beside them. The selector keeps them from becoming emoji.
_TEXT_STYLE = "\ufe0e"
_MARKS = {
    results.RIGHT: "✔",
    results.PARTLY: "◐",
    results.WRONG: "✘",
    results.UNANSWERED: "○",
    results.BROKE: "✘",
}


def write(
    folder: Path,
    grades: Sequence[Grade],
    assignments: Mapping[str, Assignment],
    comments: Comments | None = None,
) -> Path:
    """Write `feedback/STUDENT.html` in `folder`, and return its path; a PDF of another goes.

    grades: those of one student, at least one and each of another assignment
    comments: what a person wrote beside answers
    """
    path = folder / "feedback" / f"{file_name(grades[0].result.student)}.html"
    made = page(grades, assignments, comments)
    if not holds(path, made):
        pdf_of(path).unlink(missing_ok=True)
    write_file(path, made)
    return path


def page(
    grades: Sequence[Grade],
    assignments: Mapping[str, Assignment],
    comments: Comments | None = None,
) -> str:
    """The page that `write` writes."""
    student = grades[0].result.student
    graded = [grade for grade in grades if grade.result.status == results.GRADED]
    template = environment().get_template("feedback.html")
    return template.render(
        student=grades[0].person.get("name") or student,
        grades=grades,
        graded=graded,
        total=sum(grade.total or 0.0 for grade in graded),
        most=sum(_most(grade) for grade in graded),
        waiting=sum(grade.waiting for grade in graded),
        isolated=all(grade.result.isolated for grade in graded),
        weighed=functools.partial(_weighed, assignments),
        titles={slug: each.title for slug, each in assignments.items()},
        comments={key[1:]: text for key, text in (comments or {}).items() if key[0] == student},
    )


@functools.cache
def environment() -> Environment:
    """What templates are filled in with: everything that they show is text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    style = (_TEMPLATES / "feedback.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Before it is escaped: so no expression of the template can leave it out.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.globals |= {
        **{name: getattr(results, name) for name in ("GRADED", "UNANSWERED", "RIGHT")},
        "style": Markup(style),
        "style_digest": digest,
        "hidden_hints": _hidden_hints,
    }
    environment.filters |= {
        "points": lambda value: cell(round(value, 2)),
        "amounts": _amounts,
        "praise": _praise,
        "mark": lambda status: _MARKS[status] + _TEXT_STYLE,
        "said": _said,
        "most": _most,
    }
    return environment


def _most(grade: Grade) -> float:
    result = grade.result
    return sum(q.points for q in result.questions) + sum(w.points for w in result.written)


def _weighed(
    assignments: Mapping[str, Assignment], slug: str, question: QuestionResult, hidden: bool
) -> list[tuple[CheckResult, str]]:
    """The hidden, or the other, checks of a question, each with what it is worth in words; no words
    where the assignment is not at hand, or has changed since."""
    asked = {
        each.id: each.checks
        for each in (assignments[slug].questions if slug in assignments else ())
    }
    checks = asked.get(question.id, ())
    if [each.hidden for each in checks] != [each.hidden for each in question.checks]:
        return [(came, "") for came in question.checks if came.hidden is hidden]
    whole = sum(check.weight for check in checks)
    return [
        (came, _worth(question.points * check.weight / whole, check.needed))
        for came, check in zip(question.checks, checks, strict=True)
        if came.hidden is hidden
    ]


def _worth(points: float, needed: bool) -> str:
    shown = cell(round(points, 2))
    needs = "; without it the question earns nothing" if needed else ""
    return f"worth {shown} point{'s' * (shown != '1')}{needs}"


def _said(check: CheckResult) -> dict[str, Any]:
    """The message of a check that is not hidden: how its `first` line goes on after the expression,
    and the `rest`; the hint, which the page shows apart, left out."""
    message = check.message.removesuffix(f"\n  likely:    {check.hint}")
    first, _, rest = message.removeprefix(check.expression).partition("\n")
    passed = "passed" if check.passed else "not passed"
    return {"first": first.strip() or passed, "rest": textwrap.dedent(rest).strip("\n")}


def _hidden_hints(checks: Sequence[CheckResult]) -> list[str]:
    """The hints of the hidden checks that did not pass, each once."""
    return list(dict.fromkeys(c.hint for c in checks if c.hidden and not c.passed and c.hint))


def _praise(check: CheckResult) -> str:
    """What is said of an answer that beats the best known; nothing of another."""
    try:
        return BEATEN if beats(check.cost or {}, check.best or {}) else ""
    except (TypeError, ValueError, OverflowError):  # an answer may price itself at nonsense
        return ""


def _amounts(cost: Mapping[str, float]) -> str:
    try:
        return amounts(cost)
    except (TypeError, ValueError, OverflowError):  # an answer may price itself at nonsense
        return "no amount"
