"""One training program for every mesh: data, pipeline, context, tensor and expert parallelism.

A rank does what each axis alone would have it do. Inside a layer the tensor, context and expert
axes communicate (gpt.py), between stages the pipeline does, and ranks that hold the same weights
average their gradients, or share them out with the state and the weights (sharding.py). step.py
has the step itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import count
from dlsys.composing_axes.gpt import ComposedGPT, RoutedExperts
from dlsys.composing_axes.sharding import STAGES, Holders, ShardedState, ShardedWeights
from dlsys.composing_axes.step import Step
from dlsys.mesh import Axes, Mesh
from dlsys.pipeline_parallel import Pipeline, Plan, one_f_one_b, split
from dlsys.recomputation import Checkpointed
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator


class Trainer(Step):
    """A rank's part of a run, made in the order in which the axes cut: layers, stages, state."""

    def __init__(
        self,
        comm: Communicator,
        mesh: Mesh,
        spec: TransformerSpec,
        *,
        schedule: Callable[[int, int], Plan] = one_f_one_b,
        micro_batches: int = 1,
        zero_stage: int = 1,
        sequence_parallel: bool = False,
        recompute: bool = False,
        dtype: torch.dtype = torch.float32,
        compute_dtype: torch.dtype | None = None,
        max_norm: float | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        seed: int = 0,
        device: torch.device | str = "cpu",
        **options: Any,
    ) -> None:
        self.axes, self.max_norm = mesh.split(comm), max_norm
        # My part of every layer, and of the layers those of my stages.
        self.model = ComposedGPT(spec, self.axes, sequence_parallel, seed, dtype)
        plan = schedule(mesh.pp, micro_batches)
        check(plan, spec, zero_stage, recompute)
        self.stages = split(self.model, plan, self.axes.pp.rank, device=device, seed=seed)
        self.last = plan.placement[-1]  # the pipeline rank that has the loss
        on_two = plan.placement[0] != self.last
        self.tied = {s.tied for s in self.stages.values() if on_two} - {None}
        if recompute:
            for stage in self.stages.values():
                layers: Any = stage.layers
                for name, layer in layers.items():
                    layers[name] = Checkpointed(layer)
        # What the ranks that hold the same weights share out among them.
        compute_dtype = compute_dtype or dtype
        self.loss_dtype = torch.promote_types(compute_dtype, torch.float32)
        if zero_stage == 3:
            of = self.holders()
            self.groups = {
                number: ShardedWeights(stage, of, self.axes, compute_dtype)
                for number, stage in self.stages.items()
            }
            modules: dict[int, Any] = {
                number: group.module for number, group in self.groups.items()
            }
        else:
            every = [each for stage in self.stages.values() for each in stage.modules()]
            routed = {p for m in every if isinstance(m, RoutedExperts) for p in m.parameters()}
            shared = shared_out(self.holders(), routed, self.tied, self.axes, zero_stage)
            self.groups = dict(enumerate(shared))
            modules = dict(self.stages)
            for p in self.parameters():  # the passes' precision; the shards keep that of the update
                p.data = p.data.to(compute_dtype)
        self.pipeline = Pipeline(plan, modules, self.axes.pp)
        self.optimizer = optimizer([shard for shard, _ in self.shards()], **options)

    def holders(self) -> dict[nn.Parameter, int]:
        """My parameters, each with how many ranks have the same numbers of it, along tp (copies)
        and along pp (a tied matrix on its two stages)."""
        return {
            p: self.model.holders(name) * (2 if p in self.tied else 1)
            for stage in self.stages.values()
            for name, p in one_device_names(stage)
        }

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of my stages."""
        return (p for stage in self.stages.values() for p in stage.parameters())


def shared_out(
    holders: Holders, experts: set[Any], tied: set[Any], axes: Axes, zero_stage: int
) -> Iterator[Any]:
    """My parameters in groups, each with the ranks that hold the same numbers."""
    kind = STAGES[zero_stage]
    # Two stages add up a tied matrix's gradient in the end: too late for stage 2.
    late = ShardedState if zero_stage == 2 else kind
    groups = [
        (kind, {*holders} - experts - tied, axes.data),
        (kind, experts, axes.holders),
        (late, tied, axes.data),
    ]
    for made, members, comm in groups:
        if members:
            yield made({p: n for p, n in holders.items() if p in members}, comm)


def check(plan: Plan, spec: TransformerSpec, zero_stage: int, recompute: bool) -> None:
    """Raise ValueError for what does not go together."""
    count("zero_stage", zero_stage, 0, 3)
    if recompute and plan.splits_backward:
        raise ValueError(
            f"recompute is True under {plan.name}, which puts gradients of weights off; a layer "
            "that runs again has them at once: use another schedule, or recompute=False."
        )
    ends_meet = plan.stages > 1 and plan.placement[0] == plan.placement[-1]
    if zero_stage == 3 and spec.tied and ends_meet:
        raise ValueError(
            f"zero_stage is 3, and {plan.name} has the first stage and the last on one rank, in "
            "two units that would share a tied matrix: use stage 2, or tied=False."
        )


def one_device_names(stage: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """A stage's parameters, by the names that they have in a GPT without checkpoints."""
    return ((name.replace(".module.", "."), p) for name, p in stage.named_parameters())


@checked
def train(
    comm: Communicator,
    mesh: Mesh,
    spec: TransformerSpec,
    batches: Iterable[tuple[Tensor, Tensor]],
    **options: Any,
) -> list[float]:
    """Train on the batches, tokens and targets (b, s) of the whole mesh; returns their losses."""
    trainer = Trainer(comm, mesh, spec, **options)
    return [trainer.step(*batch).item() for batch in batches]
