"""In the referee's box: the student's values, and functions that run in the student's box.

A rank program of the student's gets a communicator there whose every call comes back here, to the
real one. So what is sent is counted here. Each simulated rank runs in a process of its own.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import socket
import time
import types
from collections.abc import Callable
from typing import Any

from dlsys.grading.boxes.sandbox import Limits
from dlsys.grading.judging.errands import Underway, act, at_line
from dlsys.grading.judging.packing import Pickler, unpack
from dlsys.grading.judging.wire import Channel, Closed, Garbled
from dlsys.world.communicator import Communicator
from dlsys.world.errors import MismatchError
from dlsys.world.here import here


class StudentError(Exception):
    """An exception that the student's code raised; also of its built-in type."""

    def __str__(self) -> str:
        return str(self.args[0])


class Remote:
    """Something of the student's that is no plain value: what is called on it runs over there.

    `line` leads to the process that it is in; None where each of the snapshot's has it.
    """

    def __init__(self, snapshot: Snapshot, reference: tuple[str, Any], line: Line | None) -> None:
        self._snapshot, self._reference, self._line = snapshot, reference, line

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What calling it gives."""
        return self._snapshot.line().call(self, args, options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"{name} of an object of type {type(self).__name__} is not looked at; numbers, text, "
            "lists, dictionaries and arrays are, and functions are called"
        )

    @property
    def place(self) -> tuple[Any, ...]:
        """Where it is: the same for the same thing of the same process."""
        return id(self._snapshot), id(self._line), *self._reference


class Snapshot:
    """A question's state in the student's box: from it, one process for each caller.

    `names` holds the values of those names `wanted` that exist, once `renew` has fetched them.
    What `is_held` says to be the author's stays as it is where a function changes its arguments.
    """

    def __init__(
        self,
        end: socket.socket,
        limits: Limits,
        wanted: list[str],
        is_held: Callable[[Any], bool],
    ) -> None:
        self._end, self._limits, self._wanted, self.is_held = end, limits, wanted, is_held
        self._lines: dict[int | None, Line] = {}
        self.names: dict[str, Any] | None = None
        self.until = 0.0

    def renew(self) -> dict[str, Any]:
        """Start the clock for one check, and give the names for it."""
        self.until = time.monotonic() + self._limits.check_seconds
        if self.names is None:
            line = self._connect(b"n", everywhere=True)
            found = line.request("names_of", self._wanted)
            line.channel.close()
            if type(found) is not dict:
                raise Garbled("no names")
            self.names = {name: found[name] for name in self._wanted if name in found}
        return self.names

    def line(self) -> Line:
        """The line to this thread's process: a simulated rank has its own."""
        comm = here.comm
        rank = None if comm is None else comm.rank
        if rank not in self._lines:
            self._lines[rank] = self._connect(b"w" if rank is None else b"r")
        return self._lines[rank]

    def _connect(self, word: bytes, everywhere: bool = False) -> Line:
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._end, [word], [theirs.fileno()])
            except OSError as error:
                raise Closed(str(error)) from None
        return Line(self, Channel(mine, self._limits.message_bytes), everywhere)

    def end_check(self) -> None:
        """End the processes where one is answering still: it would take time from all that comes.

        The names are then fetched anew.
        """
        if any(line.busy for line in self._lines.values()):
            self.hang_up()

    def hang_up(self) -> None:
        """End the processes."""
        for line in self._lines.values():
            line.channel.close()
        self._lines.clear()
        self.names = None
        with contextlib.suppress(OSError):
            self._end.send(b"k")

    def close(self) -> None:
        """End the processes, and have no new ones."""
        self.hang_up()
        self._end.close()


class Line:
    """A conversation with one process in the student's box, or with the one that all others are
    forked from: what that tells of is `everywhere`."""

    def __init__(self, snapshot: Snapshot, channel: Channel, everywhere: bool) -> None:
        self.channel, self.busy, self._everywhere = channel, 0, everywhere
        self._snapshot = snapshot
        self._things: list[Any] = []  # what the other side knows by number
        self._comm: Any = None
        self._mismatch: MismatchError | None = None  # of this run

    def call(self, function: Remote, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The result of the student's function; arguments that it changes in place are changed."""
        import torch

        comm = here.comm
        seed = torch.initial_seed() if comm is not self._comm and comm is not None else None
        if comm is not self._comm:
            # Whoever waits in a run that has ended waits for ever.
            over = Communicator, Underway
            self._things = [None if isinstance(one, over) else one for one in self._things]
            self._mismatch = None
        self._comm = comm
        answer = self.request("call", function, args, options, comm, seed)
        if self._mismatch is not None:  # what others called was told, and the run is over
            raise self._mismatch
        if type(answer) is not tuple or len(answer) != 2 or type(answer[1]) is not dict:
            raise Garbled("no result of a call")
        given = {**{str(i): value for i, value in enumerate(args)}, **options}
        for name, value in answer[1].items():
            if not self._snapshot.is_held(given.get(name)):
                _change(given.get(name), value)
        return answer[0]

    def request(self, word: str, *details: Any) -> Any:
        """Say something and return the answer; what is asked in between is answered."""
        self.busy += 1
        self._tell((word, *details))
        while True:
            said, arrays = self.channel.hear(self._snapshot.until - time.monotonic())
            if type(said) is not dict or not said:
                raise Garbled("neither an answer nor a question")
            kind, body = next(iter(said.items()))
            if kind == "error":
                self.busy -= 1
                raise self._error(body)
            value = unpack(body, arrays, self._remote)
            if kind == "value":
                self.busy -= 1
                return value
            if kind != "ask":
                raise Garbled("neither an answer nor a question")
            self._answer(value)

    def _answer(self, question: Any) -> None:
        try:
            thing, method, args, options, line = question
            if type(args) is not tuple or type(options) is not dict:
                raise Garbled("a call that is none")
            errand = functools.partial(act, self._things[thing], method, args, options)
        except (TypeError, ValueError, IndexError):
            raise Garbled("a call that is none") from None
        try:
            if self._mismatch is not None:
                raise self._mismatch
            result = at_line(line)(errand)
        except Exception as error:
            self._things.append(error)
            if isinstance(error, MismatchError):
                self._mismatch = error
            # Its cause and frames stay here: only what it says goes over.
            self._tell(("raise", _copy(error), len(self._things) - 1))
        else:
            self._tell(("result", result))

    def _tell(self, message: Any) -> None:
        file = io.BytesIO()
        Pickler(file, self._refer).dump(message)
        self.channel.tell(None, pickled=file.getvalue())

    def _refer(self, value: Any) -> Any:
        """What stands for a value that stays here; None for one that goes as a copy."""
        if isinstance(value, Remote):
            if value._reference[0] == "number" and value._line not in (None, self):
                raise ValueError("A value of one rank's process cannot be passed to another's.")
            return value._reference
        if isinstance(value, Communicator):
            return "communicator", (self._number(value), value.rank, value.size, value.axis)
        if isinstance(value, Underway) or (
            isinstance(value, types.FunctionType | types.MethodType)
            and (value.__module__ == "__main__" or "<" in value.__qualname__)
        ):
            return "thing", self._number(value)
        return None

    def _number(self, value: Any) -> int:
        self._things.append(value)
        return len(self._things) - 1

    def _remote(self, said: Any) -> Remote:
        name, number, kind = said["name"], said["number"], str(said["type"])
        if type(number) is not int or not (name is None or type(name) is str):
            raise Garbled("a reference that is none")
        reference = ("number", number) if name is None else ("name", name)
        # The type's name is what a report says of a value that cannot be compared.
        named = type(kind[:40] if kind.isidentifier() else "object", (Remote,), {})
        return named(self._snapshot, reference, None if self._everywhere else self)

    def _error(self, said: Any) -> BaseException:
        if type(said) is not dict or type(said.get("types")) is not list:
            return Garbled("an exception that is none")
        raised = said.get("raised")
        if type(raised) is int and 0 <= raised < len(self._things):
            error = self._things[raised]
            if isinstance(error, Exception):
                return error
        return _student_error(said["types"], str(said.get("text"))[:4_000])


def _change(given: Any, value: Any) -> None:
    """Give an argument the content that it has over there."""
    import numpy
    import torch

    if type(given) is not type(value):
        return
    if isinstance(given, list):
        given[:] = value
    elif isinstance(given, dict):
        given.clear()
        given.update(value)
    elif isinstance(given, torch.Tensor) and given.shape == value.shape:
        with torch.no_grad():
            given.copy_(value)
    elif isinstance(given, numpy.ndarray) and given.shape == value.shape:
        given[...] = value


def _copy(error: Exception) -> Exception:
    """An exception that can be sent: of its built-in type, with its text."""
    kind = next(k for k in type(error).__mro__ if k.__module__ == "builtins")
    try:
        return kind(str(error))
    except TypeError:
        return RuntimeError(str(error))


def _student_error(names: list[Any], text: str) -> Exception:
    """An exception of the first of these built-in types that is one, and takes a text.

    None is a StopIteration: it would end what the author does for each of many, with no word.
    """
    for name in names:
        kind = vars(builtins).get(name) if type(name) is str else None
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not StopIteration:
            try:
                return type(kind.__name__, (StudentError, kind), {})(text)
            except TypeError:
                continue
    return StudentError(text)
