"""The least problems that still teach: a bowl that is steep in one direction and flat in another,
and a model of language that is a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse_what, some, whole
from dlsys.tensors import among, indices, of_shape


class Quadratic(nn.Module):
    """w^T H w / 2, begun at w = (1, 1, ...) in the axes of H, with these curvatures along them.

    With a `seed` the axes are turned at random, so that no weight has a curvature of its own; None
    leaves them on the weights. The largest curvature by the least is H's condition number.
    """

    @checked
    def __init__(self, curvatures: Sequence[float], seed: int | None = None) -> None:
        super().__init__()
        some("curvatures", curvatures)
        for each in curvatures:
            positive("curvatures", each)
        size = count("curvatures: their number", len(curvatures), most=4096)
        axes = torch.eye(size)
        if seed is not None:
            stream = torch.Generator().manual_seed(whole("seed", seed))
            axes = torch.linalg.qr(torch.randn(size, size, generator=stream)).Q
        self.hessian = axes @ torch.diag(torch.tensor([float(c) for c in curvatures])) @ axes.T
        self.weights = nn.Parameter(axes.sum(1))

    def forward(self) -> Tensor:
        """The height."""
        return self.weights @ self.hessian @ self.weights / 2


class Bigram(nn.Module):
    """Each byte from the one before: scores (256, 256), begun at zero. Convex, and quick."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(256, 256))

    @checked
    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """tokens and targets (b, s) -> the mean loss."""
        indices("tokens", tokens)
        indices("targets", targets)
        if not tokens.numel() or tokens.is_meta or targets.is_meta or tokens.shape != targets.shape:
            both = f"{of_shape(tokens)} and {of_shape(targets)}"
            refuse_what("tokens and targets", both, "both (b, s) bytes")
        with among("tokens", tokens, 256), among("targets", targets, 256):
            return F.cross_entropy(self.scores[tokens].flatten(0, -2), targets.flatten())


@checked
def descend(
    quadratic: Quadratic, make: Callable[[Any], torch.optim.Optimizer], steps: int
) -> list[float]:
    """The heights before each step of the optimizer `make(parameters)`, and after the last."""
    optimizer = make(quadratic.parameters())
    heights = []
    for _ in range(count("steps", steps, most=10**6)):
        optimizer.zero_grad()
        height = quadratic()
        height.backward()
        optimizer.step()
        heights.append(float(height.detach()))
    return [*heights, float(quadratic().detach())]
