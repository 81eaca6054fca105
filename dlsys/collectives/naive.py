"""Everything through one rank: what the other algorithms are to be compared with.

The root's one port carries all the bytes while the other ranks wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlsys.collectives.plan import Plan, Rounds, Transfer, builder


def _others(n: int, root: int) -> Iterator[int]:
    """Every rank but the root."""
    return (r for r in range(n) if r != root)


def _to_all(n: int, root: int) -> Rounds:
    """The root sends the whole buffer, one chunk, to every other rank in one round."""
    return Rounds(min(1, n - 1), lambda _: [Transfer(root, r, 0, 1) for r in _others(n, root)])


def _sum(n: int, root: int, chunks: int = 1) -> Rounds:
    """Every other rank's whole buffer goes to the root, one a round, which adds it to its own."""
    return Rounds(n - 1, lambda k: [Transfer((root + k + 1) % n, root, 0, chunks, True)])


def _parts(n: int, root: int) -> Rounds:
    """The root sends every other rank its own chunk in one round."""
    return Rounds(min(1, n - 1), lambda _: [Transfer(root, r, r, r + 1) for r in _others(n, root)])


@builder
def naive_broadcast(n: int, root: int = 0) -> Plan:
    """The root sends to every rank. Seconds: latency + (n-1) nbytes/bandwidth."""
    return Plan("broadcast", "naive", n, 1, _to_all(n, root), root)


@builder
def naive_reduce(n: int, root: int = 0) -> Plan:
    """Every rank sends to the root in turn. Seconds: (n-1)(latency + nbytes/bandwidth)."""
    return Plan("reduce", "naive", n, 1, _sum(n, root), root)


@builder
def naive_scatter(n: int, root: int = 0) -> Plan:
    """The root sends each rank its part. Seconds: latency + (n-1)/n nbytes/bandwidth."""
    return Plan("scatter", "naive", n, n, _parts(n, root), root)


@builder
def naive_gather(n: int, root: int = 0) -> Plan:
    """Each rank sends its part to the root. Seconds: latency + (n-1)/n nbytes/bandwidth."""
    return Plan("gather", "naive", n, n, _parts(n, root).mirrored(), root)


@builder
def naive_all_gather(n: int) -> Plan:
    """A gather to rank 0, which then sends everything to everybody."""
    back = Rounds(min(1, n - 1), lambda _: [Transfer(0, r, 0, n) for r in range(1, n)])
    return Plan("all_gather", "naive", n, n, _parts(n, 0).mirrored().then(back))


@builder
def naive_reduce_scatter(n: int) -> Plan:
    """A reduce to rank 0, which then sends each rank its part."""
    return Plan("reduce_scatter", "naive", n, n, _sum(n, 0, chunks=n).then(_parts(n, 0)))


@builder
def naive_all_reduce(n: int) -> Plan:
    """A reduce to rank 0, which then sends the sum to everybody: rank 0 sends n-1 buffers."""
    return Plan("all_reduce", "naive", n, 1, _sum(n, 0).then(_to_all(n, 0)))


@builder
def naive_all_to_all(n: int) -> Plan:
    """Every rank sends all its blocks to rank 0, which sends each rank the blocks for it."""

    def build(k: int) -> list[Transfer]:
        if k == 0:
            return [Transfer(r, 0, r * n, r * n + n) for r in range(1, n)]
        blocks = ((i * n + j, j) for j in range(1, n) for i in range(n) if i != j)
        return [Transfer(0, j, block, block + 1) for block, j in blocks]

    return Plan("all_to_all", "naive", n, n * n, Rounds(2 if n > 1 else 0, build))
