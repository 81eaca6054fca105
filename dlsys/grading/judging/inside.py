"""What runs in the student's box: the cells of the notebook, and copies of its state.

Nothing here is safe from the student's code, which shares the process with it; so nothing here
decides anything. It runs cells, and at each question leaves a *snapshot* behind: a forked process
that forks again for whoever calls the student's functions, so that each call finds the state that
the notebook had there, and no call leaves anything behind for the next question.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from dlsys.grading.boxes.alone import be_alone
from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.judging import imports, packing
from dlsys.grading.judging.calls import Calls
from dlsys.grading.judging.wire import Channel, Closed, Garbled

_MOST_TEXT = 4_000  # characters of what a cell ended with

_shell: Any = None


def prepare() -> None:
    """Make the shell that cells run in; done once, before the processes of boxes are forked."""
    global _shell
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Shell(InteractiveShell):
        """IPython without a screen: errors are told, not shown."""

        def enable_gui(self, gui: str | None = None) -> None:
            """Nothing: there is no screen."""

        def ask_exit(self) -> None:
            """Nothing: `exit` ends a cell and not the notebook."""

        def system(self, cmd: str) -> None:
            """Run a command of the shell, for there is no terminal to run it in."""
            print(self.getoutput(cmd, split=False, depth=1))

        def showtraceback(self, *args: Any, **options: Any) -> None:
            """Nothing: what a cell ended with goes to the grader."""

        showsyntaxerror = showtraceback

    class Nowhere(dict[int, list[Any]]):
        """For what cells print and show, which IPython would keep: a flood would fill the box."""

        def __missing__(self, key: int) -> list[Any]:
            return []

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    with tempfile.TemporaryDirectory() as folder:
        _shell = Shell.instance(config=config, ipython_dir=folder)
    _shell.history_manager.outputs = Nowhere()
    packing.prepare()
    _shell.run_cell("", store_history=False)


def main(end: socket.socket, limits: Limits) -> None:
    """Do what the grader says, until it hangs up."""
    if _shell is None:
        prepare()
    _seed()
    sys.path.insert(0, "")  # as in a notebook, whose cells may write a module
    channel, kernel = Channel(end, limits.message_bytes), os.getpid()
    loaded = set(sys.modules)
    for word, details, files in channel.orders():
        if word == "files":
            for name, content in details[0].items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(content)
            channel.say({"done": True})
        elif word == "run":
            outcome = _run(details[0])
            if os.getpid() != kernel:
                os._exit(0)  # the cell has forked, and one of the two is to answer
            channel.say(outcome)
        elif word == "imported":
            channel.say({"modules": imports.since(loaded)})
        elif word == "ping":
            if details[0]:
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
            channel.say({"done": True})
        elif word == "snapshot":
            if os.fork() == 0:
                end.close()
                with socket.socket(fileno=files[0]) as line:
                    _keep_snapshot(line, limits)
                os._exit(0)
            os.close(files[0])
            channel.say({"done": True})


def _seed() -> None:
    """What draws at random draws the same each time, unless the student wants otherwise."""
    import random

    import numpy
    import torch

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def _run(source: str) -> dict[str, Any]:
    """Run a cell: {"error": None, or what it ended with}. What it prints goes nowhere."""
    outcome = _shell.run_cell(source, store_history=True)
    error = outcome.error_before_exec or outcome.error_in_exec
    return {"error": None if error is None else _describe(error)}


def _describe(error: BaseException) -> str:
    """An exception in a line or two: its type and message, and the line of the cell."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{kind} in line {error.lineno}: {error.msg}"
    cells = [f for f in traceback.extract_tb(error.__traceback__) if "ipython-input" in f.filename]
    where = f"\n  in line {cells[-1].lineno}: {cells[-1].line}" if cells else ""
    return f"{kind}: {error}{where}"[:_MOST_TEXT]


def _keep_snapshot(line: socket.socket, limits: Limits) -> None:
    """Serve callers, each at the socket that comes with its letter: `n` asks for names and gets
    them, for `w` a process is forked that answers, and for `r` one that can tell nobody else
    anything. At `k`, and at the end, all of these end."""
    workers: list[int] = []
    told: list[Any] = []
    with contextlib.suppress(OSError):
        while True:
            word, files, _, _ = socket.recv_fds(line, 1, 1)
            if files:
                with socket.socket(fileno=files[0]) as end:
                    calls = Calls(Channel(end, limits.message_bytes), _shell.user_ns, told)
                    if word == b"n":
                        with contextlib.suppress(Closed, Garbled):
                            calls.answer()
                    elif worker := os.fork():
                        workers.append(worker)
                    else:
                        line.close()
                        _work(calls, end.fileno() if word == b"r" else None)
                continue
            for each in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each, 0)
            workers.clear()
            if not word:
                return


def _work(calls: Calls, only: int | None) -> None:
    """Answer the calls of one caller, and end; having no other file than `only`, None for all."""
    try:
        if only is not None:
            be_alone(only)
        with contextlib.suppress(Closed, Garbled):
            calls.answer_all()
    finally:
        os._exit(0)
