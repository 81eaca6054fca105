"""Adafactor: of a matrix's second moments, only the means of its rows and columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.tensors import Params
from dlsys.training_loop.update_rule import UpdateRule


class Adafactor(UpdateRule):
    """Adam without m, whose v is known by r, the means of its rows, and c, those of its columns.

    v = r c / mean(r) is the matrix of rank 1 with these means; a vector keeps its own. Step t
    averages with weight t^-0.8, and moves the weights by a part min(lr, 1 / sqrt(t)) of their root
    mean square; by less where the step's own would be above `threshold`. Holds rows + columns
    numbers for a matrix. Shazeer and Stern 2018 (arXiv 1804.04235), algorithm 4.
    torch.optim.Adafactor to rounding.
    """

    @checked
    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        eps: float = 1e-3,
        threshold: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"lr": lr, "eps": eps, "threshold": threshold, "weight_decay": weight_decay}
        super().__init__(params, settings)

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        t = state["step"] = state.get("step", 0) + 1
        tiny = torch.finfo(weights.dtype).eps
        length = max(group["eps"], _root_mean_square(weights)) * min(group["lr"], t**-0.5)
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        step = gradient / _squares(gradient, state, t**-0.8, tiny).clamp_(min=tiny**2).sqrt_()
        # Clipped as a whole: where v lags behind a gradient that grew, steps would be too long.
        weights.sub_(step, alpha=length / max(1.0, _root_mean_square(step) / group["threshold"]))


def _squares(gradient: Tensor, state: dict[str, Any], weight: float, tiny: float) -> Tensor:
    """v, after the averages have taken in this gradient's squares with their weight."""
    square = gradient.square()
    if gradient.dim() < 2:
        return _average(state, "v", square, weight).clone()
    rows = _average(state, "rows", square.mean(-1, keepdim=True), weight)
    columns = _average(state, "columns", square.mean(-2, keepdim=True), weight)
    return rows @ columns / rows.mean(-2, keepdim=True).clamp(min=tiny)


def _average(state: dict[str, Any], name: str, value: Tensor, weight: float) -> Tensor:
    if name not in state:
        state[name] = torch.zeros_like(value)
    return state[name].lerp_(value, weight)


def _root_mean_square(x: Tensor) -> float:
    return x.norm().item() / x.numel() ** 0.5
