"""SGD, RMSprop and AdamW: each update in a few lines, with torch's own as their oracle.

In a rule, w are the weights and g the gradient. What is kept between steps is in `state`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, zeros_like

from dlsys.annotated import checked
from dlsys.checks import flag, refuse
from dlsys.tensors import Params
from dlsys.training_loop.update_rule import UpdateRule


class SGD(UpdateRule):
    """w <- w - lr g; with momentum m <- momentum m + g and w <- w - lr m.

    Polyak 1964. With `nesterov` the step is lr (g + momentum m), which looks one step ahead
    (Sutskever et al. 2013). Holds m, if there is momentum. torch.optim.SGD to the bit.
    """

    @checked
    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0.0, nesterov: bool = False
    ) -> None:
        flag("nesterov", nesterov)
        if nesterov and not momentum:
            refuse("momentum", momentum, "above zero with nesterov")
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov})

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        step = gradient
        if group["momentum"]:
            step = m = _kept(state, "m", weights).mul_(group["momentum"]).add_(gradient)
            if group["nesterov"]:
                step = gradient.add(m, alpha=group["momentum"])
        weights.add_(step, alpha=-group["lr"])


class RMSprop(UpdateRule):
    """v <- decay v + (1 - decay) g^2 and w <- w - lr g / (sqrt(v) + eps): an own rate for each w.

    Tieleman and Hinton 2012. Holds v. torch.optim.RMSprop to the bit.
    """

    @checked
    def __init__(
        self, params: Params, lr: float = 1e-2, decay: float = 0.99, eps: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        v = _kept(state, "v", weights)
        v.mul_(group["decay"]).addcmul_(gradient, gradient, value=1 - group["decay"])
        weights.addcdiv_(gradient, v.sqrt().add_(group["eps"]), value=-group["lr"])


class AdamW(UpdateRule):
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr m' / (sqrt(v') + eps).

    m' = m / (1 - b1^t) and v' = v / (1 - b2^t) take out that both averages began at zero. Before
    that, weights decay by themselves: w <- (1 - lr weight_decay) w, apart from the gradient, whose
    parts v would divide (Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019). Without
    decay it is Adam. Holds m and v. torch.optim.AdamW to the bit.
    """

    @checked
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    def update(
        self, weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
    ) -> None:
        """See the class."""
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        add_adam_step(weights, gradient, state, group)


def add_adam_step(
    weights: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]
) -> None:
    """w <- w - lr m' / (sqrt(v') + eps), and the moments in `state`; see AdamW."""
    (b1, b2), lr = group["betas"], group["lr"]
    t = state["step"] = state.get("step", 0) + 1
    m, v = _kept(state, "m", gradient), _kept(state, "v", gradient)
    m.lerp_(gradient, 1 - b1)
    v.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
    root = v.sqrt().div_((1 - b2**t) ** 0.5).add_(group["eps"])
    weights.addcdiv_(m, root, value=-lr / (1 - b1**t))


def _kept(state: dict[str, Any], name: str, like: Tensor) -> Tensor:
    """What the state has under this name; zeros before the first step."""
    if name not in state:
        state[name] = zeros_like(like)
    return state[name]
