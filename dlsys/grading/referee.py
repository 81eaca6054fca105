"""What runs in the referee's box: the trusted cells, and the expressions of the checks.

The student's functions are called where they are, in the student's box (see `remote`). So what a
check evaluates is the author's code on the student's values: a helper that the student has
overwritten, or a library that the student has patched, is not the one that runs here. Only the
grader knows what is expected.
"""

from __future__ import annotations

import builtins
import linecache
import os
import pickle
import socket
import sys
import sysconfig
import types
from typing import Any

from dlsys.grading.remote import Snapshot, StudentError
from dlsys.grading.sandbox import Limits
from dlsys.grading.wire import FOR_THE_GRADER, Channel, Closed, Garbled, Packer, TooLate


def main(end: socket.socket, limits: Limits) -> None:
    """Do what the grader says, until it hangs up."""
    referee = Referee(limits)
    channel = Channel(end, FOR_THE_GRADER, limits.message_bytes)
    while True:
        try:
            message, files = channel.listen(files=1)
        except Closed:
            return
        word, *details = pickle.loads(message)
        packer = Packer(lambda value: {})
        answer = packer.pack(getattr(referee, word)(*details, *files))
        try:
            channel.say(answer, packer.arrays)
        except Garbled as error:
            channel.say(packer.pack(("not plain", f"It holds too much to be compared: {error}.")))


class Referee:
    """A namespace of trusted names, in which the names of each question are the student's."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._snapshot: Snapshot | None = None
        self._wanted: list[str] = []
        module = types.ModuleType("__main__")  # where pickle finds the classes of the cells
        sys.modules["__main__"] = module
        self._loaded = set(sys.modules)
        self._names = vars(module)
        self._names["__builtins__"] = builtins
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (as long as the process)

    def question(self, names: list[str], line: int | None = None) -> None:
        """From now on, `names` are those of the snapshot at the other end of `line`."""
        if self._snapshot is not None:
            self._snapshot.close()
        self._forget()
        end = None if line is None else socket.socket(fileno=line)
        self._snapshot = None if end is None else Snapshot(end, self._limits)
        self._wanted = names

    def run(self, cell: str, source: str) -> str | None:
        """Run a trusted cell; what it ended with, or None."""
        try:
            self._fetch()
            exec(_compiled(cell, source, "exec"), self._names)
        except Exception as error:
            return _text(error)
        return None

    def evaluate(self, expression: str, cost: bool = False) -> tuple[str, Any]:
        """("value", plain value), or ("late" | "not plain" | "error", text).

        With `cost`, the value is what a run, or a mapping, says that it cost.
        """
        from dlsys.exercises import NotPlain, cost_of, plain

        try:
            self._fetch()
            value = eval(_compiled("check", expression, "eval"), self._names)
            return "value", cost_of(value) if cost else plain(value)
        except NotPlain as error:
            return "not plain", str(error)
        except Exception as error:
            late = isinstance(error, TooLate) or isinstance(error.__cause__, TooLate)
            return "late" if late else "error", _text(error)

    def imported(self) -> list[str]:
        """The installed modules that were imported here and not before, in order of name."""
        installed = tuple(sysconfig.get_paths()[place] for place in ("stdlib", "purelib"))
        new = {name: module for name, module in sys.modules.items() if name not in self._loaded}
        specs = {name: getattr(module, "__spec__", None) for name, module in new.items()}
        return sorted(
            name
            for name, spec in specs.items()
            if spec and spec.name == name and str(spec.origin).startswith(installed)
        )

    def _fetch(self) -> None:
        if self._snapshot is not None and self._snapshot.renew():
            self._forget()
            self._names.update(self._snapshot.names(self._wanted))

    def _forget(self) -> None:
        for name in self._wanted:
            self._names.pop(name, None)


def _compiled(name: str, source: str, mode: str) -> Any:
    file = f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return compile(source, file, mode)


def _text(error: Exception) -> str:
    """What an exception says, for the student to read."""
    if isinstance(error, StudentError):
        return str(error)
    if isinstance(error, Closed | Garbled):
        return "The process that ran the answer has ended, or broke off the conversation."
    return f"{type(error).__name__}: {error}"
