"""`make book` ends with a book: what fails on a machine takes nothing else away, and is said in a sentence."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jupyter_book", reason="the book's tools are not installed")

import yaml

from tests.book.test_execute import COUNT, HEAD
from tests.contents import ROOT

CELL = "```{code-cell} ipython3\n%s\n```\n\n"
FINE = f"{COUNT}\nprint('sun' + 'rise')"
FAILS = (
    f"{COUNT}\nprint('sun' + 'rise')",
    ":tags: [hide-cell]\n\nassert 1 == 2, 'it is not'",
    "6 * 7",
)
EXERCISE = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
FULL = Path("/dev/full")


def chapter(folder: Path, name: str, *cells: str, text: str = "", head: str = HEAD) -> None:
    path = folder / "chapters" / f"{name}.md"
    path.parent.mkdir(exist_ok=True)
    code = "".join(CELL % cell for cell in cells)
    path.write_text(head + code.replace("BOOK", str(folder)).replace("NAME", name) + text)


def contents(folder: Path) -> None:
    """Write a table of contents with all that there is."""
    files = [*folder.glob("chapters/*.md"), *folder.glob("exercises/*/*.ipynb")]
    names = sorted(str(file.relative_to(folder).with_suffix("")) for file in files)
    chapters = [{"file": name} for name in names]
    table = {"format": "jb-book", "root": "index", "chapters": chapters}
    (folder / "_toc.yml").write_text(yaml.safe_dump(table))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A book of one chapter with the project's settings, in the working directory."""
    (tmp_path / "index.md").write_text("# Book\n")
    settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    own = settings["sphinx"]["config"]
    for name in ("html_static_path", "html_css_files", "html_js_files"):
        del own[name]
    (tmp_path / "_config.yml").write_text(yaml.safe_dump(settings))
    chapter(tmp_path, "alpha", FINE)
    (tmp_path / "chapters" / "references.bib").write_text("@misc{bare, title={No author, no year}}")
    contents(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def page(folder: Path, name: str) -> str:
    return (folder / "_build/html" / f"{name}.html").read_text()


def runs(folder: Path, name: str) -> int:
    return len((folder / f"{name}.log").read_text())


def heed_interrupts() -> None:
    """As whoever started the tests may not, such as a shell in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def call(*command: str) -> tuple[int, list[str]]:
    """The status of a command, and the lines that it said."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_interrupts,
    )
    return done.returncode, done.stdout.splitlines()


def make(*arguments: str) -> tuple[int, list[str]]:
    """Call the project's Makefile for the book in the working directory."""
    if not os.path.lexists(".venv"):
        os.symlink(sys.prefix, ".venv")  # make cannot be told a path with spaces
    own = ("-o", ".venv/installed", "--no-print-directory")
    return call("make", "-f", str(ROOT / "Makefile"), *own, "book", *arguments)


def build(*arguments: str) -> tuple[int, list[str]]:
    """Start what the Makefile starts."""
    return call(sys.executable, "-m", "dlsys.notebook.book", ".", *arguments)


def built() -> None:
    status, said = build("--strict")
    assert status == 0, said


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_chapter_that_fails_leaves_a_book_and_is_tried_again_until_it_succeeds(folder):
    chapter(folder, "beta", *FAILS)
    contents(folder)
    status, said = make()
    line = HEAD.count("\n") + 6  # that of its fence
    place = f"chapters/beta.md, cell 2 (line {line}): AssertionError: it is not."
    assert status == 0
    assert said[-2].startswith(f"{place} Everything else is built.")
    assert said[-1].startswith("The book is ready: ")
    assert "sunrise" in page(folder, "chapters/alpha")
    failed = page(folder, "chapters/beta")
    note, _, rest = failed.partition("sunrise")
    assert place in note
    assert "AssertionError: it is not\n" in note, "the traceback is in sight, and the cell folded"
    assert "AssertionError" in rest
    assert ">42<" not in failed

    status, said = make("STRICT=1")
    assert status != 0
    assert [words for words in said if words.startswith(place)], said
    assert runs(folder, "beta") == 2

    chapter(folder, "beta", *FAILS[::2])
    assert make("STRICT=1")[0] == 0
    assert "sunrise" in page(folder, "chapters/beta")
    assert "failed" not in page(folder, "chapters/beta")
    assert len(make()[1]) == 1, "nothing is left to be built"
    assert (runs(folder, "alpha"), runs(folder, "beta")) == (1, 3)


REFERENCES = """{numref}`fig-none`, {numref}`odd`, {eq}`eq-none`, {cite:p}`nobody`, {cite:t}`bare`

$$x$$ (eq-x)
"""
NO_KERNEL = HEAD.replace("name: python3", "name: none-of-this-name")
NO_KERNELSPEC = HEAD.replace(
    "kernelspec: {display_name: Python 3, name: python3}", "date: 2026-01-01"
)


def test_whatever_a_page_lacks_the_others_are_complete(folder, monkeypatch):
    chapter(folder, "dies", "print('sun' + 'rise')", "import os\nos._exit(1)")
    chapter(folder, "kernel", "print(1)", head=NO_KERNEL)
    chapter(folder, "kernelspec", "print(6 * 7)", head=NO_KERNELSPEC)
    chapter(folder, "refers", "print(1)", text=REFERENCES)
    chapter(folder, "draws", "from IPython.display import SVG\nSVG('<svg></svg>')", "print(6 * 7)")
    chapter(folder, "cell", "---\ntags: [no end\n---\nprint(1)")
    chapter(folder, "head", "print(1)", head="---\njupytext: none\n---\n\n# A chapter\n\n")
    for name, text in {"fine": json.dumps(EXERCISE), "json": "{", "cells": "[]"}.items():
        (folder / "exercises" / name).mkdir(parents=True)
        (folder / "exercises" / name / f"{name}.ipynb").write_text(text)
    contents(folder)
    monkeypatch.setenv("SOLUTIONS", "1")  # of which there are none
    status, said = build()
    assert status == 0
    assert "sunrise" in page(folder, "chapters/alpha")
    assert "sunrise" in page(folder, "chapters/dies")
    assert "chapters/dies.md, cell 2 (line 12): DeadKernelError" in said[-2]
    assert "chapters/kernel.md: NoSuchKernel" in said[-1]
    for name in ("kernelspec", "draws"):
        assert "42" in page(folder, f"chapters/{name}")
    for name in ("chapters/cell", "chapters/head", "exercises/json/json", "exercises/cells/cells"):
        assert "This page cannot be read: " in page(folder, name)
        assert any(f"{name}." in line and "WARNING" in line for line in said)
    assert any("Its solutions cannot be read" in line for line in said)
    notebook = json.loads((folder / "_build/html/chapters/refers.ipynb").read_text())
    text = "".join(notebook["cells"][-1]["source"])
    assert text == "fig-none, odd, eq-none, (nobody, n.d.), bare (n.d.)\n\n$$x\\tag{1}$$"


STOP = f"""{COUNT}
import os, psutil, signal, time
if not os.path.exists("BOOK/stopped"):
    open("BOOK/stopped", "w").close()
    build = psutil.Process(os.getppid())
    assert "dlsys.notebook.book" in build.cmdline(), "else it would be somebody's session"
    build.send_signal(signal.SIGINT)  # as Ctrl-C does
    time.sleep(60)
"""


def test_a_build_that_was_stopped_or_left_half_a_file_anywhere_goes_on(folder):
    built()
    chapter(folder, "beta", STOP)
    contents(folder)
    status, said = build()
    assert (status, said[-1]) == (130, "Stopped. The next `make book` goes on from here.")

    left = folder / "_build"
    (left / "html/chapters/alpha.html").write_text("<html>")
    (left / ".doctrees/environment.pickle").write_text("half")
    built()
    assert "sunrise" in page(folder, "chapters/alpha")
    assert runs(folder, "alpha") == 1, "its result was known"

    one, *others = left.glob(".jupyter_cache/executed/*/base.ipynb")
    one.write_text("{")
    for other in others:
        other.unlink()
    (left / "html/.complete").unlink()
    built()
    assert (runs(folder, "alpha"), runs(folder, "beta")) == (2, 3)
    (left / ".jupyter_cache/global.db").write_text("half")
    (left / "html/.complete").unlink()
    built()
    assert (runs(folder, "alpha"), runs(folder, "beta")) == (3, 4)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_full_disk_is_said_in_a_sentence_and_the_next_build_goes_on(folder):
    built()
    written = folder / "_build/html/chapters/alpha.html"
    written.unlink()
    written.symlink_to(FULL)
    chapter(folder, "alpha", FINE, text="More.\n")
    status, said = build()
    assert status == 1
    assert said[-1].startswith("The disk is full: OSError: [Errno 28] No space left on device")
    assert said[-1].endswith("Make room; the next `make book` goes on from here.")
    built()
    assert "More." in page(folder, "chapters/alpha")
