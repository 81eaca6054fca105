"""A convolution as one product: torch's result, and many times the bytes of a kernel of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse_what
from dlsys.roofline.plan import output_side
from dlsys.tensors import of_numbers, of_shape


@checked
def im2col(x: Tensor, kernel: int, stride: int = 1, padding: int = 0) -> Tensor:
    """x (b, c, h, w) -> (b, c k k, places): under each place of a k x k kernel, what it sees.

    Each input number is written up to k^2 times. Raises ValueError where the kernel does not fit.
    """
    of_numbers("x", x)
    if x.dim() != 4 or not x.numel():
        refuse_what("x", of_shape(x), "(b, c, h, w) numbers")
    padding = count("padding", padding, least=0, most=max(x.shape[2:]))
    high, wide = (output_side(side, kernel, stride, padding) for side in x.shape[2:])
    batch, channels = x.shape[:2]
    padded = torch.nn.functional.pad(x, (padding,) * 4)
    seen = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (b, c, h', w', k, k)
    columns = seen.permute(0, 1, 4, 5, 2, 3)
    return columns.reshape(batch, channels * kernel * kernel, high * wide)


@checked
def conv2d(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """torch's conv2d with square kernels, as one product: weight (f, c k k) times `im2col(x)`.

    x (b, c, h, w), weight (f, c, k, k) -> (b, f, h', w'). Raises ValueError where they do not fit.
    """
    of_numbers("weight", weight)
    fits = weight.dim() == 4 and weight.shape[2] == weight.shape[3]
    if not fits or x.dim() != 4 or weight.shape[1] != x.shape[1]:
        refuse_what("weight", of_shape(weight), f"(f, c, k, k) for x {of_shape(x)}, whose c it has")
    kernel = weight.shape[2]
    out = weight.flatten(1) @ im2col(x, kernel, stride, padding)
    high = output_side(x.shape[2], kernel, stride, padding)
    return out.unflatten(2, (high, -1))
