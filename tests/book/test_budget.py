"""What a chapter may cost: 15 seconds of a build on two cores, which is 30 seconds of a processor.

Chapters run side by side, so what counts is how long a chapter keeps processors busy. The build notes
it in the cache; unlike the time on the clock it hardly depends on what else a machine has to do. It
depends on the processor. On a slow one a chapter may take more, but no more than a seventh of the book.
"""

import os
from pathlib import Path

import pytest

pytest.importorskip("jupyter_cache", reason="the book's tools are not installed")

from jupyter_cache import get_cache

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / "_build" / ".jupyter_cache"
CORES, SECONDS, SHARE = 2, 15, 1 / 7


def noted() -> dict[str, float]:
    """The processor seconds of each chapter's result that was last put on a page."""
    records = get_cache(CACHE).list_cache_records() if CACHE.is_dir() else []
    last = {
        Path(record.uri).stem: record.data for record in sorted(records, key=lambda r: r.accessed)
    }
    return {name: data["cpu_seconds"] for name, data in last.items() if "cpu_seconds" in data}


def test_no_chapter_adds_more_than_15_seconds_to_the_book_on_two_cores():
    seconds = noted()
    if not seconds and os.environ.get("BOOK_TEST") != "required":
        pytest.skip("the book is not built: run make book")
    assert seconds
    most = max(CORES * SECONDS, SHARE * sum(seconds.values()))
    too_long = {name: found for name, found in seconds.items() if found > most}
    assert not too_long, "processor seconds at the last `make book`"
