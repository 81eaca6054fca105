"""Adam whose moments are bytes: four times less state, block by block.

A block of 2,048 numbers shares one FP32 scale, its largest; of each number a byte says which of 256
fixed fractions of the scale it is nearest to. Dettmers et al. 2022, 8-bit Optimizers via Block-wise
Quantization (arXiv 2110.02861), sections 2 and 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.annotated import checked
from dlsys.checks import at_least, count, flag, positive, refuse, refuse_what
from dlsys.tensors import Params, alike, groups_of, whole_or_not

BLOCK = 2048


@checked
def dynamic_tree(signed: bool = True) -> Tensor:
    """The 256 fractions that a byte stands for, from -1 or 0 to 1, in order.

    Of a byte's bits, after the sign: e zeros say that the number is 10^-e times what follows, a 1
    ends them, and the bits left divide [0.1, 1] into as many equal parts, whose middles are the
    numbers. So numbers near 1 have 6 bits of fraction, those near 10^-6 none; unsigned ones have
    a bit more. 0 and 1 are added. Section 1.3, figure 2 of the paper.
    """
    flag("signed", signed)
    return _fractions(bool(signed)).clone()


@functools.cache
def _fractions(signed: bool) -> Tensor:
    """`dynamic_tree`, computed once."""
    bits = 7 if signed else 8
    fractions = [torch.zeros(1), torch.ones(1)]
    for zeros in range(7):
        edges = torch.linspace(0.1, 1.0, 2 ** (bits - 1 - zeros) + 1, dtype=torch.float64)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0**-zeros
        fractions += [middles.float(), -middles.float()] if signed else [middles.float()]
    return torch.cat(fractions).sort().values


class Adam8bit(torch.optim.Optimizer):
    """torch.optim.AdamW with moments of one byte, and 4 bytes more for each block of them.

    State: 2 + 8 / 2048 bytes a parameter, where FP32 moments take 8. In a step each block's moments
    are read into FP32, updated, applied, and rounded back to bytes. Parameters of fewer than
    `least` elements keep FP32 moments: norms and biases are few, and their few numbers differ more.

    A second moment never rounds to 0, but up to the smallest fraction: beside a first moment that
    is not 0 its update would be divided by `eps` alone. Weights and gradients may be of any type.
    """

    @checked
    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        least: int = 4096,
    ) -> None:
        at_least("lr", lr, 0)
        positive("eps", eps)
        at_least("weight_decay", weight_decay, 0)
        for beta in betas:
            at_least("betas", beta, 0)
            if beta >= 1:
                refuse("betas", betas, "two numbers from 0 to 1, below 1")
        self.least = count("least", least, 0)
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(groups_of(params), settings)

    @checked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; the closure's loss, if there is one."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch does, but keep bytes, which torch casts to the parameter's type."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            refuse("state_dict", state_dict, "what an optimizer's state_dict() gives")
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        mine = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(saved, mine, strict=False):  # torch counts them
            self._check_state(number, state_dict["state"].get(number, {}), parameter)
        with whole_or_not(self):
            super().load_state_dict(state_dict)
            for number, parameter in zip(saved, mine, strict=True):
                for name, value in state_dict["state"].get(number, {}).items():
                    if isinstance(value, Tensor):
                        self.state[parameter][name] = value.to(parameter.device, copy=True)

    def _check_state(self, number: Any, state: Mapping[str, Any], parameter: Tensor) -> None:
        """Raise ValueError for moments that are not those of a parameter of this shape."""
        blocks = -(-parameter.numel() // BLOCK)
        for name in ("exp_avg", "exp_avg_sq"):
            where, scale = f"state_dict['state'][{number!r}]", f"{name}_scale"
            if name in state:
                dtype = torch.uint8 if scale in state else torch.float32
                fits = parameter.new_empty((), dtype=dtype).expand(parameter.shape)
                alike(f"{where}[{name!r}]", state[name], fits)
            if scale in state:
                alike(f"{where}[{scale!r}]", state[scale], torch.empty(blocks, device="meta"))

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        gradient = parameter.grad
        assert gradient is not None
        if gradient.is_sparse:
            refuse_what("A gradient", "sparse", "dense: an Embedding with sparse=False gives one")
        gradient, state = gradient.float(), self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        m, v = (self._moment(parameter, name) for name in ("exp_avg", "exp_avg_sq"))
        beta1, beta2 = group["betas"]
        m.lerp_(gradient, 1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (v.sqrt() / (1 - beta2 ** state["step"]) ** 0.5).add_(group["eps"])
        weights = parameter.float()  # itself, where it is FP32
        weights.mul_(1 - group["lr"] * group["weight_decay"])
        weights.addcdiv_(m, root, value=-group["lr"] / (1 - beta1 ** state["step"]))
        parameter.copy_(weights)
        self._keep(parameter, "exp_avg", m)
        self._keep(parameter, "exp_avg_sq", v)

    def _moment(self, parameter: Tensor, name: str) -> Tensor:
        """The moment in FP32; zeros before the first step."""
        state = self.state[parameter]
        if name not in state:
            return torch.zeros_like(parameter, dtype=torch.float32)
        if f"{name}_scale" not in state:
            return state[name]
        return _read(state[name], state[f"{name}_scale"], _tree(name, parameter.device))

    def _keep(self, parameter: Tensor, name: str, moment: Tensor) -> None:
        state = self.state[parameter]
        if parameter.numel() < self.least:
            state[name] = moment
            return
        tree = _tree(name, parameter.device)
        state[name], state[f"{name}_scale"] = _write(moment, tree)


def _tree(name: str, device: torch.device) -> Tensor:
    return _fractions(name == "exp_avg").to(device)


def _write(x: Tensor, tree: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes in x's shape, and the scale of each block."""
    blocks = -(-x.numel() // BLOCK)
    padded = F.pad(x.reshape(-1), (0, blocks * BLOCK - x.numel())).view(blocks, BLOCK)
    scale = padded.abs().amax(1)
    fractions = padded / torch.where(scale == 0, 1.0, scale)[:, None]
    codes = torch.bucketize(fractions, (tree[:-1] + tree[1:]) / 2)
    if not tree[0]:  # unsigned: what is above zero stays there
        codes.clamp_min_((fractions > 0).long())
    return codes.to(torch.uint8).view(-1)[: x.numel()].clone().view(x.shape), scale


def _read(codes: Tensor, scale: Tensor, tree: Tensor) -> Tensor:
    """The numbers that bytes and scales stand for."""
    each = scale.repeat_interleave(BLOCK)[: codes.numel()].view(codes.shape)
    return tree[codes.long()].mul_(each)
