"""The server that processes are forked from, and the place where they meet."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import forkserver
from typing import Any

import torch.distributed as dist

# What PyTorch imports when an optimizer first steps: two seconds of each process that steps one.
_WITH_OPTIMIZERS = "torch._dynamo"
_starting = threading.Lock()


@contextmanager
def fork_server(main: Callable[..., None]) -> Iterator[Any]:
    """The context that processes start from to run `main`, forked from a server that has loaded
    the module of `main`, torch with it, and what optimizers need where the caller has that.

    A child would run the caller's script again to have its `__main__`; hidden, it does not, and
    scripts need no guard.
    """
    context = multiprocessing.get_context("forkserver")
    with _starting:
        loaded = [_WITH_OPTIMIZERS] if _WITH_OPTIMIZERS in sys.modules else []
        context.set_forkserver_preload([main.__module__, *loaded])
        with _environment(TORCH_CPP_LOG_LEVEL="ERROR", OBJC_DISABLE_INITIALIZE_FORK_SAFETY="YES"):
            forkserver.ensure_running()
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield context
        finally:
            sys.modules["__main__"] = script


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables that are not set; the server and its children inherit them."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def meeting_point() -> dist.TCPStore:
    """The meeting point of the processes, at a free port that only this machine reaches."""
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
