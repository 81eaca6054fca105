"""Start boxes quickly: processes forked from one that has torch loaded, each moved into its box."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from dlsys.grading import sandbox, zygote
from dlsys.grading.sandbox import Limits, SandboxError

ROLES = ("inside", "referee")
MEMORY = "memory"


class Box:
    """A process in a box of its own. `socket` is connected to it; `died` says why the box was
    ended from outside ("memory"), or is None."""

    def __init__(
        self, line: socket.socket, processes: Sequence[int], end: Callable[[], None]
    ) -> None:
        self.socket = line
        self.died: str | None = None
        self.processes = processes
        self._end = end
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """End everything that runs in the box, and wait until it has ended. May be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._end()
                self.socket.close()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def memory_bytes(self, enough: int = 0) -> int:
        """Memory of all its processes, what they share counted once; roughly, if below `enough`."""
        every = _family(self.processes)
        # Quick to read, and never less than the exact figure: what is shared counts every time.
        total = sum(_asked(lambda one=one: one.memory_info().rss) for one in every)
        if total < enough:
            return total
        return sum(_asked(lambda one=one: one.memory_full_info().pss) for one in every)

    def end_if_over(self, most: int) -> None:
        """End the box if it holds more memory than `most` bytes."""
        if not self._closed and self.memory_bytes(enough=most) > most:
            self.died = MEMORY
            self.close()


class Boxes:
    """Where boxes come from; a context manager. Raises SandboxError on entry where they cannot be
    had, unless `isolated` is false: then there are limits on resources alone."""

    def __init__(
        self, limits: Limits = Limits(), *, isolated: bool = True, preload: Sequence[str] = ()
    ) -> None:
        self.limits = limits
        self.isolated = isolated
        self.preload = preload

    def __enter__(self) -> Boxes:
        ours, theirs = socket.socketpair()
        line = [sys.executable, "-P", "-m", zygote.__name__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env=sandbox.environment() | {"PYTHONPATH": str(sandbox.PACKAGE.parent)},
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # or Ctrl-C would reach it before us
            )
        self._control = ours
        self._lock = threading.Lock()
        self._open: set[Box] = set()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._watch_memory, name="memory of boxes")
        self._watch.daemon = True
        try:
            start = {"path": [p for p in sys.path if p], "isolated": self.isolated}
            self._folder = Path(self._ask(start)[0]["folder"])
            self._watch.start()
            self.prepare([*map(_module, ROLES), *self.preload])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for box in list(self._open):
            box.close()
        self._control.close()
        self._process.wait()

    def prepare(self, modules: Sequence[str]) -> None:
        """Have modules imported, so that they need not be in every box."""
        self._ask({"prepare": list(modules)})

    def open(self, role: str, limits: Limits | None = None) -> Box:
        """A box in which `dlsys.grading.<role>.main(socket, limits)` runs; a role with a dot is a
        module's full name. Called by any thread."""
        limits = limits or self.limits
        ours, theirs = socket.socketpair()
        home = "" if self.isolated else tempfile.mkdtemp(dir=self._folder)
        request = {"open": _module(role), "limits": asdict(limits), "home": home}
        try:
            with theirs:
                answer, files = self._ask(request, (theirs.fileno(),))
        except BaseException:
            ours.close()
            raise
        processes = answer["processes"]
        if self.isolated:
            box = Box(ours, processes, lambda: self._forget(box, lambda: _end_box(*files)))
        else:
            user = answer["user"]
            box = Box(
                ours,
                processes,
                lambda: self._forget(box, lambda: _end_family(processes[0], user, home)),
            )
        self._open.add(box)
        return box

    def _forget(self, box: Box, end: Callable[[], None]) -> None:
        end()
        self._open.discard(box)

    def _ask(
        self, request: dict[str, Any], files: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            try:
                zygote.send(self._control, request, files)
                answer, received = zygote.receive(self._control)
            except (EOFError, OSError):
                raise SandboxError("The process that starts boxes has ended.") from None
        if "error" in answer:
            raise SandboxError(answer["error"])
        return answer, received

    def _watch_memory(self) -> None:
        while not self._done.wait(0.2):
            for box in list(self._open):
                box.end_if_over(self.limits.memory_bytes)


def _module(role: str) -> str:
    return role if "." in role else f"dlsys.grading.{role}"


def _end_box(first: int, hold: int) -> None:
    """Kill a box's first process, with which the kernel kills all others, and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(first, signal.SIGKILL)
    wait = select.poll()
    wait.register(first, select.POLLIN)
    wait.poll()
    os.close(first)
    os.close(hold)


def _end_family(leader: int, user: int | None, home: str) -> None:
    """Kill what a process without a box has started, as far as it can be found."""

    def left() -> list[psutil.Process]:
        found = _family([leader])
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(one.pid) == leader or (user and one.uids().real == user):
                    found.append(one)
        return [one for one in found if _asked(one.status) not in (0, psutil.STATUS_ZOMBIE)]

    while running := left():
        for one in running:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(running, timeout=1)
    shutil.rmtree(home, ignore_errors=True)


def _family(roots: Iterable[int]) -> list[psutil.Process]:
    """These processes and all that descend from them."""
    found = []
    for root in roots:
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(root)
            found += [first, *first.children(recursive=True)]
    return found


def _asked(question: Callable[[], Any]) -> Any:
    """The answer, or 0 where the process has ended or may not be asked."""
    try:
        return question()
    except psutil.Error:
        return 0
