"""The chain of a transformer: its embedding, its layers and its head, in bytes and FLOPs."""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.recomputation.plan import MOST_LAYERS, Chain, Layer
from dlsys.transformer import TransformerSpec
from dlsys.transformer.activations import activations, beyond_dense

UNIT = Layer("unit", 1, 1, 1, 2, tail=1)
"""A layer of one byte that keeps its input alone, as a linear layer does; backward costs twice."""

BEHIND = ("attention.output_input", "attention.dropout_mask")


@checked
def uniform(layers: int, layer: Layer = UNIT) -> Chain:
    """A chain of as many equal layers."""
    return Chain((layer,) * count("layers", layers, most=MOST_LAYERS))


@checked
def chain_of(
    spec: TransformerSpec,
    batch: int,
    tensor_parallel: int = 1,
    sequence_parallel: bool = False,
    flash: bool = False,
    *,
    dropout: bool = True,
) -> Chain:
    """The chain of a model on one device: bytes of `activations` in 16 bits, FLOPs of the spec.

    `spec.layers` layers between an embedding, which keeps its dropout's mask, and a head, which is
    the last norm, the product with the vocabulary and the loss. The arguments are those of
    `dlsys.transformer.activations.activations`, and what is kept is what it says: its
    `everything` where all is kept, its selective sum where the core's s x s tensors are dropped,
    its full sum where each layer is recomputed. A device has 1/t of the FLOPs, a product's backward
    is twice its forward, and flash attention has no core to drop.

    Behind the core lie its output, the dropout after it and the feed-forward network. Run again it
    computes with scaled queries and, of several sequences and heads, keys and values in another
    order, which plain training keeps in their place.
    Its tail is the weighted sum. A layer's tail is its last product (down) where no dropout
    stands behind it, and the head's tail is nothing: the loss keeps its last tensor.

    Raises as `activations` does, and for a mixture of experts or another attention.
    """
    if odd := beyond_dense(spec):
        refuse("spec", spec.name or spec, f"one of dense layers, without {odd[0]}")
    t, cut = tensor_parallel, sequence_parallel
    kept = activations(spec, batch, t, cut, flash=flash, dropout=dropout)
    bare = activations(spec, batch, t, cut, "selective", dropout=dropout)
    ends = activations(spec, batch, t, cut, "full")
    saved = kept.per_layer + sum(kept.statistics.values())
    core_bytes = kept.per_layer - bare.per_layer
    parts = {**kept.terms, **kept.statistics}
    behind = sum(n for name, n in parts.items() if name.startswith("ffn.") or name in BEHIND)
    several = batch > 1 and spec.kv_heads > t
    copies = ("query", "key", "value") if several else ("query",)
    copied = sum(parts[f"attention.{name}"] for name in copies)
    made = []
    for i in range(spec.layers):
        flops = {name: n / t for name, n in spec.operations(batch, i).items()}
        core = flops["scores"] + flops["weighted_sum"] if core_bytes else 0.0
        forward = sum(flops.values())
        made.append(
            Layer(
                f"layer {i}",
                ends.per_layer,
                saved,
                forward,
                2 * forward,
                core_bytes,
                core,
                0.0 if dropout else flops["ffn_down"],
                flops["weighted_sum"] if core_bytes else 0.0,
                behind,
                copied,
            )
        )
    outside = kept.outside
    mask = outside.get("embedding.dropout_mask", 0)
    rest = sum(outside.values()) - mask
    product = spec.operations(batch)["head"] / t
    head = Layer("head", outside["final.norm_input"], rest, product, 2 * product)
    return Chain((Layer("embedding", 0, mask, 0.0, 0.0), *made, head))
