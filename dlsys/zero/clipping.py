"""Gradients of which every rank has a shard, clipped by the norm of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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
    """torch's clip_grad_norm_ for gradients of `shards`, which this rank alone has, and of `whole`,
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
    everything = [*shards, *whole]
    norms = comm.all_gather(_norm(shards, order)).split(1)
    norm = get_total_norm([*norms, _norm(whole, order)], order)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of order {order} of all ranks' gradients is {norm.item()}, so they "
            "cannot be clipped; error_if_nonfinite=False scales them by it anyway."
        )
    gradients = [p.grad for p in everything if p.grad is not None]
    if not any(g.dtype in (torch.float64, torch.complex128) for g in gradients):
        norm = norm.float()
    clip_grads_with_norm_(everything, most, norm)
    return norm


def _norm(parameters: Sequence[Tensor], order: float) -> Tensor:
    """The norm of their gradients together, (1,) in FP64; 0 of none."""
    device = parameters[0].device if parameters else torch.device("cpu")
    norms = [
        torch.linalg.vector_norm(
            p.grad, order, dtype=torch.complex128 if p.is_complex() else torch.float64
        )
        for p in parameters
        if p.grad is not None and p.grad.numel()
    ]
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return torch.linalg.vector_norm(torch.stack([*norms, zero]), order).reshape(1)
