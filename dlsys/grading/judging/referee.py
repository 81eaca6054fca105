"""What runs in the referee's box: the trusted cells, and the expressions of the checks.

The student's functions are called where they are, in the student's box (see `remote`). So what a
check evaluates is the author's code on the student's values: a helper that the student has
overwritten, or a library that the student has patched, is not the one that runs here. Only the
grader knows what is expected.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import socket
import sys
import types
from typing import Any

from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.judging import imports, packing
from dlsys.grading.judging.once import ONCE, Once, reaches
from dlsys.grading.judging.packing import Packer
from dlsys.grading.judging.remote import Snapshot, StudentError
from dlsys.grading.judging.wire import FOR_THE_GRADER, Channel, Closed, Garbled, TooLate


def prepare() -> None:
    """Know the plans of every mechanism; done once, before the processes of boxes are forked."""
    packing.prepare()


def main(end: socket.socket, limits: Limits) -> None:
    """Do what the grader says, until it hangs up."""
    referee = Referee(limits)
    channel = Channel(end, FOR_THE_GRADER, limits.message_bytes)
    for word, details, files in channel.orders():
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
        self._snapshots: dict[str, Snapshot] = {}  # by question
        self._question = ""
        self._bound: set[str] = set()  # the student's names that are bound
        self._once: dict[str, Once] = {}  # by question
        module = types.ModuleType("__main__")  # where pickle finds the classes of the cells
        sys.modules["__main__"] = module
        self._loaded = set(sys.modules)
        self._names = vars(module)
        self._names["__builtins__"] = builtins
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (as long as the process)

    def question(self, question: str, names: list[str], line: int | None = None) -> None:
        """From now on, `names` are those of the snapshot at the other end of `line`."""
        self._question = question
        self._names[ONCE] = self._once.setdefault(question, Once())
        end = None if line is None else socket.socket(fileno=line)
        if end is not None and question in self._snapshots:
            end.close()
        elif end is not None:
            self._snapshots[question] = Snapshot(end, self._limits, names, self._held)

    def run(self, cell: str, source: str) -> str | None:
        """Run a trusted cell; what it ended with, or None."""
        try:
            self._fetch()
            exec(_compiled(cell, source, "exec"), self._names)
        except Exception as error:
            return _text(error)
        finally:
            self._end_check()
        return None

    def evaluate(self, expression: str, cost: bool = False) -> tuple[str, Any]:
        """("value", plain value), or ("late" | "not plain" | "error", text).

        With `cost`, the value is what a run, or a mapping, says that it cost.
        """
        from dlsys.exercises import NotPlain, cost_of, plain

        try:
            self._fetch()
            tree = ast.fix_missing_locations(_Calls().visit(ast.parse(expression, mode="eval")))
            value = eval(_compiled("check", ast.unparse(tree), "eval"), self._names)
            return "value", cost_of(value) if cost else plain(value)
        except NotPlain as error:
            return "not plain", str(error)
        except Exception as error:
            late = isinstance(error, TooLate) or isinstance(error.__cause__, TooLate)
            return "late" if late else "error", _text(error)
        finally:
            self._end_check()

    def imported(self) -> list[str]:
        """The installed modules that were imported here and not before, in order of name."""
        return imports.since(self._loaded)

    def _fetch(self) -> None:
        """Have the student's names: as they were there when the snapshot was made."""
        for name in self._bound:
            self._names.pop(name, None)
        self._bound.clear()
        snapshot = self._snapshots.get(self._question)
        if snapshot is not None:
            found = snapshot.renew()
            self._names.update(found)
            self._bound = set(found)

    def _end_check(self) -> None:
        if snapshot := self._snapshots.get(self._question):
            snapshot.end_check()

    def _held(self, value: Any) -> bool:
        """Whether `value` is of the locked cells, or what a call gave: no answer changes that."""
        return reaches([self._names, *(each.made for each in self._once.values())], value)


class _Calls(ast.NodeTransformer):
    """Puts `once(f, x)` in the place of each call `f(x)`."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """One call, and those in its arguments."""
        self.generic_visit(node)
        return ast.Call(ast.Name(ONCE, ast.Load()), [node.func, *node.args], node.keywords)


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
