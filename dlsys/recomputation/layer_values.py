"""What `layer_graph` and `KeepTensors` call the same tensors of a layer of the GPT."""

from __future__ import annotations

from collections.abc import Sequence

from dlsys.annotated import checked
from dlsys.checks import refuse_what, unknown
from dlsys.model import Block
from dlsys.recomputation.keep_tensors import KeepTensors

FLASH = "attention.core._scaled_dot_product_flash_attention_for_cpu"
# Without dropout; an operation on batches copies what the products of attention read.
VALUES: dict[str, tuple[str, ...]] = {
    "attention.input": ("norm1.native_layer_norm.0",),
    "attention.norm_statistics": ("norm1.native_layer_norm.1", "norm1.native_layer_norm.2"),
    "attention.query": ("attention.core.clone",),
    "attention.key": ("attention.core.clone.2",),
    "attention.value": ("attention.core.clone.3",),
    "attention.scores": ("attention.core.bmm",),
    "attention.probabilities": ("attention.core._softmax",),
    "attention.output_input": ("attention.clone",),
    "attention.output": ("attention.output.addmm",),
    "ffn.norm_input": ("add",),
    "ffn.input": ("norm2.native_layer_norm.0",),
    "ffn.norm_statistics": ("norm2.native_layer_norm.1", "norm2.native_layer_norm.2"),
    "ffn.activation_input": ("ffn.up.addmm",),
    "ffn.down_input": ("ffn.gelu",),
    "ffn.output": ("ffn.down.addmm",),
}
DROPOUT: dict[str, tuple[str, ...]] = {
    "attention.probabilities_dropped": ("attention.core.dropout.native_dropout.0",),
    "attention.probabilities_mask": ("attention.core.dropout.native_dropout.1",),
    "attention.dropped": ("dropout1.native_dropout.0",),
    "attention.dropout_mask": ("dropout1.native_dropout.1",),
    "ffn.dropped": ("dropout2.native_dropout.0",),
    "ffn.dropout_mask": ("dropout2.native_dropout.1",),
}


@checked
def keep_in_layer(block: Block, keep: Sequence[str]) -> KeepTensors:
    """`KeepTensors` for a layer of the GPT, by the names that `layer_graph` has for its tensors.

    So a point of the front is run as it was priced:

        best = keep_best(layer_graph(spec, batch), budget)
        with keep_in_layer(block, best.keep) as kept:
            y = block(x)

    The layer is as GPT-2's: layer norms, attention without flash, a plain feed-forward network; on
    batches of two sequences or more. Raises ValueError for another, whose operations have other
    names (`KeepTensors(None, block).graph` shows them), and for a name that is none.
    """
    core = block.attention.core
    odd = {
        "flash attention": core.flash,
        "a gated feed-forward network": block.ffn.gate is not None,
        "no layer norm": type(block.norm1).__name__ != "LayerNorm",
    }
    if parts := [part for part, has in odd.items() if has]:
        refuse_what("block", f"one with {parts[0]}", "a layer as GPT-2's")
    drops = block.training and core.dropout.probability
    values = VALUES | (DROPOUT if drops else {})
    for name in keep:
        if not isinstance(name, str) or name not in values:
            raise ValueError(f"keep: {unknown('tensor of the layer', name, values)}")
    return KeepTensors([value for name in keep for value in values[name]], block)
