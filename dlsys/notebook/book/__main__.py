"""Build the book: `python -m dlsys.notebook.book OUTPUT`, in the folder of _config.yml.

Whatever goes wrong, the last words are a sentence for whoever reads the book. A chapter that fails
and a warning of Sphinx's leave a book with the rest; with --strict they are errors as well.
"""

import argparse
import errno
import logging
import os
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_IN_WORDS = (*map(os.strerror, FULL), "database or disk is full")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the book, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dlsys.notebook.book", description=__doc__)
    parser.add_argument("output", type=Path, help="the folder whose _build gets the book")
    parser.add_argument("--strict", action="store_true", help="failures and warnings are errors")
    given = parser.parse_args(arguments)
    try:
        return _build(given.output.resolve() / "_build", given.strict)
    except KeyboardInterrupt:
        print("\nStopped. The next `make book` goes on from here.", file=sys.stderr)
        return 130
    except Exception as error:
        told = traceback.format_exc()  # what led to it comes first
        full = [line for line in told.splitlines() if any(part in line for part in FULL_IN_WORDS)]
        if full:
            why = full[0].strip(" |")
            end = f"The disk is full: {why}. Make room; the next `make book` goes on from here."
        else:
            print(told, file=sys.stderr)
            again = (
                "The next `make book` begins anew; if it ends like this, please report these lines."
            )
            end = f"No book: {type(error).__name__}: {error}. {again}"
        print(end, file=sys.stderr)
        return 1


def _build(build: Path, strict: bool) -> int:
    from jupyter_book.config import get_final_config
    from sphinx.application import Sphinx
    from sphinx.util.console import color_terminal, nocolor
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    if not color_terminal():
        nocolor()
    start = time.time()
    pages = build / "html"
    # For make: dated when a build began in which nothing went wrong, long ago after others. While a
    # book is built there is none: what a build that was stopped has left may be cut short.
    complete = pages / ".complete"
    fresh = not complete.is_file() or not complete.stat().st_mtime
    if not complete.is_file():
        shutil.rmtree(pages, ignore_errors=True)
    complete.unlink(missing_ok=True)
    more = {"external_toc_path": "_toc.yml", "latex_individualpages": False, "nitpicky": True}
    config, _ = get_final_config(
        user_yaml=Path("_config.yml"), cli_config=more, sourcedir=Path.cwd()
    )
    with patch_docutils(), docutils_namespace():
        # Told that warnings are errors, Sphinx says whether there were any. It would show a page
        # that it warned of as good the next time, hence the fresh environment.
        folders = (Path.cwd(), None, pages, build / ".doctrees")
        app = Sphinx(*folders, "html", config, None, sys.stderr, fresh, True, keep_going=True)
        logging.getLogger("sphinx").addHandler(_Full(logging.WARNING))
        app.build()
    for failure in app.env.book_failures.values():  # type: ignore[attr-defined]
        end = "Everything else is built. Please report the box at the top of its page."
        print(f"{failure}. {end}", file=sys.stderr)
    if app.statuscode and strict:
        return app.statuscode
    complete.touch()
    os.utime(complete, (0, 0) if app.statuscode else (start, start))
    return 0


class _Full(logging.Handler):
    """Ends a build where Sphinx only warns that it could not write a page."""

    def emit(self, record: logging.LogRecord) -> None:
        for part in record.args or ():
            if isinstance(part, OSError) and part.errno in FULL:
                raise part


if __name__ == "__main__":
    sys.exit(main())
