"""What autocast's FP32 list prevents: its operations with every step rounded to a short format.

Processors compute none of these so: within an operation they are wider than its inputs. It is what
would come of it if they did not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import finite, flag, fraction, refuse_what
from dlsys.precision.plan import Format
from dlsys.precision.rounding import round_to
from dlsys.precision.sums import accumulate
from dlsys.tensors import dense, of_shape


@checked
@torch.no_grad()
def softmax(scores: Tensor, fmt: Format, subtract_max: bool = True) -> Tensor:
    """exp(x) / sum exp(x) along the last dimension, each step in `fmt`; in FP64, in x's shape.

    Exponentials are at most 1 with the maximum subtracted; without, they are infinite from
    ln(max) on: 11.1 in FP16. Their sum stands still where each is below half its spacing.
    """
    flag("subtract_max", subtract_max)
    x = _rows("scores", scores, fmt)
    if subtract_max:
        x = round_to(x - x.amax(-1, keepdim=True), fmt)
    exponentials = round_to(x.exp(), fmt)
    return round_to(exponentials / _sum(exponentials, fmt)[..., None], fmt)


@checked
@torch.no_grad()
def variance(x: Tensor, fmt: Format) -> Tensor:
    """sum (x - mean)^2 / n along the last dimension, each step in `fmt`; (...) in FP64.

    A norm divides by its root. The sum is infinite from a deviation of sqrt(max / n) on, in FP16 4
    for n = 4,096, and zero below one of sqrt(min_subnormal / 2): 1.7e-4.
    """
    x = _rows("x", x, fmt)
    mean = round_to(_sum(x, fmt) / x.shape[-1], fmt)
    squares = round_to(x - mean[..., None], fmt).square()
    return round_to(_sum(squares, fmt) / x.shape[-1], fmt)


@checked
@torch.no_grad()
def moving_average(values: Tensor, beta: float, fmt: Format, start: float = 0.0) -> Tensor:
    """m <- beta m + (1 - beta) value, for each of `values` (n, ...) in turn, each step in `fmt`.

    Returns all m, (n, ...) in FP64. Adam's moments are such averages. m cannot fall where
    (1 - beta) m is below half its spacing: in BF16 that of beta = 0.999.
    """
    fraction("beta", beta)
    finite("start", start)
    dense("values", values)
    if not values.ndim or not values.is_floating_point() or values.is_meta:
        refuse_what("values", of_shape(values), "(n, ...) floating-point numbers on a device")
    averages = torch.empty(values.shape, dtype=torch.float64, device=values.device)
    m = torch.full(values.shape[1:], fmt.round(start), dtype=torch.float64, device=values.device)
    for into, value in zip(averages, values.double(), strict=True):
        old, new = round_to(beta * m, fmt), round_to((1 - beta) * round_to(value, fmt), fmt)
        m = round_to(old + new, fmt)
        into.copy_(m)
    return averages


def _sum(x: Tensor, fmt: Format) -> Tensor:
    """The sum over the last dimension, one number after the other, each rounded first."""
    return accumulate(x.movedim(-1, 0), fmt)[-1]


def _rows(name: str, x: Tensor, fmt: Format) -> Tensor:
    """x in `fmt`, as FP64."""
    dense(name, x)
    if not x.ndim or not x.shape[-1] or not x.is_floating_point() or x.is_meta:
        refuse_what(name, of_shape(x), "(..., n) floating-point numbers on a device")
    return round_to(x.double(), fmt)
