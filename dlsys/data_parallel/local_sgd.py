"""Local SGD: ranks train alone for some steps, then average their parameters."""

from __future__ import annotations

import torch
from torch import nn

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count
from dlsys.world import Communicator
from dlsys.world.alike import take_over


class LocalSGD(nn.Module):
    """Averages the parameters of `module` over the ranks after every `every` optimizer steps.

    Call it as the module; after each `optimizer.step()` call `step()`. Gradients are never sent: a
    rank sends 2(n-1)/n S in `every` steps, 1/every of what data parallelism does. With every=1 and
    plain SGD it IS data parallelism, for mean(w - lr g) = w - lr mean(g) where all start from one
    w. Nothing else is: an optimizer's state (momentum, Adam's moments) stays each rank's own and
    is not averaged, and between averages the ranks drift apart. Buffers are not averaged either.
    comm=None means the world that the caller is in. Every rank starts from rank 0's parameters.
    McMahan et al. 2017 (federated averaging); Stich 2019 (Local SGD).
    """

    @checked
    def __init__(self, module: nn.Module, comm: Communicator | None = None, every: int = 1) -> None:
        super().__init__()
        self.module = module
        self.comm = world.current() if comm is None else comm
        self.every = count("every", every)
        self.steps = 0
        take_over(self.comm, module.parameters())

    def forward(self, *args: object, **kwargs: object) -> object:
        """The module's own."""
        return self.module(*args, **kwargs)

    def step(self) -> bool:
        """Count an optimizer step; average where it is the last of `every`. True where it did."""
        self.steps += 1
        if self.steps % self.every:
            return False
        self.average()
        return True

    def average(self) -> None:
        """Set the parameters of every rank to their mean over the ranks, in one all-reduce."""
        self._fill(self.comm.all_reduce(self._flat(), op="mean"))

    def _flat(self) -> torch.Tensor:
        # nn.utils.parameters_to_vector refuses parameters that are not contiguous.
        return torch.cat([p.detach().reshape(-1) for p in self.module.parameters()])

    @torch.no_grad()
    def _fill(self, flat: torch.Tensor) -> None:
        parameters = list(self.module.parameters())
        pieces = flat.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))
