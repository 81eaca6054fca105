"""The gradient noise scale: how large a batch still pays, from what data parallelism has at hand.

McCandlish et al. 2018, An Empirical Model of Large-Batch Training (arXiv 1812.06162).
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, positive


@dataclass(frozen=True)
class NoiseScale:
    """Estimates: `gradient_square`, of |G|^2 of the true gradient; `trace`, of tr(Sigma).

    Sigma is the covariance of one sample's gradient. Each estimate is unbiased, and can be below
    zero where there was little data; their ratio is not unbiased.
    """

    gradient_square: float
    trace: float

    @property
    def simple(self) -> float:
        """B_simple = tr(Sigma) / |G|^2, in samples: at this batch noise and gradient are equal."""
        return self.trace / self.gradient_square if self.gradient_square > 0 else float("inf")


@checked
def noise_scale(
    small_batch: float, small_square: float, large_batch: float, large_square: float
) -> NoiseScale:
    """The noise scale from mean squared gradient norms at two batch sizes.

    E|G_B|^2 = |G|^2 + tr(Sigma)/B at any batch size B, so two of them give both unknowns:
    |G|^2 = (B_l |G_l|^2 - B_s |G_s|^2) / (B_l - B_s) and
    tr(Sigma) = (|G_s|^2 - |G_l|^2) / (1/B_s - 1/B_l). Average the squares over many steps first.
    Batches in samples. Raises ValueError unless 0 < small_batch < large_batch. Appendix A.1.
    """
    positive("small_batch", small_batch)
    positive("large_batch", large_batch)
    at_least("small_square", small_square, 0)
    at_least("large_square", large_square, 0)
    if not large_batch > small_batch:
        raise ValueError(
            f"large_batch is {large_batch!r} and small_batch {small_batch!r}; the noise shows in "
            "the difference between two sizes: the large one must be larger."
        )
    # Appendix A.1: two lines |G|^2 + tr(Sigma)/B through the two points give both unknowns.
    square = (large_batch * large_square - small_batch * small_square) / (large_batch - small_batch)
    trace = (small_square - large_square) / (1 / small_batch - 1 / large_batch)
    return NoiseScale(square, trace)


@checked
@dataclass(frozen=True)
class BatchTradeoff:
    """What reaching one loss takes at a batch of B samples, between two extremes.

    steps = S_min (1 + B_crit/B) and samples E = E_min (1 + B/B_crit), with B_crit = E_min / S_min;
    hence (S/S_min - 1)(E/E_min - 1) = 1, equation 2.11. At B = B_crit both are twice their
    minimum: below, a larger batch saves steps almost for free; above, samples are spent for little.
    The noise scale is an estimate of B_crit.
    """

    least_steps: float
    least_samples: float

    def __post_init__(self) -> None:
        positive("least_steps", self.least_steps)
        positive("least_samples", self.least_samples)

    @property
    def critical_batch(self) -> float:
        """B_crit = E_min / S_min, in samples."""
        return self.least_samples / self.least_steps

    @checked
    def steps(self, batch: float) -> float:
        """Optimizer steps at this batch (time, where ranks are free): S_min (1 + B_crit/B)."""
        positive("batch", batch)
        return self.least_steps * (1 + self.critical_batch / batch)

    @checked
    def samples(self, batch: float) -> float:
        """Samples at this batch (cost): steps x batch."""
        return self.steps(batch) * batch
