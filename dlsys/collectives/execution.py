"""A plan carried out round by round in virtual time, to price it and to run it simulated.

A rank enters its next round when its own sends and receives of this one are done; no barrier holds
the others. A transfer starts when both its ends have reached its round and their ports are free;
transfers that could start at the same instant do so in the order of their round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlsys.network import EventQueue, Network

if TYPE_CHECKING:
    from dlsys.collectives.plan import Plan, Transfer

Sizes = Callable[[int, int], float]
"""Bytes of the chunks [first, stop)."""


class Execution:
    """One run of `plan` over `network`, driven by `queue`.

    `members[i]` is the network's number of the plan's rank i. `on_round(rank, transfers)` is
    called as a rank enters a round in which it has transfers; `on_message(transfer, nbytes,
    start, end)` as a message goes, its data to be moved now; `on_done(rank, time)` once per rank.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: Sizes,
        network: Network,
        queue: EventQueue,
        members: Sequence[int],
        on_message: Callable[[Transfer, float, float, float], None],
        on_done: Callable[[int, float], None],
        on_round: Callable[[int, Sequence[Transfer]], None] | None = None,
    ) -> None:
        self.plan, self.sizes, self.network, self.queue = plan, sizes, network, queue
        self.members = members
        self.on_message, self.on_done, self.on_round = on_message, on_done, on_round
        self.round = [-1] * plan.ranks
        self._clock = [0.0] * plan.ranks
        self._pending = [0] * plan.ranks
        self._rounds = len(plan.rounds)
        self._index: dict[int, list[Any]] = {}
        self._through: dict[int, int] = {}

    def enter(self, rank: int, time: float) -> None:
        """Let `rank` begin its part at virtual `time`."""
        self._clock[rank] = time
        self._advance(rank)

    def waits_for(self, rank: int) -> list[int]:
        """The ranks whose messages, or readiness, `rank` still needs in its present round."""
        entries = self._index.get(self.round[rank], {rank: ()})[rank] or ()
        return sorted({t.dst if t.src == rank else t.src for t, ready, *_ in entries if ready[1]})

    def _advance(self, rank: int) -> None:
        """Take `rank` into its next round that has anything to do for it."""
        entries = None
        while not entries:
            index = self.round[rank]
            if index >= 0:
                self._through[index] += 1
                if self._through[index] == self.plan.ranks:
                    del self._index[index], self._through[index]
            self.round[rank] = index = index + 1
            if index == self._rounds:
                self.on_done(rank, self._clock[rank])
                return
            entries = (self._index.get(index) or self._of(index))[rank]
        time = self._clock[rank]
        self._pending[rank] = len(entries)
        if self.on_round is not None:
            self.on_round(rank, [t for t, *_ in entries])
        for transfer, ready, nbytes, order in entries:
            # ready = [latest arrival of an end at this round, ends still missing]
            if time > ready[0]:
                ready[0] = time
            ready[1] -= 1
            if ready[1] == 0:
                self.queue.push(ready[0], order, self._start, transfer, nbytes)

    def _of(self, index: int) -> list[Any]:
        """Per rank the entries (transfer, ready, nbytes, order) of a round, made on first use."""
        by_rank = self._index.get(index)
        if by_rank is None:
            by_rank = self._index[index] = [None] * self.plan.ranks
            self._through[index] = 0
            for order, transfer in enumerate(self.plan.rounds[index]):
                nbytes = self.sizes(transfer.first, transfer.stop)
                if nbytes == 0:
                    continue  # an empty message is not sent
                entry = (transfer, [0.0, 2], nbytes, order)
                for end in (transfer.src, transfer.dst):
                    if by_rank[end] is None:
                        by_rank[end] = [entry]
                    else:
                        by_rank[end].append(entry)
        return by_rank

    def _start(self, time: float, transfer: Transfer, nbytes: float) -> None:
        start, end = self.network.transfer(
            self.members[transfer.src], self.members[transfer.dst], nbytes, time
        )
        self.on_message(transfer, nbytes, start, end)
        for rank in (transfer.src, transfer.dst):
            if end > self._clock[rank]:
                self._clock[rank] = end
            self._pending[rank] -= 1
            if self._pending[rank] == 0:
                self._advance(rank)
