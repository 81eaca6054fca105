"""Straight-through rounding inside a network: forward to one format, gradients to another.

Rounding is flat between its steps: its true derivative is zero, and nothing would learn. Straight
through, y = round(x) has the gradient dx = dy (Bengio et al. 2013, arXiv 1308.3432).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dlsys.annotated import checked
from dlsys.precision.block_formats import Block
from dlsys.precision.blocks import quantize
from dlsys.precision.plan import Format, Integer, Mode
from dlsys.precision.rounding import round_to
from dlsys.tensors import dense


def cast(
    x: Tensor,
    fmt: Format | Integer | Block | None,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
    scaled: bool = True,
) -> Tensor:
    """x as its short form reads again, in x's type: with scales, or rounded as it is; None: x."""
    if fmt is None:
        return x
    if isinstance(fmt, Block) or scaled:
        return quantize(x, fmt, mode, generator).dequantize().to(x.dtype)
    # Beyond a format's largest number lies what the format has there: infinity, or NaN.
    return round_to(x.float(), fmt, mode, generator).to(x.dtype)


@checked
def straight_through(
    x: Tensor,
    forward: Format | Integer | Block | None = None,
    backward: Format | Integer | Block | None = None,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
    scaled: bool = True,
) -> Tensor:
    """x quantised to `forward`; its gradient is that of the result, quantised to `backward`.

    None passes what comes. `mode` and `generator` are the gradient's; x is rounded to nearest.
    `scaled` as in LinearRecipe: one scale for a tensor, or none. Raises ValueError for anything
    but a tensor of floating-point numbers.
    """
    dense("x", x)
    result: Tensor = _StraightThrough.apply(x, forward, (backward, mode, generator, scaled))
    return result


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, fmt: Any, backward: Any) -> Tensor:
        ctx.backward_cast = backward
        return cast(x, fmt, scaled=backward[-1]).view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return cast(gradient, *ctx.backward_cast), None, None
