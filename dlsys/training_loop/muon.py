"""Muon: a step of a matrix that goes equally far in all its directions."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.tensors import Params, of_numbers, of_shape
from dlsys.training_loop.update_rule import UpdateRule

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of a x + b x^3 + c x^5, chosen to lift small singular values fast."""


class Muon(UpdateRule):
    """m <- momentum m + (1 - momentum) g; of the look-ahead of m, all singular values made about 1.

    w <- (1 - lr weight_decay) w - lr sqrt(max(1, rows / columns)) orthogonal(...). For the matrices
    of hidden layers alone: embeddings, norms and biases are AdamW's. Holds m. Jordan et al. 2024
    (kellerjordan.github.io/posts/muon). torch.optim.Muon to the bit. Raises ValueError for
    parameters that are no matrices.
    """

    @checked
    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0.95, weight_decay: float = 0.1
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, settings)
        for group in self.param_groups:
            for weights in group["params"]:
                if weights.dim() != 2:
                    refuse_what("params: one", of_shape(weights), "a matrix; others are AdamW's")

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        if "m" not in state:
            state["m"] = gradient.new_zeros(gradient.shape)
        m = state["m"].lerp_(gradient, 1 - group["momentum"])
        step = orthogonal(gradient.lerp(m, group["momentum"]))
        rows, columns = weights.shape
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        weights.add_(step, alpha=-group["lr"] * max(1, rows / columns) ** 0.5)


@checked
def orthogonal(x: Tensor) -> Tensor:
    """About U V^T for x = U S V^T (m, n): the singular vectors, with values of 0.7 to 1.2.

    Five times X <- a X + b (X X^T) X + c (X X^T)^2 X from x / |x|, in BF16: products of matrices
    where a singular value decomposition would take far longer. Raises ValueError for no matrix.
    """
    of_numbers("x", x)
    if x.dim() != 2 or not x.numel():
        refuse_what("x", of_shape(x), "a matrix")
    wide = x.bfloat16().T if x.shape[0] > x.shape[1] else x.bfloat16().clone()
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = wide @ wide.T
        wide = wide.addmm(gram.addmm(gram, gram, beta=B, alpha=C), wide, beta=A)
    return wide.T if x.shape[0] > x.shape[1] else wide
