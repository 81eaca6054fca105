"""The laws of sharding: how many tokens hide it, how far to shard, when to cut tensors instead."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import count, divisor, positive
from dlsys.collectives import plan_for
from dlsys.hardware import Cluster
from dlsys.zero.price import COLLECTIVES, two_levels


@checked
def tokens_to_hide(rate: float, bandwidth: float, n: int, itemsize: int = 2) -> float:
    """Tokens a device from which on stage 3 hides its collectives: (n-1)/n C/W, at two bytes.

    - rate: C, FLOP/s that the device achieves; bandwidth: W, bytes/s at which its weights come: of
      its link in one direction, or among nodes 1 / (1 / that of all cards of a node together + 1 /
      that of its fabric), as `collective_seconds` adds up both levels; n: ranks; itemsize: bytes
      of an element that is sent.

    A unit of P parameters computes for 2PT/C forward and its gather takes (n-1)/n 2P/W; backward
    both are twice as much, a gather and a reduction. So neither the model's size nor its depth
    matters. What has nothing to hide behind is left out: latencies, the first gather of each pass,
    and the last reduction.
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    n = count("n", n)
    return (n - 1) / n * count("itemsize", itemsize) / 2 * rate / bandwidth


@dataclass(frozen=True)
class Sharding:
    """Seconds of a step's collectives with each weight on `shard` devices of a cluster.

    `inside` nodes and `across` them, where each device sends `bytes_across`.
    """

    shard: int
    inside: float
    across: float
    bytes_across: float

    @property
    def seconds(self) -> float:
        """Of both, one after the other."""
        return self.inside + self.across


@checked
def sharding(nbytes: float, cluster: Cluster, shard: int | None = None) -> Sharding:
    """The price of stage 3 with each weight on `shard` devices: all of the cluster, or of one node.

    - nbytes: of all weights in the format in which they are sent.
    - shard: devices that share a copy; None: all. devices_per_node: hybrid sharding, a copy in
      every node.

    Inside g devices of a node both gather twice and reduce once, 3(g-1)/g of the bytes. Across m
    nodes a device sends 3(m-1)/m of 1/g of them with full sharding, and with hybrid sharding 2 for
    the 3, an all-reduce of its gradients alone. Raises ValueError for another number of devices.
    Source: Zhao et al. 2023 (PyTorch FSDP, arXiv 2304.11277), section 3.2.2.
    """
    whole, node = cluster.size, cluster.devices_per_node
    k = whole if shard is None else count("shard", shard)
    if k not in (node, whole):
        raise ValueError(f"shard is {k}; it must be {node}, a node, or {whole}, the cluster.")
    steps = [two_levels(kind, nbytes, cluster) for kind in COLLECTIVES[3]]
    inside = sum(seconds for seconds, _ in steps)
    if k == whole:
        across, kinds = sum(seconds for _, seconds in steps), COLLECTIVES[3]
    else:
        (_, across), kinds = two_levels("all_reduce", nbytes, cluster), ("all_reduce",)
    rings = [plan_for(kind, cluster.nodes).price(nbytes / node, None) for kind in kinds]
    return Sharding(k, inside, across, sum(ring.bytes_per_rank for ring in rings))


@checked
def mixed_bytes(
    layers: int, hidden: int, tokens: float, n: int, t: int = 1, itemsize: int = 2
) -> float:
    """Bytes that each of n devices sends in a step of stage 3 with tensor parallelism of degree t.

    - layers, hidden: L and h of a transformer of 12 L h^2 parameters; tokens: B, of all devices.

    Sharding sends 3(1 - t/n) of the P/t parameters that a device computes with. Tensor parallelism
    all-reduces the activations of its B t/n tokens 4 times a layer: 8 L h B (t-1)/n elements. The
    first falls with t, the second grows. Raises ValueError where t does not divide n.
    """
    positive("tokens", tokens)
    n = count("n", n)
    t = divisor("t", t, {"devices": n})
    parameters = 12 * count("layers", layers) * count("hidden", hidden) ** 2
    gathers = 3 * (1 - t / n) * parameters / t
    all_reduces = 8 * layers * hidden * tokens * (t - 1) / n
    return count("itemsize", itemsize) * (gathers + all_reduces)


@checked
def best_degree(hidden: int, tokens: float, n: int) -> float:
    """The degree of tensor parallelism at which `mixed_bytes` is least: sqrt(4.5 h n / B), or 1.

    It is above 1 below 4.5 h tokens a device, whatever the depth: with more, sharding alone
    sends less. Links count as equal; a node's faster one speaks for degrees up to its size.
    """
    positive("tokens", tokens)
    return max(1.0, math.sqrt(4.5 * count("hidden", hidden) * count("n", n) / tokens))


@checked
def tokens_to_offload(rate: float, bandwidth: float, itemsize: int = 2) -> float:
    """Tokens a device and step from which on a link to the host hides offloaded optimizer state.

    - rate: C, FLOP/s that the device achieves; bandwidth: W of the link to the host, one direction.

    For each parameter a gradient goes down and a weight comes up, in both directions at one time:
    `itemsize`/W seconds against 6 T/C of computing, so C/(3W) at two bytes. This takes an update
    that lags by one step (their section 5.2), a host that is as quick, and a device that moves the
    whole model. Source: Ren et al. 2021 (ZeRO-Offload, arXiv 2101.06840).
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    return count("itemsize", itemsize) / 6 * rate / bandwidth
