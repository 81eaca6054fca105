"""A quantized tensor in memory: codes of 4 or 8 bits, two to a byte where they fit, and scales."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.precision.block_formats import Block
from dlsys.precision.blocks import Quantized, quantize
from dlsys.precision.plan import Format, Integer, PowerOfTwo
from dlsys.precision.rounding import decode, encode


class Packed(nn.Module):
    """x quantised to `block`, in as many bytes as that takes; buffers that a state_dict holds.

    Raises ValueError for elements of another size than 4 or 8 bits, scales of another than 8 or 32,
    and what `quantize` refuses.
    """

    codes: Tensor
    scales: Tensor
    tensor_scale: Tensor

    @checked
    def __init__(self, x: Tensor, block: Block) -> None:
        super().__init__()
        if block.format.bits not in (4, 8) or block.scale.bits not in (8, 32):
            refuse_what("block", f"{block}", "of 4 or 8 bits, with scales of 8 or 32")
        found = quantize(x, block)
        self.block, self.shape = block, found.elements.shape
        codes = _codes(found.elements, block.format).flatten()
        if block.format.bits == 4:
            # The first of two in the low half of a byte; a last one alone has zeros beside it.
            pairs = torch.cat([codes, codes.new_zeros(len(codes) % 2)])
            codes = pairs[0::2] | pairs[1::2] << 4
        self.register_buffer("codes", codes)
        self.register_buffer("scales", _scale_codes(found.scales, block.scale))
        self.register_buffer("tensor_scale", found.tensor_scale if block.tensor_scale else None)

    def dequantize(self) -> Tensor:
        """The numbers that the bytes stand for, in FP32, in the shape of x."""
        codes = self.codes
        if self.block.format.bits == 4:
            codes = torch.stack([codes & 15, codes >> 4], -1).flatten()[: self.shape.numel()]
        elements = _elements(codes, self.block.format).view(self.shape)
        scales = _scales(self.scales, self.block.scale)
        tensor_scale = torch.ones(()) if self.tensor_scale is None else self.tensor_scale
        return Quantized(elements, scales, tensor_scale, self.block).dequantize()

    @property
    def nbytes(self) -> int:
        """What its buffers take, in bytes."""
        return sum(buffer.nbytes for buffer in self.buffers())


def _codes(elements: Tensor, fmt: Format | Integer) -> Tensor:
    """Bits of elements, one to a byte; whole numbers in two's complement."""
    elements = elements.nan_to_num(nan=0.0)  # their block's scale is NaN, and says it for all
    if isinstance(fmt, Format):
        return encode(elements, fmt)
    return (elements.long() & (2**fmt.bits - 1)).to(torch.uint8)


def _elements(codes: Tensor, fmt: Format | Integer) -> Tensor:
    if isinstance(fmt, Format):
        return decode(codes, fmt)
    whole = codes.float()
    return torch.where(whole > fmt.max, whole - 2**fmt.bits, whole)


def _scale_codes(scales: Tensor, fmt: Format | PowerOfTwo) -> Tensor:
    if isinstance(fmt, PowerOfTwo):
        powers = torch.frexp(scales).exponent - 1 + fmt.bias
        return torch.where(scales.isnan(), 255, powers).to(torch.uint8)
    return scales if fmt.bits == 32 else encode(scales, fmt)


def _scales(codes: Tensor, fmt: Format | PowerOfTwo) -> Tensor:
    if isinstance(fmt, PowerOfTwo):
        powers = (codes.long() - fmt.bias + 1023 << 52).view(torch.float64)  # an exponent field
        return torch.where(codes == 255, torch.nan, powers).float()
    return codes if fmt.bits == 32 else decode(codes, fmt)
