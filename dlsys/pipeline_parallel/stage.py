"""Stages: contiguous parts of a GPT that run on different ranks and keep the whole's names."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import count, whole
from dlsys.pipeline_parallel.partition import partition, piece_flops
from dlsys.pipeline_parallel.plan import Plan
from dlsys.tensors import device_of

_EMBEDS = ("embedding", "positions", "dropout")
_READS_OUT = ("norm", "head")


class Stage(nn.Module):
    """The `pieces` of a GPT-like model: 0 is its embedding, 1 to L its layers, L + 1 its head.

    Parameters have the names they have in the whole model, whose modules these are. A model is
    GPT-like that has GPT's children and its methods positions_of, stream_shape, embed, rotation
    and read_out.
    """

    def __init__(self, model: Any, pieces: range) -> None:
        super().__init__()
        self.pieces, last = pieces, len(model.layers) + 1
        self.embeds, self.reads_out = 0 in pieces, last in pieces
        keep = (_EMBEDS if self.embeds else ()) + (_READS_OUT if self.reads_out else ())
        tied = model.spec.tied and (self.embeds or self.reads_out)
        children = {
            name: child
            for name, child in model.named_children()
            # Under the name of the embedding a tied matrix is in the whole model's parameters.
            if name in keep or (tied and name == "embedding")
        }
        children["layers"] = nn.ModuleDict(
            {str(i): layer for i, layer in enumerate(model.layers) if i + 1 in pieces}
        )
        for name, child in children.items():
            self.add_module(name, child)
        # The model's methods, on these modules alone; in a tuple, which registers nothing twice.
        part = copy.copy(model)
        part._modules = dict.fromkeys(model._modules) | children
        self._part = (part,)
        self._one_of_two = tied and self.embeds != self.reads_out

    @property
    def tied(self) -> nn.Parameter | None:
        """The embedding that is also the head, where another stage has a copy of it; else None."""
        return self.get_parameter("embedding.weight") if self._one_of_two else None

    def forward(
        self, tokens: Tensor, x: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor:
        """x (b, s, hidden), from the stage before -> the same shape, for the next stage.

        The first stage reads tokens (b, s), the last returns logits (b, s, vocab), or the mean
        loss where targets (b, s) are given. All stages need the shape of `tokens`.
        """
        (part,) = self._part
        positions = part.positions_of(tokens)
        if self.embeds:
            x = part.embed(tokens, positions)
        if x is None:
            raise ValueError(f"The stage of pieces {self.pieces} needs x, from the stage before.")
        rotation = part.rotation(positions, x.dtype)
        for layer in part.layers.values():
            x = layer(x, rotation)
        return part.read_out(x, targets) if self.reads_out else x

    def message(self, tokens: Tensor) -> Tensor:
        """An empty tensor of the shape in which stages pass x on for tokens (b, s)."""
        return next(self.parameters()).new_empty(self._part[0].stream_shape(tokens))

    def initialize(self, seed: int) -> None:
        """Fill the parameters with the values that they have in the whole model of this seed."""
        self._part[0].initialize(seed)


@checked
def split(
    model: Any,
    plan: Plan,
    rank: SupportsIndex,
    pieces: Sequence[range] | None = None,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> dict[int, Stage]:
    """The stages that `rank` runs in `plan`, by number, taken out of a GPT-like `model`.

    - The model is taken apart: every rank builds its own, and what this rank does not keep is let
      go. Embedding and head of a tied model are one matrix where one rank has both.
    - pieces: those of every stage (None: cut so that FLOPs are even, see `partition`).
    - device: for a model built on the meta device, which has no memory. Only what is kept gets some
      there, with the values of the whole model of this `seed`.

    Raises ValueError for pieces that do not fit plan or model.
    """
    seed = whole("seed", seed)
    rank = count("rank", rank, least=0)
    if rank >= plan.p:
        raise ValueError(f"There is no rank {rank} in {plan.name}; ranks are 0 to {plan.p - 1}.")
    if not hasattr(model, "layers"):
        raise ValueError("This model has been taken apart by a split; every rank builds its own.")
    if device is not None:
        device = device_of(device)
    parts = partition(piece_flops(model.spec), plan.stages) if pieces is None else tuple(pieces)
    _check_pieces(parts, plan, len(model.layers))
    stages = {
        number: Stage(model, parts[number])
        for number, owner in enumerate(plan.placement)
        if owner == rank
    }
    model._modules.clear()
    if device is not None:
        _give_memory(nn.ModuleList(stages.values()), device)
        for stage in stages.values():
            stage.initialize(seed)
    return stages


def _check_pieces(parts: tuple[range, ...], plan: Plan, layers: int) -> None:
    if len(parts) != plan.stages:
        raise ValueError(f"pieces has {len(parts)} parts; {plan.name} has {plan.stages} stages.")
    if [piece for part in parts for piece in part] != list(range(layers + 2)):
        raise ValueError(
            f"pieces, {', '.join(map(str, parts))} must hold the embedding (0), layers 1 to "
            f"{layers} and the head ({layers + 1}) once and in order."
        )


def _give_memory(module: nn.Module, device: torch.device | str) -> None:
    """Replace parameters on the meta device by empty ones, buffers by zeros; what is shared stays
    shared."""
    given: dict[Tensor, nn.Parameter] = {}
    for child in module.modules():
        for name, old in child.named_parameters(recurse=False):
            if old.is_meta and old not in given:
                given[old] = nn.Parameter(torch.empty_like(old, device=device), old.requires_grad)
            if old in given:
                setattr(child, name, given[old])
        for name, buffer in child.named_buffers(recurse=False):
            if buffer.is_meta:
                setattr(child, name, torch.zeros_like(buffer, device=device))
