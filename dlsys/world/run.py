"""What a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlsys.world.timeline import Timeline
from dlsys.world.traffic import Traffic


@dataclass
class Run:
    """The outcome of one run of a rank program.

    results: what the program returned, by rank. traffic: what was sent. seconds: from the start to
    the end of the last rank, virtual in a simulated world. timeline: who did what when.
    peak_memory: the most bytes of tensors alive at once, by rank; None where it was not counted.
    """

    results: list[Any]
    traffic: Traffic
    seconds: float
    timeline: Timeline
    peak_memory: list[int] | None = None

    def __repr__(self) -> str:
        return f"Run({len(self.results)} ranks, {self.seconds:.6g} s, {self.traffic!r})"
