"""Modules of whole numbers, and one that fails, for tests of what wraps a module."""

import torch
from torch import nn


def whole_numbers(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with small whole numbers as parameters: sums are exact in any order."""
    stream = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=stream))
    return module


class Fails(torch.autograd.Function):
    """Its backward pass raises."""

    @staticmethod
    def forward(ctx, x):
        """x as it is."""
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        """Raises ArithmeticError."""
        raise ArithmeticError("no gradient")
