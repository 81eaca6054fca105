"""Does it fit? The four buckets on the fullest device of a split run, and what divides each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts
from dlsys.hardware import Device
from dlsys.memory_wall.plan import Recipe, model_state
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import (
    Activations,
    Recompute,
    activations,
    check_cut,
    undescribed,
)
from dlsys.units import format_bytes

BUCKETS = ("weights", "gradients", "optimizer", "activations")


@checked
@plain_data
@dataclass(frozen=True)
class Split:
    """Over how many devices each axis divides a run; `data * tensor * pipeline` devices in all.

    `zero_stage`, 0 to 3, says what the data axis divides; `sequence_parallel`, whether the tensor
    axis also divides what lies between its products.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero_stage: int = 0
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        counts(self, "data", "tensor", "pipeline")
        count("zero_stage", self.zero_stage, 0, 3)

    @property
    def devices(self) -> int:
        """All devices of the run."""
        return self.data * self.tensor * self.pipeline

    def alone(self) -> dict[str, Split]:
        """Each axis as if it were the only one."""
        return {
            "data": Split(data=self.data, zero_stage=self.zero_stage),
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
    reserve: float = 0.0,
) -> Fit:
    """Whether training with micro-batches of `batch` sequences fits the device, by bucket and axis.

    - data: ZeRO divides the first three buckets (`model_state`); plain data parallelism none
    - tensor: divides matrices and most activations (`activations`); norms, learned positions and
      the biases that are added to sums stay whole
    - pipeline: a stage has ceil(layers / p) layers, the first also the embedding, the last the
      head. Under 1F1B the first holds p micro-batches of its layers, as many activations as one
      device had; the last holds one. The fuller of the two is told.

    `reserve`: bytes of the device kept for a framework, buffers and fragmentation. Not counted are
    gathered weights of stage 3, the two more arrays of logits that torch's loss makes as backward
    begins, what the optimizer holds during an update, and other buffers. Raises ValueError for what
    cannot be split so.
    """
    at_least("reserve", reserve, 0)
    how = _Run(spec, batch, recipe, recompute, flash, dropout)
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

    def buckets(self, split: Split) -> dict[str, int]:
        """Bytes by bucket on the fuller of the first and the last stage."""
        first, last = (self._stage(split, at_end=at_end) for at_end in (False, True))
        return max(first, last, key=lambda buckets: sum(buckets.values()))

    def _stage(self, split: Split, at_end: bool) -> dict[str, int]:
        state = model_state(
            parameters_held(self.spec, split.tensor, split.pipeline, at_end),
            self.recipe,
            split.zero_stage,
            split.data,
        )
        kept = activations(
            self.spec,
            self.batch,
            split.tensor,
            split.sequence_parallel,
            self.recompute,
            self.flash,
            dropout=self.dropout,
        )
        return {
            "weights": state.weights,
            "gradients": state.gradients,
            "optimizer": state.optimizer,
            "activations": _stage_activations(kept, split.pipeline, at_end),
        }


def _stage_activations(kept: Activations, stages: int, at_end: bool) -> int:
    """Bytes of the first stage, which holds a micro-batch for each stage, or of the last one."""
    if stages == 1:
        return kept.peak
    layer = kept.per_layer + sum(kept.statistics.values())
    outside = sum(n for name, n in kept.outside.items() if name.startswith("embedding") != at_end)
    in_flight = 1 if at_end else stages
    return in_flight * (-(-kept.layers // stages) * layer + outside) + kept.recomputed


@checked
def parameters_held(
    spec: TransformerSpec, tensor: int = 1, pipeline: int = 1, at_end: bool = False
) -> int:
    """Parameters on the fullest device of a pipeline's first stage, or of its last (`at_end`).

    A stage has ceil(layers / p) layers. `tensor` divides matrices and the vocabulary, not norms,
    learned positions and the two biases of a layer that are added to sums; with more devices than
    key-value heads each device holds a copy of one. A tied embedding lies on both ends. Raises
    ValueError where there are more stages than layers, for a `tensor` that does not divide heads
    and neurons, and for what `activations` does not describe.
    """
    t, p = _tensor(spec, tensor), count("pipeline", pipeline, 1, spec.layers)
    has, norms = spec.parameter_counts(), 1 if spec.parallel else 2
    norm = has["norms"] // (norms * spec.layers + 1)  # the one more is the last
    biases = 2 * spec.hidden * spec.bias
    keys = 2 * spec.kv_heads * spec.head_size * (spec.hidden + spec.bias)  # and values
    others = (has["attention"] + has["ffn"]) // spec.layers - biases - keys
    layer = norms * norm + biases + others // t + keys // min(t, spec.kv_heads)
    held = -(-spec.layers // p) * layer
    vocabulary = -(-spec.vocab // t) * spec.hidden
    if not at_end or p == 1:
        held += vocabulary + has.get("position_embedding", 0) + has.get("type_embedding", 0)
    if at_end or p == 1:
        held += norm + has.get("pooler", 0)
        held += 0 if spec.tied and p == 1 else vocabulary
    return held


def _tensor(spec: TransformerSpec, tensor: int) -> int:
    """`tensor` as an int; raises ValueError where it cannot cut the spec."""
    if odd := undescribed(spec):
        raise ValueError(
            f"{spec.name or 'The model'} has {odd[0]}; parameters_held() counts shares of dense "
            "layers with ordinary or grouped-query attention."
        )
    return check_cut("tensor", tensor, spec)
