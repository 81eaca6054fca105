"""A device that computes, and a network that carries beside it, in virtual time.

The device does one thing after the other, and so does the network, as collectives of one
communicator do on a GPU. What computing hides of communication follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple


class Span(NamedTuple):
    """An action, in whatever words its plan has for it, took from `start` to `end`, in seconds."""

    action: Any
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass(frozen=True)
class Overlap:
    """A step: what the device computed and what the network carried, each in order."""

    compute: tuple[Span, ...]
    network: tuple[Span, ...]

    @property
    def compute_seconds(self) -> float:
        """How long the device is busy."""
        waits = sum(after.start - before.end for before, after in pairwise(self.compute))
        return self.compute[-1].end - self.compute[0].start - waits

    @property
    def communication_seconds(self) -> float:
        """How long the network is busy."""
        return sum(span.seconds for span in self.network)

    @property
    def seconds(self) -> float:
        """The step: until both are done."""
        return max(span.end for span in (*self.compute, *self.network))

    @property
    def exposed_seconds(self) -> float:
        """What communication adds to the step."""
        return self.seconds - self.compute_seconds

    @property
    def blocking_seconds(self) -> float:
        """The same step if nothing were carried while the device computes."""
        return self.compute_seconds + self.communication_seconds

    @property
    def hidden_fraction(self) -> float:
        """The part of communication that runs under compute, 1.0 where there is none."""
        busy = self.communication_seconds
        return 1 - self.exposed_seconds / busy if busy else 1.0


class Streams:
    """Both as they go: the device is free at `now`, the network at `free`."""

    def __init__(self) -> None:
        self.now = self.free = 0.0
        self._compute: list[Span] = []
        self._network: list[Span] = []

    def compute(self, action: Any, until: float) -> None:
        """The device is busy until then."""
        start, self.now = self.now, until
        self._compute.append(Span(action, start, until))

    def carry(self, action: Any, seconds: float) -> float:
        """The network is for so long, from now on or once it is free; returns when it has ended."""
        start = max(self.now, self.free)
        self.free = start + seconds
        self._network.append(Span(action, start, self.free))
        return self.free

    def wait(self, until: float) -> None:
        """The device does nothing until then."""
        self.now = max(self.now, until)

    def overlap(self) -> Overlap:
        """What went on."""
        return Overlap(tuple(self._compute), tuple(self._network))
