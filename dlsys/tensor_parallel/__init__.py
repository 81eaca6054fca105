"""Tensor parallelism: every layer cut over the ranks of a node, by columns and then by rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlsys.tensor_parallel.plan import Collective, Layout, LayoutError, Parameter, layout

if TYPE_CHECKING:
    from dlsys.tensor_parallel.gpt import TensorParallelGPT
    from dlsys.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
    from dlsys.tensor_parallel.vocabulary import (
        VocabParallelEmbedding,
        vocab_parallel_cross_entropy,
    )
    from dlsys.tensor_parallel.weights import full_state, load

# What computes imports torch and what draws Matplotlib: loaded where first asked for (PEP 562).
_HOME = {
    "ColumnParallelLinear": "linear",
    "RowParallelLinear": "linear",
    "TensorParallelGPT": "gpt",
    "VocabParallelEmbedding": "vocabulary",
    "full_state": "weights",
    "load": "weights",
    "vocab_parallel_cross_entropy": "vocabulary",
}

__all__ = [
    "Collective",
    "ColumnParallelLinear",
    "Layout",
    "LayoutError",
    "Parameter",
    "RowParallelLinear",
    "TensorParallelGPT",
    "VocabParallelEmbedding",
    "full_state",
    "layout",
    "load",
    "vocab_parallel_cross_entropy",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
