"""What one rank spent some of its time on."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("compute", "communication", "wait")


class Span(NamedTuple):
    """`rank` spent [start, end) seconds on `name`; `kind` is one of KINDS.

    Communication spans may overlap compute: they run from a message's or a collective's start on
    this rank to its end. Wait spans are the time in which the program could do nothing else.
    """

    rank: int
    start: float
    end: float
    kind: str
    name: str
