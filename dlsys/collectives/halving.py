"""Recursive halving and doubling: half the rounds of a tree, or no more, and a ring's bytes.

With n = 2^k ranks, partners swap whole buffers and both add (recursive doubling), or exchange half
of what they still hold, then a quarter, ... and back (halving-doubling; Rabenseifner 2004; Thakur,
Rabenseifner and Gropp 2005, section 4). For other n, p = 2^floor(log2 n) ranks do that; each of the
n-p others first hands its buffer to a neighbour and is served at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


class _Core:
    """The p ranks that take part throughout, and the pairs of them that fold in an extra rank.

    Ranks 2v and 2v+1 are such a pair for v < n-p, so that each place's chunks, also those it passes
    on at the end, are a run.
    """

    def __init__(self, n: int) -> None:
        self.depth = n.bit_length() - 1
        self.places = 1 << self.depth
        self.extra = n - self.places

    def rank(self, place: int) -> int:
        """The rank at `place`; where there are as many chunks as ranks, also its first chunk."""
        return min(2 * place, place + self.extra)

    def folds(self, chunks: int) -> Rounds:
        """The round in which each extra rank, if any, hands its buffer to its neighbor."""
        pairs, once = range(self.extra), min(1, self.extra)
        return Rounds(once, lambda _: [Transfer(2 * v + 1, 2 * v, 0, chunks, True) for v in pairs])

    def halving(self, rank: Callable[[int], int], chunk: Callable[[int], int]) -> Rounds:
        """Places p/2 apart exchange halves of what they hold, then p/4 apart quarters, ..."""

        def build(k: int) -> list[Transfer]:
            apart = self.places >> (k + 1)
            transfers = []
            for place in range(self.places):
                partner = place ^ apart  # the places differ in this bit alone
                begin = partner & -apart  # the partner keeps the run of `apart` places it is in
                first, stop = chunk(begin), chunk(begin + apart)
                transfers.append(Transfer(rank(place), rank(partner), first, stop, True))
            return transfers

        return Rounds(self.depth, build)


def _reduce_scatter(n: int) -> Rounds:
    core = _Core(n)
    pairs, once = range(core.extra), min(1, core.extra)
    unfolds = Rounds(
        once, lambda _: [Transfer(2 * v, 2 * v + 1, 2 * v + 1, 2 * v + 2) for v in pairs]
    )
    return core.folds(n).then(core.halving(core.rank, core.rank)).then(unfolds)


def _halving_symmetry(n: int) -> Symmetry | None:
    core = _Core(n)
    phases = tuple((1, n >> (k + 1), n >> (k + 1)) for k in range(core.depth))
    return None if core.extra else Symmetry(phases, sent=n - 1, messages=n * core.depth)


@builder
def halving_reduce_scatter(n: int) -> Plan:
    """Recursive halving: places p/2 apart exchange halves, then p/4 apart quarters, ...

    Seconds, for n a power of two: log2(n) latency + (n-1)/n nbytes/bandwidth.
    """
    symmetry = _halving_symmetry(n)
    return Plan("reduce_scatter", "halving", n, n, _reduce_scatter(n), symmetry=symmetry)


@builder
def doubling_all_gather(n: int) -> Plan:
    """Recursive doubling, the mirror image of recursive halving: runs of chunks double."""
    rounds, symmetry = _reduce_scatter(n).mirrored(), _halving_symmetry(n)
    return Plan("all_gather", "doubling", n, n, rounds, symmetry=symmetry)


@builder
def halving_doubling_all_reduce(n: int) -> Plan:
    """Recursive halving, then its mirror image; for n not a power of two also a fold and an unfold.

    Neighbours exchange first, while the pieces are large: where neighbours share a node, only
    the small pieces cross between nodes.
    Seconds: 2 log2(p) latency + 2(p-1)/p nbytes/bandwidth, p the largest power of two up to n;
    for p < n also 2(latency + nbytes/bandwidth).
    """
    core = _Core(n)
    p, depth, folded = core.places, core.depth, bool(core.extra)

    def rank(place: int) -> int:
        # The bits of a place backwards: the places that are far apart are neighbors then.
        return core.rank(sum(1 << (depth - 1 - k) for k in range(depth) if place >> k & 1))

    rounds = core.folds(p).then(core.halving(rank, lambda place: place))
    down = tuple((1, p >> (k + 1), "any" if folded else 1 << k) for k in range(depth))
    fold = ((1, p, "any"),) * folded
    symmetry = Symmetry(
        fold + down + down + fold,
        sent=2 * (p - 1) + p * folded,
        messages=2 * (p * depth + core.extra),
    )
    rounds = rounds.then(rounds.mirrored())
    return Plan("all_reduce", "halving_doubling", n, p, rounds, symmetry=symmetry)


@builder
def recursive_doubling_all_reduce(n: int) -> Plan:
    """Partners 1, 2, 4, ... apart swap whole buffers, and both add: no all-reduce has fewer rounds.

    Whoever holds the sum of 2^k ranks swaps with a holder of the next 2^k, so log2(n) rounds do.
    Both add the same two numbers, so all ranks end with the same bits.
    Seconds: log2(p)(latency + nbytes/bandwidth), p the largest power of two up to n; for p < n also
    2(latency + nbytes/bandwidth). From Thakur, Rabenseifner and Gropp (2005), section 4.5.
    """
    core = _Core(n)
    folds, folded = core.folds(1), bool(core.extra)

    def build(k: int) -> list[Transfer]:
        pairs = [(place, place ^ 1 << k) for place in range(core.places)]
        return [Transfer(core.rank(a), core.rank(b), 0, 1, True) for a, b in pairs]

    rounds = folds.then(Rounds(core.depth, build, swaps=True)).then(folds.mirrored())
    ends = ((1, 1, "any"),) * folded
    swaps = tuple((1, 1, "any" if folded else 1 << k) for k in range(core.depth))
    symmetry = Symmetry(
        ends + swaps + ends,
        sent=core.depth + folded,
        messages=core.places * core.depth + 2 * core.extra,
    )
    return Plan("all_reduce", "recursive_doubling", n, 1, rounds, symmetry=symmetry)
