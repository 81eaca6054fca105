"""Block scaling: numbers that share a scale, a tensor's, a block's, or one from steps before.

x is kept as element x scale, where scale = max |x| / largest element, so that a short format's few
numbers lie where those of x are.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.annotated import checked
from dlsys.checks import count, refuse_what
from dlsys.precision.block_formats import Block
from dlsys.precision.plan import Format, Integer, Mode, PowerOfTwo
from dlsys.precision.rounding import round_to
from dlsys.tensors import of_numbers, of_shape


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor as elements and scales, all in FP32.

    `elements`, in the tensor's shape, are numbers of the element format. `scales` are of shape
    (..., ceil(n / size)) for blocks of `size` along the last dimension, n long, and as much shorter
    in the one before where blocks have several rows; one for a tensor without blocks.
    `tensor_scale` multiplies all.
    """

    elements: Tensor
    scales: Tensor
    tensor_scale: Tensor
    fmt: Format | Integer | Block

    def dequantize(self) -> Tensor:
        """element x scale x tensor scale, in FP32."""
        scales = self.scales * self.tensor_scale
        if isinstance(self.fmt, Block):
            scales = _over(scales, self.fmt, self.elements)
        return self.elements * scales

    @property
    def nbytes(self) -> int:
        """What elements and scales take in their own formats, in bytes."""
        if not isinstance(self.fmt, Block):
            return math.ceil(self.elements.numel() * self.fmt.bits / 8) + 4
        bits = self.elements.numel() * self.fmt.format.bits
        bits += self.scales.numel() * self.fmt.scale.bits
        return math.ceil(bits / 8) + 4 * self.fmt.tensor_scale


@checked
@torch.no_grad()
def quantize(
    x: Tensor,
    fmt: Format | Integer | Block,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
) -> Quantized:
    """x as elements and scales: one scale for the tensor, or one for each of a Block's blocks.

    Scales are numbers of the block's scale format, FP32 for a whole tensor; elements are rounded as
    by `round_to`, and saturate. A block with infinity or NaN is NaN as a whole, one of zeros has
    zeros. No gradient flows. Raises ValueError for anything but floating-point tensors.
    """
    x = _wide(x)
    if not isinstance(fmt, Block):
        return _scaled(x, fmt, _largest(x) / fmt.max, mode, generator)
    if x.ndim < (2 if fmt.rows > 1 else 1):
        needed = "two dimensions" if fmt.rows > 1 else "one dimension"
        refuse_what("x", of_shape(x), f"of at least {needed}, which blocks lie along")
    largest = _in_blocks(x, fmt.size).abs().amax(-1)
    if fmt.rows > 1:
        largest = _in_blocks(largest.mT, fmt.rows).amax(-1).mT
    tensor_scale = _tensor_scale(largest, fmt)
    scales = _scales(largest / tensor_scale, fmt)
    divisor = _over(scales * tensor_scale, fmt, x)
    elements = round_to(_divided(x, divisor), fmt.format, mode, generator, saturate=True)
    return Quantized(elements.float(), scales.float(), tensor_scale.float(), fmt)


class DelayedScaling:
    """A scale for a tensor from its largest elements in the steps before, not in this one.

    scale = max over `history` steps of max |x|, / the format's largest number, times 2^margin; 1
    in the first step. So a tensor is read once, and what has grown since saturates. Make one for
    each tensor of a step. Source: NVIDIA Transformer Engine, recipe DelayedScaling.
    """

    @checked
    def __init__(self, fmt: Format | Integer, history: int = 16, margin: int = 0) -> None:
        self.fmt = fmt
        self.margin = count("margin", margin, 0, 100)
        self.largest: deque[float] = deque(maxlen=count("history", history))

    @property
    def scale(self) -> float:
        """That the next tensor is divided by."""
        seen = max(self.largest, default=0.0)
        return seen / self.fmt.max * 2.0**self.margin if seen else 1.0

    @checked
    @torch.no_grad()
    def quantize(
        self, x: Tensor, mode: Mode = "nearest", generator: torch.Generator | None = None
    ) -> Quantized:
        """x by the scale of the steps before; its own largest element counts from the next on.

        One that is infinite or NaN does not count: the step that had it is no measure.
        """
        x = _wide(x)
        result = _scaled(x, self.fmt, x.new_tensor(self.scale), mode, generator)
        largest = float(_largest(x))
        if math.isfinite(largest):
            self.largest.append(largest)
        return result


def _wide(x: Tensor) -> Tensor:
    """x in at least FP32, which holds every element and every scale."""
    of_numbers("x", x)
    return x if x.dtype == torch.float64 else x.float()


def _scaled(
    x: Tensor,
    fmt: Format | Integer,
    scale: Tensor,
    mode: Mode,
    generator: torch.Generator | None,
) -> Quantized:
    """x with one scale, 1 where x is zero."""
    scale = torch.where(scale == 0, 1.0, scale).float()
    elements = round_to(x / scale, fmt, mode, generator, saturate=True)
    return Quantized(elements.float(), scale, torch.ones(()), fmt)


def _largest(x: Tensor) -> Tensor:
    return x.abs().amax() if x.numel() else x.new_zeros(())


def _in_blocks(x: Tensor, size: int) -> Tensor:
    """(..., n) as (..., ceil(n / size), size), zeros at the end."""
    blocks = -(-x.shape[-1] // size)
    return F.pad(x, (0, blocks * size - x.shape[-1])).unflatten(-1, (blocks, size))


def _over(scales: Tensor, fmt: Block, x: Tensor) -> Tensor:
    """Each block's scale at each of its elements, in the shape of x."""
    scales = scales.repeat_interleave(fmt.size, -1)[..., : x.shape[-1]]
    if fmt.rows > 1:
        scales = scales.repeat_interleave(fmt.rows, -2)[..., : x.shape[-2], :]
    return scales


def _divided(x: Tensor, by: Tensor) -> Tensor:
    """x / by; zero where `by` is, which a scale too small for its format has become."""
    return torch.where(by == 0, 0.0, x / by)


def _tensor_scale(largest: Tensor, fmt: Block) -> Tensor:
    """The scale that makes the largest of all scales the largest number of their format."""
    if not fmt.tensor_scale or isinstance(fmt.scale, PowerOfTwo):
        return largest.new_ones(())
    scale = (_largest(largest) / (fmt.format.max * fmt.scale.max)).float()
    return torch.where(scale == 0, 1.0, scale)


def _scales(largest: Tensor, fmt: Block) -> Tensor:
    """The scale of each block, from its largest element."""
    if isinstance(fmt.scale, Format):
        return round_to(largest / fmt.format.max, fmt.scale)
    # Section 6.3: 2^(floor(log2 max |x|) - the exponent of the largest element).
    fraction, exponent = torch.frexp(largest.clamp_min(torch.finfo(torch.float32).tiny))
    power = exponent.long() - 1 - fmt.format.largest_exponent
    if fmt.scale_up:
        power += fraction > math.frexp(fmt.format.max)[0]
    bias = fmt.scale.bias
    bits = power.clamp_(-bias, bias) + 1023 << 52  # the exponent field of an FP64 number
    return torch.where(largest.isfinite(), bits.view(torch.float64).to(largest.dtype), math.nan)
