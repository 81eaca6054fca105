"""What accumulation has at hand to measure the gradient noise scale: gradients of the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.training_loop.clipping import global_norm


@checked
def gradient_squares(
    loss_of: Callable[[Any], Tensor], model: nn.Module, micro_batches: Sequence[Any]
) -> tuple[float, float]:
    """(mean of |g_i|^2, |mean of g_i|^2) over the gradients g_i of micro-batches of one size.

    A gradient of B samples has E|g_B|^2 = |G|^2 + tr(Sigma) / B, so that both together give the
    noise scale tr(Sigma) / |G|^2: hand them to `data_parallel.noise_scale`. McCandlish et al. 2018
    (arXiv 1812.06162), appendix A.1. Raises ValueError for fewer than two micro-batches.
    """
    if len(micro_batches) < 2:
        refuse_what("micro_batches", f"{len(micro_batches)} of them", "two at least")
    parameters = [p for p in model.parameters() if p.requires_grad]
    mean = [torch.zeros_like(p) for p in parameters]
    small = 0.0
    for part in micro_batches:
        gradients = torch.autograd.grad(loss_of(part), parameters)
        small += global_norm(gradients) ** 2 / len(micro_batches)
        for total, gradient in zip(mean, gradients, strict=True):
            total += gradient / len(micro_batches)
    return small, global_norm(mean) ** 2
