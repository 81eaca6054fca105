"""Show a chapter's quiz: `quiz.show("memory_wall")`, with the scripts of jupyterquiz.

The questions are quizzes/<slug>.json beside this file, in jupyterquiz's format: in the package, so
that a downloaded chapter finds them from any folder. What is shown is one piece of HTML with its
script inside, the same bytes every time, so that it works in a built page without a kernel, in
JupyterLab, and without a network.
"""

import json
from pathlib import Path
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import unknown

# Dark enough to carry white text, and apart from one another without colour (they differ in
# lightness); right and wrong are said in the feedback too, so colour carries nothing alone.
_COLORS = {
    "--jq-multiple-choice-bg": "#2f4b7c",
    "--jq-many-choice-bg": "#5a4a78",
    "--jq-numeric-bg": "#2b5d62",
    "--jq-mc-button-bg": "#f5f5f5",
    "--jq-mc-button-border": "#8a8a8a",
    "--jq-mc-button-inset-shadow": "#555555",
    "--jq-numeric-input-bg": "#ffffff",
    "--jq-numeric-input-label": "currentColor",
    "--jq-numeric-input-shadow": "#999999",
    "--jq-correct-color": "#1b7837",
    "--jq-incorrect-color": "#b2182b",
    "--jq-text-color": "#ffffff",
    "--jq-link-color": "#9abafa",
}

# The feedback stands on the page's own background (which the theme would make light in the dark),
# in the page's own text color, marked by a bar.
_STYLE = """
.text_html:has(> .chapter-quiz) {{ background: none !important; color: inherit !important; }}
#{id} .Quiz {{ font-size: 1rem; line-height: 1.4; margin: 1.2rem auto; }}
#{id} .Feedback {{ font-size: 1rem; text-align: left; color: inherit; padding: 0 0.8rem; }}
#{id} .Feedback.correct {{ border-left: 4px solid #1b9e4b; }}
#{id} .Feedback.incorrect {{ border-left: 4px solid #d6404e; }}
#{id} .MCButton {{ position: relative; text-align: left; justify-content: flex-start; }}
#{id} .MCButton {{ font-size: 0.95rem; }}
#{id} .MCButton.correctButton, #{id} .MCButton.incorrectButton {{ color: #ffffff; }}
#{id} .MCButton input {{ position: absolute; opacity: 0; pointer-events: none; }}
#{id} .MCButton:focus-within, #{id} .Input-text:focus {{ outline: 3px solid #e69f00; }}
#{id} .InpLabel {{ float: none; font-size: 0.95rem; }}
#{id} .InpLabel::after {{ content: " (Enter checks it)"; }}
#{id} .Input-text {{ font-size: 1rem; margin: 0.4rem 0; }}
#{id} .Input-text {{ color: #222222; border: 2px solid #767676; }}
"""


class Quiz:
    """A quiz that shows itself as HTML where HTML can be shown, and as its questions elsewhere."""

    def __init__(self, slug: str, questions: list[dict[str, Any]]) -> None:
        self.slug = slug
        self.questions = questions

    def _repr_html_(self) -> str:
        from jupyterquiz.dynamic.renderer import build_script, build_styles, render_div

        name = f"quiz_{self.slug}"
        # "</" would end the script; "<\/" is the same text in JSON.
        data = json.dumps([_marked(q) for q in self.questions]).replace("</", "<\\/")
        prefix = f"var questions{name} = {data};\nif (typeof Question === 'undefined') {{\n"
        script = build_script(prefix, True, "", name, True)
        # Inside this function the library finds no MathJax, which it would otherwise load from the
        # network (the quizzes need none), and writes no notes to the console.
        script = (
            f"(function () {{\nvar MathJax, console = {{log() {{}}, error() {{}}}};\n{script}}})();"
        )
        box = render_div(name, False, False, False, len(self.questions), 700, 10, "left")
        style = build_styles(name, _COLORS) + f"<style>{_STYLE.format(id=name)}</style>"
        return f'<div class="chapter-quiz">{box}</div>{style}\n<script>\n{script}\n</script></div>'

    def __repr__(self) -> str:
        lines = [f"Quiz {self.slug}, {len(self.questions)} questions:"]
        return "\n".join(lines + [f"- {question['question']}" for question in self.questions])


@checked
def show(slug: str) -> Quiz:
    """The quiz of a chapter, as the last expression of a cell.

    Raises ValueError where there is no such quiz.
    """
    quizzes = Path(__file__).parent / "quizzes"
    known = sorted(path.stem for path in quizzes.glob("*.json"))
    if slug not in known:
        raise ValueError(unknown("quiz", slug, known))
    return Quiz(slug, json.loads((quizzes / f"{slug}.json").read_text(encoding="utf-8")))


def _marked(question: dict[str, Any]) -> dict[str, Any]:
    """The question with a sign before each feedback: colour alone would not do."""
    answers = [
        answer | {"feedback": ("✔ " if answer.get("correct") else "✘ ") + answer["feedback"]}
        for answer in question["answers"]
    ]
    return question | {"answers": answers}
