"""What a page says where its chapter failed on this machine, or where it cannot be read."""

from dataclasses import dataclass
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.core.read import create_nb_reader
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """Where the execution of a chapter ended before its end, and why."""

    place: str
    error: str  # in one line
    details: str  # its traceback, and what it ran on
    whole: bool = False  # whether the page is there to its end, and only a number is not as it says

    def __str__(self) -> str:
        return f"{self.place}: {self.error}"


def add_note(app: Sphinx, doctree: nodes.document) -> None:
    """Say under the title that the chapter failed, whatever its cell folds (doctree-read)."""
    failure = getattr(app.env, "book_failures", {}).get(app.env.docname)
    if failure is None:
        return
    if failure.whole:
        head = "A number of this chapter came out otherwise on this machine"
        words = f"{failure}. Please report what is said here."
    else:
        head = "This chapter failed on this machine"
        words = f"{failure}. Only what stands before that was run. Please report what is said here."
    details = nodes.literal_block(failure.details, failure.details, language="text")
    parts = (nodes.title(head, head), nodes.paragraph(words, words), details)
    note = nodes.admonition("", *parts, classes=["danger"])
    title = next(doctree.findall(nodes.title), None)
    if title is None:
        doctree.insert(0, note)
    else:
        title.parent.insert(title.parent.index(title) + 1, note)


def replace_unreadable(app: Sphinx, page: str, content: list[str]) -> None:
    """Put a sentence in the place of a page at which MyST-NB would end the build (source-read)."""
    env: Any = app.env
    path = env.doc2path(page)
    try:
        reader = create_nb_reader(path, env.myst_config, env.mystnb_config, content[0])
        if reader:
            reader.read(content[0])
    except Exception as error:  # whatever a reader stumbles over
        words = f"This page cannot be read: {type(error).__name__}: {error}"
        LOGGER.warning("%s", words, location=page)
        content[0] = f"# {page}\n\n``````{{danger}}\n{words}\n``````\n"
        if path.endswith(".ipynb"):
            cell = nbformat.v4.new_markdown_cell(content[0])
            content[0] = nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))
