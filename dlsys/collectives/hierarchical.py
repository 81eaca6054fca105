"""Two levels: the large pieces stay on the fast links inside a node.

Rank node*devices_per_node + local. First rings inside every node, so that the devices of a node
share its sum out among themselves; then rings between nodes, each among the devices with the same
`local`, over all network cards at once; then rings inside the nodes again. What has a root goes by
trees: from node to node among the devices with the root's `local`, then inside every node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder
from dlsys.collectives.tree import broadcast_rounds, depth, halves, scatter_rounds, wraps


def _inside(nodes: int, g: int, runs: Callable[[int], Sequence[int]], reduce: bool) -> Rounds:
    """Rings inside every node: local j ends a reduce-scatter with, or begins an all-gather with,
    the runs of chunks that begin at `runs(j)`."""
    length = nodes * g // (g * len(runs(0)))

    def build(k: int) -> list[Transfer]:
        ahead = -1 - k if reduce else -k  # as in `ring`: the run just added to, or just received
        return [
            Transfer(a * g + j, a * g + (j + 1) % g, first, first + length, reduce)
            for a in range(nodes)
            for j in range(g)
            for first in runs((j + ahead) % g)
        ]

    return Rounds(g - 1, build)


def _between(nodes: int, g: int, adjacent: bool, reduce: bool) -> Rounds:
    """Rings between nodes, one for each local: node a ends with (begins with) its one chunk."""

    def build(k: int) -> list[Transfer]:
        ahead = -1 - k if reduce else -k  # the same ring, whose ranks are the nodes
        transfers = []
        for a in range(nodes):
            for j in range(g):
                part = (a + ahead) % nodes
                chunk = j * nodes + part if adjacent else part * g + j
                dst = (a + 1) % nodes * g + j
                transfers.append(Transfer(a * g + j, dst, chunk, chunk + 1, reduce))
        return transfers

    return Rounds(nodes - 1, build)


def _symmetry(nodes: int, g: int, split: int, passes: int) -> Symmetry:
    """`split`: messages in which a rank sends its share of a node in one round."""
    inside, between = (g - 1, nodes, "intra"), (nodes - 1, 1, "inter")
    phases = {1: (inside, between), 2: (inside, between, between, inside)}[passes]
    sent = passes * ((g - 1) * nodes + nodes - 1)
    messages = passes * nodes * g * ((g - 1) * split + nodes - 1)
    return Symmetry(phases, sent, messages, shape=(nodes, g))


@builder
def hierarchical_all_reduce(nodes: int, devices_per_node: int) -> Plan:
    """Reduce-scatter in the nodes, all-reduce between them, all-gather in the nodes.

    Seconds with N nodes of g devices, inside (a, B), between (c, D):
    2(g-1)(a + nbytes/g/B) + 2(N-1)(c + nbytes/(gN)/D).
    """
    n, g = nodes * devices_per_node, devices_per_node

    def runs(j: int) -> Sequence[int]:
        return (j * nodes,)

    rounds = _inside(nodes, g, runs, True)
    rounds = rounds.then(_between(nodes, g, True, True)).then(_between(nodes, g, True, False))
    rounds = rounds.then(_inside(nodes, g, runs, False))
    symmetry = _symmetry(nodes, g, 1, 2)
    return Plan("all_reduce", "hierarchical", n, n, rounds, symmetry=symmetry)


def _strided(nodes: int, g: int) -> Callable[[int], Sequence[int]]:
    """The chunks that local j of some node owns: one in each node's run."""
    return lambda j: range(j, nodes * g, g)


@builder
def hierarchical_reduce_scatter(nodes: int, devices_per_node: int) -> Plan:
    """Reduce-scatter in the nodes, then between them; half of `hierarchical_all_reduce`."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _inside(nodes, g, _strided(nodes, g), True).then(_between(nodes, g, False, True))
    symmetry = _symmetry(nodes, g, nodes, 1)
    return Plan("reduce_scatter", "hierarchical", n, n, rounds, symmetry=symmetry)


@builder
def hierarchical_all_gather(nodes: int, devices_per_node: int) -> Plan:
    """All-gather between the nodes, then in them."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _between(nodes, g, False, False).then(_inside(nodes, g, _strided(nodes, g), False))
    symmetry = _symmetry(nodes, g, nodes, 1)
    return Plan("all_gather", "hierarchical", n, n, rounds, symmetry=symmetry)


@builder
def hierarchical_all_to_all(nodes: int, devices_per_node: int) -> Plan:
    """Blocks first go to the device of the own node with the destination's place, then across.

    Fewer rounds than pairwise exchange (g-1 + N-1 against gN-1), for more bytes inside the nodes.
    """
    n, g = nodes * devices_per_node, devices_per_node

    def build(k: int) -> list[Transfer]:
        if k < g - 1:
            # Inside: to the k+1st neighbor `via` go the blocks for all b*g + its own place.
            hops = [(r, r - r % g + (r + k + 1) % g) for r in range(n)]
            pairs = [(r, via, r, b * g + via % g) for r, via in hops for b in range(nodes)]
        else:
            # Across: to the same place `ahead` nodes on, what all of this node have for it.
            ahead = k - g + 2
            hops = [(r, (r + ahead * g) % n) for r in range(n)]
            pairs = [(r, dst, r - r % g + i, dst) for r, dst in hops for i in range(g)]
        return [Transfer(r, to, c := i * n + j, c + 1) for r, to, i, j in pairs]

    return Plan("all_to_all", "hierarchical", n, n * n, Rounds(g - 1 + nodes - 1, build))


def _trees(
    nodes: int, g: int, root: int, level: Callable[[int, int], Rounds], rows: int = 0
) -> Rounds:
    """A tree between the nodes, then one inside each; a node has `rows` chunks of its own, or all
    share one."""
    across, within = level(nodes, root // g), level(g, root % g)
    size, local = rows or 1, root % g

    def build(k: int) -> list[Transfer]:
        # Rank a of the tree `across` is the root's place in node a; a's own tree is shifted by a*g.
        if k < len(across):
            return [
                Transfer(t.src * g + local, t.dst * g + local, t.first * size, t.stop * size)
                for t in across[k]
            ]
        return [
            Transfer(a * g + t.src, a * g + t.dst, a * rows + t.first, a * rows + t.stop)
            for a in range(nodes)
            for t in within[k - len(across)]
        ]

    return Rounds(len(across) + len(within), build)


@builder
def hierarchical_broadcast(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """A tree between the nodes, then one in each node: every node gets the buffer once.

    From rank 0 a flat tree does the same where g is a power of two; from other ranks, or with other
    g, more of its rounds cross between nodes.
    Seconds with N nodes of g devices, inside (a, B), between (c, D):
    ceil(log2 N)(c + nbytes/D) + ceil(log2 g)(a + nbytes/B).
    """
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, broadcast_rounds)
    phases = (depth(nodes), 1, "inter"), (depth(g), 1, "intra")
    symmetry = Symmetry(phases, depth(nodes) + depth(g), n - 1, (nodes, g))
    return Plan("broadcast", "hierarchical", n, 1, rounds, root, symmetry)


@builder
def hierarchical_reduce(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """The mirror image of `hierarchical_broadcast`."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, broadcast_rounds).mirrored(reduce=True)
    phases = (depth(g), 1, "intra"), (depth(nodes), 1, "inter")
    symmetry = Symmetry(phases, min(1, n - 1), n - 1, (nodes, g))
    return Plan("reduce", "hierarchical", n, 1, rounds, root, symmetry)


def _scatter_symmetry(nodes: int, g: int, root: int, sent: int) -> Symmetry:
    phases = [(1, g * chunks, "inter") for chunks in halves(nodes)]
    phases += [(1, chunks, "intra") for chunks in halves(g)]
    messages = nodes * g - 1 + wraps(nodes, root // g) + nodes * wraps(g, root % g)
    return Symmetry(tuple(phases), sent, messages, (nodes, g))


@builder
def hierarchical_scatter(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """Each node's part goes there by a tree between the nodes, and by one in the node to its rank.

    Seconds, as above: ceil(log2 N) c + (N-1)/N nbytes/D + ceil(log2 g) a + (g-1)/(gN) nbytes/B.
    """
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, scatter_rounds, rows=g)
    symmetry = _scatter_symmetry(nodes, g, root, sent=n - 1)
    return Plan("scatter", "hierarchical", n, n, rounds, root, symmetry)


@builder
def hierarchical_gather(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """The mirror image of `hierarchical_scatter`."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, scatter_rounds, rows=g).mirrored()
    sent = max([g * chunks for chunks in halves(nodes)] + halves(g), default=0)
    symmetry = _scatter_symmetry(nodes, g, root, sent)
    return Plan("gather", "hierarchical", n, n, rounds, root, symmetry)
