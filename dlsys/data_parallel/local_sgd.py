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

    @torch.no_grad()
    def step(self) -> None:
        """Count an optimizer step; after the last of `every`, average in one all-reduce."""
        self.steps += 1
        if self.steps % self.every:
            return
        parameters = list(self.module.parameters())
        flat = torch.cat([parameter.reshape(-1) for parameter in parameters])
        parts = self.comm.all_reduce(flat, op="mean").split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))
