"""What data parallelism costs in a step: bytes, and the seconds that backward does not hide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from dlsys import collectives
from dlsys.annotated import checked
from dlsys.checks import at_least, count, multiples_around, positive, refuse, some
from dlsys.hardware import Cluster
from dlsys.network import Where
from dlsys.streams import Overlap, Streams

MOST_BUCKETS = 100_000


@checked
def step_bytes(nbytes: float, ranks: int) -> float:
    """Bytes that each rank sends in an optimizer step: 2(n-1)/n x S.

    nbytes: S, of all gradients, which are summed once in a step, however many micro-batches they
    are of. A rank also receives as many. The 2 stands for two phases (reduce-scatter, all-gather),
    not for two directions. Patarasuk and Yuan 2009.
    """
    at_least("nbytes", nbytes, 0)
    n = count("ranks", ranks)
    return 2 * (n - 1) / n * nbytes


def accumulation_steps(batch: int, micro_batch: int, ranks: int) -> int:
    """Micro-batches that each rank goes through in an optimizer step: batch/(micro_batch ranks).

    All counts are of samples. Raises ValueError where they do not divide.
    """
    batch = count("batch", batch)
    at_once = count("micro_batch", micro_batch) * count("ranks", ranks)
    if batch % at_once:
        raise ValueError(
            f"A batch of {batch} samples does not divide by {ranks} ranks with micro-batches of "
            f"{micro_batch}; the nearest that work: {multiples_around(batch, at_once)}."
        )
    return batch // at_once


@checked
def all_reduce_seconds(nbytes: float, ranks: int, where: Where, algorithm: str = "ring") -> float:
    """Seconds of an all-reduce of `nbytes` among `ranks` ranks, as the collective's plan has it.

    algorithm: a flat one ("ring", "tree", ...), on a Cluster also "hierarchical", or "best", the
    fastest of them for this size. Raises ValueError for another, or a Cluster of another size.
    """
    n = count("ranks", ranks)
    at_least("nbytes", nbytes, 0)
    if isinstance(where, Cluster) and where.size != n:
        raise ValueError(f"{n} ranks on a cluster of {where.size} devices: give one of {n}.")
    if algorithm == "best" and where is not None:
        plan = collectives.best("all_reduce", nbytes, where, n)
    elif algorithm == "hierarchical" and isinstance(where, Cluster):
        plan = collectives.hierarchical_all_reduce(where.nodes, where.devices_per_node)
    else:
        plan = collectives.plan_for("all_reduce", n, algorithm)
    return plan.price(nbytes, where).seconds


@checked
def overlap(
    sizes: Sequence[float],
    backward_seconds: float,
    ranks: int,
    where: Where,
    algorithm: str = "ring",
    forward_seconds: float = 0.0,
    shares: Sequence[float] | None = None,
) -> Overlap:
    """Simulate one step: backward completes the buckets in order, the network takes them in turn.

    `compute` has the spans of "forward" and of each bucket's number, `network` of these numbers.
    Bucket i starts at max(ready_i, end of bucket i-1), as collectives of one communicator do on a
    GPU. (A simulated world lets them share the links: the end is the same where latency is zero,
    and earlier by at most the latencies of all buckets.)

    sizes: bytes by bucket, in the order in which backward completes them.
    backward_seconds: of a step's last micro-batch, the one whose gradients are sent;
    forward_seconds: of all that comes before it, earlier micro-batches included. shares: each
    bucket's part of backward, in any unit; proportional to its bytes where None. Raises ValueError
    where there are not as many shares as buckets.
    """
    for nbytes in sizes:
        at_least("A bucket's size in bytes", nbytes, 0)
    at_least("backward_seconds", backward_seconds, 0)
    at_least("forward_seconds", forward_seconds, 0)
    parts = sizes if shares is None else shares
    for part in parts:
        at_least("A share of backward", part, 0)
    if len(parts) != len(sizes):
        raise ValueError(f"{len(parts)} shares for {len(sizes)} buckets: give one for each.")
    whole = sum(parts) or 1.0
    seconds = {size: all_reduce_seconds(size, ranks, where, algorithm) for size in set(sizes)}
    streams = Streams()
    streams.compute("forward", forward_seconds)
    for bucket, (nbytes, done) in enumerate(zip(sizes, accumulate(parts), strict=True)):
        streams.compute(bucket, forward_seconds + backward_seconds * done / whole)
        streams.carry(bucket, seconds[nbytes])
    return streams.overlap()


@checked
def bucket_tradeoff(
    gradient_bytes: float,
    backward_seconds: float,
    ranks: int,
    where: Where,
    algorithm: str = "ring",
    bucket_bytes: Sequence[float] | None = None,
) -> dict[float, Overlap]:
    """The step for each bucket size: small buckets pay latency, large ones leave a long last one.

    gradient_bytes: of all gradients, cut into equal buckets. bucket_bytes: sizes to try, by default
    the whole in 1, 2, 3, 4, 6, 8, ... equal parts. Returns bytes of a bucket -> Overlap, from large
    to small.
    """
    positive("gradient_bytes", gradient_bytes)
    if bucket_bytes is None:
        parts = sorted({2**i for i in range(13)} | {3 * 2**i for i in range(11)})
        bucket_bytes = [gradient_bytes / part for part in parts]
    some("bucket_bytes", bucket_bytes)
    cuts = {
        most: equal_buckets(gradient_bytes, most) for most in sorted(bucket_bytes, reverse=True)
    }
    return {
        most: overlap(sizes, backward_seconds, ranks, where, algorithm)
        for most, sizes in cuts.items()
    }


def equal_buckets(nbytes: float, bucket_bytes: float) -> list[float]:
    """`nbytes` in the fewest equal buckets of at most `bucket_bytes`."""
    at_least("nbytes", nbytes, 0)
    positive("bucket_bytes", bucket_bytes)
    if nbytes / bucket_bytes > MOST_BUCKETS:
        least = f"at least {nbytes / MOST_BUCKETS:g}, so that buckets are at most {MOST_BUCKETS:,}"
        refuse("bucket_bytes", bucket_bytes, least)
    k = max(1, math.ceil(nbytes / bucket_bytes * (1 - 1e-12)))
    return [nbytes / k] * k
