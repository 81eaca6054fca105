"""What the forward pass keeps for the backward pass: bytes for each operation of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from dlsys.annotated import checked
from dlsys.checks import count, divisor
from dlsys.transformer.spec import TransformerSpec

Recompute = Literal["none", "selective", "full"]


class Activations(int):
    """Bytes that all layers keep on one device: an int, and where the bytes come from.

    Kept is what stays between forward and backward; the int is `layers` x `per_layer`.

    - `terms`: the bytes of each such tensor of one layer, which sum to `per_layer`
    - `statistics`: FP32 numbers for each row that norms and flash attention keep, in one layer
    - `outside`: what the embedding, the last norm, the head and the loss keep, once a model
    - `recomputed`: what backward rebuilds, one layer at a time, before it can use it; 0 where
      nothing is recomputed

    The int leaves out `statistics` and `outside`, which are smaller, as the paper does.
    """

    layers: int
    terms: Mapping[str, int]
    statistics: Mapping[str, int]
    outside: Mapping[str, int]
    recomputed: int

    def __new__(
        cls,
        layers: int,
        terms: Mapping[str, int],
        statistics: Mapping[str, int],
        outside: Mapping[str, int],
        recomputed: int = 0,
    ) -> Activations:
        """Sum the terms over the layers."""
        self = super().__new__(cls, layers * sum(terms.values()))
        self.layers = layers
        self.terms = MappingProxyType(dict(terms))
        self.statistics = MappingProxyType(dict(statistics))
        self.outside = MappingProxyType(dict(outside))
        self.recomputed = recomputed
        return self

    def __getnewargs__(  # type: ignore[override]
        self,
    ) -> tuple[int, dict[str, int], dict[str, int], dict[str, int], int]:
        """What `copy` and `pickle` rebuild it from."""
        parts = dict(self.terms), dict(self.statistics), dict(self.outside)
        return self.layers, *parts, self.recomputed

    def __getstate__(self) -> None:
        """Nothing beyond the arguments of `__new__`."""

    @property
    def per_layer(self) -> int:
        """Bytes of one layer."""
        return sum(self.terms.values())

    @property
    def total(self) -> int:
        """Bytes of all layers: the int itself."""
        return int(self)

    @property
    def everything(self) -> int:
        """Bytes of all layers with their statistics, and of what is outside the layers."""
        return int(self) + self.layers * sum(self.statistics.values()) + sum(self.outside.values())

    @property
    def peak(self) -> int:
        """The most bytes at once: everything, and the layer that backward is rebuilding."""
        return self.everything + self.recomputed


@checked
def activations(
    spec: TransformerSpec,
    batch: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
    flash: bool = False,
    *,
    dropout: bool = True,
) -> Activations:
    """Bytes of activations that training keeps on one device, in 16-bit numbers.

    Each operation keeps what its own gradient needs; a dropout mask is one byte an element. For
    GPT-2's layer (s sequence, b batch, h hidden, a heads, t tensor-parallel degree):

        s b h (10 + 24/t + 5 a s / (h t))      and 34/t in place of 10 + 24/t with sequence
                                               parallelism

    What is not kept is rebuilt by backward, whole, one layer at a time (`recomputed`):

    - selective recomputation keeps no s x s matrix, so the 5as/h term goes; 5as^2b/t are rebuilt
    - full recomputation keeps each layer's input, 2sbh (over t with sequence parallelism); the
      rest of the layer is rebuilt
    - flash attention never holds an s x s matrix: the term goes, and is not rebuilt either

    The terms follow the spec where it differs from GPT-2:

    - grouped queries keep narrower keys and values; with t above the key-value heads each device
      holds a copy of one
    - a gated FFN keeps four tensors of the FFN's width (gate, its SiLU, up, their product) where
      a plain one keeps two
    - without dropout the masks and the second copy of the probabilities go

    Args: `spec.sequence` tokens a sample; `batch`, samples in one micro-batch; `dropout`, as in
    Megatron, or False for models trained without. Returns bytes as an int (see Activations).
    Raises ValueError for

    - a degree that does not divide heads or the FFN's width, or with sequence parallelism the
      sequence, or that neither divides the key-value heads nor is a multiple of them
    - an unknown `recompute`
    - a mixture of experts, latent attention or relative positions, whose layers keep other tensors

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), sections 4 and 5.
    """
    batch = count("batch", batch)
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"recompute is {recompute!r}; it must be 'none', 'selective' or 'full'.")
    t = count("tensor_parallel", tensor_parallel)
    _check(spec, t, sequence_parallel)
    shared = t if sequence_parallel else 1  # divides what lies between the tensor-parallel parts
    rows = spec.sequence * batch
    x = rows * spec.hidden // shared  # elements of one tensor of the residual stream
    query = rows * spec.heads * spec.head_size // t
    key = rows * max(1, spec.kv_heads // t) * spec.head_size
    wide = rows * spec.ffn_hidden // t
    scores = spec.heads * spec.sequence * rows // t
    mask = 1 if dropout else 0
    norm = 4 * (2 if spec.norm == "layer" else 1) * rows // shared  # mean and deviation, in FP32

    # In the order of the forward pass; a 16-bit number is two bytes, hence most of the factors.
    terms = {
        "attention.norm_input": 2 * x,
        "attention.input": 2 * x,
        "attention.query": 2 * query,
        "attention.key": 2 * key,
        "attention.value": 2 * key,
        "attention.probabilities": 2 * scores,
        "attention.probabilities_mask": mask * scores,
        "attention.probabilities_dropped": 2 * mask * scores,
        "attention.output_input": 2 * query,
        "attention.dropout_mask": mask * x,
        # A parallel layer (PaLM) feeds one norm to both halves.
        "ffn.norm_input": 0 if spec.parallel else 2 * x,
        "ffn.input": 0 if spec.parallel else 2 * x,
        "ffn.activation_input": 2 * wide,
        "ffn.activation_output": 2 * wide if spec.gated else 0,
        "ffn.up_output": 2 * wide if spec.gated else 0,
        "ffn.down_input": 2 * wide,
        "ffn.dropout_mask": mask * x,
    }
    statistics = {
        "attention.norm_statistics": norm,
        "attention.log_sum_exp": 4 * spec.heads * rows // t if flash else 0,
        "ffn.norm_statistics": 0 if spec.parallel else norm,
    }
    outside = {
        "embedding.dropout_mask": mask * x,
        "final.norm_input": 2 * x,
        "final.norm_statistics": norm,
        "head.input": 2 * x,
        "loss.log_probabilities": 4 * rows * -(-spec.vocab // t),  # the loss is taken in FP32
    }
    if flash:
        terms = {name: n for name, n in terms.items() if "probabilities" not in name}
    whole = sum(terms.values())  # all that the gradients of one layer need
    if recompute == "selective":
        terms = {name: n for name, n in terms.items() if "probabilities" not in name}
    if recompute == "full":
        terms, statistics = {"layer.input": 2 * x}, {}
    recomputed = whole - sum(terms.values())
    terms, statistics, outside = map(_present, (terms, statistics, outside))
    return Activations(spec.layers, terms, statistics, outside, recomputed)


def _present(parts: Mapping[str, int]) -> dict[str, int]:
    return {name: nbytes for name, nbytes in parts.items() if nbytes}


def undescribed(spec: TransformerSpec) -> list[str]:
    """What the spec's layers have, in words, that `activations` has no bytes for; [] if nothing."""
    odd = {
        "a mixture of experts": spec.moe,
        "latent attention": spec.latent,
        "relative positions": spec.positions == "relative",
    }
    return [what for what, has in odd.items() if has]


def _check(spec: TransformerSpec, degree: int, sequence_parallel: bool) -> None:
    """Raise ValueError where the terms do not describe the spec, or `degree` cannot split it."""
    if odd := undescribed(spec):
        raise ValueError(
            f"{spec.name or 'The model'} has {odd[0]}, whose layers keep other tensors; "
            "activations() describes dense layers with ordinary or grouped-query attention."
        )
    check_cut("tensor_parallel", degree, spec, sequence_parallel)


def check_cut(
    name: str, degree: int, spec: TransformerSpec, sequence_parallel: bool = False
) -> int:
    """`degree` as an int; raises ValueError, by `name`, where it cannot cut the spec's layers."""
    split = {"heads": spec.heads, "FFN neurons": spec.ffn_hidden}
    if sequence_parallel:
        split["tokens of a sequence"] = spec.sequence
    return divisor(name, degree, split, {"key-value heads": spec.kv_heads})
