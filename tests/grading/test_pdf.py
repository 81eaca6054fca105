"""Feedback and solutions as PDF: printed by a browser that runs and fetches nothing, once a change."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import psutil
import pytest

from dlsys.grading.commands import cli, export
from dlsys.grading.course import run as course
from dlsys.grading.reports import pdf
from tests.grading.test_course import ROOT, Watched, hand_in
from tests.grading.test_feedback import CHROMIUM, hostile_page

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for a browser's files, whose sockets must have names of less than 108 letters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """The address of a server on this machine, and what it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


@pytest.fixture
def children() -> Callable[[], list[psutil.Process]]:
    """Gives the processes that the test has started; other tests may have left a server of theirs."""

    def every() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    before = every()
    return lambda: [each for each in every() if each not in before]


def command(folder: Path, *more: str) -> int:
    """The status of grading the folder `in` with another examiner."""
    words = [str(folder / "in"), "--out", str(folder / "out"), "--assignment", "collectives"]
    return cli.main([*words, *more])


@pytest.fixture
def graded_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "boxes", Watched())


@pytest.fixture(scope="module")
def solutions(tmp_path_factory) -> tuple[str, bytes]:
    """The page of an assignment's solutions, and what its file holds where that is printed."""
    pages: list[str] = []

    @contextmanager
    def kept() -> Iterator[pdf.Print]:
        yield lambda html: (pages.append(html), b"%PDF-solutions")[1]

    path = tmp_path_factory.mktemp("solutions") / "solutions.pdf"
    words = ["export", "solutions", "--assignment", "collectives", "--course", str(ROOT)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdf, "printer", kept)
        assert cli.main([*words, "--out", str(path)]) == cli.OK
    assert len(pages) == 1
    return pages[0], path.read_bytes()


@needs_chromium
def test_a_page_runs_no_script_and_asks_nobody_for_anything(
    asked, short, children, monkeypatch, solutions
) -> None:
    address, paths = asked
    page = f"""<!doctype html>
        <link rel="stylesheet" href="http://{address}/style"><img src="http://{address}/image">
        <style>body {{ background: url(http://{address}/background); }}</style>
        <script src="http://{address}/script"></script>
        <script>fetch("http://{address}/fetched"); while (true);</script><p>text</p>"""
    monkeypatch.setenv("TMPDIR", str(short))
    with pdf.printer() as printed:
        assert printed(page).startswith(b"%PDF-")
        assert printed(hostile_page()).startswith(b"%PDF-")  # a script's loop would never end
        assert printed(solutions[0]).startswith(b"%PDF-")
    assert paths == []
    assert psutil.wait_procs(children(), timeout=60)[1] == []
    assert list(short.iterdir()) == []


def test_feedback_is_printed_once_and_again_where_it_changes(tmp_path, graded_by, monkeypatch):
    printed: list[str] = []

    @contextmanager
    def counting() -> Iterator[pdf.Print]:
        yield lambda html: (printed.append(html), b"%PDF-")[1]

    monkeypatch.setattr(pdf, "printer", counting)
    monkeypatch.setattr(pdf, "browser", lambda: "a browser")
    hand_in(tmp_path / "in", "ada", "bob")
    assert command(tmp_path, "--pdf") == cli.OK
    folder = tmp_path / "out" / "feedback"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("ada.html", "ada.pdf", "bob.html", "bob.pdf")
    ]
    assert (folder / "ada.pdf").read_bytes()[:5] == b"%PDF-"
    assert printed == [(folder / f"{name}.html").read_text("utf-8") for name in ("ada", "bob")]

    printed.clear()
    assert command(tmp_path, "--pdf") == cli.OK
    assert printed == []

    shutil.rmtree(tmp_path / "in" / "bob")
    os.utime(tmp_path / "in" / "ada" / "collectives.ipynb", (2e9, 2e9))
    hand_in(tmp_path / "in", "cy")
    os.utime(tmp_path / "in" / "cy" / "collectives.ipynb", (0, 0))
    assert command(tmp_path, "--due", "2026-12-01", "--late", "50%", "--pdf") == cli.OK
    assert [html.count("Feedback for ada") > 0 for html in printed] == [True, False]
    assert (tmp_path / "out" / "gone" / "feedback" / "bob.pdf").is_file()

    assert command(tmp_path, "--due", "2026-12-01", "--late", "10%") == cli.OK
    assert not (folder / "ada.pdf").exists()  # it would be out of date
    assert (folder / "cy.pdf").exists()


def test_without_a_browser_a_sentence_says_what_to_install_before_anything_is_graded(
    tmp_path, capsys, monkeypatch
):
    hand_in(tmp_path / "in", "ada")
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command(tmp_path, "--pdf") == cli.USAGE
    said = capsys.readouterr().err
    assert "sudo apt install chromium" in said
    assert said.count("\n") == 1
    monkeypatch.setenv("CHROMIUM", str(tmp_path / "none"))
    assert command(tmp_path, "--pdf") == cli.USAGE
    assert "none' in the environment; there is no such program" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "lines", ["exit 1", "exec sleep 60", "head -c 9 <&3; printf '{}\\0x\\0' >&4"]
)
def test_a_browser_that_does_not_print_is_named_and_all_grades_are_there(
    tmp_path, capsys, children, monkeypatch, graded_by, lines
):
    hand_in(tmp_path / "in", "ada", "bob")
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\n{lines}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("CHROMIUM", str(program))
    monkeypatch.setattr(pdf, "SECONDS", 1)
    assert command(tmp_path, "--pdf") == cli.SOME_NOT_GRADED
    said = capsys.readouterr().out
    assert f"{program} printed no PDF" in said
    assert "Of 2 pages to print the first 0 are printed." in said
    assert (tmp_path / "out" / "grades.csv").is_file()
    assert not list((tmp_path / "out" / "feedback").glob("*.pdf"))
    assert psutil.wait_procs(children(), timeout=60)[1] == []


def test_solutions_are_printed_with_their_formulas(solutions):
    page, printed = solutions
    assert printed == b"%PDF-solutions"
    assert "BEGIN SOLUTION" in page
    assert "BEGIN HIDDEN TESTS" in page
    assert page.count('alt="\\alpha + \\beta x"') >= 1


def test_formulas_are_drawn_and_code_money_and_what_cannot_be_drawn_are_not():
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    text = "`$HOME` and $5 or $6, ``a $x$ b``, $\\nonsense{x}$, $$y$$, $x$"
    drawn = export._MATH.sub(export._drawn, text)
    assert drawn.startswith(text[:-3] + '<img src="data:image/svg+xml;base64,')
    assert drawn.count("<img") == 1
