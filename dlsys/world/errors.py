"""What goes wrong in a world, and the line of the program that it is told with."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import FrameType, TracebackType

import torch

import dlsys

_LIBRARIES = tuple(str(Path(f).parent) + os.sep for f in (dlsys.__file__, torch.__file__))


class WorldError(RuntimeError):
    """A run that went wrong as a whole."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, and of a rank's exception where its program was.

        The frames of the world itself would bury both.
        """
        shown = []
        if self.__cause__ is not None:
            frames = traceback.extract_tb(self.__cause__.__traceback__)
            for frame in frames:
                if "ipykernel" in frame.filename and frame.line:  # read before its file is renamed
                    frame.filename = "this notebook"
            program = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
            shown = [line.rstrip() for line in traceback.format_list(program)]
        return [*shown, f"{type(self).__name__}: {self}"]


class DeadlockError(WorldError):
    """No rank can move any more; the message says who waits for whom, and where."""


class MismatchError(WorldError, ValueError):
    """Ranks called different things where they had to call the same; the message names both."""


class RankError(WorldError):
    """A rank's program raised; the message names the rank and holds its traceback.

    It is also an instance of the original's type, which is its `__cause__`.
    """


def last_frame(trace: TracebackType) -> FrameType:
    """The frame in which an exception was raised."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def rank_error(message: str, cause: BaseException) -> RankError:
    """A RankError that is also an instance of its cause's type, where Python allows that."""
    try:
        kind = type("RankError", (RankError, type(cause)), {"__str__": lambda self: message})
        error = kind(message)
    except TypeError:
        error = RankError(message)
    error.__cause__ = cause
    return error


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is the caller's program, not this package or torch's internals."""
    innermost = frame
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            return frame
        frame = frame.f_back
    return innermost


def line_of(frame: FrameType | None) -> str:
    """`file:line` of the program that led to `frame`."""
    frame = program_frame(frame)
    return "an unknown line" if frame is None else place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int) -> str:
    """`file:line`, or the line of a notebook's cell, whose file has a name without meaning."""
    path = Path(file)
    return f"cell line {line}" if "ipykernel" in path.parent.name else f"{path.name}:{line}"
