"""Binomial trees: the number of ranks that have the data doubles every round.

Ranks are counted from the root: place v is rank (root + v) mod n, and in round k of a broadcast
the places below 2^k pass everything on to the place 2^k further on. A reduce is a broadcast
backwards in time, a gather a scatter backwards.
"""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


def depth(n: int) -> int:
    """ceil(log2 n): the number of rounds."""
    return (n - 1).bit_length()


def broadcast_rounds(n: int, root: int) -> Rounds:
    """In each round every holder gives its one chunk to a place that has none."""

    def build(k: int) -> list[Transfer]:
        reach = 1 << k  # so many places have it before round k
        return [
            Transfer((root + v) % n, (root + v + reach) % n, 0, 1)
            for v in range(min(reach, n - reach))
        ]

    return Rounds(depth(n), build)


def scatter_rounds(n: int, root: int) -> Rounds:
    """In each round every holder gives the further half of its run of places to their first."""

    def build(k: int) -> list[Transfer]:
        # The broadcast's tree with the longest edges first: before round k every multiple of `span`
        # has the chunks of the places [v, v + span), as far as there are any.
        span = 1 << (depth(n) - k)
        return [
            Transfer((root + v) % n, (root + v + span // 2) % n, first, stop)
            for v in range(0, n - span // 2, span)
            for first, stop in _runs(v + span // 2, min(v + span, n), root, n)
        ]

    return Rounds(depth(n), build)


def _runs(first: int, stop: int, root: int, n: int) -> list[tuple[int, int]]:
    """The chunks of places [first, stop): one run of ranks, or two where it wraps round at n."""
    first, stop = first + root, stop + root
    if first >= n or stop <= n:
        shift = n if first >= n else 0
        return [(first - shift, stop - shift)]
    return [(first, n), (0, stop - n)]


def _halves(n: int) -> list[tuple[int, int]]:
    """Chunks that the root of a scatter sends, and how far, the last round's first."""
    spans = [1 << k for k in range(depth(n))]
    return [(min(2 * span, n) - span, span) for span in spans]


def _scatter_symmetry(n: int, root: int, sent: int) -> Symmetry | None:
    if root:  # some chunks wrap round at n, and go as two messages
        return None
    phases = tuple((1, chunks, span) for chunks, span in _halves(n))
    return Symmetry(phases, sent, messages=n - 1)


def _symmetry(n: int, root: int, sent: int, passes: int = 1) -> Symmetry:
    phases = tuple((passes, 1, "any" if root else 1 << k) for k in range(depth(n)))
    return Symmetry(phases, sent=sent if n > 1 else 0, messages=passes * (n - 1))


@builder
def tree_broadcast(n: int, root: int = 0) -> Plan:
    """ceil(log2 n) rounds of the whole buffer.

    Seconds: ceil(log2 n)(latency + nbytes/bandwidth).
    """
    rounds = broadcast_rounds(n, root)
    return Plan("broadcast", "tree", n, 1, rounds, root, _symmetry(n, root, sent=depth(n)))


@builder
def tree_reduce(n: int, root: int = 0) -> Plan:
    """The mirror image of `tree_broadcast`: every rank but the root sends its sum once."""
    rounds = broadcast_rounds(n, root).mirrored(reduce=True)
    return Plan("reduce", "tree", n, 1, rounds, root, _symmetry(n, root, sent=1))


@builder
def tree_all_reduce(n: int) -> Plan:
    """A reduce to rank 0 and a broadcast from it.

    Seconds: 2 ceil(log2 n)(latency + nbytes/bandwidth): few messages, each of the whole buffer.
    """
    broadcast = broadcast_rounds(n, 0)
    rounds = broadcast.mirrored(reduce=True).then(broadcast)
    return Plan("all_reduce", "tree", n, 1, rounds, symmetry=_symmetry(n, 0, depth(n), passes=2))


@builder
def tree_scatter(n: int, root: int = 0) -> Plan:
    """Half of the buffer goes one hop, a quarter the next, ...: the root sends (n-1)/n of it.

    Seconds: ceil(log2 n) latency + (n-1)/n nbytes/bandwidth.
    """
    symmetry = _scatter_symmetry(n, root, sent=n - 1)
    return Plan("scatter", "tree", n, n, scatter_rounds(n, root), root, symmetry)


@builder
def tree_gather(n: int, root: int = 0) -> Plan:
    """The mirror image of `tree_scatter`."""
    symmetry = _scatter_symmetry(n, root, sent=max((chunks for chunks, _ in _halves(n)), default=0))
    return Plan("gather", "tree", n, n, scatter_rounds(n, root).mirrored(), root, symmetry)
