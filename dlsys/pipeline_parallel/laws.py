"""Laws of pipelines: closed forms that answer a question of size without a simulation."""

from __future__ import annotations

from math import sqrt
from typing import SupportsIndex

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive


@checked
def best_micro_batch(p: SupportsIndex, sequences: SupportsIndex, fixed: float) -> float:
    """sqrt(sequences * fixed / (p-1)): the size of micro-batch with which a step is shortest.

    - sequences: of one pipeline's batch, m micro-batches of b = sequences/m.
    - fixed: what the two passes take for any size of micro-batch, kernels too small to fill the
      device among it, in sequences: a micro-batch of b takes the time of b + fixed.

    A step takes (sequences/b + p - 1)(b + fixed) (Narayanan et al. 2021, section 3.4, for passes of
    any seconds). At the best size what the bubble adds, (p-1)b, equals what the fixed parts add,
    sequences * fixed/b: the bubble as a share of the ideal is fixed/b. No size divides a sequence,
    and memory may allow less. inf for one rank, which has no bubble.
    """
    p, sequences = count("p (the number of ranks)", p), count("sequences", sequences)
    at_least("fixed", fixed, 0)
    return sqrt(sequences * fixed / (p - 1)) if p > 1 else float("inf")


@checked
def fixed_sequences(gain: float, larger: SupportsIndex) -> float:
    """(gain - 1) larger/(larger - gain): the fixed part in sequences, out of one measurement.

    gain: how many times the sequences a second of micro-batches of `larger` sequences are those of
    single ones. Solves gain = larger (1 + fixed)/(larger + fixed). Raises ValueError for a gain
    below 1, or not below `larger`, which no fixed part gives.
    """
    larger = count("larger", larger, least=2)
    positive("gain", gain)
    if not 1 <= gain < larger:
        raise ValueError(
            f"gain is {gain!r}; micro-batches of {larger} sequences run between 1 and less than "
            f"{larger} times as many of them in a second as single ones."
        )
    return (gain - 1) * larger / (larger - gain)


@checked
def transfers_waited_for(p: SupportsIndex, m: SupportsIndex) -> int:
    """2(p-1)m/p + 2(p-2): by how many short transfers a step of 1F1B ends later.

    GPipe and `eager_1f1b` wait for 2(p-1) whatever m is. Each p micro-batches of 1F1B wait for as
    many, and the last of all crosses p-2 boundaries each way once more. Raises ValueError for an m
    that p does not divide; one rank waits for none.
    """
    p, m = count("p (the number of ranks)", p), count("m (the number of micro-batches)", m)
    if m % p:
        raise ValueError(f"{m} micro-batches are no rounds of {p}; give a multiple of p.")
    return 2 * (p - 1) * (m // p) + 2 * (p - 2) if p > 1 else 0


@checked
def transfer_share(
    hidden: SupportsIndex, layers: SupportsIndex, rate: float, bandwidth: float
) -> float:
    """rate/(12 hidden layers bandwidth): a transfer as a share of a stage's forward pass.

    - hidden: h; layers: of the stage; rate: FLOP/s of a device; bandwidth: bytes/s that it sends.

    Of t devices that share a stage each sends 2 b s h/t bytes, and makes 24 b s h^2/t FLOPs in each
    layer, twice its 12 h^2 weights for every token: batch, sequence and t cancel. For layers of
    12 h^2 weights and 16 bits; latency, the scores of attention, which make a pass longer, and a
    gather among the t receivers are left out.
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    width = count("hidden", hidden) * count("layers (of a stage)", layers)
    return rate / (12 * width * bandwidth)
