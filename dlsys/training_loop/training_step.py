"""A training step: its plan carried out on a real model, action by action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import positive, refuse, refuse_what, some
from dlsys.tensors import of_shape
from dlsys.training_loop.clipping import clip_or_refuse
from dlsys.training_loop.plan import Action, StepPlan


class StepResult(NamedTuple):
    """The batch's mean loss; the gradient's norm before clipping, if that was asked for; and
    whether the update was skipped because the norm was not finite."""

    loss: float
    norm: float | None
    skipped: bool


class Schedule:
    """Sets an optimizer's learning rate to rate(step); `step()` goes on to the next step.

    It begins with rate(0), and has no state but the number of steps.
    """

    @checked
    def __init__(self, optimizer: torch.optim.Optimizer, rate: Callable[[int], float]) -> None:
        self.optimizer, self.rate = optimizer, rate
        self.steps = -1
        self.step()

    def step(self) -> None:
        """Count an update."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.steps)


@checked
def run_step(
    plan: StepPlan,
    loss_of: Callable[[Any], Tensor],
    micro_batches: Sequence[Any],
    optimizer: torch.optim.Optimizer,
    max_norm: float = 1.0,
    schedule: Schedule | None = None,
    reduce: Callable[[], None] | None = None,
) -> StepResult:
    """Do what the plan says, also where its `check` would refuse it.

    `loss_of(micro_batch)` gives its mean loss; `reduce()` sums gradients over ranks. Where the plan
    clips, an update with gradients that are not finite is skipped, and the schedule stands still.
    Raises ValueError for as many micro-batches as the plan does not have.
    """
    some("micro_batches", micro_batches)
    positive("max_norm", max_norm)
    if len(micro_batches) != len(plan.tokens):
        what = f"{len(micro_batches)} of them"
        refuse_what("micro_batches", what, f"{len(plan.tokens)}, as the plan has")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses: dict[int, Tensor] = {}
    total, norm, finite = 0.0, None, True
    for action in plan.actions:
        if action.kind == "zero":
            optimizer.zero_grad()
        elif action.kind == "forward":
            losses[action.micro_batch] = _loss(loss_of(micro_batches[action.micro_batch]))
        elif action.kind == "backward":
            total += _backward(losses, action)
        elif action.kind == "reduce" and reduce is not None:
            reduce()
        elif action.kind == "clip":
            norm, finite = clip_or_refuse(parameters, max_norm)
        elif action.kind == "update" and finite:
            optimizer.step()
        elif action.kind == "rate" and finite and schedule is not None:
            schedule.step()
    return StepResult(total, norm, not finite)


def _backward(losses: dict[int, Tensor], action: Action) -> float:
    """Add the micro-batch's part of the gradient; its part of the loss."""
    if action.micro_batch not in losses:
        refuse("plan: backward", action.micro_batch, "after its forward pass, once")
    share = losses.pop(action.micro_batch) * action.share
    share.backward()
    return float(share.detach())


def _loss(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = of_shape(loss) if isinstance(loss, Tensor) else repr(loss)
        refuse_what("loss_of(micro_batch)", what, "a Tensor of one number, with a gradient")
    return loss
