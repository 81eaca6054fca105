"""Chapters that are not in the execution cache are executed side by side, before pages are read.

Sphinx would execute them one after another, each waiting for its kernel to start and to stop. When
it then reads a page, it finds the result in the cache, under the key that it would have used.
"""

import asyncio
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import zmq
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.main import JupyterCacheBase
from jupyter_client.manager import AsyncKernelManager
from myst_nb.core.read import create_nb_reader
from nbclient import NotebookClient
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from dlsys.notebook.book.cache import FAILED, INSTALLED, installed, mark_kernel
from dlsys.notebook.book.failures import Failure
from dlsys.notebook.book.figures import KERNEL
from dlsys.notebook.book.numbers import beside, with_numbers, wrong

COLORS = re.compile(r"\x1b\[[\d;]*m")  # as a terminal reads them
AT_MOST = 4  # kernels at a time: each holds PyTorch, and a chapter's ranks besides
LOGGER = logging.getLogger(__name__)


@dataclass
class Chapter:
    """A page that is executed, as Sphinx reads it, and the cell that has begun."""

    page: str
    path: Path
    notebook: NotebookNode
    begun: NotebookNode | None = None


def execute_chapters(app: Sphinx, env: BuildEnvironment, pages: list[str]) -> None:
    """Execute the chapters among the pages that are not in the cache (env-before-read-docs).

    A chapter that fails is reported as a warning, which holds its traceback. The cache has it as
    far as it came, under a key of its own for its page, and the next build executes it again.
    """
    env.book_failures = {}  # type: ignore[attr-defined]
    config = env.mystnb_config  # type: ignore[attr-defined]
    if config.execution_mode != "cache":
        return
    cache = _open_cache(config.execution_cache_path)
    marked = [page for page in pages if page in env.book_fingerprints]  # type: ignore[attr-defined]
    chapters = [chapter for page in marked if (chapter := _read(app, page))]
    missing = [chapter for chapter in chapters if not _is_known(cache, chapter)]
    options = {"timeout": config.execution_timeout, "allow_errors": config.execution_allow_errors}
    settings = own_settings(Path(config.execution_cache_path).parent / ".settings")
    _finish(_execute_all(env, cache, missing, settings, options))


def _open_cache(path: str) -> JupyterCacheBase:
    """Return the cache, emptied where its database is broken: what it holds can be had again."""
    cache: JupyterCacheBase = get_cache(path)
    try:
        cache.list_cache_records()
    except Exception:  # of SQLAlchemy's, or of Jupyter Cache's own
        cache.clear_cache()
        cache.list_cache_records()  # of a new one, where there is room for it
    return cache


def _read(app: Sphinx, page: str) -> Chapter | None:
    """Return the chapter with the very cells and metadata of which the cache makes its key, or None
    where it cannot be read, of which its page will tell."""
    env: Any = app.env
    path = Path(env.doc2path(page))
    try:
        content = [path.read_text("utf-8")]
        mark_kernel(app, page, content)
        reader = create_nb_reader(str(path), env.myst_config, env.mystnb_config, content[0])
        return reader and Chapter(page, path, reader.read(content[0]))
    except Exception:
        return None


def _is_known(cache: JupyterCacheBase, chapter: Chapter) -> bool:
    """Whether the cache has a result, and one that was written to its end."""
    try:
        cache.merge_match_into_notebook(chapter.notebook)
    except Exception:  # no record, no file, or half of one
        return False
    return True


def _keep(cache: JupyterCacheBase, chapter: Chapter, data: dict[str, float]) -> None:
    _, key = cache.create_hashed_notebook(chapter.notebook)
    shutil.rmtree(Path(cache.path, "executed", key), ignore_errors=True)  # half of one, perhaps
    bundle = CacheBundleIn(chapter.notebook, str(chapter.path), data=data)
    cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run in a thread of its own, as nbclient takes Ctrl-C from others in the main thread."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        loop.run_until_complete(asyncio.wait({task}))
        if left := asyncio.all_tasks(loop):  # nbclient's, of which Python would complain
            for each in left:
                each.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.close()

    # Not a Thread: joined again, one that Ctrl-C interrupted counts as ended.
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(run)
        try:
            done.result()
        except BaseException:
            # Each chapter stops its kernel on the way out.
            loop.call_soon_threadsafe(task.cancel)
            raise
    task.result()


async def _execute_all(
    env: Any,
    cache: JupyterCacheBase,
    chapters: list[Chapter],
    settings: dict[str, str],
    options: dict[str, Any],
) -> None:
    free = asyncio.Semaphore(min(AT_MOST, os.cpu_count() or 1))

    async def execute(number: int, chapter: Chapter) -> Failure | None:
        async with free:
            progress = f"Executing {chapter.page} ({number} of {len(chapters)})"
            print(progress, file=sys.stderr, flush=True)
            data, failure = {}, None
            try:
                executed = with_numbers(chapter.path, chapter.notebook)
                data = await _execute(chapter, executed, settings, options)
                failure = _wrong_numbers(chapter, executed, Path(env.srcdir))
            except Exception as error:  # of a cell, or of a kernel that dies or does not start
                failure = _failure(chapter, error, Path(env.srcdir))
            if failure:
                chapter.notebook.metadata.kernelspec["fingerprint"] = FAILED
        _keep(cache, chapter, data)
        return failure

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(execute(*item)) for item in enumerate(chapters, 1)]
    for chapter, task in zip(chapters, tasks, strict=True):
        if failure := task.result():
            env.book_failures[chapter.page] = failure
            env.book_fingerprints[chapter.page] = FAILED
            LOGGER.warning("The chapter failed: %s", failure.details, location=chapter.page)


def _failure(chapter: Chapter, error: Exception, source: Path) -> Failure:
    place = chapter.path.relative_to(source).as_posix()
    for index, cell in enumerate(cells := chapter.notebook.cells):
        if cell is chapter.begun:
            number = sum(each.cell_type == "code" for each in cells[: index + 1])
            place += f", cell {number} (line {chapter.notebook.metadata.source_map[index]})"
    name = getattr(error, "ename", type(error).__name__)
    return _described(place, name, getattr(error, "evalue", str(error)), str(error))


def _wrong_numbers(chapter: Chapter, executed: NotebookNode, source: Path) -> Failure | None:
    found = wrong(executed)
    if not found:
        return None
    place = beside(chapter.path).relative_to(source).as_posix()
    title, error = found[0]
    details = "\n\n".join("\n".join(each.traceback) for _, each in found)
    return _described(f"{place}, {title}", error.ename, error.evalue, details, whole=True)


def _described(place: str, name: str, words: str, details: str, whole: bool = False) -> Failure:
    lines = COLORS.sub("", words).splitlines()
    versions = ", ".join(f"{package} {installed(package)}" for package in INSTALLED)
    system = f"Python {platform.python_version()}, {platform.platform()}\n{versions}"
    details = f"{COLORS.sub('', details)}\n\n{system}"
    return Failure(place, ": ".join([name, *lines[:1]]).rstrip(". "), details, whole)


def own_settings(folder: Path) -> dict[str, str]:
    """Return the environment of kernels that do not read what a user has told IPython and
    Matplotlib to do, nor write into the user's home."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    own = {"IPYTHONDIR": folder / "ipython", "MPLCONFIGDIR": folder / "matplotlib"}
    return {**os.environ, **{name: str(path.absolute()) for name, path in own.items()}}


async def _execute(
    chapter: Chapter,
    notebook: NotebookNode,
    environment: dict[str, str],
    options: dict[str, Any],
) -> dict[str, float]:
    """Execute a chapter's cells, and return the seconds that this took.

    In an empty folder, as whoever downloads the chapter runs it: what needs a file beside it fails.
    """
    folder = TemporaryDirectory()
    work = Path(folder.name, "work")
    work.mkdir()
    # Files as sockets, where a path as long as theirs may be one: a port that is free when it is
    # chosen may be taken by whatever else this machine runs before the kernel binds it.
    place = str(Path(folder.name, "kernel"))
    short = len(os.fsencode(place)) + len("-1") <= zmq.IPC_PATH_MAX_LEN
    sockets = {"transport": "ipc", "ip": place} if short else {}
    kernel = AsyncKernelManager(kernel_name=chapter.notebook.metadata.kernelspec.name, **sockets)
    # Times in the metadata of cells would change the key; pieces of one line are joined to a line.
    # A page shows what stands in a widget's place, so it carries no widget's state.
    off = dict.fromkeys(("record_timing", "store_widget_state"), False)
    form: dict[str, Any] = {**off, "coalesce_streams": True, "extra_arguments": KERNEL}
    client = NotebookClient(notebook, kernel, **form, **options)
    client.on_cell_start = lambda cell, cell_index: setattr(chapter, "begun", cell)
    # One thread a kernel, however many run beside it: none waits for another, and sums of floats
    # come out the same on machines with more cores or fewer.
    variables = {**environment, "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    try:
        await client.async_execute(cwd=str(work), env=variables)
        seconds = time.perf_counter() - start
        return {"execution_seconds": seconds, "cpu_seconds": _cpu_seconds(kernel)}
    finally:
        if client.kc:
            client.kc.stop_channels()
        await kernel.shutdown_kernel(now=True)
        folder.cleanup()


def _cpu_seconds(kernel: AsyncKernelManager) -> float:
    """Return the seconds for which a kernel and all that it has started kept processors busy."""
    root = psutil.Process(kernel.provisioner.pid)  # type: ignore[union-attr]
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            used = process.cpu_times()
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds
