"""What a simulated world says of a student's program, and a proof of a student's plan, in words."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import shorten
from typing import Any

from dlsys import world
from dlsys.collectives import Plan
from dlsys.exercises.forms import fits, formed, proved
from dlsys.exercises.wrong import OtherStructure
from dlsys.hardware import Link

_NOBODY_SENDS = "No rank has begun to send. Start the send, then receive."
_ALL_WAIT_TO_SEND = (
    "A rank waits before it comes to its recv: in send, or in the wait() of an isend. "
    "Send, receive, and then wait."
)


def called(name: str, program: Any, *arguments: Any, likely: str = "") -> Any:
    """What a student's function returns; of an error of its own, what and where, in a sentence.

    Raises OtherStructure where it is no function, or raises; `likely` says why it probably does.
    """
    formed(program, callable, name)
    try:
        return program(*arguments)
    except Exception as error:
        inside = error.__traceback__.tb_next if error.__traceback__ else None
        where = f" in line {inside.tb_lineno} of its cell" if inside else ""
        given = ", ".join(shorten(repr(each), 80, placeholder=" ...") for each in arguments)
        said = f"{name}({given}) raises {type(error).__name__}{where}: {error}"
        raise OtherStructure(f"{said}\n  likely:    {likely}" if likely else said) from None


def run_on(link: Link, program: Callable[..., Any], ranks: int) -> world.Run:
    """Simulate the program on `ranks` ranks; of a deadlock, say its likely cause as well.

    Raises OtherStructure where all wait to send, or all to receive; `world.DeadlockError` where
    some do the one and some the other, as who waits for whom is then to be read there.
    """
    try:
        return world.simulate(program, ranks, link=link)
    except world.DeadlockError as error:
        sends = "waits in send" in str(error)
        if sends and "waits in recv" in str(error):
            raise
        likely = _ALL_WAIT_TO_SEND if sends else _NOBODY_SENDS
        raise OtherStructure(f"{error}\n  likely:    {likely}") from None


def verdict(kind: str, ranks: int, chunks: int, rounds: Any) -> str:
    """ "proved", or what `check()` says of a plan with these rounds; raises OtherStructure."""
    if not fits(rounds, [[list]]):
        formed(rounds, [[tuple]], "A plan")
    return proved(lambda: Plan(kind, "mine", ranks, chunks, rounds).check())
