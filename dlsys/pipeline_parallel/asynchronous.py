"""PipeDream run: every backward pass has the weights of its forward pass, and then updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dlsys import world
from dlsys.annotated import checked
from dlsys.pipeline_parallel.action import Action
from dlsys.pipeline_parallel.pipeline import Pipeline, Step
from dlsys.pipeline_parallel.plan import Plan


class PipeDream:
    """A pipeline without steps, whose ranks update their weights after every backward pass.

    - optimizer: makes one of the parameters of this rank, as torch.optim.SGD does.
    - plan, stages, comm, ahead: as for `Pipeline`, which carries it out; see `pipedream`.

    A forward pass takes the weights as they are then, and the backward pass of the same micro-batch
    has these same ones, whatever became of them in between (weight stashing, Narayanan et al. 2019,
    section 3.3): its gradient is one of the loss, but of weights that miss the updates that
    `staleness` counts. For this a rank holds a copy of its weights for every micro-batch in flight;
    `peak_copies` is the most of them. Raises ValueError as `Pipeline` does, and for tied matrices,
    whose two copies would go different ways.
    """

    @checked
    def __init__(
        self,
        plan: Plan,
        stages: Mapping[int, Any],
        optimizer: Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer],
        comm: world.Communicator | None = None,
        ahead: SupportsIndex = 2,
    ) -> None:
        self.pipeline = Pipeline(plan, stages, comm, ahead)
        if any(getattr(stage, "tied", None) is not None for stage in stages.values()):
            raise ValueError(
                "Embedding and head are one matrix, on two ranks that would update their copies at "
                "different times: build the model with tied=False."
            )
        self.optimizer = optimizer(self.pipeline.parameters())
        self.peak_copies = 0

    @checked
    def train(self, tokens: Tensor, targets: Tensor | None = None) -> list[float]:
        """Train on each of the plan's m micro-batches in turn; the last stage returns their losses.

        tokens, targets (b, ...) are cut into micro-batches as by `Pipeline.step`; each has an
        update to itself, by the gradient of its own mean loss. Elsewhere the list is empty.
        """
        run = _Endless(self.pipeline, self.optimizer, tokens, targets)
        run.run()
        self.peak_copies = run.most
        return [loss.item() for loss in run.losses]


class _Endless(Step):
    """Micro-batches under way on one rank, each with the weights that its forward pass found."""

    def __init__(
        self,
        pipeline: Pipeline,
        optimizer: torch.optim.Optimizer,
        tokens: Tensor,
        targets: Tensor | None,
    ) -> None:
        super().__init__(pipeline, tokens, targets)
        self.optimizer = optimizer
        self.copies: dict[tuple[int, int], dict[str, Tensor]] = {}
        self.most = 0

    def call(self, action: Action, x: Tensor | None, targets: Tensor | None) -> Tensor:
        """The stage with a copy of its weights, which its backward pass is going to find again."""
        _, number, k = action
        stage = self.stages[number]
        # An update changes the parameters in place, and torch refuses a backward pass after it.
        copies = {
            name: parameter.detach().clone().requires_grad_(parameter.requires_grad)
            for name, parameter in stage.named_parameters()
        }
        self.copies[number, k] = copies
        self.most = max(self.most, len(self.copies))
        out: Tensor = functional_call(stage, copies, (self.tokens[k], x, targets))
        return out

    def ended(self, action: Action) -> None:
        """After the end of a backward pass, the update by its gradient."""
        kind, number, k = action
        if kind != ("W" if self.plan.splits_backward else "B"):
            return
        copies = self.copies.pop((number, k))
        for name, parameter in self.stages[number].named_parameters():
            parameter.grad = copies[name].grad
        self.optimizer.step()
        self.optimizer.zero_grad()
