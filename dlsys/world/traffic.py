"""What was sent: every message and every collective call of a run, and the sums over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, unknown
from dlsys.collectives.plan import KINDS

_CALLED = (*KINDS, "barrier")


class Message(NamedTuple):
    """One point-to-point message between ranks of the whole world.

    `kind` is "send", or the collective it was sent for; `axis` the label of the communicator;
    `start` and `end` are seconds of the run's clock.
    """

    src: int
    dst: int
    nbytes: int
    kind: str
    axis: str
    start: float
    end: float


class CallRecord(NamedTuple):
    """One rank's call of a collective; `nbytes` is the size of the tensor it passed."""

    rank: int
    kind: str
    axis: str
    nbytes: int
    start: float
    end: float


@dataclass
class Traffic:
    """The messages and collective calls of a run of `ranks` ranks.

    In a simulated world every message is here. Where torch.distributed carried out a collective
    with its own algorithm only the call is: its messages are not ours to count.
    """

    ranks: int
    messages: list[Message] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)

    @property
    def sent(self) -> list[int]:
        """Bytes sent, by rank."""
        return self._total("src")

    @property
    def received(self) -> list[int]:
        """Bytes received, by rank."""
        return self._total("dst")

    @property
    def nbytes(self) -> int:
        """Bytes sent by all ranks together."""
        return sum(m.nbytes for m in self.messages)

    def by_pair(self) -> Counter[tuple[int, int]]:
        """Bytes by (source, destination)."""
        return self._count(((m.src, m.dst), m.nbytes) for m in self.messages)

    def by_kind(self) -> Counter[str]:
        """Bytes by kind: "send" or the collective."""
        return self._count((m.kind, m.nbytes) for m in self.messages)

    def by_axis(self) -> Counter[str]:
        """Bytes by the communicator's axis label."""
        return self._count((m.axis, m.nbytes) for m in self.messages)

    @checked
    def count(
        self, kind: str | None = None, axis: str | None = None, rank: int | None = None
    ) -> int:
        """How many collective calls of this kind, axis and rank there were (None: any).

        Raises ValueError for a kind or a rank that there is none of.
        """
        if kind is not None and kind not in _CALLED:
            raise ValueError(unknown("collective", kind, _CALLED))
        if rank is not None:
            rank = count("rank", rank, 0, self.ranks - 1)
        return sum(
            (kind is None or c.kind == kind)
            and (axis is None or c.axis == axis)
            and (rank is None or c.rank == rank)
            for c in self.calls
        )

    def __repr__(self) -> str:
        return (
            f"Traffic({self.ranks} ranks, {len(self.messages):,} messages, "
            f"{self.nbytes:,} bytes, {len(self.calls):,} collective calls)"
        )

    def _total(self, end: Literal["src", "dst"]) -> list[int]:
        totals = [0] * self.ranks
        for message in self.messages:
            totals[getattr(message, end)] += message.nbytes
        return totals

    @staticmethod
    def _count(pairs: Iterable[tuple]) -> Counter:
        totals: Counter = Counter()
        for key, nbytes in pairs:
            totals[key] += nbytes
        return totals
