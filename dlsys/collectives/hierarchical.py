"""Two levels: the large pieces stay on the fast links inside a node.

Rank node*devices_per_node + local. First rings inside every node, so that the devices of a node
share its sum out among themselves; then rings between nodes, each among the devices with the same
`local`, over all network cards at once; then rings inside the nodes again.
"""

from __future__ import annotations

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder


def _inside(nodes: int, g: int, runs: list[list[int]], reduce: bool) -> Rounds:
    """Rings inside every node: local j ends a reduce-scatter with, or begins an all-gather with,
    the runs of chunks that begin at `runs[j]`."""
    length = nodes * g // (g * len(runs[0]))

    def build(k: int) -> list[Transfer]:
        ahead = -1 - k if reduce else -k
        return [
            Transfer(a * g + j, a * g + (j + 1) % g, first, first + length, reduce)
            for a in range(nodes)
            for j in range(g)
            for first in runs[(j + ahead) % g]
        ]

    return Rounds(g - 1, build)


def _between(nodes: int, g: int, adjacent: bool, reduce: bool) -> Rounds:
    """Rings between nodes, one for each local: node a ends with (begins with) its one chunk."""

    def build(k: int) -> list[Transfer]:
        ahead = -1 - k if reduce else -k
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
    runs = [[j * nodes] for j in range(g)]
    rounds = _inside(nodes, g, runs, True)
    rounds = rounds.then(_between(nodes, g, True, True)).then(_between(nodes, g, True, False))
    rounds = rounds.then(_inside(nodes, g, runs, False))
    symmetry = _symmetry(nodes, g, 1, 2)
    return Plan("all_reduce", "hierarchical", n, n, rounds, symmetry=symmetry)


def _strided(nodes: int, g: int) -> list[list[int]]:
    """The chunks that local j of some node owns: one in each node's run."""
    return [[a * g + j for a in range(nodes)] for j in range(g)]


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
            hops = [(r, r - r % g + (r + k + 1) % g) for r in range(n)]
            pairs = [(r, via, r, b * g + via % g) for r, via in hops for b in range(nodes)]
        else:
            ahead = k - g + 2
            hops = [(r, (r + ahead * g) % n) for r in range(n)]
            pairs = [(r, dst, r - r % g + i, dst) for r, dst in hops for i in range(g)]
        return [Transfer(r, to, c := i * n + j, c + 1) for r, to, i, j in pairs]

    return Plan("all_to_all", "hierarchical", n, n * n, Rounds(g - 1 + nodes - 1, build))
