"""Laws of the loop: what an update costs in tokens, and the critical batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, positive, refuse, refuse_what, some


@checked
def update_tokens(
    bytes_per_parameter: float, peak_flops: float, memory_bandwidth: float, utilization: float = 1.0
) -> float:
    """The law: an update takes as long as this many tokens do, whatever the size of the model.

    A token takes 6 FLOPs a parameter, an update some bytes a parameter (28 for AdamW in FP32):
    tokens = bytes / W x R eta / 6. At t tokens a step the update takes 1 / (1 + t / tokens) of it;
    accumulation over k micro-batches divides it by about k. It leaves out attention scores, which
    make a token dearer, so that the update's true share is smaller.

    Args: `memory_bandwidth` W in bytes/s; `peak_flops` R and `utilization` eta of the passes.
    """
    at_least("bytes_per_parameter", bytes_per_parameter, 0)
    positive("peak_flops", peak_flops)
    positive("memory_bandwidth", memory_bandwidth)
    positive("utilization", utilization)
    if utilization > 1:
        refuse("utilization", utilization, "at most 1")
    tokens = bytes_per_parameter / memory_bandwidth * peak_flops * utilization / 6
    at_least("The tokens, by bytes_per_parameter,", tokens, 0)
    return tokens


@checked
def update_share(tokens: float, as_tokens: float) -> float:
    """The part of a step of so many tokens that its update takes: 1 / (1 + tokens / as_tokens)."""
    positive("tokens", tokens)
    at_least("as_tokens", as_tokens, 0)
    return as_tokens / (as_tokens + tokens)


class Extremes(NamedTuple):
    """The fewest steps to one loss, at any batch, and the fewest samples."""

    least_steps: float
    least_samples: float

    @property
    def critical_batch(self) -> float:
        """least_samples / least_steps: the batch at which a run takes twice of both."""
        return self.least_samples / self.least_steps


@checked
def fit_extremes(batches: Sequence[float], steps: Sequence[float]) -> Extremes:
    """What runs to one loss at several batches say: steps = S_min + E_min / batch.

    E_min is the samples of very small batches. Least squares with errors in proportion to the
    steps: each run counts alike. McCandlish et al. 2018 (arXiv 1812.06162), eq. 2.11. Raises
    ValueError for fewer than two batches, or where steps do not fall as batches grow.
    """
    some("batches", batches)
    if len(batches) != len(steps) or len(set(batches)) < 2:
        refuse_what("batches", f"{len(batches)} for {len(steps)} steps", "as many, two at least")
    for name, values in (("batches", batches), ("steps", steps)):
        for value in values:
            positive(name, value)
    # Divided by steps: 1 = S_min (1 / s) + E_min (1 / (s B)), two normal equations.
    rows = [(1 / s, 1 / (s * b)) for b, s in zip(batches, steps, strict=True)]
    xx, xy, yy = (math.fsum(a[i] * a[j] for a in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    x, y = (math.fsum(a[i] for a in rows) for i in (0, 1))
    whole = xx * yy - xy * xy
    least_steps, least_samples = (x * yy - y * xy) / whole, (y * xx - x * xy) / whole
    if least_steps <= 0 or least_samples <= 0:
        refuse("steps", list(steps), "fewer at larger batches, but less than in proportion")
    return Extremes(least_steps, least_samples)


@checked
def useful_micro_batches(critical_batch: float, micro_batch: float) -> int:
    """How many micro-batches, on so many ranks or one after the other, make the critical batch.

    At B_crit a run takes twice the fewest samples, in twice the fewest steps. Ranks side by side
    shorten a run up to about there. One device that accumulates pays for every sample in time: its
    run of S_min + E_min / B steps of B + u samples, where the update is worth u, is shortest at
    B = sqrt(u B_crit), which lies far below.
    """
    positive("critical_batch", critical_batch)
    positive("micro_batch", micro_batch)
    number = critical_batch / micro_batch
    at_least("The number, by critical_batch,", number, 0)
    return max(1, round(number))
