"""Pages of HTML as PDF, printed by a Chromium or Chrome that is installed, one for all pages.

It is spoken to in the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/), by
messages of JSON that end with a zero byte, over two pipes. No page runs a script or gets anything
from the network, for it may hold what a student wrote.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dlsys.files import write

SECONDS = 60  # for one page
_ENDING = 5  # seconds
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    *("--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-breakpad"),
    *("--disable-component-update", "--disable-extensions", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name has an address
)
_OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
_TO_PAGES, _FROM_PAGES = 3, 4  # the file descriptors that a browser talks by
Print = Callable[[str], bytes]
Ask = Callable[..., dict[str, Any]]


def browser() -> str:
    """The program; raises ValueError with what to install where there is none."""
    named = os.environ.get("CHROMIUM")
    if named and not shutil.which(named):
        raise ValueError(f"CHROMIUM is {named!r} in the environment; there is no such program.")
    found = next(filter(None, map(shutil.which, [named] if named else _NAMES)), None)
    if found is None:
        raise ValueError(
            "A PDF is printed by Chromium or Chrome, and there is none: install it (Debian: sudo "
            "apt install chromium), or name the program in the environment variable CHROMIUM."
        )
    return found


@contextlib.contextmanager
def printer() -> Iterator[Print]:
    """A function that makes a PDF of a page; raises ValueError where the browser does not."""
    program = browser()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process, to_pages, from_pages = _start(program, profile)
        try:
            ask = _asking(to_pages, from_pages)

            def printed(html: str) -> bytes:
                with _killed_after(SECONDS, process):
                    return _printed(program, ask, html)

            yield printed
        finally:
            os.close(to_pages)  # by which it ends, and removes its files
            with _killed_after(_ENDING, process):
                os.waitpid(process, 0)
            os.close(from_pages)


@contextlib.contextmanager
def _killed_after(seconds: float, process: int) -> Iterator[None]:
    timer = threading.Timer(seconds, os.killpg, (process, signal.SIGKILL))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _start(program: str, profile: str) -> tuple[int, int, int]:
    """Start the browser in a group of its own; the process, and where to write and to read."""
    # Chromium refuses to run as root with the box that it has for pages.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [program, *_OPTIONS, *root, f"--user-data-dir={profile}"]
    (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
    silent = os.open(os.devnull, os.O_RDWR)
    moved = [(silent, 1), (silent, 2), (theirs_in, _TO_PAGES), (theirs_out, _FROM_PAGES)]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, *each) for each in moved]
        process = os.posix_spawn(program, command, os.environ, file_actions=actions, setpgroup=0)
    finally:
        for each in (theirs_in, theirs_out, silent):
            os.close(each)
    return process, ours_out, ours_in


def _pipe() -> Iterator[int]:
    """A pipe with numbers that are none of those that a browser talks by."""
    for end in os.pipe():
        yield fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10)
        os.close(end)


def _asking(to_pages: int, from_pages: int) -> Ask:
    """A function that sends a command and returns its result; raises OSError or EOFError."""
    numbers, came = itertools.count(1), bytearray()

    def ask(method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(numbers)
        said = {"id": number, "method": method, "params": params}
        left = json.dumps(said | ({"sessionId": session} if session else {})).encode() + b"\0"
        while left:
            left = left[os.write(to_pages, left) :]
        while True:
            answer = json.loads(_message(from_pages, came))
            if answer.get("id") == number:  # else it is an event
                if "error" in answer:
                    raise EOFError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    return ask


def _message(from_pages: int, came: bytearray) -> bytes:
    while (end := came.find(b"\0")) < 0:
        more = os.read(from_pages, 1 << 20)
        if not more:
            raise EOFError("it ended")
        came += more
    message = bytes(came[:end])
    del came[: end + 1]
    return message


def _printed(program: str, ask: Ask, html: str) -> bytes:
    try:
        target = ask("Target.createTarget", url="about:blank")["targetId"]
        page = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        ask("Emulation.setScriptExecutionDisabled", page, value=True)
        ask("Network.enable", page)
        ask("Network.emulateNetworkConditions", page, **_OFFLINE)
        frame = ask("Page.getFrameTree", page)["frameTree"]["frame"]["id"]
        ask("Page.setDocumentContent", page, frameId=frame, html=html)
        made = ask("Page.printToPDF", page, printBackground=True)["data"]
        ask("Target.closeTarget", targetId=target)
        return base64.b64decode(made)
    except (EOFError, KeyError, OSError, ValueError) as error:
        said = f"printed no PDF, for which it has {SECONDS} s: {error}."
        raise ValueError(f"{program} {said}") from None


def print_new(folder: Path, progress: Callable[[int, int, str], None]) -> list[str]:
    """Print each page of a folder that has no PDF beside it; a sentence where that failed.

    `feedback.write` removes the PDF of a page that changes.
    """
    pages = [page for page in sorted(folder.glob("*.html")) if not pdf_of(page).exists()]
    if not pages:
        return []
    done = 0
    try:
        with printer() as printed:
            for page in pages:
                write(pdf_of(page), printed(page.read_text("utf-8")))
                done += 1
                progress(done, len(pages), f"printed {pdf_of(page).name}")
    except ValueError as error:
        return [f"{error} Of {len(pages)} pages to print the first {done} are printed."]
    return []


def pdf_of(page: Path) -> Path:
    """The PDF beside a page."""
    return page.with_suffix(".pdf")
