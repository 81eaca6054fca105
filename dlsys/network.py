"""Links in virtual time: who can send when, and when the bytes arrive.

The model is latency plus bytes over bandwidth (alpha-beta, Hockney 1994) with contention: every
rank has one port to send through and one to receive through, each carries one message at a time,
and both are busy while the bytes pass. Latency is pipelined: a port is free for its next message
while the last one is still on the way.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from dlsys.hardware import Cluster, Link

Where = Link | Cluster | None
"""Where ranks run: a flat network of one link each, a cluster, or nowhere in particular (free)."""


class EventQueue:
    """Actions in order of virtual time; at one instant by `order`, then as they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._added = 0

    def push(self, time: float, order: int, action: Callable[..., None], *args: object) -> None:
        """Have `action(time, *args)` called at virtual `time` (seconds)."""
        self._added += 1
        heapq.heappush(self._heap, (time, order, self._added, action, args))

    def step(self) -> bool:
        """Run the earliest action; False when there is none."""
        if not self._heap:
            return False
        time, _, _, action, args = heapq.heappop(self._heap)
        action(time, *args)
        return True

    def run(self) -> None:
        """Run until nothing is left."""
        while self.step():
            pass


class Network:
    """The ports of `ranks` ranks and the time until which each is busy.

    On a `Link` every rank has one port per direction. On a `Cluster` a rank has a port into its
    node's fabric and a network card for other nodes, shared where the node has fewer cards than
    devices. On None every message takes no time.
    """

    def __init__(self, ranks: int, where: Where) -> None:
        if isinstance(where, Cluster) and where.size != ranks:
            raise ValueError(
                f"the cluster has {where.size} devices ({where.nodes} nodes of "
                f"{where.devices_per_node}) but there are {ranks} ranks: make them the same number"
            )
        self.ranks = ranks
        self.where = where
        self._card_of: Sequence[int] = range(ranks)
        if isinstance(where, Cluster):
            self._card_of = [where.node(r) * where.nics + where.nic(r) for r in range(ranks)]
        cards = self._card_of[-1] + 1
        self._sending = [0.0] * ranks
        self._receiving = [0.0] * ranks
        self._card_sending = [0.0] * cards
        self._card_receiving = [0.0] * cards

    def transfer(self, src: int, dst: int, nbytes: float, ready: float) -> tuple[float, float]:
        """Carry `nbytes` from `src` to `dst`, both ready at `ready`: (start, end) in seconds.

        start = max(ready, ports free), end = start + latency + nbytes / bandwidth.
        """
        where = self.where
        if where is None or src == dst:
            return ready, ready
        sending, receiving, i, j = self._sending, self._receiving, src, dst
        if isinstance(where, Cluster):
            per_node = where.devices_per_node
            if src // per_node == dst // per_node:
                link = where.intra
            else:
                link = where.inter
                sending, receiving = self._card_sending, self._card_receiving
                i, j = self._card_of[src], self._card_of[dst]
        else:
            link = where
        start = max(ready, sending[i], receiving[j])
        busy_until = start + nbytes / link.bandwidth
        sending[i] = receiving[j] = busy_until
        return start, busy_until + link.latency
