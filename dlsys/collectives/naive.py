"""Everything through one rank: what the other algorithms are to be compared with.

The root's one port carries all the bytes while the other ranks wait.
"""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Transfer, builder


@builder
def naive_all_reduce(n: int) -> Plan:
    """Every rank sends its buffer to rank 0 in turn, which then sends the sum to everybody.

    Seconds: n latency + 2(n-1) nbytes/bandwidth; rank 0 sends n-1 buffers.
    """
    sums = Rounds(n - 1, lambda k: [Transfer(k + 1, 0, 0, 1, True)])
    spread = Rounds(min(1, n - 1), lambda _: [Transfer(0, r, 0, 1) for r in range(1, n)])
    return Plan("all_reduce", "naive", n, 1, sums.then(spread))
