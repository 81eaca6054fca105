"""The GPT of dlsys.model with mixtures of experts in the place of feed-forward networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.expert_parallel.layer import MoE
from dlsys.model import GPT
from dlsys.tensors import device_of
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator


class MixtureGPT(GPT):
    """dlsys.model.GPT with the mixtures of `spec.moe`, whose experts lie on the ranks of `comm`.

    It has `spec.parameters()` parameters over all ranks. For a `seed`, a parameter's value depends
    on its name alone, an expert's not on the rank that holds it. Each rank calls it with sequences
    of its own; `average_gradients` makes its gradients those of the mean loss. In training, the
    loss includes the mixtures' own losses.

    `options` are those of `MoE`: everyone, choose, weigh, capacity_factor, auxiliary_loss, z_loss,
    balance_step. comm=None means the world that the caller is in; outside of any, this device
    alone. Raises ValueError as GPT and MoE do.
    """

    @checked
    def __init__(
        self,
        spec: TransformerSpec,
        comm: Communicator | None = None,
        dropout: float = 0.0,
        flash: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        if spec.moe is None:
            refuse_what("spec", "one without a mixture", "given with moe=MixtureOfExperts(8, 2)")
        without = dataclasses.replace(spec, moe=None)
        super().__init__(without, dropout, flash, seed, device, dtype)
        self.spec = spec
        for layer, block in enumerate(self.layers):
            if not spec.is_sparse(layer):
                continue
            with torch.device("meta"):  # where it draws nothing, so that ranks do not communicate
                mixture = MoE(spec, comm, **options)
            block.ffn = mixture.to_empty(device=device_of(device))
            mixture.reset_buffers()
        self.to(dtype)
        self.initialize(seed)

    @property
    def mixtures(self) -> list[MoE]:
        """The mixtures of all layers that have one."""
        return [block.ffn for block in self.layers if isinstance(block.ffn, MoE)]

    def initial(self, name: str, shape: Sequence[int], seed: int) -> Tensor:
        """The value that the parameter of this name starts from, expert by expert."""
        for kind in ("experts", "shared"):
            layer, found, matrix = name.partition(f".ffn.{kind}.")
            if found:
                comm = self.mixtures[0].comm if kind == "experts" else None
                first = comm.rank * shape[0] if comm else 0
                names = [f"{layer}.ffn.{kind}.{first + i}.{matrix}" for i in range(shape[0])]
                return torch.stack([GPT.initial(self, one, shape[1:], seed) for one in names])
        return super().initial(name, shape, seed)

    def read_out(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Logits, or the mean loss and what the mixtures add to it; see GPT."""
        found = super().read_out(x, targets)
        losses = [layer.loss for layer in self.mixtures if layer.loss is not None]
        return found if targets is None else found + sum(losses)

    def rebalance(self) -> None:
        """Move the biases of all mixtures; see `MoE.rebalance`."""
        for layer in self.mixtures:
            layer.rebalance()
