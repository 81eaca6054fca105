"""Links at the head of each page: its notebook, and from chapter to exercises and back."""

import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import jupytext
from docutils import nodes
from sphinx.application import Sphinx

from dlsys.notebook.book import references
from dlsys.notebook.book.cache import read_chapter

# A reference as MyST writes it, {term}`text <target>` or {doc}`target`; other readers show it raw.
ROLE = re.compile(r"\{(?:term|doc|ref)\}`([^`<]*?)(?:\s*<[^`>]*>)?`")

# A link to a section of another page, which a notebook that is downloaded has not beside it.
SECTION = re.compile(r"\[([^\]]*)\]\(\w+\.md#[^)]*\)")

# Browsers show a notebook as raw JSON where the page is a file, so there it says where they lie.
ON_DISK = """<script>
if (location.protocol === "file:") {
  for (const link of document.querySelectorAll("nav.page-links a[download]")) {
    const what = link.textContent.replace(/^Download t/, "T");
    link.replaceWith(`${what}: ${decodeURI(new URL(link.href).pathname)}`);
  }
}
</script>"""


def add_links(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the links under the title of a chapter or an exercise (html-page-context)."""
    if doctree is None:
        return
    links = list(_links(app, page, context))
    if links:
        bar = (
            '<nav class="page-links" aria-label="This page">' + "".join(links) + "</nav>" + ON_DISK
        )
        head, title, rest = context["body"].partition("</h1>")
        context["body"] = head + title + bar + rest if title else bar + head


def _links(app: Sphinx, page: str, context: dict[str, Any]) -> Iterator[str]:
    _, _, slug = page.rpartition("/")
    chapter, exercise = f"chapters/{slug}", f"exercises/{slug}/{slug}"
    pages = app.env.all_docs

    def link(target: str, text: str, **attributes: str) -> str:
        extra = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
        return f'<a href="{escape(target)}"{extra}>{escape(text)}</a>'

    if page in _notebooks(app):
        text = (
            "Download these exercises" if page == exercise else "Download this page as a notebook"
        )
        yield link(f"{slug}.ipynb", text, download=f"{slug}.ipynb")
    if page == chapter and exercise in pages:
        yield link(context["pathto"](exercise), "Exercises of this chapter")
        yield link(
            context["pathto"](f"{exercise}.ipynb", 1),
            "Download the exercises",
            download=f"{slug}.ipynb",
        )
    if page == exercise and chapter in pages:
        yield link(context["pathto"](chapter), "Chapter of these exercises")


def _notebooks(app: Sphinx) -> Iterator[str]:
    """Yield the pages that are notebooks: chapters with code, and exercises."""
    yield from app.env.book_fingerprints  # type: ignore[attr-defined]
    yield from (page for page in app.env.all_docs if page.startswith("exercises/"))


def plain(text: str) -> str:
    """Return `text` with words where it refers to terms, pages and sections of the book."""
    return SECTION.sub(r"\1", ROLE.sub(r"\1", text))


def write_notebooks(app: Sphinx, failure: Exception | None) -> None:
    """Write beside each page the notebook that it offers, without outputs (build-finished)."""
    if failure or app.builder.format != "html":
        return
    for page in _notebooks(app):
        source = Path(app.env.doc2path(page))
        target = Path(app.outdir, f"{page}.ipynb")
        if source.suffix == ".ipynb" and source.is_file():
            shutil.copyfile(source, target)
        notebook = read_chapter(source)
        if notebook is None:  # copied, or deleted since
            continue
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number}"
            if cell.cell_type == "markdown":
                cell.source = plain(references.written_out(app, page, cell.source))
        notebook.metadata = {"kernelspec": notebook.metadata.get("kernelspec", {})}
        target.write_text(jupytext.writes(notebook, fmt="ipynb"), encoding="utf-8")
