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
import sysconfig
import types
from collections.abc import Callable
from typing import Any

from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.judging import packing
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
        self._runs: dict[str, str] = {}  # names of values that checks of a question share
        module = types.ModuleType("__main__")  # where pickle finds the classes of the cells
        sys.modules["__main__"] = module
        self._loaded = set(sys.modules)
        self._names = vars(module)
        self._names["__builtins__"] = builtins
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (as long as the process)

    def question(self, question: str, names: list[str], line: int | None = None) -> None:
        """From now on, `names` are those of the snapshot at the other end of `line`."""
        self._question = question
        for name in self._runs.values():
            del self._names[name]
        self._runs.clear()
        end = None if line is None else socket.socket(fileno=line)
        if end is not None and question in self._snapshots:
            end.close()
        elif end is not None:
            self._snapshots[question] = Snapshot(end, self._limits, names)

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
            value = eval(_compiled("check", self._shared(expression), "eval"), self._names)
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
        """Have the student's names: as they were there when the snapshot was made."""
        for name in self._bound:
            self._names.pop(name, None)
        self._bound.clear()
        snapshot = self._snapshots.get(self._question)
        if snapshot is not None:
            found = snapshot.renew()
            self._names.update(found)
            self._bound = set(found)

    def _shared(self, expression: str) -> str:
        """The expression with a name in the place of each call that an attribute is taken of, and
        of the whole where it was one.

        `run(f).results` and `run(f).seconds` are then of the same run, which is made once.
        """
        tree = _Attributes(self._run).visit(ast.parse(expression, mode="eval"))
        text = ast.unparse(tree)
        return self._runs.get(text, text)

    def _run(self, call: str) -> str:
        """The name of what a call gave in this question; it is made where it was not."""
        if call not in self._runs:
            value = eval(_compiled("check", call, "eval"), self._names)
            name = f"_run_{len(self._runs)}"
            self._names[name] = value
            self._runs[call] = name
        return self._runs[call]


_LEFT = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.IfExp, ast.BoolOp


class _Attributes(ast.NodeTransformer):
    """Puts a name in the place of calls that an attribute is taken of."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name

    def visit(self, node: ast.AST) -> ast.AST:
        """A part of an expression; what has variables of its own, or may not be made, is left."""
        return node if isinstance(node, _LEFT) else super().visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        """One attribute: of a call, or of something in which there may be one."""
        if not isinstance(node.value, ast.Call):
            self.generic_visit(node)
            return node
        name = self._name(ast.unparse(node.value))
        return ast.Attribute(ast.Name(name, ast.Load()), node.attr, node.ctx)


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
