"""What all optimizers here share: groups, checked settings, and a loop over parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, refuse_what
from dlsys.tensors import Params, groups_of


class UpdateRule(torch.optim.Optimizer):
    """An optimizer by its rule for one parameter, `update(weights, gradient, state, group)`.

    `state` is the parameter's own dict, empty before its first step: what a rule keeps in it is all
    that the optimizer holds. Parameters without a gradient stay as they are.
    """

    def __init__(self, params: Params, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            _check(name, value)
        super().__init__(groups_of(params), settings)

    @abstractmethod
    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """Change `weights` in place."""

    @checked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.grad is None:
                    continue
                if weights.grad.is_sparse:
                    dense = "dense: an Embedding with sparse=False gives one"
                    refuse_what("A gradient", "sparse", dense)
                self.update(weights, weights.grad, self.state[weights], group)
        return loss


def _check(name: str, value: Any) -> None:
    if name in ("lr", "weight_decay", "eps", "scale"):
        at_least(name, value, 0)
    elif name == "threshold":
        positive(name, value)
    elif name in ("rank", "every"):
        count(name, value)
    elif name in ("momentum", "decay", "betas"):
        for each in value if name == "betas" else (value,):
            at_least(name, each, 0)
            if each >= 1:
                refuse(name, value, "from 0 to 1, below 1")


def held_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of what an optimizer holds, counted: its state's tensors but for single numbers."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        refuse("optimizer", optimizer, "an Optimizer, such as AdamW(model.parameters())")
    states = (value for state in optimizer.state.values() for value in state.values())
    return sum(v.nbytes for v in states if isinstance(v, Tensor) and v.ndim)
