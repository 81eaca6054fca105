"""Clipping by the global norm, with the look at it that has to come first."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import positive, refuse
from dlsys.tensors import of_numbers


@checked
def global_norm(tensors: Iterable[Tensor]) -> float:
    """The length of all of them as one vector: sqrt(sum of squares); inf or NaN where one is."""
    squares = []
    for each in _tensors("tensors", tensors):
        of_numbers("tensors: one", each)
        squares.append(each.detach().double().square().sum())
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


@checked
@torch.no_grad()
def clip_or_refuse(parameters: Iterable[Tensor], max_norm: float) -> tuple[float, bool]:
    """(norm of all gradients, whether the step may be taken); gradients above are scaled down.

    g <- g max_norm / norm where the norm is larger, one factor for all: shorter, and as before in
    direction. Where the norm is infinite or NaN nothing is changed and the step is to be skipped:
    the factor would be 0 or NaN, and 0 x inf is NaN. Pascanu et al. 2013 (arXiv 1211.5063).
    """
    positive("max_norm", max_norm)
    gradients = [p.grad for p in _tensors("parameters", parameters) if p.grad is not None]
    norm = global_norm(gradients)
    if not math.isfinite(norm):
        return norm, False
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm, True


def _tensors(name: str, given: Iterable[Tensor]) -> list[Tensor]:
    found = [] if isinstance(given, Tensor) else list(given)
    if isinstance(given, Tensor) or not all(isinstance(each, Tensor) for each in found):
        refuse(name, given, "a sequence, of a Tensor each")
    return found
