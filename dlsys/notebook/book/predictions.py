"""Fold what a chapter's tags say: a prediction's code and answer, and what follows from it.

An author tags a cell `predict` or `after-prediction`; that is all there is to do.
"""

from docutils import nodes
from sphinx.application import Sphinx

BOTH = "input+output"  # two folds
# tag -> what MyST-NB is to hide, and the words of its button
FOLDS = {
    "predict": (BOTH, "Show the {type}"),
    "after-prediction": ("output", "Show what follows from the answer"),
}


def fold(app: Sphinx, doctree: nodes.document) -> None:
    """Mark the cells for MyST-NB, as its own tags and prompts would (doctree-read)."""
    for cell in doctree.findall(nodes.container):
        for tag, (what, words) in FOLDS.items():
            if f"tag_{tag}" not in cell["classes"]:
                continue
            if "tag_hide-input" in cell["classes"] and what == "output":
                cell["hide_mode"] = BOTH  # in MyST-NB's words, which it has already
            else:
                cell["hide_mode"] = what
                cell["prompt_show"] = words
                cell["prompt_hide"] = words.replace("Show", "Hide")
