"""Gradients of which every rank has a shard, clipped by the norm of them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from dlsys.checks import flag, refuse
from dlsys.world import Communicator


def bounds(max_norm: Any, norm_type: Any, error_if_nonfinite: object) -> tuple[float, float]:
    """The most that a norm may be, and its order, infinity too; raises ValueError for others."""
    most, order = _from_zero("max_norm", max_norm), _from_zero("norm_type", norm_type)
    if not order:
        refuse("norm_type", norm_type, "above zero")
    flag("error_if_nonfinite", error_if_nonfinite)
    return most, order


def _from_zero(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, SupportsFloat) or not float(value) >= 0:
        refuse(name, value, "a number of at least 0")
    return float(value)


@torch.no_grad()
def clip(
    comm: Communicator,
    shards: Sequence[Tensor],
    whole: Sequence[Tensor],
    device: torch.device,
    max_norm: float,
    order: float,
    error_if_nonfinite: bool,
) -> Tensor:
    """Scale gradients so that their norm is `max_norm` at most, as torch's clip_grad_norm_ does;
    returns it. `shards` are this rank's alone, what is `whole` is the same on every rank of `comm`.

    Raises RuntimeError on every rank for a norm that is not finite, where that is asked for.
    """
    norm = global_norm(comm, shards, whole, device, order)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of order {order} of all ranks' gradients is {norm.item()}, so they "
            "cannot be clipped; error_if_nonfinite=False scales them by it anyway."
        )
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    gradients = [*shards, *whole]
    for each in {gradient.device for gradient in gradients}:
        torch._foreach_mul_([g for g in gradients if g.device == each], factor.to(each))
    return norm


def global_norm(
    comm: Communicator,
    shards: Sequence[Tensor],
    whole: Sequence[Tensor],
    device: torch.device,
    order: float,
) -> Tensor:
    """The norm of all ranks' shards, and of what is whole once, as of one vector.

    A norm of norms: every rank sends one number. It is computed in FP64, and an FP32 number unless
    a gradient is wider.
    """
    every = comm.all_gather(_norm(shards, device, order))
    norm = torch.linalg.vector_norm(torch.cat([every, _norm(whole, device, order)]), order)
    kinds = {gradient.dtype for gradient in (*shards, *whole)}
    return norm if kinds & {torch.float64, torch.complex128} else norm.float()


def _norm(tensors: Sequence[Tensor], device: torch.device, order: float) -> Tensor:
    """The norm of these together, (1,) in FP64; 0 of none."""
    wide = {True: torch.complex128, False: torch.float64}
    some = [tensor for tensor in tensors if tensor.numel()]
    norms = [torch.linalg.vector_norm(t, order, dtype=wide[t.is_complex()]) for t in some]
    norms.append(torch.zeros((), dtype=torch.float64))
    return torch.linalg.vector_norm(torch.stack([n.to(device) for n in norms]), order).reshape(1)
