"""LoRA on weights in 4 bits, QLoRA: they are frozen, and learn through two thin matrices beside.

y = x W4^T + scale (x A^T) B^T with A (rank, in) and B (out, rank) in BF16, of which B begins at
zero. Nothing ever updates W4, so that no update can round away in it. Dettmers et al. 2023, QLoRA
(arXiv 2305.14314), after Hu et al. 2021, LoRA (arXiv 2106.09685). QLoRA's own 4 bits, NF4, are
levels at a bell curve's quantiles; here any block format will do.
"""

from __future__ import annotations

import zlib
from fnmatch import fnmatch
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dlsys.annotated import checked
from dlsys.checks import at_least, count, refuse, whole
from dlsys.precision.block_formats import NVFP4, Block
from dlsys.precision.packed import Packed
from dlsys.tensors import features


@checked
def add_lora(
    module: nn.Module,
    block: Block = NVFP4,
    rank: int = 8,
    scale: float = 2.0,
    high: tuple[str, ...] = ("head",),
    seed: int = 0,
) -> nn.Module:
    """The module with its weights frozen, those of nn.Linear in `block`, each with a LoRA.

    Layers whose names match a pattern of `high` are frozen as they are. Raises ValueError for a
    module that is, or has, no nn.Linear inside.
    """
    linears = {n: m for n, m in module.named_modules() if n and type(m) is nn.Linear}
    if not linears:
        refuse("module", module, "one with nn.Linear layers in it")
    module.requires_grad_(False)
    for name, linear in linears.items():
        if not any(fnmatch(name, pattern) for pattern in high):
            own = zlib.crc32(f"{whole('seed', seed)} {name}".encode())
            module.set_submodule(name, LoRALinear(linear, block, rank, scale, own))
    return module


class LoRALinear(nn.Module):
    """A linear layer's frozen weights in `block`, and a LoRA of `rank` that learns.

    Only the packed weights are kept between forward and backward, which unpacks them again.
    """

    @checked
    def __init__(
        self,
        linear: nn.Linear,
        block: Block = NVFP4,
        rank: int = 8,
        scale: float = 2.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        at_least("scale", scale, 0)
        rows, columns = linear.weight.shape
        rank = count("rank", rank, 1, min(rows, columns))
        self.packed, self.scale, self.in_features = Packed(linear.weight, block), scale, columns
        self.bias = linear.bias
        stream = torch.Generator().manual_seed(whole("seed", seed))
        down = torch.randn(rank, columns, generator=stream) / columns**0.5
        self.down = nn.Parameter(down.bfloat16())
        self.up = nn.Parameter(torch.zeros(rows, rank, dtype=torch.bfloat16))

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        features("x", x, self.in_features)
        y = cast(Tensor, _Frozen.apply(x, self.packed))
        y = y + self.scale * (x @ self.down.to(x.dtype).mT) @ self.up.to(x.dtype).mT
        return y if self.bias is None else y + self.bias

    def merged(self) -> Tensor:
        """W4 + scale B A (out, in) in FP32: the weights that the layer multiplies by."""
        return self.packed.dequantize() + self.scale * self.up.float() @ self.down.float()


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Packed) -> Tensor:
        ctx.packed = packed
        return x @ packed.dequantize().to(x.dtype).mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient @ ctx.packed.dequantize().to(gradient.dtype), None
