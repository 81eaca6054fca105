"""What a device of each pipeline stage holds: its layers' parameters, and what they keep."""

from __future__ import annotations

from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import count, divisor, refuse
from dlsys.transformer import Matrix, TransformerSpec
from dlsys.transformer.activations import Activations, check_cut

# How tensor parallelism cuts a matrix; all others by their columns, and biases with these.
WHOLE = ("router", "query_down", "key_value_down")
BY_ROWS = ("output", "ffn_down")


@checked
def parameters_held(
    spec: TransformerSpec,
    tensor: int = 1,
    pipeline: int = 1,
    at_end: bool = False,
    *,
    expert: int = 1,
) -> int:
    """Parameters on the fullest device of a pipeline's first stage, or of its last (`at_end`).

    A stage has ceil(layers / p) layers. `tensor` divides matrices and the vocabulary, not norms,
    learned positions, routers, latent attention's down-projections and the two biases of a layer
    that are added to sums; with more devices than key-value heads each device holds a copy of one.
    `expert` divides a mixture's experts, except the shared ones. A tied embedding lies on both
    ends. Raises ValueError where there are more stages than layers, for a `tensor` that does not
    divide heads and neurons, an `expert` that does not divide experts, and relative positions.
    """
    if spec.positions == "relative":
        raise ValueError(
            f"{spec.name or 'The model'} has relative positions, of which parameters_held() knows "
            "no shares."
        )
    t, p = check_cut("tensor", tensor, spec), count("pipeline", pipeline, 1, spec.layers)
    place = p - 1 if at_end else 0
    return sum(Stage(spec, p, place).parameters(t, check_experts(spec, expert)))


def check_experts(spec: TransformerSpec, expert: int) -> int:
    """`expert` as an int; raises ValueError where it cannot cut the spec's experts."""
    if spec.moe:
        return divisor("expert degree", expert, {"experts": spec.moe.experts})
    if count("expert", expert) > 1:
        refuse("expert", expert, "1 for a model without experts")
    return 1


def stages(spec: TransformerSpec, pipeline: int) -> list[Stage]:
    """The stages of which one is the fullest: of equal layers the first or the last, else any."""
    places = range(pipeline) if spec.moe else sorted({0, pipeline - 1})
    return [Stage(spec, pipeline, place) for place in places]


@dataclass(frozen=True)
class Stage:
    """Stage `place` of `stages`, from 0: ceil(layers / stages) layers, and ends of the model."""

    spec: TransformerSpec
    stages: int
    place: int

    def layers(self) -> dict[bool, int]:
        """How many of its layers are mixtures of experts (True), and how many are not."""
        number = -(-self.spec.layers // self.stages)
        # Spread from the first layer to the last: stages of a size that is rounded up overlap.
        start = self.place * (self.spec.layers - number) // max(1, self.stages - 1)
        sparse = self.spec.sparse_layers(start, start + number)
        return {True: sparse, False: number - sparse}

    def parameters(self, tensor: int, expert: int) -> tuple[int, int]:
        """Parameters on a device: those that all tokens use, and those of the experts it holds."""
        spec, has, layers = self.spec, self.spec.parameter_counts(), self.layers()
        last_norm = spec.hidden * (2 if spec.norm == "layer" and spec.bias else 1)
        alike = (has["norms"] - last_norm) // spec.layers
        alike += sum(_share(matrix, spec, tensor) for matrix in spec.attention_matrices())
        shared, experts = sum(layers.values()) * alike, 0
        for i in {spec.is_sparse(i): i for i in range(spec.layers)}.values():  # one of each kind
            sparse = spec.is_sparse(i)
            for matrix in spec.ffn_matrices(i):
                one = layers[sparse] * _share(matrix, spec, tensor)
                routed = spec.moe.experts if spec.moe and sparse and matrix.name != "router" else 0
                shared += (matrix.copies - routed) * one
                experts += routed // expert * one
        vocabulary = -(-spec.vocab // tensor) * spec.hidden
        first, last = self.place == 0, self.place == self.stages - 1
        if first:
            ends = ("position_embedding", "type_embedding", "embedding_norm")
            shared += vocabulary + sum(has.get(part, 0) for part in ends)
        if last:
            shared += last_norm + has.get("pooler", 0)
            shared += 0 if spec.tied and first else vocabulary
        return shared, experts

    def activations(self, kept: Activations, fused_loss: bool) -> int:
        """The most bytes of a device under 1F1B: stage i, from 0, holds p - i micro-batches.

        Beside them are a layer that is rebuilt or, before, the two arrays that a loss makes.
        """
        layers, first, last = self.layers(), self.place == 0, self.place == self.stages - 1
        dense = kept if kept.dense is None else kept.dense
        kinds = [(kind, n) for kind, n in ((kept, layers[True]), (dense, layers[False])) if n]
        held = sum(n * (kind.per_layer + sum(kind.statistics.values())) for kind, n in kinds)
        for name, nbytes in kept.outside.items():
            held += nbytes * (first if name.startswith("embedding") else last)
        of_loss = kept.of_loss if last and not fused_loss else 0
        beside = max(of_loss, *(kind.recomputed for kind, _ in kinds))
        return (self.stages - self.place) * held + beside


def _share(matrix: Matrix, spec: TransformerSpec, tensor: int) -> int:
    """Parameters of one copy of a matrix, with its bias, on one of `tensor` devices."""
    bias = matrix.columns if spec.bias and matrix.name != "router" else 0
    weights = matrix.rows * matrix.columns
    if matrix.name in WHOLE:
        return weights + bias
    if matrix.name in BY_ROWS:
        return weights // tensor + bias
    keys = 2 * spec.kv_heads * spec.head_size * (spec.hidden + spec.bias)  # and values
    copied = keys if matrix.name == "qkv" else 0
    return (weights + bias - copied) // tensor + copied // min(tensor, spec.kv_heads)
