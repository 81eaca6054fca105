"""Calls made in processes of their own, so that one that hangs or dies takes nothing with it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.public_api import public
from tests.sweep.calling import in_its_place
from tests.sweep.ending import HUNG, KILLED, Ending, ending

TOGETHER = 200  # calls of one process
SILENT = 120  # seconds without a call's end, after which a process hangs


class Call(NamedTuple):
    """A call: of what, which parameter is replaced, and by which kind of value."""

    function: str
    name: str
    kind: str


@dataclass
class Worker:
    """A process, the calls that it makes, and the file where it says how they ended."""

    calls: Sequence[Call]
    process: Any
    said: Path
    heard: float

    def endings(self) -> list[Ending]:
        """Of the calls that have ended, in their order."""
        whole, _, _ = self.said.read_text("utf-8").rpartition("\n")
        return [Ending(*json.loads(line)) for line in whole.splitlines()]


def made(calls: Sequence[Call], folder: Path, processes: int) -> Iterator[tuple[Call, Ending]]:
    """Yield each call with how it ended, as they end; files that the calls write are in `folder`."""
    torch.set_num_threads(1)  # before the fork: what has threads cannot be forked
    todo = [calls[first : first + TOGETHER] for first in range(0, len(calls), TOGETHER)][::-1]
    workers: list[Worker] = []
    number = 0
    try:
        while todo or workers:
            while todo and len(workers) < processes:
                number += 1
                workers.append(_begun(todo.pop(), folder / str(number)))
            wait([each.process.sentinel for each in workers], timeout=1)
            for each in list(workers):
                if (last := _last_word(each)) is None:
                    continue
                workers.remove(each)
                _ended(each)
                known = each.endings()
                yield from zip(each.calls, known, strict=False)
                if len(known) < len(each.calls):
                    yield each.calls[len(known)], last
                    todo += [rest] if (rest := each.calls[len(known) + 1 :]) else []
    finally:
        for each in workers:
            _ended(each)


def _begun(calls: Sequence[Call], folder: Path) -> Worker:
    folder.mkdir()
    said = folder.with_suffix(".said")
    said.touch()
    process = multiprocessing.get_context("fork").Process(target=_work, args=(calls, folder, said))
    process.start()
    return Worker(calls, process, said, time.monotonic())


def _last_word(worker: Worker) -> Ending | None:
    """How the call ended that a process ended at, or hangs in; None while it works."""
    if not worker.process.is_alive():
        return Ending(KILLED, f"status {worker.process.exitcode}")
    if time.time() - worker.said.stat().st_mtime > SILENT:
        return Ending(HUNG, f"no end within {SILENT} s")
    return None


def _ended(worker: Worker) -> None:
    """End a process with all that it began: it leads a group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.join()


def _work(calls: Sequence[Call], folder: Path, said: Path) -> None:
    os.setsid()
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.addaudithook(_no_network)
    known = {each.name: each for each in public()}
    for call in calls:
        ended = in_its_place(known[call.function], lambda each, call=call: _ending(each, call))
        with open(said, "a", encoding="utf-8") as file:
            file.write(json.dumps([ended.kind, ended.words[:300]]) + "\n")
    os._exit(0)


def _ending(each: Any, call: Call) -> Ending:
    return ending(each, call.name, call.kind)


def _no_network(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise PermissionError(f"{host} is on the network.")
