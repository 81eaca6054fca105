"""Tensor parallelism: every layer cut over the ranks of a node, by columns and then by rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlsys.tensor_parallel.plan import Collective, Layout, LayoutError, Parameter, layout
from dlsys.tensor_parallel.price import (
    Kept,
    Price,
    activation_bytes,
    all_reduce_bytes,
    step_bytes,
)

if TYPE_CHECKING:
    from dlsys.tensor_parallel.autograd import (
        copy,
        gather,
        gather_sequence,
        reduce,
        scatter,
        scatter_sequence,
    )
    from dlsys.tensor_parallel.draw import draw_activations, draw_layer, draw_share
    from dlsys.tensor_parallel.gpt import TensorParallelGPT
    from dlsys.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
    from dlsys.tensor_parallel.vocabulary import (
        VocabParallelEmbedding,
        vocab_parallel_cross_entropy,
    )
    from dlsys.tensor_parallel.weights import full_state, gathered, load

# What computes imports torch and what draws Matplotlib: loaded where first asked for (PEP 562).
_HOME = {
    "ColumnParallelLinear": "linear",
    "RowParallelLinear": "linear",
    "TensorParallelGPT": "gpt",
    "VocabParallelEmbedding": "vocabulary",
    "copy": "autograd",
    "draw_activations": "draw",
    "draw_layer": "draw",
    "draw_share": "draw",
    "full_state": "weights",
    "gather": "autograd",
    "gather_sequence": "autograd",
    "gathered": "weights",
    "load": "weights",
    "reduce": "autograd",
    "scatter": "autograd",
    "scatter_sequence": "autograd",
    "vocab_parallel_cross_entropy": "vocabulary",
}

__all__ = [
    "Collective",
    "ColumnParallelLinear",
    "Kept",
    "Layout",
    "LayoutError",
    "Parameter",
    "Price",
    "RowParallelLinear",
    "TensorParallelGPT",
    "VocabParallelEmbedding",
    "activation_bytes",
    "all_reduce_bytes",
    "copy",
    "draw_activations",
    "draw_layer",
    "draw_share",
    "full_state",
    "gather",
    "gather_sequence",
    "gathered",
    "layout",
    "load",
    "reduce",
    "scatter",
    "scatter_sequence",
    "step_bytes",
    "vocab_parallel_cross_entropy",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
