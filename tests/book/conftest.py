"""A browser for tests of pages, where there is one."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.contents import ROOT

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]


def unavailable(reason: str) -> None:
    if os.environ.get("BOOK_TEST") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """For tests of pages, which take a while: they run where there are pages to look at."""
    if not (ROOT / "_build" / "html").is_dir():
        unavailable("the book is not built: run make book")
    if CHROMIUM is None:
        unavailable("there is no Chromium; install Debian's chromium, or name one in CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()
