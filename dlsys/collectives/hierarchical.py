"""Two levels: the large pieces stay on the fast links inside a node.

Rank node*devices_per_node + local. First rings inside every node, so that the devices of a node
share its sum out among themselves; then rings between nodes, each among the devices with the same
`local`, over all network cards at once; then rings inside the nodes again. What has a root goes by
trees: from node to node among the devices with the root's `local`, then inside every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlsys.collectives.plan import Plan, Rounds, Symmetry, Transfer, builder
from dlsys.collectives.ring_plan import all_gather_rounds, pairwise_rounds, reduce_scatter_rounds
from dlsys.collectives.tree import broadcast_rounds, scatter_rounds

Groups = tuple[int, Callable[[int, int], int]]
"""How many groups of ranks there are, and which rank is number i of group k, by (k, i)."""


def _groups(nodes: int, g: int) -> tuple[Groups, Groups]:
    """The devices of each node, and those that have the same place in each of the nodes."""
    return (nodes, lambda node, i: node * g + i), (g, lambda place, i: i * g + place)


def _in_each(
    groups: Groups,
    rounds: Rounds,
    firsts: Callable[[int, Transfer], Iterable[int]],
    length: int = 1,
) -> Rounds:
    """`rounds` of a flat plan in all groups at once, each of which has its rank i.

    A chunk of the flat plan is `length` chunks here. In place of its transfer t group k sends those
    that begin at each of `firsts(k, t)`.
    """
    count, rank = groups

    def build(index: int) -> list[Transfer]:
        return [
            Transfer(rank(k, t.src), rank(k, t.dst), c, c + (t.stop - t.first) * length, t.reduce)
            for t in rounds[index]
            for k in range(count)
            for c in firsts(k, t)
        ]

    return Rounds(len(rounds), build)


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
    inside, between = _groups(nodes, g)

    def share(_: int, t: Transfer) -> list[int]:
        return [t.first * nodes]  # of device j the j-th run of N chunks

    def part(j: int, t: Transfer) -> list[int]:
        return [j * nodes + t.first]  # one chunk of its share

    rounds = _in_each(inside, reduce_scatter_rounds(g), share, nodes)
    rounds = rounds.then(_in_each(between, reduce_scatter_rounds(nodes), part))
    rounds = rounds.then(_in_each(between, all_gather_rounds(nodes), part))
    rounds = rounds.then(_in_each(inside, all_gather_rounds(g), share, nodes))
    return Plan("all_reduce", "hierarchical", n, n, rounds, symmetry=_symmetry(nodes, g, 1, 2))


def _reduce_scatter(nodes: int, g: int) -> Rounds:
    """In the nodes, where device j collects the chunks of all ranks with its place, then across."""
    inside, between = _groups(nodes, g)
    rounds = _in_each(inside, reduce_scatter_rounds(g), lambda _, t: range(t.first, nodes * g, g))
    across = _in_each(between, reduce_scatter_rounds(nodes), lambda j, t: [t.first * g + j])
    return rounds.then(across)


@builder
def hierarchical_reduce_scatter(nodes: int, devices_per_node: int) -> Plan:
    """Reduce-scatter in the nodes, then between them; half of `hierarchical_all_reduce`."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds, symmetry = _reduce_scatter(nodes, g), _symmetry(nodes, g, nodes, 1)
    return Plan("reduce_scatter", "hierarchical", n, n, rounds, symmetry=symmetry)


@builder
def hierarchical_all_gather(nodes: int, devices_per_node: int) -> Plan:
    """The mirror image of `hierarchical_reduce_scatter`: between the nodes, then in them."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds, symmetry = _reduce_scatter(nodes, g).mirrored(), _symmetry(nodes, g, nodes, 1)
    return Plan("all_gather", "hierarchical", n, n, rounds, symmetry=symmetry)


@builder
def hierarchical_all_to_all(nodes: int, devices_per_node: int) -> Plan:
    """Blocks first go to the device of the own node with the destination's place, then across.

    Fewer rounds than pairwise exchange (g-1 + N-1 against gN-1), for more bytes inside the nodes.
    """
    n, g = nodes * devices_per_node, devices_per_node
    inside, between = _groups(nodes, g)

    def by_place(node: int, t: Transfer) -> range:
        row = (node * g + t.src) * n  # a device's blocks, of which every g-th is for that place
        return range(row + t.dst, row + n, g)

    def by_node(place: int, t: Transfer) -> range:
        rows = t.src * g * n  # a node's blocks, of which every n-th is for that rank
        return range(rows + t.dst * g + place, rows + g * n, n)

    rounds = _in_each(inside, pairwise_rounds(g), by_place)
    rounds = rounds.then(_in_each(between, pairwise_rounds(nodes), by_node))
    return Plan("all_to_all", "hierarchical", n, n * n, rounds)


def _trees(nodes: int, g: int, root: int, tree: Callable[[int, int], Rounds], own: int) -> Rounds:
    """A tree between the nodes, by the devices with the root's place, then one inside each node,
    which has `own` chunks for itself (0: all have the same one)."""
    inside, (_, rank) = _groups(nodes, g)
    node, place = divmod(root, g)
    across = 1, lambda _, i: rank(place, i)
    rounds = _in_each(across, tree(nodes, node), lambda _, t: [t.first * own], own or 1)
    return rounds.then(_in_each(inside, tree(g, place), lambda a, t: [a * own + t.first]))


@builder
def hierarchical_broadcast(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """A tree between the nodes, then one in each node: every node gets the buffer once.

    From rank 0 a flat tree does the same where g is a power of two; from other ranks, or with other
    g, more of its rounds cross between nodes.
    Seconds with N nodes of g devices, inside (a, B), between (c, D):
    ceil(log2 N)(c + nbytes/D) + ceil(log2 g)(a + nbytes/B).
    """
    rounds = _trees(nodes, devices_per_node, root, broadcast_rounds, 0)
    return Plan("broadcast", "hierarchical", nodes * devices_per_node, 1, rounds, root)


@builder
def hierarchical_reduce(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """The mirror image of `hierarchical_broadcast`."""
    rounds = _trees(nodes, devices_per_node, root, broadcast_rounds, 0).mirrored(reduce=True)
    return Plan("reduce", "hierarchical", nodes * devices_per_node, 1, rounds, root)


@builder
def hierarchical_scatter(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """Each node's part goes there by a tree between the nodes, and by one in the node to its rank.

    Seconds, as above: ceil(log2 N) c + (N-1)/N nbytes/D + ceil(log2 g) a + (g-1)/(gN) nbytes/B.
    """
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, scatter_rounds, g)
    return Plan("scatter", "hierarchical", n, n, rounds, root)


@builder
def hierarchical_gather(nodes: int, devices_per_node: int, root: int = 0) -> Plan:
    """The mirror image of `hierarchical_scatter`."""
    n, g = nodes * devices_per_node, devices_per_node
    rounds = _trees(nodes, g, root, scatter_rounds, g).mirrored()
    return Plan("gather", "hierarchical", n, n, rounds, root)
