"""Run every cell of every chapter, with the threads and the environment that this process has.

    python -m tests.book.cells [CHAPTER ...]

The book runs them with one thread to a kernel; a reader's JupyterLab does not.
"""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbclient

from dlsys.notebook.book.execute import own_settings
from dlsys.notebook.book.numbers import with_numbers, wrong
from tests.contents import CHAPTERS, ROOT


def trouble(page: str, settings: dict[str, str]) -> str:
    """What is wrong with a page that is run in an empty folder; "" if nothing is."""
    path = ROOT / "chapters" / f"{page}.md"
    notebook = with_numbers(path, jupytext.read(path))
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
        try:
            client.execute(cwd=folder, env=settings)
        except (nbclient.exceptions.CellExecutionError, RuntimeError) as error:
            return f"chapters/{page}.md: {error}"
    off = [
        f"{title}: {error.ename}: {error.evalue}\n" + "\n".join(error.traceback)
        for title, error in wrong(notebook)
    ]
    if off:
        return f"chapters/numbers/{page}.py, " + "\n".join(off)
    said = [
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stderr"
    ]
    return f"chapters/{page}.md warns: {''.join(said)}" if said else ""


def main(pages: list[str]) -> int:
    """Run pages side by side; 1 if one fails."""
    pages = [
        page for page in pages if "code-cell" in (ROOT / f"chapters/{page}.md").read_text("utf-8")
    ]
    with (
        tempfile.TemporaryDirectory() as own,
        ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool,
    ):
        settings = own_settings(Path(own))
        found = list(filter(None, pool.map(lambda page: trouble(page, settings), pages)))
    print("\n\n".join([*found, f"{len(pages) - len(found)} of {len(pages)} pages run"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or CHAPTERS))
