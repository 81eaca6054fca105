"""Gradients of which every rank has a shard, clipped by the norm of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import torch
from torch import Tensor

from dlsys.checks import flag, refuse
from dlsys.world import Communicator


@torch.no_grad()
def clip(
    comm: Communicator,
    shards: Sequence[Tensor],
    whole: Sequence[Tensor],
    max_norm: SupportsFloat,
    norm_type: SupportsFloat,
    error_if_nonfinite: bool,
) -> Tensor:
    """torch's clip_grad_norm_ for gradients: `shards`, which this rank alone has, and `whole` ones,
    which are the same on every rank of `comm`; returns the norm of them all.

    Every rank sends one number, the norm of its shards: the norm of these norms is that of all. In
    FP64. Raises RuntimeError on every rank for a norm that is not finite, where that is asked for.
    """
    most, order = float(max_norm), float(norm_type)
    if not most >= 0:
        refuse("max_norm", max_norm, "a number of at least 0")
    if not order > 0:
        refuse("norm_type", norm_type, "a number above zero, infinity included")
    flag("error_if_nonfinite", error_if_nonfinite)
    device = next((g.device for g in [*shards, *whole]), torch.device("cpu"))
    norms = comm.all_gather(_norm(shards, order, device)).split(1)
    norm = torch.linalg.vector_norm(torch.cat([*norms, _norm(whole, order, device)]), order)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of order {order} of all ranks' gradients is {norm.item()}, so they "
            "cannot be clipped; error_if_nonfinite=False scales them by it anyway."
        )
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for gradient in [*shards, *whole]:
        gradient.mul_(factor)
    kinds = {gradient.dtype for gradient in [*shards, *whole]}
    return norm if kinds & {torch.float64, torch.complex128} else norm.float()


def _norm(gradients: Sequence[Tensor], order: float, device: torch.device) -> Tensor:
    """The norm of these together, (1,) in FP64; 0 of none."""
    norms = [
        torch.linalg.vector_norm(
            g, order, dtype=torch.complex128 if g.is_complex() else torch.float64
        )
        for g in gradients
        if g.numel()
    ]
    norms.append(torch.zeros((), dtype=torch.float64, device=device))
    return torch.linalg.vector_norm(torch.stack(norms), order).reshape(1)
