"""The laws of context parallelism: when the ring hides, and when Ulysses sends fewer bytes."""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.context_parallel.price import FORWARD
from dlsys.transformer import TransformerSpec


@checked
def tokens_to_hide(
    spec: TransformerSpec, rate: float, bandwidth: float, causal: bool = True, itemsize: int = 2
) -> float:
    """Tokens a rank from which on the ring's messages hide behind its scores.

    - rate: R, FLOP/s that a device reaches in attention; bandwidth: W, bytes/s of the slowest link
      on the way round, in one direction; itemsize: bytes of an element.

    A round has x queries and x keys: 4 a d x^2 FLOPs, half of them with a balanced causal mask, and
    keys and values of 2 x a_kv d elements. So x = (a_kv / a) itemsize / 2 R/W, and twice as much
    with the mask. Backward has 5/2 of the FLOPs and twice the bytes, and hides earlier. Latencies
    are left out. Liu et al. 2023 (arXiv 2310.01889), section 3, without grouped queries.
    """
    positive("rate", rate)
    positive("bandwidth", bandwidth)
    sent = 2 * spec.kv_heads * count("itemsize", itemsize)  # bytes for each token and number
    scores = FORWARD * spec.heads * (0.5 if causal else 1.0)  # FLOPs for each pair and number
    return sent / scores * rate / bandwidth


@checked
def ranks_for_ulysses(spec: TransformerSpec) -> int | None:
    """The fewest ranks that can share out the heads and send fewer bytes in a step than a ring.

    A ring sends n-1 blocks of keys and values forward; backward as many, and n of their gradients.
    Ulysses sends queries, results, keys and values of a / n, a / n and twice max(a_kv, n) / n heads
    to each other rank, together (n-1)/n (a + max(a_kv, n)) / a_kv blocks, in either pass. n divides
    a, and a_kv or a multiple of it. None: no number of ranks does.
    """
    a, kv = spec.heads, spec.kv_heads
    shares = (n for n in range(2, a + 1) if a % n == 0 and (n % kv == 0 or kv % n == 0))
    sends_less = (n for n in shares if 2 * (n - 1) * (a + max(kv, n)) < n * kv * (3 * n - 2))
    return next(sends_less, None)
