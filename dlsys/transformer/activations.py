"""What the forward pass keeps for the backward pass: bytes for each operation of each layer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from dlsys.annotated import checked
from dlsys.checks import count, divisor
from dlsys.transformer.kept import Device
from dlsys.transformer.spec import TransformerSpec

Recompute = Literal["none", "selective", "full"]


class Activations(int):
    """Bytes that all layers keep on one device: an int, and where the bytes come from.

    Kept is what stays between forward and backward; the int is `layers` x `per_layer`, and with it
    `dense` where a model has layers of two kinds.

    - `terms`: the bytes of each such tensor of one layer, which sum to `per_layer`
    - `statistics`: FP32 numbers for each row that norms, routers and flash attention keep, in one
      layer
    - `outside`: what the embedding, the last norm, the head and the loss keep, once a model
    - `recomputed`: what backward rebuilds, one layer at a time, before it can use it; 0 where
      nothing is recomputed
    - `dense`: where only some layers are mixtures of experts, which then are the `layers` told
      above, the others apart; None where all layers are alike

    The int leaves out `statistics` and `outside`, which are smaller, as the paper does.
    """

    layers: int
    terms: Mapping[str, int]
    statistics: Mapping[str, int]
    outside: Mapping[str, int]
    recomputed: int
    dense: Activations | None

    def __new__(
        cls,
        layers: int,
        terms: Mapping[str, int],
        statistics: Mapping[str, int],
        outside: Mapping[str, int],
        recomputed: int = 0,
        dense: Activations | None = None,
    ) -> Activations:
        """Sum the terms over the layers."""
        self = super().__new__(cls, layers * sum(terms.values()) + (dense or 0))
        self.layers = layers
        self.terms = MappingProxyType(dict(terms))
        self.statistics = MappingProxyType(dict(statistics))
        self.outside = MappingProxyType(dict(outside))
        self.recomputed = recomputed
        self.dense = dense
        return self

    def __getnewargs__(  # type: ignore[override]
        self,
    ) -> tuple[int, dict[str, int], dict[str, int], dict[str, int], int, Activations | None]:
        """What `copy` and `pickle` rebuild it from."""
        parts = dict(self.terms), dict(self.statistics), dict(self.outside)
        return self.layers, *parts, self.recomputed, self.dense

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
        small = self.layers * sum(self.statistics.values()) + sum(self.outside.values())
        if self.dense is not None:
            small += self.dense.everything - self.dense
        return int(self) + small

    @property
    def peak(self) -> int:
        """The most bytes at once: everything, and the larger of what backward makes beside it.

        First torch's loss makes two more arrays like the one that it keeps; when these are gone,
        backward rebuilds a layer at a time.
        """
        rebuilt = max(self.recomputed, self.dense.recomputed if self.dense else 0)
        return self.everything + max(rebuilt, self.of_loss)

    @property
    def of_loss(self) -> int:
        """Bytes of the two arrays that torch's loss makes as backward begins."""
        return 2 * self.outside.get("loss.log_probabilities", 0)


@checked
def activations(
    spec: TransformerSpec,
    batch: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    recompute: Recompute = "none",
    flash: bool = False,
    *,
    context_parallel: int = 1,
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

    Context parallelism divides the tokens, and with them every term: queries, keys and values are
    those of a device's own tokens, as ring attention keeps them, which travel again in backward.

    The terms follow the spec where it differs from GPT-2:

    - grouped queries keep narrower keys and values; with t above the key-value heads each device
      holds a copy of one
    - a gated FFN keeps four tensors of the FFN's width (gate, its SiLU, up, their product) where
      a plain one keeps two
    - a mixture keeps these for each of the k + shared experts that a token visits, and besides two
      tensors of k h a token: the copies that are sent to experts, and what these send back, which
      the weights' gradients need. Tensor parallelism divides an expert's neurons, and never the
      copies sent to it; sequence parallelism divides what comes back. The load is balanced: where
      experts lie on several devices, each receives as many copies as it sends.
    - latent attention keeps what its low ranks' norms read and what its up-projections read
    - without dropout the masks and the second copy of the probabilities go

    Args: `spec.sequence` tokens a sample; `batch`, samples in one micro-batch; `context_parallel`,
    devices that share a sample's tokens; `dropout`, as in Megatron, or False for models trained
    without. Returns bytes as an int (see Activations). Raises ValueError for

    - a degree that does not divide heads, the FFN's width or an expert's, that neither divides the
      key-value heads nor is a multiple of them, or that does not divide the tokens
    - an unknown `recompute`
    - relative positions, whose layers keep other tensors

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), sections 4 and 5; of mixtures, what
    Megatron-LM's dispatcher by all-to-all keeps (`MoEAlltoAllTokenDispatcher`).
    """
    batch = count("batch", batch)
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f"recompute is {recompute!r}; it must be 'none', 'selective' or 'full'.")
    if spec.positions == "relative":
        raise ValueError(
            f"{spec.name or 'The model'} has relative positions, whose layers keep other tensors."
        )
    c = divisor("context_parallel", context_parallel, {"tokens of a sequence": spec.sequence})
    t = check_cut("tensor_parallel", tensor_parallel, spec, sequence_parallel, c)
    shared = t if sequence_parallel else 1
    device = Device(spec, spec.sequence // c * batch, t, shared, flash, dropout)
    sparse = spec.sparse_layers()
    kinds = [(sparse, True), (spec.layers - sparse, False)]
    first, *others = (
        (layers, *_kept(device, is_sparse, recompute)) for layers, is_sparse in kinds if layers
    )
    dense = [Activations(n, terms, small, {}, again) for n, terms, small, again in others]
    layers, terms, statistics, recomputed = first
    return Activations(layers, terms, statistics, device.outside(), recomputed, *dense)


def _kept(
    device: Device, sparse: bool, recompute: Recompute
) -> tuple[dict[str, int], dict[str, int], int]:
    """Terms and statistics that one layer keeps, and what backward rebuilds of it."""
    terms, statistics = device.layer(sparse)
    whole = sum(terms.values())  # all that the gradients of one layer need
    if recompute == "selective":
        terms = {name: n for name, n in terms.items() if "probabilities" not in name}
    if recompute == "full":
        terms, statistics = {"layer.input": 2 * device.stream}, {}
    return terms, statistics, whole - sum(terms.values())


def beyond_dense(spec: TransformerSpec) -> list[str]:
    """What the spec's layers have, in words, beside a dense layer with ordinary attention."""
    odd = {
        "a mixture of experts": spec.moe,
        "latent attention": spec.latent,
        "norms of queries and keys": spec.query_key_norm,
        "relative positions": spec.positions == "relative",
    }
    return [what for what, has in odd.items() if has]


def check_cut(
    name: str,
    degree: int,
    spec: TransformerSpec,
    sequence_parallel: bool = False,
    context: int = 1,
) -> int:
    """`degree` as an int; raises ValueError, by `name`, where it cannot cut the spec's layers.

    `context` devices share a sequence before; with sequence parallelism the degree cuts the rest.
    """
    split, sparse = {"heads": spec.heads}, spec.sparse_layers()
    if sparse < spec.layers:
        split["FFN neurons"] = spec.ffn_hidden
    if spec.moe and sparse:
        split["neurons of an expert"] = spec.moe.ffn_hidden or spec.ffn_hidden
    if sequence_parallel:
        split["tokens of a sequence"] = spec.sequence // context
    shared = {} if spec.latent else {"key-value heads": spec.kv_heads}
    return divisor(name, degree, split, shared)
