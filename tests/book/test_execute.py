"""Chapters are executed side by side, and the book is the same as if Sphinx had executed them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the book's tools are not installed")

import psutil
from jupyter_cache import get_cache
from sphinx.cmd.build import build_main

from dlsys.notebook.book import execute
from tests.book.test_cache import build, runs

HEAD = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, name: python3}
---

# A chapter

"""
MEET = """import pathlib, time
pathlib.Path("BOOK/NAME.here").touch()
until = time.monotonic() + 60
while not pathlib.Path("BOOK/OTHER.here").exists():
    assert time.monotonic() < until, "nobody came"
    time.sleep(0.01)
"""
COUNT = "open('BOOK/NAME.log', 'a').write('x');"  # for `runs`


def write(folder: Path, **chapters: str) -> Path:
    """Write a book of one cell a chapter."""
    (folder / "chapters").mkdir(parents=True, exist_ok=True)
    names = "\n".join(f"chapters/{name}" for name in chapters)
    (folder / "index.md").write_text(f"# Book\n\n```{{toctree}}\n{names}\n```\n")
    for name, code in chapters.items():
        code = code.replace("NAME", name).replace("BOOK", f"{folder}/chapters")
        cell = f"```{{code-cell}} ipython3\n{code}\n```\n"
        (folder / "chapters" / f"{name}.md").write_text(HEAD + cell)
    return folder


BUSY = "import time\nuntil = time.process_time() + 0.6\nwhile time.process_time() < until: pass"
CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}], check=True)\n"
GAMMA = """---
mystnb:
  figure: {caption: A line.}
  image: {alt: One line}
---
import os
assert not os.listdir(), "a reader's folder has no files of ours"
assert get_ipython().kernel.parent.transport == "ipc", "a port may be taken meanwhile"
for word in ("one", "line"):
    print(word, end=" ", flush=True)
from matplotlib import pyplot
pyplot.plot([1, 2]);
"""


def test_chapters_run_side_by_side_and_are_announced_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    meet = {"alpha": MEET.replace("OTHER", "beta"), "beta": MEET.replace("OTHER", "alpha")}
    meet["beta"] += CHILD
    pages = build(write(tmp_path, **meet, gamma=GAMMA)) / "chapters"
    announced = [f"Executing chapters/{n} ({i} of 3)\n" for i, n in enumerate([*meet, "gamma"], 1)]
    assert capsys.readouterr().err == "".join(announced)
    page = (pages / "gamma.html").read_text()
    assert "one line" in page, "printed in pieces, shown as one line"
    _, svg, after = page.partition('<svg class="plot" role="img" aria-label="One line"')
    assert svg
    assert "A line." in after.partition("</figure>")[0].partition("</svg>")[2]
    assert "<img" not in page
    records = get_cache(tmp_path / "_build/cache").list_cache_records()
    seconds = {Path(record.uri).stem: record.data["cpu_seconds"] for record in records}
    assert seconds["beta"] > seconds["alpha"] + 0.3, "processors were busy for its child, too"


def cached(source: Path) -> set[str]:
    return {record.hashkey for record in get_cache(source / "_build/cache").list_cache_records()}


def test_the_pages_and_keys_are_those_of_an_execution_by_sphinx(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "KERNEL", [])  # ours draws for the page
    picture = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    chapters = {"alpha": picture, "beta": "print(3)\n{'a': 2}"}
    ours, theirs = (write(tmp_path / name, **chapters) for name in ("ours", "theirs"))
    by_us = build(ours)
    monkeypatch.setattr(execute, "execute_chapters", lambda *_: None)
    by_sphinx = build(theirs)
    assert cached(ours) == cached(theirs) != set()
    for name in chapters:
        pages = [page / f"chapters/{name}.html" for page in (by_us, by_sphinx)]
        assert pages[0].read_text() == pages[1].read_text()


def arguments(source: Path) -> list[str]:
    """Sphinx's for a build as `make book` does: warnings are errors, after all is written."""
    settings = {
        "extensions": "myst_nb,sphinx_design,dlsys.notebook.book",
        "nb_execution_mode": "cache",
    }
    defined = [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]
    options = ["-C", "-q", "-W", "--keep-going", *defined]
    return [*options, str(source), str(source.parent / "html")]


def test_a_failed_chapter_is_shown_with_its_traceback_once_and_executed_again(tmp_path, capsys):
    fails, fine = f"{COUNT}\nNAME = 0\n1 / NAME", f"{COUNT}\nprint('fine')"
    source = write(tmp_path / "book", alpha=fails, beta=fine)
    for attempt in (1, 2):
        assert build_main(arguments(source)) == 1
        said = capsys.readouterr().err
        assert re.search(r"chapters/alpha.*WARNING: (?s:.*)1 / alpha(?s:.*)ZeroDivisionError", said)
        assert runs(source) == {"alpha": attempt, "beta": 1}
    write(source, alpha=fine, beta=fine)
    assert build_main(arguments(source)) == 0
    assert capsys.readouterr().err == "Executing chapters/alpha (1 of 1)\n"
    assert "fine" in (tmp_path / "html/chapters/alpha.html").read_text()
    assert runs(source) == {"alpha": 3, "beta": 1}


def test_stopping_the_build_leaves_no_kernel_behind(tmp_path):
    wait = "import os, pathlib, time\npathlib.Path('BOOK/NAME.pid').write_text(str(os.getpid()))\ntime.sleep(600)"
    command = [sys.executable, "-m", "sphinx"]
    command += arguments(write(tmp_path / "book", alpha=wait, beta=wait))
    build = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (files := list(tmp_path.glob("book/chapters/*.pid"))) or not files[0].read_text():
        assert time.monotonic() < until, "no kernel started"
        time.sleep(0.05)
    kernels = psutil.Process(build.pid).children(recursive=True)
    assert kernels
    build.send_signal(signal.SIGINT)  # one kernel may be starting still, which is the harder case
    assert build.wait(timeout=60)
    assert not any(kernel.is_running() for kernel in kernels)
