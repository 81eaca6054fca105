"""Parameters that every rank holds whole, beside those that are sharded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from dlsys.tensors import bucketed
from dlsys.world import Communicator
from dlsys.zero.fsdp.membership import Slot


class Replicated:
    """Parameters in no unit: their gradients are averaged over all ranks, once a step.

    Modules compute with them in the dtype `compute`, None: in their own.
    """

    def __init__(
        self, comm: Communicator, slots: Sequence[Slot], compute: torch.dtype | None
    ) -> None:
        self.comm, self.slots, self._compute = comm, slots, compute
        self.parameters = [slot.parameter for slot in slots]

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Around a forward pass: converted ones stay shown until its backward is over."""
        self._show()
        stays = False
        try:
            yield
            stays = torch.is_grad_enabled()
        finally:
            if not stays:
                self.hide()

    def _show(self) -> None:
        """Let the modules see them in the dtype that is computed in."""
        for slot in self.slots if self._compute else ():
            if slot.parameter.is_floating_point():
                converted = slot.parameter.to(self._compute)
                for owner, leaf in slot.owners:
                    owner.__dict__[leaf] = converted

    def hide(self) -> None:
        """Let the modules see them as they are."""
        for slot in self.slots:
            for owner, leaf in slot.owners:
                owner.__dict__.pop(leaf, None)

    def call_when_ready(self, function: Callable[[], None]) -> None:
        """Call `function` in each backward pass that reaches one of them."""
        for parameter in self.parameters:
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _: function())

    @torch.no_grad()
    def average(self) -> None:
        """Set gradients to their mean over the ranks; what no rank used gets zeros."""
        trained = [(p, _gradient(p)) for p in self.parameters if p.requires_grad]
        for bucket in bucketed(trained, float("inf")):
            flat = torch.cat([gradient.reshape(-1) for _, gradient in bucket])
            if self.comm.size > 1:
                flat = self.comm.all_reduce(flat, "mean", out=flat)
            pieces = flat.split([parameter.numel() for parameter, _ in bucket])
            for (parameter, _), piece in zip(bucket, pieces, strict=True):
                parameter.grad = piece.view(parameter.shape)


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
