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
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import psutil

from dlsys.grading.boxes import sandbox, selftest, zygote
from dlsys.grading.boxes.memory import family, threads, uses_more
from dlsys.grading.boxes.sandbox import Limits, SandboxError

MEMORY = "memory"
_LEAST_PAUSE, _MOST_PAUSE = 0.2, 1.0  # seconds between looks at what boxes hold

# In huge pages, what a fork has to copy, the tables of its memory, is a fifth.
_QUICK_TO_FORK = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Box:
    """A process in a box of its own. `socket` is connected to it; `died` says why the box was
    ended from outside ("memory"), or is None."""

    def __init__(
        self,
        line: socket.socket,
        processes: Sequence[psutil.Process],
        limits: Limits,
        end: Callable[[], None],
    ) -> None:
        self.socket = line
        self.died: str | None = None
        self.processes = processes
        self.limits = limits
        self._end = end
        self._lock = threading.Lock()
        self._ended = False

    def close(self) -> None:
        """End everything that runs in the box, and wait until it has ended. May be called twice."""
        self.end()
        self.socket.close()

    def end(self) -> None:
        """As `close`, but whoever reads from the socket finds its end, and not a closed one."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._end()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def held(self) -> int:
        """Bytes that the process in the box holds, without its children; 0 once it has ended."""
        try:
            return self.processes[-1].memory_info().rss if self.processes else 0
        except psutil.Error:
            return 0

    def tasks(self) -> int:
        """How many processes and threads the process in the box and its children have; 0 once it
        has ended."""
        return threads(self.processes[-1:])

    def end_if_over(self) -> None:
        """End the box if it holds more memory than it may."""
        if not self._ended and uses_more(
            self.processes, self.limits.memory_bytes, self.limits.socket_bytes
        ):
            self.died = MEMORY
            self.end()


class Boxes:
    """Where boxes come from; a context manager. Raises SandboxError on entry where they cannot be
    had. With `trust_students`, and in no other way, code runs without: as whoever calls this, with
    limits on resources alone."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        trust_students: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        self.limits = limits or Limits()
        self.isolated = not trust_students
        self.preload = preload

    def __enter__(self) -> Boxes:
        if not hasattr(os, "fork"):
            raise SandboxError("Student code runs on Linux and macOS; on Windows, use WSL2.")
        bwrap = shutil.which("bwrap") if self.isolated else ""
        if bwrap is None:
            raise SandboxError(_refusal(selftest.advice()))
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", zygote.__name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                env=sandbox.environment() | _QUICK_TO_FORK,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # or Ctrl-C would reach it before us
            )
        assert self._process.stderr
        self._control, self._errors = ours, self._process.stderr
        self._lock = threading.Lock()
        self._folder = ""
        self._open: set[Box] = set()
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._watch_memory, daemon=True)
        self._watch.start()
        try:
            start = {"path": [path for path in sys.path if path], "bwrap": bwrap}
            self._folder = self._ask(start)[0]["folder"]
            if self.isolated:
                self._test()
            self.prepare(self.preload)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._watch.join()
        for box in list(self._open):
            box.close()
        self._control.close()
        self._process.wait()
        self._errors.close()
        # Gone already, unless somebody killed the process that made it.
        shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self, modules: Sequence[str]) -> None:
        """Have modules imported, so that they need not be in every box."""
        self._ask({"prepare": list(modules)})

    def open(self, role: str, limits: Limits | None = None) -> Box:
        """A box in which `main(socket, limits)` of the module named `role` runs; called by any
        thread. Raises SandboxError where there is none."""
        limits = limits or self.limits
        ours, theirs = socket.socketpair()
        home = "" if self.isolated else tempfile.mkdtemp(dir=self._folder)
        request = {"open": role, "limits": asdict(limits), "home": home}
        try:
            with theirs:
                answer, files = self._ask(request, (theirs.fileno(),))
        except BaseException:
            ours.close()
            raise
        processes = []
        for number in answer["processes"]:
            with contextlib.suppress(psutil.NoSuchProcess):
                processes.append(psutil.Process(number))

        def end() -> None:
            if self.isolated:
                _end_box(*files)
            else:
                _end_family(processes, answer["user"])
                shutil.rmtree(home, ignore_errors=True)
            self._open.discard(box)

        box = Box(ours, processes, limits, end)
        self._open.add(box)
        return box

    def _test(self) -> None:
        """Open a box and see whether it holds."""
        try:
            limits = replace(self.limits, processes=selftest.PROCESSES)
            with self.open(selftest.__name__, limits) as box:
                wrong = selftest.failures(box.socket, limits)
        except SandboxError as error:
            wrong = [str(error), selftest.advice(str(error))]
        if wrong:
            raise SandboxError(_refusal(*wrong))

    def _ask(
        self, request: dict[str, Any], files: tuple[int, ...] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            try:
                zygote.send(self._control, request, files)
                answer, received = zygote.receive(self._control)
            except (EOFError, OSError):
                self._control.close()
                self._process.wait()
                said = self._errors.read().decode(errors="replace")
                raise SandboxError(
                    f"The process that starts boxes ended.\n{said}".strip()
                ) from None
            except BaseException:
                # Interrupted, its answer would be taken for that to the next question.
                self._control.close()
                raise
        if "error" in answer:
            raise SandboxError(answer["error"])
        return answer, received

    def _watch_memory(self) -> None:
        pause = _LEAST_PAUSE
        while not self._done.wait(pause):
            began = time.monotonic()
            for box in list(self._open):
                box.end_if_over()
            # To look at many processes takes long: a tenth of the time is for that, as a rule.
            pause = min(max(_LEAST_PAUSE, 9 * (time.monotonic() - began)), _MOST_PAUSE)


def _refusal(*sentences: str) -> str:
    return " ".join(
        (
            "Student code cannot be kept apart from this computer.",
            *sentences,
            "To grade students whom you trust with all that you may do here, with limits on "
            "resources alone, pass --trust-students.",
        )
    )


def _end_box(first: int, hold: int) -> None:
    """Kill a box's first process, with which the kernel kills all others, and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(first, signal.SIGKILL)
    wait = select.poll()
    wait.register(first, select.POLLIN)
    wait.poll()
    os.close(first)
    os.close(hold)


def _end_family(leaders: Sequence[psutil.Process], user: int | None) -> None:
    """Kill what a process without a box has started, as far as it can be found."""

    def left() -> set[psutil.Process]:
        found = set(family(leaders))
        # A number is another's only after the whole session has ended.
        sessions = {
            one.pid for one in leaders if one.is_running() or not psutil.pid_exists(one.pid)
        }
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.getsid(one.pid) in sessions or (user and one.uids().real == user):
                    found.add(one)
        return {one for one in found if one.is_running()}

    while running := left():
        for one in running:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(running, timeout=1)
