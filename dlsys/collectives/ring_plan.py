"""Rings and the pairwise all-to-all as plans: as data, what `ring.py` does as a program."""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


def reduce_scatter_rounds(n: int) -> Rounds:
    """Chunk c starts at rank c+1 and collects every rank's part on its way round to rank c."""

    def build(k: int) -> list[Transfer]:
        # After k hops chunk c is at rank c+1+k, so rank r sends chunk r-1-k: the one it just added.
        return [Transfer(r, (r + 1) % n, c := (r - 1 - k) % n, c + 1, True) for r in range(n)]

    return Rounds(n - 1, build)


def all_gather_rounds(n: int) -> Rounds:
    """Chunk c starts at rank c, and every rank keeps a copy of what it passes on."""

    def build(k: int) -> list[Transfer]:
        # After k hops chunk c is at rank c+k, so rank r sends chunk r-k: the one it just received.
        return [Transfer(r, (r + 1) % n, c := (r - k) % n, c + 1) for r in range(n)]

    return Rounds(n - 1, build)


def _symmetry(n: int, phases: int) -> Symmetry:
    rounds = phases * (n - 1)
    return Symmetry(((rounds, 1, "ring"),), sent=rounds, messages=rounds * n)


@builder
def ring_reduce_scatter(n: int) -> Plan:
    """n-1 rounds of one chunk of n: rank r ends with the sum of chunk r.

    Seconds: (n-1)(latency + nbytes/n/bandwidth). From Patarasuk and Yuan (2009).
    """
    return Plan("reduce_scatter", "ring", n, n, reduce_scatter_rounds(n), symmetry=_symmetry(n, 1))


@builder
def ring_all_gather(n: int) -> Plan:
    """n-1 rounds of one chunk of n: every rank passes on what it received last.

    Seconds: (n-1)(latency + nbytes/n/bandwidth).
    """
    return Plan("all_gather", "ring", n, n, all_gather_rounds(n), symmetry=_symmetry(n, 1))


@builder
def ring_all_reduce(n: int) -> Plan:
    """A reduce-scatter and an all-gather round the ring: each rank sends 2(n-1)/n of the buffer.

    Seconds: 2(n-1)(latency + nbytes/n/bandwidth). From Patarasuk and Yuan (2009).
    """
    rounds = reduce_scatter_rounds(n).then(all_gather_rounds(n))
    return Plan("all_reduce", "ring", n, n, rounds, symmetry=_symmetry(n, 2))


def _pipeline(n: int, root: int, chunks: int) -> Rounds:
    """Chunk c leaves the root in round c and is passed on from neighbour to neighbour."""

    def build(k: int) -> list[Transfer]:
        # A conveyor belt: in round k chunk c makes its hop number v = k - c, for all c on the way.
        hops = range(max(0, k - chunks + 1), min(n - 1, k + 1))
        return [Transfer((root + v) % n, (root + v + 1) % n, k - v, k - v + 1) for v in hops]

    return Rounds(n + chunks - 2 if n > 1 else 0, build)


def _pipeline_symmetry(n: int, chunks: int) -> Symmetry:
    rounds = n + chunks - 2 if n > 1 else 0
    return Symmetry(((rounds, 1, "any"),), sent=chunks if n > 1 else 0, messages=chunks * (n - 1))


@builder
def ring_broadcast(n: int, root: int = 0, chunks: int = 8) -> Plan:
    """The root's buffer in `chunks` pieces, passed on along the ring like buckets in a chain.

    Seconds: (n+chunks-2)(latency + nbytes/chunks/bandwidth).
    """
    rounds, symmetry = _pipeline(n, root, chunks), _pipeline_symmetry(n, chunks)
    return Plan("broadcast", "ring", n, chunks, rounds, root, symmetry)


@builder
def ring_reduce(n: int, root: int = 0, chunks: int = 8) -> Plan:
    """The mirror image of `ring_broadcast`: pieces are summed on their way to the root."""
    rounds = _pipeline(n, root, chunks).mirrored(reduce=True)
    return Plan("reduce", "ring", n, chunks, rounds, root, _pipeline_symmetry(n, chunks))


def pairwise_rounds(n: int) -> Rounds:
    """In round k every rank sends its block for the rank k+1 further on straight to it."""

    def build(k: int) -> list[Transfer]:
        return [Transfer(r, dst := (r + k + 1) % n, r * n + dst, r * n + dst + 1) for r in range(n)]

    return Rounds(n - 1, build)


@builder
def pairwise_all_to_all(n: int) -> Plan:
    """n-1 rounds, in each of which every rank sends one block to one rank and gets one of another.

    Seconds: (n-1)(latency + nbytes/n/bandwidth); each rank sends (n-1)/n of its buffer.
    """
    symmetry = Symmetry(((n - 1, 1, "any"),), sent=n - 1, messages=n * (n - 1))
    return Plan("all_to_all", "pairwise", n, n * n, pairwise_rounds(n), symmetry=symmetry)
