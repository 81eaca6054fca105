"""A whole GPT's parameters into a tensor-parallel one's, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.tensor_parallel.linear import part
from dlsys.tensor_parallel.plan import Parameter
from dlsys.tensors import alike

if TYPE_CHECKING:
    from dlsys.tensor_parallel.gpt import TensorParallelGPT


@checked
@torch.no_grad()
def load(model: TensorParallelGPT, full_state: Mapping[str, Tensor]) -> None:
    """Fill the model with this rank's parts of `full_state`, a GPT's state_dict().

    Ranks do not communicate: each reads the whole. Raises ValueError for names that are missing or
    unknown, and for shapes or kinds of numbers that are not those of the model's spec, before
    anything changes.
    """
    state = model.state_dict()
    if odd := sorted(set(state) ^ set(full_state)):
        missing = [name for name in odd if name in state]
        kind, names = ("lacks", missing) if missing else ("has unknown", odd)
        raise ValueError(f"The state {kind} {', '.join(names[:5])}; give a GPT's state_dict().")
    for name, mine in state.items():
        cut, whole = cut_of(model, name), full_state[name]
        if tuple(whole.shape) != cut.shape:
            raise ValueError(
                f"{name} has the shape {tuple(whole.shape)}; the whole of this model's spec has "
                f"{cut.shape}."
            )
        alike(name, whole, mine.new_empty(()).expand(cut.shape))
    for name, mine in state.items():
        mine.copy_(part(full_state[name], cut_of(model, name), model.comm.rank))


@checked
def full_state(model: TensorParallelGPT) -> dict[str, Tensor]:
    """The state_dict() of the GPT that the ranks hold together, on every rank; all call it."""
    return {name: gathered(model, name, mine) for name, mine in model.state_dict().items()}


@checked
@torch.no_grad()
def gathered(model: TensorParallelGPT, name: str, mine: Tensor) -> Tensor:
    """The whole of which every rank passes its part, such as a gradient, laid out as `name` is."""
    cut = cut_of(model, name)
    if cut.dimension is None or cut.pieces == 1:
        return mine.detach().clone()
    rows = mine.movedim(cut.dimension, 0)
    if cut.pieces == cut.ranks:
        rows = model.comm.all_gather(rows, cut.shape[cut.dimension])
    else:  # neighbours hold the same piece
        blocks = model.comm.all_gather(rows).unflatten(0, (cut.ranks, -1))
        rows = blocks[:: cut.ranks // cut.pieces].flatten(0, 1)
    return rows.movedim(0, cut.dimension).contiguous()


def cut_of(model: TensorParallelGPT, name: str) -> Parameter:
    """How the parameter of this name lies on the ranks; a tied head is the embedding."""
    tied = model.spec.tied and name == "head.weight"
    return model.layout["embedding.weight" if tied else name]
