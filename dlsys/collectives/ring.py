"""Rings: every rank talks to its two neighbours only, so every link is busy in every round."""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


def _reduce_scatter_rounds(n: int) -> Rounds:
    def build(k: int) -> list[Transfer]:
        return [Transfer(r, (r + 1) % n, c := (r - 1 - k) % n, c + 1, True) for r in range(n)]

    return Rounds(n - 1, build)


def _all_gather_rounds(n: int) -> Rounds:
    def build(k: int) -> list[Transfer]:
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
    return Plan("reduce_scatter", "ring", n, n, _reduce_scatter_rounds(n), symmetry=_symmetry(n, 1))


@builder
def ring_all_gather(n: int) -> Plan:
    """n-1 rounds of one chunk of n: every rank passes on what it received last.

    Seconds: (n-1)(latency + nbytes/n/bandwidth).
    """
    return Plan("all_gather", "ring", n, n, _all_gather_rounds(n), symmetry=_symmetry(n, 1))


@builder
def ring_all_reduce(n: int) -> Plan:
    """A reduce-scatter and an all-gather round the ring: each rank sends 2(n-1)/n of the buffer.

    Seconds: 2(n-1)(latency + nbytes/n/bandwidth). From Patarasuk and Yuan (2009).
    """
    rounds = _reduce_scatter_rounds(n).then(_all_gather_rounds(n))
    return Plan("all_reduce", "ring", n, n, rounds, symmetry=_symmetry(n, 2))
