"""Averaging gradients where an expert is on one rank and everything else on all of them."""

from __future__ import annotations

import torch
from torch import nn

from dlsys.annotated import checked
from dlsys.expert_parallel.layer import MoE
from dlsys.world import Communicator


@checked
@torch.no_grad()
def average_gradients(
    model: nn.Module, everyone: Communicator, holders: Communicator | None = None
) -> None:
    """Make each gradient that of the mean loss over the tokens of all ranks; all call it.

    A gradient is summed over the ranks that hold its parameter, and divided by the number of all
    ranks. An expert's has already come from the tokens of every rank of its mixture, so a mean over
    its holders would be too large by their number.

    - everyone: the ranks whose tokens make up the batch. They hold the router, and all else that is
      no expert.
    - holders: the ranks that hold the same experts as this one; None where nobody else does.
    """
    experts = {p for m in model.modules() if isinstance(m, MoE) for p in m.experts.parameters()}
    for p in model.parameters():
        if p.grad is not None:
            group = holders if p in experts else everyone
            total = p.grad if group is None else group.all_reduce(p.grad)
            p.grad = total / everyone.size
