"""Model state in mixed precision training, bucket by bucket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MixedState:
    """Bytes of each bucket, counted from storages, each once and in full.

    `unscaled` are the FP32 gradients, from `unscale_` to the end of `step`; `steps` the counters of
    steps, which formulas leave out.
    """

    weights: int
    gradients: int
    master: int
    moments: int
    unscaled: int = 0
    steps: int = 0

    @property
    def total(self) -> int:
        """Bytes of all buckets; counters of steps are in none."""
        return self.weights + self.gradients + self.master + self.moments + self.unscaled
