"""Recomputation in its shortest form: one autograd function, to read and to learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Rerun(torch.autograd.Function):
    """Rerun.apply(function, *tensors): `function` of tensors, kept as one node of the graph.

    Forward runs it without a graph, and keeps what it was given; backward runs it again with one,
    from the same random state, and goes backward through that.

    What `checkpoint` can and this cannot: keyword arguments, and tensors inside of others;
    gradients where no argument asks for one (a parameter inside gets None, without a word);
    `autograd.grad`, which gets no gradient of parameters; second derivatives; results that are no
    tensors; autocast, and random states of devices; an end as soon as backward has what it needs.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], *tensors: Tensor) -> Any:  # type: ignore[override]
        """What the function gives, without its graph."""
        ctx.function, ctx.random = function, torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return function(*tensors)  # autograd functions run without recording

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        """The gradients of the tensors; those of parameters are added where they belong."""
        tensors = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random)
            results = ctx.function(*tensors)
        results = results if isinstance(results, tuple) else (results,)
        torch.autograd.backward(results, gradients)
        return None, *(x.grad for x in tensors)
