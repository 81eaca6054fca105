"""GaLore: Adam on a projection of the gradient, whose moments are as small as its rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.tensors import Params
from dlsys.training_loop.optimizers import add_adam_step
from dlsys.training_loop.update_rule import UpdateRule


class GaLore(UpdateRule):
    """Adam on P^T g (rank, n) in the place of g (m, n), m <= n, and w <- w + scale P (its step).

    P (m, rank) are the first singular vectors of the gradient, found anew `every` so many steps:
    weights move in all directions, but in few at a time. Moments found under the old P go on under
    the new one. It is the shorter side that is projected; vectors and matrices with a side of at
    most `rank` have plain Adam. Which parameters it is given is the caller's choice: embeddings are
    usually left to AdamW. Holds rank (m + 2 n) numbers. Zhao et al. 2024 (arXiv 2403.03507),
    algorithm 1.
    """

    @checked
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        rank: int = 128,
        every: int = 200,
        scale: float = 0.25,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        settings: dict[str, Any] = {"lr": lr, "rank": rank, "every": every, "scale": scale}
        super().__init__(params, settings | {"betas": betas, "eps": eps})

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        if weights.dim() != 2 or min(weights.shape) <= group["rank"]:
            add_adam_step(weights, gradient, state, group)
            return
        tall = weights.shape[0] > weights.shape[1]
        wide = gradient.T if tall else gradient
        if state.get("step", 0) % group["every"] == 0:
            vectors = torch.linalg.svd(wide.float(), full_matrices=False).U
            state["projection"] = vectors[:, : group["rank"]].to(weights.dtype).contiguous()
        projection = state["projection"]
        step = gradient.new_zeros(group["rank"], wide.shape[1])
        add_adam_step(step, projection.T @ wide, state, group)
        back = projection @ step
        weights.add_(back.T if tall else back, alpha=group["scale"])
