"""The server that keepers are forked from, and the rendezvous of the ranks.

It has torch loaded, so that a launch need not load it, and computes nothing: threads of torch would
not survive a fork. One socket leads to it; it forks a keeper for each connection that comes there.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from multiprocessing import connection, spawn
from typing import NoReturn

import torch.distributed as dist

_KEEPER = "dlsys.world.real.keeper"
# What PyTorch imports when an optimizer first steps: two seconds of each process that steps one.
_WITH_OPTIMIZERS = "torch._dynamo"
_LOOK = 1.0  # seconds after which a process looks whether its parent has gone
_STOP = 5.0  # seconds that the server has to end when Python does
# Ctrl-C in a terminal reaches the server, too, and must not end it even while it still imports.
# What it imports stays: to look for garbage in it would take a fifth of the time, and write to the
# memory that ranks share.
_PROGRAM = """import gc, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
gc.disable()
sys.path[:] = {path!r}
from dlsys.world.real.fork_server import serve
serve({line}, {modules!r})"""


class _Server:
    """The server's process, as Python sees it."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair()
        loaded = [_WITH_OPTIMIZERS] if _WITH_OPTIMIZERS in sys.modules else []
        number = theirs.fileno()
        program = _PROGRAM.format(path=sys.path, line=number, modules=[_KEEPER, *loaded])
        quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR", "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"}
        with theirs:
            self.process = subprocess.Popen(
                [os.fsdecode(spawn.get_executable()), "-c", program],
                stdin=subprocess.DEVNULL,
                env=quiet | dict(os.environ),
                pass_fds=[number],
            )

    def ask(self, line: connection.Connection) -> None:
        """Have it fork a keeper that listens at `line`."""
        socket.send_fds(self.line, [b"!"], [line.fileno()])

    def stop(self) -> None:
        """End it: it ends when its line does."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP)


_starting = threading.Lock()
_server: _Server | None = None


def fork_keeper(line: connection.Connection) -> None:
    """Have a keeper forked that listens at `line`, by a server that is started where none runs."""
    global _server
    with _starting:
        if _server is not None and _server.process.poll() is None:
            # One that ends closes its line before anybody can see that it has ended.
            with suppress(BrokenPipeError, ConnectionResetError):
                _server.ask(line)
                return
        _server = _Server()
        _server.ask(line)


@atexit.register
def _stop() -> None:
    if _server is not None:
        _server.stop()


def _forget() -> None:
    """In a process that Python forks: the server is its parent's, and is not to wait for it."""
    global _server, _starting
    if _server is not None:
        _server.line.close()
    _server, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def serve(number: int, modules: list[str]) -> None:
    """Fork a keeper for each line that comes in at the socket `number`, as long as Python lives."""
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a keeper ended
    loaded = [import_module(name) for name in modules]
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=number) as line:
        while heard(line, parent):
            _, numbers, _, _ = socket.recv_fds(line, 1, 1)
            if not numbers:
                return
            if os.fork() == 0:
                _become_keeper(loaded[0].keep, line, numbers[0])
            os.close(numbers[0])


def _become_keeper(keep: object, line: socket.socket, number: int) -> NoReturn:
    try:
        line.close()
        assert callable(keep)
        keep(connection.Connection(number))
    finally:
        os._exit(1)


def heard(line: socket.socket | connection.Connection, parent: int) -> bool:
    """Wait until there is something to read, be it the end; False when process `parent` has gone.

    That is asked once a second, too, since a process that somebody forked may hold a line open.
    """
    while not connection.wait([line], _LOOK):
        if os.getppid() != parent:
            return False
    return True


def rendezvous() -> dist.TCPStore:
    """The store where processes find each other, at a free port that only this machine reaches."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=10),
        master_listen_fd=listener.detach(),
    )
