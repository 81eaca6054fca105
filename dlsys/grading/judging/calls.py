"""In the student's box: answer calls of the functions that the notebook defines.

A call's arguments come pickled; its result goes out as JSON. What must not be in this process (a
world's communicator, say, which counts what is sent) stays with the caller, and is represented here
by something that asks the caller.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Hashable
from types import FrameType
from typing import Any

import torch

from dlsys.grading.judging.packing import Packer, Unpickler
from dlsys.grading.judging.wire import Channel, Garbled
from dlsys.world.call import Call
from dlsys.world.communicator import Communicator
from dlsys.world.here import here
from dlsys.world.in_flight import InFlight
from dlsys.world.matching import changed_too_early

_MOST_TEXT = 2_000


class Calls:
    """A conversation with one caller: it asks us, and while we answer we may ask it.

    `told` is what callers know by number; a process that is forked later knows it, too.
    """

    def __init__(self, channel: Channel, names: dict[str, Any], told: list[Any]) -> None:
        self._channel, self._names, self._told = channel, names, told

    def answer_all(self) -> None:
        """Serve the caller until it hangs up."""
        while True:
            self.answer()

    def answer(self, message: bytes | None = None) -> None:
        """Do what a message says, None for the next one, and send the result."""
        message = message or self._channel.listen()[0]
        try:
            word, *details = Unpickler(io.BytesIO(message), self._resolve).load()
            answer = getattr(self, f"_{word}")(*details)
        except BaseException as error:
            self._channel.say({"error": self._error(error)})
            return
        self._say("value", answer)

    def ask(self, thing: int, method: str, *args: Any, **options: Any) -> Any:
        """Have the caller call `method` of the thing with this number; its result or exception."""
        line = _line(sys._getframe(1))
        self._say("ask", (thing, method, args, options, line))
        while True:
            message, _ = self._channel.listen()
            word, *details = Unpickler(io.BytesIO(message), self._resolve).load()
            if word == "result":
                return details[0]
            if word == "raise":
                error, error._number = details
                raise error
            self.answer(message)  # it calls us before it answers

    def _say(self, word: str, value: Any) -> None:
        packer = Packer(self._refer)
        try:
            packed = packer.pack(value)
        except Garbled as error:
            self._channel.say({"error": {"types": ["RuntimeError"], "text": str(error)}})
            return
        self._channel.say({word: packed}, packer.arrays)

    @staticmethod
    def _error(error: BaseException) -> dict[str, Any]:
        """The built-in types that an exception is of, its own type's name, and its text."""
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        line = _line_of(error)
        where = f"\n  in line {line} of the cell" if line else ""
        text = f"{type(error).__name__}: {error}"[:_MOST_TEXT] + where
        return {"types": kinds, "text": text, "raised": getattr(error, "_number", None)}

    # -- what a caller may want ------------------------------------------------------------------

    def _names_of(self, names: list[str]) -> dict[str, Any]:
        return {name: self._names[name] for name in names if name in self._names}

    def _call(
        self, function: Any, args: Any, options: dict[str, Any], comm: Any, seed: int | None
    ) -> tuple[Any, dict[str, Any]]:
        """The result, and those arguments that the function has changed."""
        if seed is not None:
            torch.manual_seed(seed)
        here.comm = comm
        given = {**{str(i): value for i, value in enumerate(args)}, **options}
        before = {name: self._content(value) for name, value in given.items()}
        result = function(*args, **options)
        changed = {
            name: value
            for name, value in given.items()
            if before[name] is not None and self._content(value) != before[name]
        }
        return result, changed

    def _content(self, value: Any) -> Any:
        """What a value that can be changed holds; None for others."""
        if type(value) not in (list, dict, torch.Tensor) and type(value).__name__ != "ndarray":
            return None
        packer = Packer(lambda thing: {"id": id(thing)})
        return packer.pack(value), packer.arrays

    # -- names for what does not cross -----------------------------------------------------------

    def _refer(self, value: Any) -> dict[str, Any]:
        self._told.append(value)
        name = getattr(value, "__name__", None)
        known = type(name) is str and self._names.get(name) is value
        return {
            "name": name if known else None,
            "number": len(self._told) - 1,
            "type": type(value).__name__,
        }

    def _resolve(self, reference: tuple[str, Any]) -> Any:
        kind, body = reference
        if kind == "name":
            return self._names[body]
        if kind == "number":
            return self._told[body]
        if kind == "communicator":
            return FarCommunicator(self, *body)
        return _Far(self, body)


class _Far:
    """Something that the caller keeps: called, it asks; `wait` is what a handle has."""

    def __init__(self, calls: Calls, number: int) -> None:
        self._calls, self._number = calls, number

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._calls.ask(self._number, "__call__", *args, **options)

    def wait(self) -> Any:
        """The result of the operation in flight."""
        return self._calls.ask(self._number, "wait")


class _Sending:
    """A send in flight. Its tensor is here, and so is who sees that nobody writes to it."""

    def __init__(self, far: _Far, tensor: torch.Tensor, *call: Any) -> None:
        self._far, self._in_flight, self._call = far, InFlight(tensor), call

    def wait(self) -> None:
        """Wait until the message has left the tensor."""
        if self._in_flight.is_changed():
            raise changed_too_early(*self._call)
        self._far.wait()
        self._in_flight = InFlight(torch.empty(0))


class _Receiving:
    """A receive in flight: what comes is put into the tensor that was given for it."""

    def __init__(self, far: _Far, tensor: torch.Tensor) -> None:
        self._far, self._tensor = far, tensor

    def wait(self) -> torch.Tensor:
        """The tensor, filled."""
        with torch.no_grad():
            return self._tensor.copy_(self._far.wait())


class FarCommunicator(Communicator):
    """A communicator whose every call is made by the caller, on the real one."""

    def __init__(self, calls: Calls, number: int, rank: int, size: int, axis: str) -> None:
        self._calls, self._number = calls, number
        self.rank, self.size, self.axis = rank, size, axis

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        """Send `tensor` to rank `dst`; returns when that rank has received it."""
        dst = self._peer("send to", dst)
        self._check_tensor("send", tensor)
        self._ask("send", tensor, dst, tag)

    def recv(self, tensor: torch.Tensor, src: int, tag: int = 0) -> torch.Tensor:
        """Receive from rank `src` into `tensor`, which must have the shape and dtype sent."""
        src = self._peer("receive from", src)
        self._check_tensor("recv", tensor)
        with torch.no_grad():
            return tensor.copy_(self._ask("recv", tensor, src, tag))

    def barrier(self) -> None:
        """Wait until every rank of the group is here."""
        self._ask("barrier")

    def split(self, color: Hashable, key: int | None = None, axis: str = "") -> Any:
        """A communicator for the ranks that pass the same `color`."""
        return self._ask("split", color, key, axis)

    @property
    def seconds(self) -> float:
        """This rank's virtual clock."""
        return self._ask("seconds")

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Spend `seconds` computing in virtual time."""
        self._ask("compute", seconds, name)

    def _isend(self, tensor: torch.Tensor, dst: int, tag: int) -> Any:
        far = self._ask("isend", tensor, dst, tag)
        line = _line(sys._getframe(1))
        return _Sending(far, tensor, self.rank, f"isend to rank {dst}", f"cell line {line}")

    def _irecv(self, tensor: torch.Tensor, src: int, tag: int) -> Any:
        return _Receiving(self._ask("irecv", tensor, src, tag), tensor)

    def _collective(self, call: Call) -> Any:
        return self._ask(
            "collective", call.kind, call.tensor, call.plan, call.op, call.root, call.length
        )

    def _ask(self, method: str, *args: Any) -> Any:
        return self._calls.ask(self._number, method, *args)


def _line(frame: FrameType | None) -> int:
    """The line of the notebook's cell that led to `frame`, or 0."""
    while frame is not None and "ipython-input" not in frame.f_code.co_filename:
        frame = frame.f_back
    return 0 if frame is None else frame.f_lineno


def _line_of(error: BaseException) -> int:
    """The last line of the notebook's cells that an exception came through, or 0."""
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if "ipython-input" in frame.f_code.co_filename
    ]
    return lines[-1] if lines else 0
