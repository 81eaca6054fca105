"""One process of a launched world: what runs between its fork and its end."""

from __future__ import annotations

import io
import os
import pickle
import queue
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

from dlsys.world.errors import line_of, text_of
from dlsys.world.real.default import default_communicator
from dlsys.world.real.session import Session


@dataclass(frozen=True)
class Start:
    """What all ranks are told when they start; `folder`, `path` and `argv` are the caller's."""

    ranks: int
    port: int
    seed: int
    threads: int
    timeout: float
    check: bool
    environment: dict[str, str]
    folder: str
    path: list[str]
    argv: list[str]
    source: tuple[str, list[str]] | None


is_loading = False
"""Whether this process is a rank that imports what its program needs."""
is_rank = False
"""Whether this process is a rank, or was forked by one."""


def main(pipe: Connection, start: Start, rank: int, work: bytes) -> None:
    """Run the program in `work` as `rank` and send home what became of it.

    Ctrl-C, which all processes of a terminal get, is ignored, as it was before the fork: the caller
    hears of it and ends us.
    """
    global is_rank
    is_rank = True
    home = _Home(pipe)
    sys.stdout = _Prints(home)
    try:
        outcome = _run(home, start, rank, work)
    except BaseException as error:
        outcome = _report(error)
    home.ended = "has finished" if outcome[0] == "result" else "has failed as well"
    with suppress(OSError):  # where nobody is home any more, nothing is left to say
        sys.stdout.flush()
        sys.stderr.flush()
        home.send(*outcome)
    home.thread.join()  # stays, so that no other rank loses its peer, until it is told to go


class _Home:
    """The pipe to the parent. A thread reads it, so that the parent can ask what a rank is doing,
    and so that no process outlives its parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._lock = pipe, threading.Lock()
        self._program = threading.get_ident()
        self._go: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.session: Session | None = None
        self.ended = ""
        self.thread = threading.Thread(target=self._read, name="home", daemon=True)
        self.thread.start()

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        with self._lock:
            self._pipe.send_bytes(data)

    def tell(self, event: tuple) -> None:
        self.send("event", event)

    def until_told(self) -> float:
        """Wait until all ranks are ready; returns when that was, by the clock of the machine."""
        return self._go.get()

    def _read(self) -> None:
        try:
            while True:
                what, *details = self._pipe.recv()
                if what == "go":
                    self._go.put(details[0])
                elif what == "state":
                    self.send("state", self._state())
        except (EOFError, OSError):
            os._exit(1)

    def _state(self) -> str:
        if self.ended:
            return self.ended
        if self.session is None:
            return "is starting"
        line, waiting = line_of(sys._current_frames().get(self._program)), self.session.waiting
        return f"waits in {waiting} at {line}" if waiting else f"is busy at {line}"


class _Prints(io.TextIOBase):
    """Standard output, line by line to where the parent prints."""

    def __init__(self, home: _Home) -> None:
        self._home, self._text = home, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, newline, self._text = (self._text + text).rpartition("\n")
        if newline:
            self._home.send("print", whole + newline)
        return len(text)

    def flush(self) -> None:
        if self._text:
            self._home.send("print", self._text)
            self._text = ""


def _load(work: bytes) -> Any:
    """The program and its arguments; modules that they need are imported."""
    global is_loading
    is_loading = True
    try:
        return cloudpickle.loads(work)
    finally:
        is_loading = False


def _run(home: _Home, start: Start, rank: int, work: bytes) -> tuple[str, bytes]:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback())
    torch.set_num_threads(start.threads)
    program, args = _load(work)
    limit = timedelta(seconds=start.timeout)
    store = dist.TCPStore(
        "127.0.0.1", start.port, is_master=False, wait_for_workers=False, timeout=limit
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=start.ranks, timeout=limit)
    session = home.session = Session(start.ranks, home.tell if start.check else None)
    comm = default_communicator(session)
    torch.manual_seed(start.seed + rank)
    home.send("ready")
    session.start = home.until_told()
    result = program(comm, *args)
    seconds, traffic = session.seconds, session.traffic
    try:
        payload = cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"rank {rank} returned {type(result).__name__}, which cannot be sent to another "
            f"process ({error}): return tensors, numbers, lists, dicts"
        ) from None
    return "result", cloudpickle.dumps(
        (payload, traffic.messages, traffic.calls, session.spans, seconds)
    )


def _report(error: BaseException) -> tuple:
    """What the parent needs to raise the error again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace)
    try:
        data = cloudpickle.dumps(error)
    except Exception:  # it holds something that stays in this process
        data = b""
    text = text_of(error)
    lost = isinstance(error, RuntimeError) and "onnection" in text and "gloo" in text
    return "error", data, type(error).__name__, text, "".join(lines).rstrip(), lost


def loopback() -> str:
    """The interface that leads to this machine alone: lo, or lo0 on macOS."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")
