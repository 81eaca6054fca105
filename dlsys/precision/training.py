"""The whole loop of training in mixed precision: backward, clip, step."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.precision.mixed import MixedPrecision


@checked
def train(
    mixed: MixedPrecision, losses: Iterable[Tensor], max_norm: float | None = None
) -> list[float]:
    """One step for each loss, with gradients clipped to `max_norm`: the whole loop.

    `losses` is a generator such as `(model(x, y) for x, y in batches)`, which computes each loss
    after the step before. Returns them as numbers.
    """
    if isinstance(losses, Tensor):  # which may be iterated, and is one loss
        refuse("losses", losses, "a generator of losses, or a list of one")
    found = []
    for loss in losses:
        mixed.backward(loss)
        if max_norm is not None:
            mixed.clip_grad_norm_(max_norm)
        mixed.step()
        mixed.zero_grad()
        found.append(float(loss.detach()))
    return found
