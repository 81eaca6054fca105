"""Recursive halving and doubling: half the rounds of a tree, or no more, and a ring's bytes.

With n = 2^k ranks, partners swap whole buffers and both add (recursive doubling), or exchange half
of what they still hold, then a quarter, ... and back (halving-doubling; Rabenseifner 2004; Thakur,
Rabenseifner and Gropp 2005, section 4). For other n, p = 2^floor(log2 n) ranks do that; each of the
n-p others first hands its buffer to a neighbour and is served at the end.
"""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


class _Core:
    """The p ranks that take part throughout, and the pairs of them that fold in an extra rank.

    Ranks 2v and 2v+1 are such a pair for v < n-p, so that each place's chunks, also those it passes
    on at the end, are a run.
    """

    def __init__(self, n: int) -> None:
        self.places = 1 << (n.bit_length() - 1)
        self.extra = n - self.places
        self.depth = self.places.bit_length() - 1

    def rank(self, place: int) -> int:
        return 2 * place if place < self.extra else place + self.extra

    def chunk(self, place: int) -> int:
        """The first chunk of `place` when there are as many chunks as ranks."""
        return min(2 * place, place + self.extra)

    def folds(self, chunks: int) -> Rounds:
        """The round in which each extra rank hands its buffer to its neighbor."""
        extra = range(self.extra)
        return Rounds(1, lambda _: [Transfer(2 * v + 1, 2 * v, 0, chunks, True) for v in extra])


@builder
def halving_reduce_scatter(n: int) -> Plan:
    """Recursive halving: places p/2 apart exchange halves, then p/4 apart quarters, ...

    Seconds, for n a power of two: log2(n) latency + (n-1)/n nbytes/bandwidth.
    """
    core = _Core(n)
    folds = core.folds(n)
    unfolds = Rounds(
        1, lambda _: [Transfer(2 * v, 2 * v + 1, 2 * v + 1, 2 * v + 2) for v in range(core.extra)]
    )

    def build(k: int) -> list[Transfer]:
        apart = core.places >> (k + 1)
        transfers = []
        for place in range(core.places):
            partner = place ^ apart  # the places differ in this bit alone
            begin = partner & -apart  # the partner keeps the run of `apart` places that it is in
            first, stop = core.chunk(begin), core.chunk(begin + apart)
            transfers.append(Transfer(core.rank(place), core.rank(partner), first, stop, True))
        return transfers

    rounds = Rounds(core.depth, build)
    symmetry = None
    if core.extra:
        rounds = folds.then(rounds).then(unfolds)
    else:
        phases = tuple((1, n >> (k + 1), n >> (k + 1)) for k in range(core.depth))
        symmetry = Symmetry(phases, sent=n - 1, messages=n * core.depth)
    return Plan("reduce_scatter", "halving", n, n, rounds, symmetry=symmetry)


@builder
def doubling_all_gather(n: int) -> Plan:
    """Recursive doubling, the mirror image of recursive halving: runs of chunks double."""
    halving = halving_reduce_scatter(n)
    assert isinstance(halving.rounds, Rounds)
    rounds = halving.rounds.mirrored()
    return Plan("all_gather", "doubling", n, n, rounds, symmetry=halving.symmetry)


@builder
def halving_doubling_all_reduce(n: int) -> Plan:
    """Recursive halving, then its mirror image; for n not a power of two also a fold and an unfold.

    Neighbours exchange first, while the pieces are large: where neighbours share a node, only
    the small pieces cross between nodes.
    Seconds: 2 log2(p) latency + 2(p-1)/p nbytes/bandwidth, p the largest power of two up to n;
    for p < n also 2(latency + nbytes/bandwidth).
    """
    core = _Core(n)
    p = core.places
    folds = core.folds(p)

    def build(k: int) -> list[Transfer]:
        size = p >> (k + 1)
        transfers = []
        for place in range(p):
            # Where its bit is 1, a place keeps the upper half of its piece, else the lower: so what
            # it holds after k rounds follows from its k lowest bits, read from the lowest up.
            held = sum(p >> (bit + 1) for bit in range(k) if place >> bit & 1)
            first = held if place >> k & 1 else held + size
            partner = core.rank(place ^ 1 << k)
            transfers.append(Transfer(core.rank(place), partner, first, first + size, True))
        return transfers

    halving = Rounds(core.depth, build)
    if core.extra:
        halving = folds.then(halving)
    fold = ((1, p, "any"),) if core.extra else ()
    scopes: list[str | int] = ["any" if core.extra else 1 << k for k in range(core.depth)]
    down = tuple((1, p >> (k + 1), scope) for k, scope in enumerate(scopes))
    symmetry = Symmetry(
        fold + down + down + fold,
        sent=2 * (p - 1) + (p if core.extra else 0),
        messages=2 * (p * core.depth + core.extra),
    )
    rounds = halving.then(halving.mirrored())
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
    folds = core.folds(1)

    def build(k: int) -> list[Transfer]:
        pairs = [(place, place ^ 1 << k) for place in range(core.places)]
        return [Transfer(core.rank(a), core.rank(b), 0, 1, True) for a, b in pairs]

    rounds = Rounds(core.depth, build, swaps=True)
    if core.extra:
        fold = folds
        rounds = fold.then(rounds).then(fold.mirrored())
    ends = ((1, 1, "any"),) if core.extra else ()
    swaps = tuple((1, 1, "any" if core.extra else 1 << k) for k in range(core.depth))
    symmetry = Symmetry(
        ends + swaps + ends,
        sent=core.depth + bool(core.extra),
        messages=core.places * core.depth + 2 * core.extra,
    )
    return Plan("all_reduce", "recursive_doubling", n, 1, rounds, symmetry=symmetry)
