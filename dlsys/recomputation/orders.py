"""The order of execution with the lowest peak: exact for small graphs, greedy for long ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from dlsys.annotated import checked
from dlsys.recomputation.graph import Graph
from dlsys.recomputation.lifetimes import lifetimes

MOST_SETS = 20_000
"""Sets of done operations that `best_order` looks at before it gives up."""


@checked
def best_order(graph: Graph) -> tuple[str, ...]:
    """An order of the graph's operations with the lowest peak there is.

    What is alive depends on the set of operations that are done, not on their order. So an order
    is a path through such sets, its peak the largest step on it, and the path of the least largest
    step is found as the shortest one is, sets of the lowest peak first (Dijkstra 1959, with the
    maximum in the place of the sum). Returns names, for `lifetimes`.

    Raises ValueError after MOST_SETS sets, of which a graph of n operations side by side has 2^n.
    """
    sets = _Sets(graph)
    came_from: dict[int, tuple[int, int]] = {}
    reached = {0: 0}
    heap = [(0, len(graph.operations), 0)]  # of equal peaks, the set that is furthest first
    while heap:
        peak, left, done = heapq.heappop(heap)
        if not left:
            break
        if peak > reached[done]:
            continue
        if len(reached) > MOST_SETS:
            raise ValueError(
                f"graph has more than {MOST_SETS:,} sets of operations that may be done together; "
                "best_order() looks at no more: cut the graph, or use greedy_order()."
            )
        alive = sets.alive(done)
        for place in sets.ready(done):
            higher, then = max(peak, alive + sets.made[place]), done | 1 << place
            if higher < reached.get(then, higher + 1):
                reached[then] = higher
                came_from[then] = done, place
                heapq.heappush(heap, (higher, left - 1, then))
    order = []
    while done:
        done, place = came_from[done]
        order.append(graph.operations[place].name)
    return tuple(order[::-1])


@checked
def greedy_order(graph: Graph) -> tuple[str, ...]:
    """An order found by always running what leaves the fewest bytes alive, for graphs of any size.

    Ties go to what makes fewer bytes, then to what comes first in the graph. Never worse than the
    graph's own order, which it returns where that has no higher peak. Not always the best one.
    """
    operations, order = graph.operations, []
    left = _reader_counts(graph)
    results = set(graph.results)
    waits = [sum(name in graph.producer for name in set(each.inputs)) for each in operations]
    readers: dict[str, list[int]] = {}
    for place, each in enumerate(operations):
        for name in dict.fromkeys(each.inputs):
            readers.setdefault(name, []).append(place)

    def change(place: int) -> tuple[int, int, int]:
        """Bytes more alive after it than before; bytes that it makes; its place."""
        each = operations[place]
        made = sum(value.nbytes for value in each.outputs)
        stays = sum(v.nbytes for v in each.outputs if left[v.name] or v.name in results)
        ends = {name for name in each.inputs if left[name] == 1 and name not in results}
        return stays - graph.total(ends), made, place

    ready = {place for place, number in enumerate(waits) if not number}
    while ready:
        place = min(ready, key=change)
        ready.remove(place)
        order.append(operations[place].name)
        for name in set(operations[place].inputs):
            left[name] -= 1
        for value in operations[place].outputs:
            for reader in readers.get(value.name, ()):
                waits[reader] -= 1
                if not waits[reader]:
                    ready.add(reader)
    own = lifetimes(graph)
    return own.order if own.peak <= lifetimes(graph, order).peak else tuple(order)


def _reader_counts(graph: Graph) -> dict[str, int]:
    """How many operations read each value."""
    left = dict.fromkeys(graph.sizes, 0)
    for each in graph.operations:
        for name in set(each.inputs):
            left[name] += 1
    return left


class _Sets:
    """Sets of done operations, each a whole number whose bit i stands for operation i."""

    def __init__(self, graph: Graph) -> None:
        self.made = [sum(value.nbytes for value in each.outputs) for each in graph.operations]
        readers = dict.fromkeys(graph.sizes, 0)
        self.before = [0] * len(graph.operations)
        for place, each in enumerate(graph.operations):
            for name in each.inputs:
                readers[name] |= 1 << place
                if name in graph.producer:
                    self.before[place] |= 1 << graph.producer[name]
        # (bytes, the operation that makes it, those that have to be done before it is freed)
        never = 1 << len(graph.operations)
        self.values = [
            (nbytes, 1 << graph.producer[name] if name in graph.producer else 0, readers[name])
            if name not in graph.results
            else (nbytes, 1 << graph.producer[name] if name in graph.producer else 0, never)
            for name, nbytes in graph.sizes.items()
        ]

    def alive(self, done: int) -> int:
        """Bytes alive when these are done: what is made and has a reader to come."""
        return sum(
            nbytes
            for nbytes, maker, readers in self.values
            if maker & done == maker and readers & ~done
        )

    def ready(self, done: int) -> Iterator[int]:
        """Operations that are not done, all of whose inputs are made."""
        for place, before in enumerate(self.before):
            if not done >> place & 1 and before & done == before:
                yield place
