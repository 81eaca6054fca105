"""Linear layers in FP8 and FP4: their three matrix products in short formats, in training.

The operands are rounded bit by bit and multiplied in FP32, as a tensor core with FP32 accumulators
does it: products of two numbers of at most 8 bits are exact there.
"""

from __future__ import annotations

import math
import zlib
from fnmatch import fnmatch
from typing import Any
from typing import cast as as_type

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dlsys.annotated import checked
from dlsys.checks import refuse, whole
from dlsys.precision.block_formats import Block
from dlsys.precision.blocks import DelayedScaling
from dlsys.precision.casting import cast
from dlsys.precision.plan import Format, Integer, Mode
from dlsys.precision.recipe import LinearRecipe
from dlsys.tensors import features


@checked
def quantize_linears(module: nn.Module, recipe: LinearRecipe, seed: int = 0) -> nn.Module:
    """The module, in which each nn.Linear has become a QuantizedLinear of the same parameters.

    Parameters keep their names and, where they are tied, stay so. Layers that the recipe's `high`
    names stay. Stochastic rounding draws from `seed` and the layer's name alone. Raises ValueError
    for a module that has no nn.Linear.
    """
    seed = whole("seed", seed)
    linears = {n: m for n, m in module.named_modules() if type(m) in (nn.Linear, QuantizedLinear)}
    if not linears:
        refuse("module", module, "one with nn.Linear layers")
    for name, linear in linears.items():
        if any(fnmatch(name, pattern) for pattern in recipe.high):
            continue
        new = QuantizedLinear(linear, recipe, zlib.crc32(f"{seed} {name}".encode()))
        if not name:
            return new
        module.set_submodule(name, new)
    return module


class QuantizedLinear(nn.Linear):
    """y = x W^T + b with the products of a LinearRecipe; takes over the parameters of `linear`.

    A product's two operands are quantised along the dimension it sums over: x and W along `in` for
    y = x W^T, dy and W along `out` for dx = dy W, dy and x along tokens for dW = dy^T x. The bias
    and its gradient are not quantised.
    """

    @checked
    def __init__(self, linear: nn.Linear, recipe: LinearRecipe, seed: int = 0) -> None:
        bias = linear.bias is not None
        super().__init__(linear.in_features, linear.out_features, bias, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.recipe = recipe
        generator = torch.Generator().manual_seed(whole("seed", seed))
        self.inputs = _Operand(recipe.inputs, recipe)
        self.weights = _Operand(recipe.weights, recipe)
        mode: Mode = "stochastic" if recipe.stochastic else "nearest"
        self.gradients = _Operand(recipe.gradients, recipe, mode, generator)
        self.mix = _hadamard(recipe.hadamard, generator) if recipe.hadamard else None

    @checked
    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) -> (..., out)."""
        features("x", x, self.in_features)
        y = multiply(x, self.weight, self)
        return y if self.bias is None else y + self.bias


def multiply(x: Tensor, weight: Tensor, layer: QuantizedLinear) -> Tensor:
    """x (..., in) times the transpose of `weight` (out, in), quantised as `layer` does it."""
    return as_type(Tensor, _Products.apply(x, weight, layer))


class _Operand:
    """One of a layer's three tensors, and how it is quantised."""

    def __init__(
        self,
        fmt: Format | Integer | Block | None,
        recipe: LinearRecipe,
        mode: Mode = "nearest",
        generator: torch.Generator | None = None,
    ) -> None:
        self.fmt, self.scaled, self.mode, self.generator = fmt, recipe.scaled, mode, generator
        self.delayed: DelayedScaling | None = None
        if recipe.history and not (fmt is None or isinstance(fmt, Block)):
            self.delayed = DelayedScaling(fmt, recipe.history)
        # One scale for all, or for squares, is the same for a matrix and its transpose.
        self.either_way = not isinstance(fmt, Block) or fmt.rows == fmt.size

    def along_rows(self, x: Tensor) -> Tensor:
        """x (rows, columns) for a product that sums over columns: each row has its blocks."""
        if self.delayed is not None:
            return self.delayed.quantize(x, self.mode, self.generator).dequantize()
        return cast(x, self.fmt, self.mode, self.generator, self.scaled)

    def both(self, x: Tensor, mix: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x for products that sum over columns, and over rows (tokens), which `mix` mixes first."""
        first = self.along_rows(x)
        if self.either_way and mix is None:
            return first, first
        second = x if mix is None else _mixed(x, mix)
        return first, self.along_rows(second.mT).mT


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, layer: QuantizedLinear) -> Tensor:
        ctx.layer, ctx.shape, ctx.dtypes = layer, x.shape, (x.dtype, weight.dtype)
        x_in, x_tokens = layer.inputs.both(x.float().reshape(-1, x.shape[-1]), layer.mix)
        w_in, w_out = layer.weights.both(weight.float())
        ctx.save_for_backward(x_tokens, w_out)
        return (x_in @ w_in.mT).to(x.dtype).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        x_tokens, w_out = ctx.saved_tensors
        rows = gradient.float().reshape(-1, gradient.shape[-1])
        dy_out, dy_tokens = ctx.layer.gradients.both(rows, ctx.layer.mix)
        dx, dw = (dy_out @ w_out).view(ctx.shape), dy_tokens.mT @ x_tokens
        return dx.to(ctx.dtypes[0]), dw.to(ctx.dtypes[1]), None


def _hadamard(size: int, generator: torch.Generator) -> Tensor:
    """Sylvester's matrix of +-1, columns of random sign, by the root of its size: orthogonal."""
    h = torch.ones(1, 1)
    while len(h) < size:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    signs = torch.randint(2, (size,), generator=generator) * 2 - 1
    return h * signs / math.sqrt(size)


def _mixed(x: Tensor, mix: Tensor) -> Tensor:
    """x (n, c) with each len(mix) of its rows mixed; zeros fill the last."""
    x = F.pad(x, (0, 0, 0, -len(x) % len(mix)))
    return (mix @ x.unflatten(0, (-1, len(mix)))).flatten(0, 1)
