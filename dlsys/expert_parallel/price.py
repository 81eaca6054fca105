"""What a mixture's exchanges cost: bytes and seconds of dispatch and combine."""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse_what
from dlsys.collectives import best
from dlsys.expert_parallel.plan import Dispatch
from dlsys.hardware import Cluster, Link
from dlsys.network import Network

COUNT_BYTES = 8
"""Of the number of copies for one expert, an int64."""


@dataclass(frozen=True)
class Price:
    """A layer's exchanges. Bytes are those that the busiest rank sends; seconds of an exchange last
    until the last rank has all.

    dispatch, combine: seconds of each in the forward pass. In backward the gradients of combine go
    as the copies of dispatch went, and those of dispatch as combine. counts: seconds of telling how
    many copies come, which backward knows. compute: forward seconds of the rank whose experts read
    most; 0.0 where no rate was given.
    """

    dispatch_bytes: int
    combine_bytes: int
    between_nodes: int
    counts: float
    dispatch: float
    combine: float
    compute: float

    @property
    def forward(self) -> float:
        """Seconds of the forward pass, nothing overlapped."""
        return self.counts + self.dispatch + self.compute + self.combine

    @property
    def backward(self) -> float:
        """Seconds of the backward pass: the exchanges once more, and twice the products."""
        return self.dispatch + 2 * self.compute + self.combine

    @property
    def communication_share(self) -> float:
        """The exchanges' share of both passes."""
        total = self.forward + self.backward
        return (total - 3 * self.compute) / total if total else 0.0


@checked
def price(
    dispatch: Dispatch,
    where: Link | Cluster,
    hidden: int,
    itemsize: int = 2,
    dispatch_itemsize: int | None = None,
    experts: int | None = None,
    once_a_node: bool = False,
    width: int | None = None,
    matrices: int = 3,
    rate: float | None = None,
) -> Price:
    """The price of one layer's exchanges between the ranks of a link or a cluster.

    An exchange has the rounds of `dispatch.exchange`, and messages share ports as those of the
    simulated world do.

    - itemsize: bytes of a number; dispatch_itemsize: of one on the way to the experts (DeepSeek-V3
      dispatches in FP8 and combines in BF16); None: the same.
    - experts: whose counts are told first; None: nothing is told.
    - once_a_node: a token goes to each other node once, to the rank in its own place there, which
      hands it on inside the node; combine goes the same way back, summed on that rank (DeepSeek-V3,
      section 3.2.2). Otherwise each copy goes straight to its rank.
    - width, matrices, rate: an expert's neurons and matrices (3 where it is gated), and FLOP/s that
      a device reaches in them; None: compute is 0.

    Raises ValueError for a cluster whose ranks or nodes are not those of the dispatch.
    """
    hidden, back = count("hidden", hidden), count("itemsize", itemsize)
    there = back if dispatch_itemsize is None else count("dispatch_itemsize", dispatch_itemsize)
    dispatch.check()
    n, size = dispatch.ranks, dispatch.devices_per_node
    if isinstance(where, Cluster) and (where.size, where.devices_per_node) != (n, size):
        is_of = f"of {where.nodes} nodes of {where.devices_per_node} devices"
        refuse_what("where", is_of, f"of the dispatch's {n // size} nodes of {size}")
    told = 0.0
    if experts is not None and n > 1:
        nbytes = COUNT_BYTES * count("experts", experts)
        told = best("all_to_all", nbytes, where, n).price(nbytes, where).seconds
    direct = [_straight(dispatch)]
    stages = _by_node(dispatch) if once_a_node else direct
    reverse = [{(dst, src): rows for (src, dst), rows in stage.items()} for stage in stages[::-1]]
    flops = 2 * hidden * count("matrices", matrices)
    flops *= 0 if width is None else count("width", width)
    compute = 0.0
    if rate is not None:
        positive("rate", rate)
        compute = max(dispatch.read) * flops / rate
    out, home = (_sent(each, n, size) for each in (stages, reverse))
    return Price(
        out[0] * hidden * there,
        home[0] * hidden * back,
        hidden * (out[1] * there + home[1] * back),
        told,
        _seconds(stages, n, where, hidden * there),
        _seconds(reverse, n, where, hidden * back),
        compute,
    )


Stage = dict[tuple[int, int], int]
"""Rows that go from rank to rank at once."""


def _straight(dispatch: Dispatch) -> Stage:
    """Each copy to its rank."""
    n = dispatch.ranks
    return {
        (src, dst): dispatch.copies[src][dst] for src in range(n) for dst in range(n) if src != dst
    }


def _by_node(dispatch: Dispatch) -> list[Stage]:
    """Each token once to each other node, to the rank in its own place; then each copy on."""
    between: Stage = {}
    inside: Stage = {}
    size = dispatch.devices_per_node
    for src in range(dispatch.ranks):
        for node, tokens in enumerate(dispatch.nodes[src]):
            door = node * size + src % size
            if door != src:
                between[src, door] = tokens
            for dst in range(node * size, (node + 1) * size):
                if dst != door:
                    inside[door, dst] = inside.get((door, dst), 0) + dispatch.copies[src][dst]
    return [between, inside]


def _sent(stages: list[Stage], n: int, size: int) -> tuple[int, int]:
    """Rows that the busiest rank sends, and that all together send between nodes."""
    of_rank = [0] * n
    between = 0
    for stage in stages:
        for (src, dst), rows in stage.items():
            of_rank[src] += rows
            between += rows * (src // size != dst // size)
    return max(of_rank), between


def _seconds(stages: list[Stage], n: int, where: Link | Cluster, row_bytes: int) -> float:
    """Until the last rank has all: in each round both sides of a message wait for it.

    What stays inside nodes has the rounds of a node.
    """
    network, clock, size = Network(n, where), [0.0] * n, n
    if isinstance(where, Cluster):
        size = where.devices_per_node
    for stage in stages:
        group = n if any(src // size != dst // size for src, dst in stage) else size
        for step in range(1, group):
            pairs = [(src, src - src % group + (src + step) % group) for src in range(n)]
            posted = sorted((max(clock[a], clock[b]), a, b) for a, b in pairs if stage.get((a, b)))
            for time, src, dst in posted:
                _, end = network.transfer(src, dst, stage[src, dst] * row_bytes, time)
                clock[src], clock[dst] = max(clock[src], end), max(clock[dst], end)
    return max(clock)
