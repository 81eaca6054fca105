"""Underflow and lost updates: gradients that become zero, updates that change nothing, counted."""

from __future__ import annotations

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import positive, refuse_what
from dlsys.precision.plan import Format, Mode
from dlsys.precision.rounding import round_to
from dlsys.tensors import dense, of_shape


@checked
@torch.no_grad()
def flushed(x: Tensor, fmt: Format, factor: float = 1.0) -> float:
    """The share of numbers other than 0 that are 0 in `fmt`, multiplied by `factor` first.

    |factor x| < min_subnormal / 2, which is 3e-8 in FP16. Where x has none but zeros, 0.
    """
    positive("factor", factor)
    x = _numbers("x", x)
    some = x[x != 0]
    return float((round_to(some * factor, fmt) == 0).double().mean()) if some.numel() else 0.0


@checked
@torch.no_grad()
def stuck(
    weights: Tensor,
    updates: Tensor,
    fmt: Format,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
) -> float:
    """The share of updates other than 0 that leave their weight, rounded to `fmt`, where it is.

    To nearest: those below half the spacing q of the weight, from |w| 2^-(m+2) to |w| 2^-(m+1);
    down from a power of two, below which numbers lie closer, those below a quarter.
    """
    w, u = _numbers("weights", weights), _numbers("updates", updates)
    if w.shape != u.shape:
        refuse_what("updates", of_shape(updates), f"of the weights' shape, {tuple(w.shape)}")
    w = round_to(w, fmt)[u != 0]
    moved = round_to(w + u[u != 0], fmt, mode, generator) != w
    return float(1 - moved.double().mean()) if w.numel() else 0.0


def _numbers(name: str, x: Tensor) -> Tensor:
    """x in FP64, in which a product with a factor and a sum with an update are exact enough."""
    dense(name, x)
    if not x.is_floating_point() or x.is_meta:
        refuse_what(name, of_shape(x), "floating-point numbers, on a device that holds them")
    return x.double()
