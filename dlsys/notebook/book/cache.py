"""The execution cache follows the code that a chapter imports.

Jupyter Book keeps the outputs of a chapter under the text of its cells and the description of its
kernel, so a page would go on showing what an older package computed. While a page is read, a
fingerprint of all that its cells import is therefore written into the description of its kernel.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import jupytext
import yaml
from myst_nb.core.read import is_myst_markdown_notebook
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from dlsys.notebook.book.dependencies import dependencies
from dlsys.notebook.book.figures import KERNEL
from dlsys.notebook.book.numbers import beside

FAILED = (
    "failed"  # in the place of a fingerprint: no page has it the next time, so it is read again
)
HEAD = re.compile(r"---.*\n((?:.*\n)*?)(?:---|\.\.\.).*\n")  # front matter
INSTALLED = ("ipywidgets", "jupyterquiz", "matplotlib", "numpy", "torch")


def read_chapter(path: Path) -> NotebookNode | None:
    """Return the notebook that a Markdown page is, or None if it is a page of text only, or one
    that nobody can read."""
    try:
        text = path.read_text("utf-8") if path.suffix == ".md" else ""
        is_notebook = HEAD.match(text) and is_myst_markdown_notebook(text)
        return jupytext.reads(text, fmt="md:myst") if is_notebook else None
    except Exception:  # of which its page will tell (dlsys.notebook.book.failures)
        return None


def fingerprint(path: Path, notebook: NotebookNode, package: Path) -> str:
    """Return a digest of everything besides its own text that the outputs of a notebook depend on.

    These are the files of `package` that its cells import, the quiz of its name (all quizzes, if it
    reads the folder), the file that vouches for its numbers and what that imports, the kernel's
    arguments, and the versions of what is installed.
    """
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    numbers = [file for file in [beside(path)] if file.is_file()]
    code += [file.read_text("utf-8") for file in numbers]
    digest = hashlib.sha256(
        repr([sys.version_info[:2], *map(installed, INSTALLED), KERNEL]).encode()
    )
    reads_all = any('"quizzes"' in source for source in code)
    quiz = package.glob(f"notebook/quizzes/{'*' if reads_all else path.stem}.json")
    for file in sorted({*dependencies(code, package), *quiz, *numbers}):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def find_outdated(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Return the pages whose fingerprint has changed since the last build, or all pages after a
    change of styles and scripts, which Sphinx would not copy alone (env-get-outdated)."""
    before: dict[str, str] = getattr(env, "book_fingerprints", {})
    now = dict(_fingerprints(app, env))
    styles, env.book_styles = getattr(env, "book_styles", ""), _styles(app)  # type: ignore[attr-defined]
    env.book_fingerprints = now  # type: ignore[attr-defined]
    if styles != env.book_styles:  # type: ignore[attr-defined]
        return [*env.all_docs]
    return [page for page in now if page in env.all_docs and now[page] != before.get(page)]


def _styles(app: Sphinx) -> str:
    digest = hashlib.sha256()
    for folder in app.config.html_static_path:
        for file in sorted(Path(app.confdir, folder).rglob("*.*")):
            if file.suffix in (".css", ".js"):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _fingerprints(app: Sphinx, env: BuildEnvironment) -> Iterator[tuple[str, str]]:
    spec = find_spec(app.config.book_package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            f"book_package must name an installed package, not {app.config.book_package!r}"
        )
    package = Path(spec.submodule_search_locations[0])
    for page in env.found_docs:
        path = Path(env.doc2path(page))
        if notebook := read_chapter(path):
            yield page, fingerprint(path, notebook, package)


def mark_kernel(app: Sphinx, page: str, content: list[str]) -> None:
    """Write the page's fingerprint into its front matter, of as many lines (source-read)."""
    found = getattr(app.env, "book_fingerprints", {}).get(page)
    head = HEAD.match(content[0])
    if found is None or head is None:
        return
    metadata = yaml.safe_load(head[1])
    given = metadata.get("kernelspec")
    kernel = {"name": "python3", **(given if isinstance(given, dict) else {})}
    metadata["kernelspec"] = kernel | {"fingerprint": found}
    lines = "\n" * head[1].count("\n")
    text = json.dumps(metadata, default=str)
    content[0] = f"---\n{text}{lines}---\n{content[0][head.end() :]}"


def installed(name: str) -> str:
    """Return the version of an installed package, or nothing where there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
