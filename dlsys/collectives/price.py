"""What a plan costs on a link or a cluster: a closed form where symmetry allows, else simulated.

The model is alpha-beta with contention (`dlsys.network`): a message takes latency +
bytes/bandwidth, and a port carries one message at a time in each direction.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count
from dlsys.collectives.execution import Execution
from dlsys.collectives.plan import Plan, Symmetry, Transfer
from dlsys.hardware import Cluster, Link
from dlsys.network import EventQueue, Network


@dataclass(frozen=True)
class Price:
    """What a collective costs.

    - seconds: from the common start until the last rank is done.
    - bytes_per_rank: bytes that the busiest rank sends.
    - algbw: the buffer's bytes over seconds, in bytes/s; 0.0 where no time passes.
    - busbw: algbw times NCCL's factor, 2(n-1)/n for all_reduce, (n-1)/n for all_gather,
      reduce_scatter, all_to_all, gather and scatter, 1 for broadcast and reduce. For a ring it is
      the bandwidth of the link that is used, whatever n is (nccl-tests, PERFORMANCE.md).
    - messages: of all ranks together.
    - rounds: of the plan.
    """

    seconds: float
    bytes_per_rank: float
    algbw: float
    busbw: float
    messages: int
    rounds: int


@checked
def price(
    plan: Plan,
    nbytes: float,
    link_or_cluster: Link | Cluster | None,
    itemsize: int | None = None,
) -> Price:
    """The price of `plan` for a buffer of `nbytes` bytes on `link_or_cluster`.

    - nbytes: what each rank passes in (broadcast, reduce, all_reduce, reduce_scatter, all_to_all),
      ends with (all_gather, gather), or the root starts from (scatter).
    - itemsize: bytes of what is never cut, an element (of the rows of dimension 0: a row). Chunks
      then differ by at most one item, as in a run, whose counted bytes this equals. With None
      chunks are nbytes/chunks exactly.

    Raises ValueError for negative bytes, a cluster of another size than the plan, or an itemsize
    that does not divide nbytes.
    """
    at_least("nbytes", nbytes, 0)
    nbytes = nbytes if type(nbytes) is int else float(nbytes)
    if itemsize is not None and nbytes % count("itemsize", itemsize):
        raise ValueError(
            f"A buffer of {nbytes} bytes does not hold a whole number of items of {itemsize} "
            "bytes: give a multiple of itemsize, or leave itemsize out for the ideal price."
        )
    where = link_or_cluster
    if isinstance(where, Cluster) and where.size != plan.ranks:
        raise ValueError(
            f"The cluster has {where.size} devices ({where.nodes} nodes of "
            f"{where.devices_per_node}) and the plan {plan.ranks} ranks: build the plan for "
            f"{where.size}."
        )
    closed = _closed_form(plan, nbytes, where, itemsize)
    return _simulated(plan, nbytes, where, itemsize) if closed is None else closed


def bus_factor(kind: str, n: int) -> float:
    """Bus bandwidth over algorithm bandwidth among n ranks, as nccl-tests defines it."""
    if kind in ("broadcast", "reduce"):
        return 1.0
    return (2 if kind == "all_reduce" else 1) * (n - 1) / n


def _price(plan: Plan, nbytes: float, seconds: float, sent: float, messages: int) -> Price:
    algbw = nbytes / seconds if seconds else 0.0
    busbw = algbw * bus_factor(plan.kind, plan.ranks)
    return Price(seconds, sent, algbw, busbw, messages, len(plan.rounds))


def _closed_form(
    plan: Plan, nbytes: float, where: Link | Cluster | None, itemsize: int | None
) -> Price | None:
    """The price as a sum over phases; None where it would not be exact."""
    symmetry, pieces = plan.symmetry, plan.pieces
    if nbytes == 0:  # an empty message is not sent
        return _price(plan, 0.0, 0.0, 0.0, 0)
    if symmetry is None or (itemsize is not None and nbytes // itemsize % pieces):
        return None
    seconds = 0.0
    for rounds, chunks, scope in symmetry.phases:
        message = _slowest(symmetry, scope, where, chunks * nbytes / pieces)
        if message is None:
            return None
        seconds += rounds * message
    sent = symmetry.sent * nbytes / pieces
    return _price(plan, nbytes, seconds, sent, symmetry.messages)


def _slowest(
    symmetry: Symmetry, scope: str | int, where: Link | Cluster | None, nbytes: float
) -> float | None:
    """Seconds of a round's slowest message; None where ranks would get out of step."""
    if where is None:
        return 0.0
    if isinstance(where, Link):
        return where.latency + nbytes / where.bandwidth
    inside = where.intra.latency + nbytes / where.intra.bandwidth
    between = where.inter.latency + nbytes / where.inter.bandwidth
    if where.nodes == 1:
        return inside
    g = where.devices_per_node
    if g == 1:
        return between
    if scope == "ring":
        # Every message meets the slow link's ends again in the next round, which wait for it.
        return max(inside, between)
    near, far = scope == "intra", scope == "inter"
    if isinstance(scope, int):
        near, far = g % (2 * scope) == 0, scope % g == 0
    elif symmetry.shape != (where.nodes, g):
        return None
    return inside if near else between if far and where.nics == g else None


def _simulated(
    plan: Plan, nbytes: float, where: Link | Cluster | None, itemsize: int | None
) -> Price:
    """The price from an execution in virtual time, message by message."""
    edges = None if itemsize is None else plan.bounds(int(nbytes) // itemsize)
    sent: list[list[float]] = [[] for _ in range(plan.ranks)]
    finished: dict[int, float] = {}

    def sizes(first: int, stop: int) -> float:
        if itemsize is None or edges is None:
            return (stop - first) * nbytes / plan.pieces
        return itemsize * (edges[stop] - edges[first])

    def on_message(transfer: Transfer, size: float, start: float, end: float) -> None:
        sent[transfer.src].append(size)

    queue, network = EventQueue(), Network(plan.ranks, where)
    ranks, on_done = range(plan.ranks), finished.__setitem__
    execution = Execution(plan, sizes, network, queue, ranks, on_message, on_done)
    for rank in ranks:
        execution.enter(rank, 0.0)
    queue.run()
    most, messages = max(map(sum, sent)), sum(map(len, sent))
    return _price(plan, nbytes, max(finished.values()), most, messages)
