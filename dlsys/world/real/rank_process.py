"""One process of a launched world: what runs between its fork and its end."""

from __future__ import annotations

import io
import linecache
import os
import pickle
import queue
import signal
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

from dlsys.world.errors import line_of
from dlsys.world.real.default import default_communicator
from dlsys.world.real.session import Session


@dataclass(frozen=True)
class Start:
    """What a process is told when it starts; the program comes through its pipe."""

    rank: int
    ranks: int
    port: int
    seed: int
    threads: int
    timeout: float
    check: bool
    environment: dict[str, str]
    source: tuple[str, list[str]] | None


def main(pipe: Connection, start: Start) -> None:
    """Run one rank's program and send home what became of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C, too, and ends us
    home = _Home(pipe)
    sys.stdout = _Prints(home)
    try:
        outcome = _run(home, start)
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
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
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

    def next(self) -> Any:
        return self._work.get()

    def _read(self) -> None:
        try:
            self._work.put(self._pipe.recv_bytes())
            while True:
                what, *details = self._pipe.recv()
                if what == "go":
                    self._work.put(details[0])
                elif what == "state":
                    self.send("state", self._state())
                else:
                    os._exit(0)
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


def _run(home: _Home, start: Start) -> tuple[str, bytes]:
    os.environ.clear()
    os.environ.update(start.environment)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
    if start.source is not None:
        name, lines = start.source
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    torch.set_num_threads(start.threads)
    program, args = cloudpickle.loads(home.next())
    limit = timedelta(seconds=start.timeout)
    store = dist.TCPStore(
        "127.0.0.1", start.port, is_master=False, wait_for_workers=False, timeout=limit
    )
    dist.init_process_group(
        "gloo", store=store, rank=start.rank, world_size=start.ranks, timeout=limit
    )
    session = home.session = Session(start.ranks, home.tell if start.check else None)
    comm = default_communicator(session)
    torch.manual_seed(start.seed + start.rank)
    home.send("ready")
    session.start = home.next()
    result = program(comm, *args)
    seconds, traffic = session.seconds, session.traffic
    try:
        payload = cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"rank {start.rank} returned {type(result).__name__}, which cannot be sent to another "
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
    lost = isinstance(error, RuntimeError) and "onnection" in str(error) and "gloo" in str(error)
    return "error", data, type(error).__name__, str(error), "".join(lines).rstrip(), lost


def _loopback() -> str:
    """The interface that leads to this machine alone: lo, or lo0 on macOS."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")
