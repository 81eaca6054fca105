"""What tensor parallelism costs: bytes and seconds of its collectives, and what a layer keeps."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, positive, unknown
from dlsys.collectives import Plan, best, candidates, plan_for
from dlsys.hardware import Cluster, Link
from dlsys.tensor_parallel.plan import Layout, check_degree
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations

PER_LAYER = 4
"""All-reduces of a layer for each micro-batch: two branches, forward and backward."""


def all_reduce_bytes(tokens: int, hidden: int, itemsize: int = 2) -> int:
    """Bytes of one all-reduce's buffer, b s h x `itemsize`: activations, whatever the weights.

    `tokens` are the b s tokens of one micro-batch, `hidden` is h. h^2, the size of a matrix, does
    not come into it: weights stay where they are.
    """
    return count("tokens", tokens) * count("hidden", hidden) * count("itemsize", itemsize)


def step_bytes(
    layers: int, tp: int, tokens: int, hidden: int, itemsize: int = 2, micro_batches: int = 1
) -> float:
    """Bytes that each rank sends in one step for its layers: 2(t-1)/t b s h x itemsize x 4 L m.

    `tokens` are the b s tokens of one of m `micro_batches`. Megatron's two all-reduces forward and
    two backward; sequence parallelism sends the same in half-steps, unless backward repeats
    gathers. 2(t-1)/t grows from 1 at t = 2 to 2 at most. The ends of the model are in
    `Layout.price`, not here. Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
    """
    t, calls = count("tp", tp), PER_LAYER * count("layers", layers)
    message = all_reduce_bytes(tokens, hidden, itemsize)
    return 2 * (t - 1) / t * message * calls * count("micro_batches", micro_batches)


@dataclass(frozen=True)
class Price:
    """What one step says, for each rank.

    calls: of collectives. bytes_per_rank: bytes sent. seconds: in them, nothing else going on.
    compute_seconds: of the rank's matrix products; 0.0 where no device is known.
    """

    calls: int
    bytes_per_rank: float
    seconds: float
    compute_seconds: float

    @property
    def share(self) -> float:
        """Communication's share of the step where none of it is hidden behind computing."""
        total = self.seconds + self.compute_seconds
        return self.seconds / total if total else 0.0


@checked
def price(
    layout: Layout,
    batch: int,
    link_or_cluster: Link | Cluster | None = None,
    itemsize: int = 2,
    micro_batches: int = 1,
    algorithm: str = "ring",
    rate: float | None = None,
) -> Price:
    """What the collectives of a step cost, those of embedding, head and loss included.

    - batch: sequences of one of `micro_batches`.
    - link_or_cluster: where the ranks are; of a cluster they are the first tp, so that a group lies
      in one node or fills whole ones. None: bytes alone are counted.
    - itemsize: bytes of an activation (2, 4 or 8); those of the loss have at least 4.
    - algorithm: that of a collective plan, "ring" or on several nodes "hierarchical", or "best" for
      the cheapest of each message (a ring where no link says what is cheap).
    - rate: FLOP/s of a device's matrix products; on a cluster by default its device's dense peak in
      BF16, which no run reaches: at a lower rate communication has a smaller share.

    Raises ValueError for a group that straddles nodes, more ranks than the cluster has, or an
    algorithm that there is none of.
    """
    batch, steps = count("batch", batch), count("micro_batches", micro_batches)
    itemsize = count("itemsize", itemsize)
    if rate is None and isinstance(link_or_cluster, Cluster):
        rate = link_or_cluster.device.rate("bf16")
    calls, sent, seconds = 0, 0.0, 0.0
    said = Counter(
        (c.kind, c.nbytes(batch, itemsize), c.itemsize(itemsize), c.ranks or layout.tp)
        for c in layout.collectives()
    )
    for (kind, nbytes, unit, ranks), number in said.items():
        where = _group(link_or_cluster, ranks)
        # Some neighbours of a large group may lie in one node, where nothing is hierarchical.
        alone = ranks < layout.tp and isinstance(where, Cluster) and where.nodes == 1
        name = "ring" if alone and algorithm == "hierarchical" else algorithm
        each = _plan(kind, nbytes, where, ranks, name).price(nbytes, where, unit)
        calls += number
        sent += number * each.bytes_per_rank
        seconds += number * each.seconds
    compute = 0.0
    if rate is not None:
        positive("rate", rate)
        compute = layout.spec.training_flops(batch) / layout.tp / rate
    return Price(steps * calls, steps * sent, steps * seconds, steps * compute)


def _group(where: Link | Cluster | None, tp: int) -> Link | Cluster | None:
    """The part of a cluster that one tensor-parallel group takes."""
    if not isinstance(where, Cluster):
        return where
    size = where.devices_per_node
    if tp > where.size or (size % tp and tp % size):
        raise ValueError(
            f"{tp} ranks on {where.nodes} nodes of {size} devices: a group lies in one node, where "
            f"its size divides {size}, or fills whole nodes, up to {where.size} devices."
        )
    if tp <= size:
        return dataclasses.replace(where, nodes=1, devices_per_node=tp, nics_per_node=None)
    return dataclasses.replace(where, nodes=tp // size)


def _plan(
    kind: str, nbytes: float, where: Link | Cluster | None, ranks: int, algorithm: str
) -> Plan:
    if where is None:
        return plan_for(kind, ranks, None if algorithm == "best" else algorithm)
    if algorithm == "best":
        return best(kind, nbytes, where, ranks)
    plans = candidates(kind, where, ranks)
    if algorithm not in plans:
        raise ValueError(unknown(f"{kind} algorithm", algorithm, ["best", *plans]))
    return plans[algorithm]


class Kept(NamedTuple):
    """Bytes that one layer keeps for backward on each rank, by what tensor parallelism does to it.

    between: inputs of norms and branches, and dropout masks, between the branches, which only
    sequence parallelism cuts (10 s b h); inside: what is cut by heads or neurons (24 s b h / t);
    scores: the s x s matrices of attention (5 a s^2 b / t), which selective recomputation or flash
    attention does not keep.
    """

    between: int
    inside: int
    scores: int

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.between + self.inside + self.scores


@checked
def activation_bytes(
    spec: TransformerSpec,
    batch: int,
    tp: int = 1,
    sequence_parallel: bool = False,
    dropout: bool = True,
) -> Kept:
    """Bytes of 16-bit activations that one layer keeps on each rank, in three parts.

    GPT-2's layer: s b h (10 + 24/t + 5 a s / (h t)), and with sequence parallelism
    s b h (34/t + 5 a s / (h t)). The numbers follow the spec (grouped queries, a gated FFN) and
    `dropout`. Raises ValueError for a degree that does not divide the model, as `layout` does.
    Korthikanti et al. 2022 (arXiv 2205.05198), section 4.
    """
    t = check_degree(spec, tp, sequence_parallel)
    kept = activations(spec, batch, t, sequence_parallel, dropout=dropout)
    between = {"norm_input", "input", "dropout_mask"}  # of either branch
    parts = {"between": 0, "inside": 0, "scores": 0}
    for term, nbytes in kept.terms.items():
        name = term.partition(".")[2]
        inside = "scores" if "probabilities" in name else "inside"
        parts["between" if name in between else inside] += nbytes
    return Kept(**parts)
