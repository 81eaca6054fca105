"""What goes wrong in a world, and the line of the program that it is told with."""

from __future__ import annotations

import itertools
import os
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

import dlsys

_LIBRARIES = (
    *(str(Path(f).parent) + os.sep for f in (dlsys.__file__, torch.__file__)),
    sysconfig.get_path("stdlib") + os.sep,
    "<frozen ",
)

SHOWN = 16
"""Ranks that an error message tells about one by one."""


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


class UnwaitedError(WorldError):
    """A handle that nobody waited for, or a tensor changed while it was being sent; the message
    names the rank, the call and its line."""


class RankError(WorldError):
    """A rank's program raised; the message names the rank and holds its traceback.

    It is also an instance of the original's type, which is its `__cause__`.
    """


def text_of(error: BaseException) -> str:
    """What an exception says."""
    try:
        return str(error)
    except Exception:  # of its author's making
        return "(its text cannot be read)"


def last_frame(trace: TracebackType) -> FrameType:
    """The frame in which an exception was raised."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def rank_error(message: str, cause: BaseException) -> BaseException:
    """A RankError that is also an instance of its cause's type, where Python allows that; of an
    interrupt another interrupt, which the caller is to hear of as one."""
    error: BaseException = RankError(message)
    if isinstance(cause, KeyboardInterrupt):
        error = KeyboardInterrupt(message)
    if isinstance(cause, Exception):  # not SystemExit, say, which must not end the caller
        with suppress(TypeError):  # some types do not combine
            both = (RankError, type(cause))
            error = type("RankError", both, {"__str__": lambda self: message})(message)
    error.__cause__ = cause
    return error


def members_text(ranks: Sequence[int]) -> str:
    """`rank 3`, or `ranks 0, 2, 5`, shortened where there are many."""
    shown = ", ".join(map(str, ranks[:SHOWN]))
    if len(ranks) > SHOWN:
        shown += f" and {len(ranks) - SHOWN} more"
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"


def of_each(ranks: Sequence[int], doing: Callable[[int], str]) -> str:
    """What every rank is doing, a line each, as far as a reader would look."""
    lines = [f"  rank {rank} {doing(rank)}" for rank in ranks[:SHOWN]]
    if len(ranks) > SHOWN:
        lines.append(f"  and {len(ranks) - SHOWN} more ranks")
    return "\n".join(lines)


def program_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the caller's program, not of a library; None where there is none."""
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return frame


Spot = tuple[CodeType, int]
"""Where a program was: its code, and the instruction there."""


def spot(frame: FrameType | None) -> Spot | None:
    """Where the program is that led to `frame`; its line is looked up where it is wanted."""
    frame = program_frame(frame)
    return None if frame is None else (frame.f_code, frame.f_lasti)


def line_at(spot: Spot | None) -> str:
    """`file:line` of a spot."""
    if spot is None:
        return "its start"
    code, instruction = spot
    line = next(itertools.islice(code.co_positions(), instruction // 2, None))[0]
    return place(code.co_filename, line or code.co_firstlineno)


def line_of(frame: FrameType | None) -> str:
    """`file:line` of the program that led to `frame`."""
    frame = program_frame(frame)
    return "its start" if frame is None else place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int) -> str:
    """`file:line`, or the line of a notebook's cell, whose file has a name without meaning."""
    path = Path(file)
    return f"cell line {line}" if "ipykernel" in path.parent.name else f"{path.name}:{line}"
