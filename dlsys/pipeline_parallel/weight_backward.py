"""The backward pass cut in two, as zero-bubble schedules need it: inputs now, weights later.

A stage waits for the gradient of its output, and the stage before waits for that of its input.
Nobody waits for the gradients of weights (Qi et al. 2023), so they can fill what would be a bubble.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class DeferredWeights(TorchFunctionMode):
    """While it is entered, linear layers are recorded so that backward leaves their weights out.

    with DeferredWeights() as deferred: y = module(x). Then

    - y.backward(...) gives the gradients of x and of every other parameter (norms, embeddings), and
      keeps for each linear layer its input and the gradient of its output;
    - `deferred.backward()` makes the layers' gradients out of these, adds them to `.grad` (hooks on
      a parameter run as in any backward pass) and lets them go.

    It works for every module that calls torch.nn.functional.linear on parameters of its own, as
    nn.Linear does; what an autograd Function multiplies stays with the first part, unless its
    backward pass hands it to `add`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._later: list[tuple[Tensor, Callable[..., Tensor], tuple[Tensor, ...]]] = []
        # Keeps a graph where x needs no gradient. The weights stay out of it: autograd would run
        # their hooks in the first part, too.
        self._anchor = torch.empty(0, requires_grad=True)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call `func`, or where it is a linear layer that has weights to defer, its stand-in."""
        kwargs = kwargs or {}
        if func is F.linear and torch.is_grad_enabled():
            x, weight, bias = _linear_arguments(*args, **kwargs)
            if weight.is_leaf and weight.requires_grad:
                return _Linear.apply(x, self._anchor, (weight, bias), self)
        return func(*args, **kwargs)

    def add(self, weight: Tensor, gradient: Callable[..., Tensor], *inputs: Tensor) -> None:
        """Have gradient(*inputs) made and added to `weight.grad` by the next `backward`."""
        self._later.append((weight, gradient, inputs))

    @torch.no_grad()
    def backward(self) -> None:
        """Make the gradients that were put off, in the order in which they were."""
        later, self._later = self._later, []
        later.reverse()
        while later:  # one by one off the list, so that each is let go as soon as it is used
            weight, gradient, inputs = later.pop()
            torch.autograd.backward([weight], [gradient(*inputs)])


class _Linear(torch.autograd.Function):
    """F.linear whose backward pass gives the input's gradient and puts the others off."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        anchor: Tensor,
        parameters: tuple[Tensor, Tensor | None],
        deferred: DeferredWeights,
    ) -> Tensor:
        weight, bias = parameters
        ctx.save_for_backward(x, weight, bias)
        ctx.deferred = deferred
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        # y = x W^T + b: dx = dy W is what the stage before waits for; dW = dy^T x and db can wait.
        x, weight, bias = ctx.saved_tensors
        ctx.deferred.add(weight, _weight_gradient, x, grad)
        if bias is not None and bias.requires_grad:
            ctx.deferred.add(bias, _bias_gradient, grad)
        return (grad @ weight if ctx.needs_input_grad[0] else None), None, None, None


def _linear_arguments(
    input: Tensor, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    return input, weight, bias


def _weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    return _rows(grad).t() @ _rows(x)


def _bias_gradient(grad: Tensor) -> Tensor:
    return _rows(grad).sum(0)


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])
