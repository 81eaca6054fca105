"""The Sphinx extension of the book: execution, downloads, predictions, folded solutions."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: "Sphinx") -> dict[str, Any]:
    """Register the extension with Sphinx."""
    # Here and not above: whoever starts the build must be able to stop it from its first moment.
    from dlsys.notebook.book import (
        cache,
        execute,
        exercises,
        failures,
        names,
        pages,
        predictions,
        references,
        tables,
    )

    references.register()
    tables.register(app)
    names.register(app)
    app.add_config_value("book_package", "dlsys", "env")
    app.add_config_value("book_solutions", os.environ.get("SOLUTIONS") == "1", "env")
    app.connect("env-get-outdated", cache.find_outdated)
    app.connect("env-before-read-docs", execute.execute_chapters)
    app.connect("source-read", cache.mark_kernel)
    app.connect("source-read", exercises.prepare)
    app.connect("source-read", failures.replace_unreadable)
    app.connect("doctree-read", predictions.fold)
    app.connect("doctree-read", failures.add_note)
    app.connect("html-page-context", pages.add_links)
    app.connect("build-finished", pages.write_notebooks)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
