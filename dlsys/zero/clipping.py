"""Gradients of which every rank has a shard, clipped by the norm of them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import SupportsFloat

import torch
from torch import Tensor

from dlsys.checks import refuse
from dlsys.world import Communicator


@torch.no_grad()
def clip(
    comm: Communicator, shards: Sequence[Tensor], whole: Sequence[Tensor], max_norm: SupportsFloat
) -> Tensor:
    """torch's clip_grad_norm_ for gradients: `shards`, which this rank alone has, and `whole` ones,
    which are the same on every rank of `comm`; returns the norm of them all.

    Every rank sends one number, the norm of its shards: the norm of these norms is that of all.
    """
    try:
        most = math.nan if isinstance(max_norm, str | bytes) else float(max_norm)
    except (TypeError, ValueError, OverflowError):
        most = math.nan
    if not most >= 0:
        refuse("max_norm", max_norm, "a number of at least 0")
    each = [*shards, *whole]
    device = each[0].device if each else torch.device("cpu")
    norms = comm.all_gather(_norm(shards, device))
    norm = torch.linalg.vector_norm(torch.cat([norms, _norm(whole, device)]))
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for gradient in each:
        gradient.mul_(factor)
    return norm if any(gradient.dtype == torch.float64 for gradient in each) else norm.float()


def _norm(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """The norm of these together, (1,) in FP64; 0 of none."""
    norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
    norms.append(torch.zeros((), dtype=torch.float64, device=device))
    return torch.linalg.vector_norm(torch.stack(norms)).reshape(1)
