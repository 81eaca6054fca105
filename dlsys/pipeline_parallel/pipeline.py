"""A pipeline that runs any schedule: each rank runs its actions in order and passes tensors on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count, multiples_around
from dlsys.pipeline_parallel.action import Action
from dlsys.pipeline_parallel.plan import Plan
from dlsys.pipeline_parallel.routes import Message, reader, routes, tag
from dlsys.pipeline_parallel.weight_backward import DeferredWeights
from dlsys.tensors import strided


class Pipeline:
    """The stages of one rank, run in the order of a plan; `comm` holds the ranks of one pipeline.

    stages: by number, exactly those that the plan gives this rank. `Stage` is all that one must be:

    - a module called with (tokens, x, targets), x None on the first stage; the last one returns a
      loss, and `targets` are for it alone;
    - with a method `message(tokens)`, an empty tensor such as is passed between stages;
    - on first and last stage with `tied`, a parameter of which each holds a copy, or None.

    What a step promises:

    - While a rank works on one message, the receives of the next `ahead` are posted, which hides
      transfers that take as long as `ahead` actions.
    - Sends are waited for once their messages must have been used, or at the end.
    - What a backward pass needs is let go as soon as the plan allows.
    - Dropout draws from each rank's own random state: its masks are not those of one device.

    peak_in_flight: the most (stage, micro-batch) pairs that the last step held at once.

    Raises PlanError for a plan that cannot be executed, ValueError where comm or stages do not fit.
    """

    @checked
    def __init__(
        self,
        plan: Plan,
        stages: Mapping[int, Any],
        comm: world.Communicator | None = None,
        ahead: SupportsIndex = 2,
    ) -> None:
        plan.check()
        comm = comm if comm is not None else world.current()
        if comm.size != plan.p:
            raise ValueError(
                f"{plan.name} is a plan for {plan.p} ranks; the communicator has {comm.size}."
            )
        mine = [stage for stage, rank in enumerate(plan.placement) if rank == comm.rank]
        if sorted(stages) != mine:
            raise ValueError(
                f"Rank {comm.rank} got stages {sorted(stages)}; {plan.name} gives it {mine}."
            )
        self.plan, self.comm, self.stages = plan, comm, dict(stages)
        self.routes = routes(plan, comm.rank, count("ahead", ahead, least=0))
        self.peak_in_flight = 0

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters of this rank's stages, by their names in the whole model, each once."""
        seen: set[nn.Parameter] = set()
        for stage in self.stages.values():
            for name, parameter in stage.named_parameters():
                if parameter not in seen:
                    seen.add(parameter)
                    yield name, parameter

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of this rank's stages, each once, as an optimizer takes them."""
        return (parameter for _, parameter in self.named_parameters())

    @checked
    def step(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor | None:
        """Add the gradient of the mean loss over the batch to `.grad` of this rank's parameters.

        tokens, targets (b, ...) are cut into m micro-batches of b/m, whose losses weigh alike. Only
        the first stage reads the values of `tokens` (others their shape), and only the last needs
        `targets`. Returns the loss on the rank of the last stage, None elsewhere. Under
        torch.no_grad(), on all ranks, the forward passes run alone. Raises ValueError where b does
        not divide by m.
        """
        tied, before = self._tied() if torch.is_grad_enabled() else None, None
        if tied is not None:
            before, tied.grad = tied.grad, None  # the sum is to be of this step's alone
        step = Step(self, tokens, targets)
        step.run()
        self.peak_in_flight = step.peak
        if tied is not None:
            tied.grad = self._both(tied)
            if before is not None:
                tied.grad += before
        return reduce(add, step.losses) if step.losses else None

    def _tied(self) -> nn.Parameter | None:
        """The parameter of which this rank and another hold a copy each."""
        first, last = self.plan.placement[0], self.plan.placement[-1]
        if first == last or self.comm.rank not in (first, last):
            return None
        stage = self.stages[0 if self.comm.rank == first else self.plan.stages - 1]
        tied = getattr(stage, "tied", None)
        if hasattr(tied, "is_shard"):
            raise ValueError(
                f"Rank {self.comm.rank} has a shard of the tied matrix, of which first and last "
                "stage add up whole gradients: leave it out of the units that are sharded."
            )
        return tied if tied is not None and tied.requires_grad else None

    def _both(self, tied: nn.Parameter) -> Tensor:
        """The sum of both copies' gradients: a + b here, b + a there, which are the same bits."""
        first, last = self.plan.placement[0], self.plan.placement[-1]
        other = last if self.comm.rank == first else first
        number = tag(self.plan, Action("F", self.plan.stages, 0))
        if tied.grad is None:
            raise RuntimeError(
                f"Rank {self.comm.rank} got no gradient of the tied matrix from its stage: head "
                "and embedding must be one parameter (to_empty() parts them: give split a device)."
            )
        receiving = self.comm.irecv(torch.empty_like(tied.grad), other, number)
        self.comm.isend(tied.grad, other, number).wait()
        return receiving.wait().add_(tied.grad)


@dataclass
class Held:
    """What a stage keeps of one micro-batch from its forward pass to the end of its backward."""

    x: Tensor | None
    # The loss, or of other outputs their place in the graph: backward does not read the numbers.
    end: Any
    deferred: DeferredWeights | None


class Step:
    """One step under way on one rank."""

    def __init__(self, pipeline: Pipeline, tokens: Tensor, targets: Tensor | None) -> None:
        self.plan, self.comm = pipeline.plan, pipeline.comm
        self.stages, self.routes = pipeline.stages, pipeline.routes
        if self.plan.stages - 1 in self.stages and targets is None:
            raise ValueError(f"Rank {self.comm.rank} runs the last stage, which needs targets.")
        self.tokens = _micro_batches("tokens", tokens, self.plan.m)
        self.targets = None if targets is None else _micro_batches("targets", targets, self.plan.m)
        self.losses: list[Tensor] = []
        self.peak = 0
        self.held: dict[tuple[int, int], Held] = {}
        self.here: dict[Action, Tensor] = {}  # what one stage of this rank has left for another
        self.coming: dict[Action, world.Handle] = {}
        self.going: dict[Message, world.Handle] = {}

    def run(self) -> None:
        """Run this rank's actions, one after the other."""
        kinds: dict[str, Callable[[Action, Tensor | None], Tensor | None]] = {
            "F": self._forward,
            "B": self._backward,
            "W": self._backward_for_weights,
        }
        runs = kinds if torch.is_grad_enabled() else "F"
        for place, action in enumerate(self.plan.ranks[self.comm.rank]):
            for message in self.routes.posts.get(place, ()):
                kind, stage, k = message.user
                if kind in runs:
                    space = self.stages[stage].message(self.tokens[k])
                    self.coming[message.user] = self.comm.irecv(space, message.peer, message.tag)
            if action.kind in runs:
                result = kinds[action.kind](action, self._take(action))
                if result is not None:
                    self._pass_on(action, result)
                self.ended(action)
        for handle in self.going.values():
            handle.wait()

    def ended(self, action: Action) -> None:
        """What a rank does when an action has ended and its message is on its way: nothing."""

    def _take(self, action: Action) -> Tensor | None:
        """What `action` reads of another stage."""
        message = self.routes.receives.get(action)
        if message is None:
            return self.here.pop(action, None)
        given = self.coming.pop(action).wait()
        # An acknowledgement for free: the peer did things in order, so what it used before it made
        # this has arrived there.
        for sent in [s for s in self.going if s.peer == message.peer and s.used <= message.made]:
            self.going.pop(sent).wait()
        return given

    def _pass_on(self, action: Action, result: Tensor) -> None:
        message = self.routes.sends.get(action)
        if message is not None:
            self.going[message] = self.comm.isend(result, message.peer, message.tag)
        elif (user := reader(self.plan, action)) is not None:
            self.here[user] = result

    def _forward(self, action: Action, x: Tensor | None) -> Tensor | None:
        _, stage, k = action
        if x is not None:
            x.requires_grad_()
        deferred = DeferredWeights() if self.plan.splits_backward else None
        last = stage == self.plan.stages - 1
        with deferred or nullcontext():
            targets = self.targets[k] if last and self.targets is not None else None
            out = self.call(action, x, targets)
        if torch.is_grad_enabled():
            # Frozen first stages have nothing to differentiate.
            end = None if not out.requires_grad else out if last else get_gradient_edge(out)
            self.held[stage, k] = Held(x, end, deferred)
            self.peak = max(self.peak, len(self.held))
        if not last:
            return out.detach()
        self.losses.append(out.detach())
        return None

    def call(self, action: Action, x: Tensor | None, targets: Tensor | None) -> Tensor:
        """What a stage makes of a micro-batch: the last one its part of the mean loss."""
        out: Tensor = self.stages[action.stage](self.tokens[action.micro_batch], x, targets)
        return out / self.plan.m if action.stage == self.plan.stages - 1 else out

    def _backward(self, action: Action, gradient: Tensor | None) -> Tensor | None:
        _, stage, k = action
        held = self.held[stage, k]
        if held.end is not None:
            torch.autograd.backward([held.end], [gradient])
        result = None if held.x is None else held.x.grad
        if self.plan.splits_backward:
            held.x = held.end = None
        else:
            del self.held[stage, k]
        return result

    def _backward_for_weights(self, action: Action, _: Tensor | None) -> None:
        deferred = self.held.pop((action.stage, action.micro_batch)).deferred
        assert deferred is not None
        deferred.backward()


def _micro_batches(name: str, batch: Tensor, m: int) -> Sequence[Tensor]:
    strided(name, batch)
    size, left = divmod(len(batch), m)
    if left or not size:
        raise ValueError(
            f"{len(batch)} sequences do not divide into {m} micro-batches, as {name} must; the "
            f"nearest numbers that do: {multiples_around(len(batch), m)}."
        )
    return batch.split(size)
