"""Does it fit? The four buckets on the fullest device of a split run, and what divides each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts, divisor
from dlsys.hardware import Device
from dlsys.memory_wall.plan import Recipe, model_state
from dlsys.memory_wall.stages import Stage, check_experts, stages
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import (
    Activations,
    Recompute,
    activations,
    check_cut,
)
from dlsys.units import format_bytes

BUCKETS = ("weights", "gradients", "optimizer", "activations")


@checked
@plain_data
@dataclass(frozen=True)
class Split:
    """Over how many devices each axis divides a run.

    There are `data * context * tensor * pipeline` devices in all. The `expert` degree takes no more
    of them: it divides the `data * context` devices that otherwise hold the same weights, so that
    each holds 1/`expert` of a layer's experts, and data * context / expert devices hold the same.

    `zero_stage`, 0 to 3, says what those devices divide among themselves: an expert's state over
    the ones that hold the same experts, all other state over all data * context.
    `sequence_parallel`: whether the tensor axis also divides what lies between its products.

    Source: Megatron-LM's `initialize_model_parallel` (`core/parallel_state.py`), where experts are
    cut by the same tensor degree, and its distributed optimizer. Raises ValueError for an expert
    degree that does not divide data * context.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero_stage: int = 0
    sequence_parallel: bool = False
    context: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        counts(self, "data", "tensor", "pipeline", "context", "expert")
        counts(self, "zero_stage", least=0, most=3)
        divisor("expert degree", self.expert, {"devices of data and context": self.replicas})

    @property
    def devices(self) -> int:
        """All devices of the run."""
        return self.replicas * self.tensor * self.pipeline

    @property
    def replicas(self) -> int:
        """Devices that hold the same weights, experts and ZeRO's sharding aside."""
        return self.data * self.context

    def alone(self) -> dict[str, Split]:
        """Each axis as if it were the only one; experts lie on as many devices as they need."""
        return {
            "data": Split(data=self.data, zero_stage=self.zero_stage),
            "context": Split(context=self.context, zero_stage=self.zero_stage),
            "expert": Split(data=self.expert, expert=self.expert),
            "tensor": Split(tensor=self.tensor, sequence_parallel=self.sequence_parallel),
            "pipeline": Split(pipeline=self.pipeline),
        }


@dataclass(frozen=True)
class Fit:
    """The verdict: bytes by bucket, undivided and on the fullest device, and that device's memory.

    `divided[bucket][axis]` is by which factor the axis alone makes the bucket smaller: 1 where it
    does nothing for it. True where all fits (`bool(fit)`).
    """

    whole: Mapping[str, int]
    held: Mapping[str, int]
    divided: Mapping[str, Mapping[str, float]]
    memory: float

    @property
    def total(self) -> int:
        """Bytes of all buckets on the fullest device."""
        return sum(self.held.values())

    @property
    def free(self) -> float:
        """Bytes that stay free; below zero, bytes that are lacking."""
        return self.memory - self.total

    def __bool__(self) -> bool:
        return self.free >= 0

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {format_bytes(n)}" for name, n in self.held.items())
        left = f"{format_bytes(abs(self.free))} {'free' if self else 'lacking'}"
        return f"{'fits' if self else 'does not fit'}, {left}: {parts}"


@checked
def fits(
    spec: TransformerSpec,
    device: Device,
    split: Split = Split(),
    batch: int = 1,
    *,
    recipe: Recipe | str = "mixed-adamw",
    recompute: Recompute = "none",
    flash: bool = False,
    dropout: bool = False,
    fused_loss: bool = False,
    reserve: float = 0.0,
) -> Fit:
    """Whether training with micro-batches of `batch` sequences fits the device, by bucket and axis.

    - data: ZeRO divides the first three buckets (`model_state`); plain data parallelism none
    - context: divides the tokens and so all activations, and the first three buckets as data does
    - tensor: divides matrices and most activations (`activations`); norms, learned positions,
      routers, latent attention's down-projections and the biases that are added to sums stay whole
    - expert: divides a mixture's experts, and neither what all tokens visit (routers, shared
      experts) nor activations, as each device has its balanced share of the tokens' copies
    - pipeline: a stage has ceil(layers / p) layers, the first also the embedding, the last the
      head. Under 1F1B stage i, from 0, holds p - i micro-batches of its layers: the first as many
      activations as one device had, the last one. The fullest is told, which of equal layers is the
      first or the last.

    As backward begins torch's loss makes two more arrays of logits, which count as activations of
    the last stage; they are gone when it rebuilds a layer, so the larger of both counts.
    `fused_loss`: it works in the one array that it keeps instead, as Megatron-LM's can.

    `reserve`: bytes of the device kept for a framework, buffers and fragmentation. Not counted are
    gathered weights of stage 3, what the optimizer holds during an update, and other buffers.
    Raises ValueError for what cannot be split so.
    """
    at_least("reserve", reserve, 0)
    how = _Run(spec, batch, recipe, recompute, flash, dropout, fused_loss)
    whole, held = how.buckets(Split()), how.buckets(split)
    alone = {axis: how.buckets(only) for axis, only in split.alone().items()}
    divided = {
        bucket: {axis: whole[bucket] / found[bucket] for axis, found in alone.items()}
        for bucket in BUCKETS
        if whole[bucket]
    }
    return Fit(whole, held, divided, device.memory - reserve)


@dataclass(frozen=True)
class _Run:
    """What is trained and how, before anything is split."""

    spec: TransformerSpec
    batch: int
    recipe: Recipe | str
    recompute: Recompute
    flash: bool
    dropout: bool
    fused_loss: bool

    def buckets(self, split: Split) -> dict[str, int]:
        """Bytes by bucket on the fullest stage."""
        self._check(split)
        kept = activations(
            self.spec,
            self.batch,
            split.tensor,
            split.sequence_parallel,
            self.recompute,
            self.flash,
            context_parallel=split.context,
            dropout=self.dropout,
        )
        found = [self._stage(split, kept, stage) for stage in stages(self.spec, split.pipeline)]
        return max(found, key=lambda buckets: sum(buckets.values()))

    def _stage(self, split: Split, kept: Activations, stage: Stage) -> dict[str, int]:
        shared, experts = stage.parameters(split.tensor, split.expert)
        holders = ((shared, split.replicas), (experts, split.replicas // split.expert))
        states = [model_state(n, self.recipe, split.zero_stage, over) for n, over in holders if n]
        return {
            **{bucket: sum(getattr(state, bucket) for state in states) for bucket in BUCKETS[:3]},
            "activations": stage.activations(kept, self.fused_loss),
        }

    def _check(self, split: Split) -> None:
        """Raise ValueError, by the split's own names, where it cannot be."""
        spec = self.spec
        divisor("context", split.context, {"tokens of a sequence": spec.sequence})
        check_cut("tensor", split.tensor, spec, split.sequence_parallel, split.context)
        count("pipeline", split.pipeline, 1, spec.layers)
        check_experts(spec, split.expert)
