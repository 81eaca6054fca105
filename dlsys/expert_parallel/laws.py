"""Expert parallelism in closed forms to remember: what leaves, and what hides it."""

from __future__ import annotations

import math

from dlsys.annotated import checked
from dlsys.checks import count, divisor, positive


@checked
def copies_leaving(k: int, n: int) -> float:
    """Copies of a token that leave its rank, of k to experts that n ranks share: k (n-1)/n.

    Expected, where every expert is as likely. A row goes once for each in dispatch, and once in
    combine.
    """
    k, n = count("k", k), count("n", n)
    return k * (n - 1) / n


@checked
def volume_ratio(k: int, n: int, tp: int) -> float:
    """Bytes of an all-to-all over those of a tensor-parallel all-reduce: k (n-1)/n / (2 (t-1)/t).

    For a token, and so for a layer, which has two of each in a forward pass. n ranks share out the
    experts, `tp` is t. Over k = 2 (t-1)/t, nearly 2, the all-to-all sends more.
    """
    tp = count("tp", tp, least=2)
    return copies_leaving(k, n) / (2 * (tp - 1) / tp)


@checked
def k_to_overtake(n: int, tp: int, ratio: float = 1.0) -> float:
    """Experts a token beyond which copies take longer: 2 (t-1)/t n/(n-1) times `ratio`.

    Dispatch and combine, than tensor parallelism's two all-reduces of as many tokens, all balanced
    and without latencies. The bytes are those of `volume_ratio`.

    - ratio: bandwidth of the slowest link that copies take, over that of the all-reduce's. With
      nodes of several ranks it is the link between them: in each round of an exchange some pair is
      of two nodes, and others wait for it.
    """
    positive("ratio", ratio)
    return ratio / volume_ratio(1, count("n", n, least=2), tp)


@checked
def nodes_reached(k: int, experts: int, nodes: int) -> float:
    """Other nodes that have one of a token's k experts: (N-1) (1 - C(E - E/N, k) / C(E, k)).

    Expected, where every choice of k is as likely; what a token that goes to each node once sends.
    Raises ValueError where nodes do not share out the experts evenly.
    """
    experts = count("experts", experts)
    nodes = divisor("number of nodes", nodes, {"experts": experts})
    k = count("k", k, most=experts)
    missed = math.comb(experts - experts // nodes, k) / math.comb(experts, k)
    return (nodes - 1) * (1 - missed)


@checked
def width_to_hide(
    rate: float, bandwidth: float, n: int, matrices: int = 3, itemsize: int = 2
) -> float:
    """Neurons that an expert needs to compute as long as its copies travel.

    itemsize (n-1)/n rate / (matrices bandwidth): a copy of h numbers goes and comes, and meets
    `matrices` of h x width. Neither h, k, E nor the batch is in it. Half is enough in backward.

    - rate: FLOP/s that a device reaches; bandwidth: bytes/s of its port, one direction.
    - matrices: 3 where experts are gated, 2 otherwise. itemsize: bytes of a number.
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    matrices, itemsize = count("matrices", matrices), count("itemsize", itemsize)
    return itemsize * copies_leaving(1, n) * rate / (matrices * bandwidth)
