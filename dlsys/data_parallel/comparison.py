"""Data against tensor parallelism: a batch on n ranks, by samples or by the matrices of a model."""

from __future__ import annotations

from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count
from dlsys.data_parallel.price import step_bytes
from dlsys.plain_data import plain_data
from dlsys.transformer import TransformerSpec

STATE = 16
"""Bytes of weights, gradients and optimizer state for a parameter: AdamW in mixed precision."""
PER_LAYER = 4
"""All-reduces of a layer's tensor-parallel step: two forward, two backward."""


@plain_data
class Share(NamedTuple):
    """What one rank has of a step: FLOPs, bytes of model state, and bytes that it sends."""

    flops: float
    state_bytes: float
    sent_bytes: float


@checked
def data_or_model(
    spec: TransformerSpec, batch: int, ranks: int, itemsize: int = 2
) -> tuple[Share, Share]:
    """One step on `batch` sequences in all, with data parallelism and with cut matrices.

    - data: C/n FLOPs, all 16 N bytes of state, 2(n-1)/n N gradients sent, whatever the batch;
    - model: C/n FLOPs, 16 N/n bytes, 2(n-1)/n x 4 L b s h activations sent, whatever h^2 is.

    itemsize: bytes of a gradient and of an activation. Left out: norms, which stay whole, and the
    ends of the model, whose few messages do not grow with its layers. Shoeybi et al. 2019
    (arXiv 1909.08053), section 3.
    """
    batch, n = count("batch", batch), count("ranks", ranks)
    size, whole = count("itemsize", itemsize), spec.parameters()
    flops = spec.training_flops(batch) / n
    activations = PER_LAYER * spec.layers * batch * spec.sequence * spec.hidden
    return (
        Share(flops, STATE * whole, step_bytes(size * whole, n)),
        Share(flops, STATE * whole / n, step_bytes(size * activations, n)),
    )


@checked
def even_tokens(spec: TransformerSpec) -> float:
    """Tokens of the ranks' batch, together, at which both ways send the same: N / (4 L h).

    With N = 12 L h^2, as of plain layers: 3h. A smaller batch sends less with cut matrices, a
    larger one less with copies, on any number of ranks.
    """
    return spec.parameters() / (PER_LAYER * spec.layers * spec.hidden)
