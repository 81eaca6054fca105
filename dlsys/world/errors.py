"""What goes wrong in a world, and the line of the program that it is told with."""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType

import torch

import dlsys

_LIBRARIES = tuple(str(Path(f).parent) + os.sep for f in (dlsys.__file__, torch.__file__))


class WorldError(RuntimeError):
    """A run that went wrong as a whole."""


class DeadlockError(WorldError):
    """No rank can move any more; the message says who waits for whom, and where."""


class MismatchError(WorldError, ValueError):
    """Ranks called different things where they had to call the same; the message names both."""


class RankError(WorldError):
    """A rank's program raised; the message names the rank and holds its traceback.

    It is also an instance of the original's type, which is its `__cause__`.
    """


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
    if frame is None:
        return "an unknown line"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
