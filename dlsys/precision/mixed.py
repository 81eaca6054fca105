"""Mixed precision training: 16-bit weights for the passes, FP32 master weights for the update.

Six steps: (1) cast weights, (2) forward, (3) scale the loss, (4) backward, (5) copy gradients to
FP32 and unscale, (6) update FP32 weights. Micikevicius et al. 2018 (arXiv 1710.03740), figure 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import at_least, refuse, refuse_what, some
from dlsys.precision.mixed_state import MixedState
from dlsys.precision.plan import BF16, FP16, FP32, Format, Mode
from dlsys.precision.rounding import round_to
from dlsys.precision.scaler import LossScaler
from dlsys.tensors import Params, alike, groups_of, moments_alike, storage_bytes, whole_or_not

DTYPES: Mapping[Format, torch.dtype] = {
    FP32: torch.float32,
    BF16: torch.bfloat16,
    FP16: torch.float16,
}
"""The formats that torch computes in. Numbers of any other are kept in FP32, which holds them."""


class MixedPrecision:
    """`optimizer_cls(params, **kw)` in FP32, for parameters that are numbers of `fmt` from now on.

    A step: `backward(loss)`, once for each micro-batch; `clip_grad_norm_` if wanted; `step()`;
    `zero_grad()`.

    - Construction casts `params`, which are what an optimizer takes: frozen ones too, which have no
      master copy and are left alone. FP16 and BF16 are torch's types, in which passes compute as a
      GPU's do: 16-bit results, wider sums. Of any other format the weights alone are its numbers.
    - With `master` the optimizer updates FP32 copies, made before the cast, and what it has updated
      is rounded to nearest into the weights. Without, it updates the weights: each is FP32 for as
      long as the update takes, then rounded by `mode`. The optimizer's state is FP32 either way.
    - `scaler`: None means a LossScaler where FP32 has more exponents than `fmt`, otherwise none. A
      step that it skips changes nothing.

    Raises ValueError for parameters that are not in FP32, from which master copies are made.
    """

    @checked
    def __init__(
        self,
        params: Params,
        optimizer_cls: type[torch.optim.Optimizer],
        fmt: Format = FP16,
        master: bool = True,
        mode: Mode = "nearest",
        scaler: LossScaler | None = None,
        generator: torch.Generator | None = None,
        **kw: Any,
    ) -> None:
        if master and mode != "nearest":
            refuse("mode", mode, "'nearest' beside master weights: no update is lost in rounding")
        self.fmt, self.mode, self.generator, self.has_master = fmt, mode, generator, master
        short = fmt.exponent < FP32.exponent
        self.scaler = LossScaler() if scaler is None and short else scaler
        groups = groups_of(params)
        parameters = [p for group in groups for p in group["params"]]
        _check(parameters)
        self._frozen = [p for p in parameters if not p.requires_grad]
        self.parameters = [p for p in parameters if p.requires_grad]
        some("The parameters that require a gradient", self.parameters)
        copies = {p: nn.Parameter(p.detach().clone()) for p in self.parameters}
        self.master = list(copies.values())
        for group in groups:
            group["params"] = [copies[p] for p in group["params"] if p in copies]
        self.optimizer = optimizer_cls([group for group in groups if group["params"]], **kw)
        for parameter in parameters:
            parameter.grad = None
            parameter.data = _to(fmt, parameter.detach()).to(self.dtype)
        self._is_unscaled = False
        self._forget()

    @property
    def dtype(self) -> torch.dtype:
        """torch's type of the weights, which what they are multiplied by has to be of."""
        return DTYPES.get(self.fmt, torch.float32)

    def backward(self, loss: Tensor) -> None:
        """Steps 3 and 4: gradients of the loss times the scaler's factor, in `fmt`.

        Passes add up, in `fmt`. Raises RuntimeError between `unscale_` and `step`.
        """
        if self._is_unscaled:
            raise RuntimeError(
                "backward was called after unscale_: gradients of two factors would be added up. "
                "End the step with step() first."
            )
        if not isinstance(loss, Tensor) or not loss.requires_grad or loss.numel() != 1:
            refuse("loss", loss, "one number, a Tensor, computed from the parameters")
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        if self.fmt not in DTYPES:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad = _to(self.fmt, parameter.grad)

    @torch.no_grad()
    def unscale_(self) -> None:
        """Step 5: the gradients in FP32, divided by the scaler's factor, as those of `master`.

        Called by `clip_grad_norm_` and `step` where it has not been. Raises RuntimeError for a
        gradient of what was frozen.
        """
        if self._is_unscaled:
            return
        if any(p.grad is not None for p in self._frozen):
            raise RuntimeError(
                "a parameter has a gradient that was frozen when MixedPrecision was built: build "
                "it after requires_grad_(True)."
            )
        self._remember()
        for parameter, master in zip(self.parameters, self.master, strict=True):
            gradient = parameter.grad
            # A copy where it is FP32 already, too: what is divided is not the weights' own.
            master.grad = None if gradient is None else gradient.to(torch.float32, copy=True)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        self._is_unscaled = True

    @checked
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Scale the gradients, unscaled first, to a norm of at most `max_norm`; returns the norm
        before, infinite or NaN where a gradient is, which `step` then skips."""
        at_least("max_norm", max_norm, 0)
        self.unscale_()
        return nn.utils.clip_grad_norm_(self.master, max_norm)

    @torch.no_grad()
    def step(self) -> bool:
        """Step 6, and step 1 of the next; returns whether weights were updated, not skipped."""
        self.unscale_()
        updated = True
        if self.scaler is None:
            self.optimizer.step()
        else:
            skipped = self.scaler.skipped
            self.scaler.step(self.optimizer)
            updated = self.scaler.skipped == skipped
        if updated:
            self._write()
        self.optimizer.zero_grad()
        self._is_unscaled = False
        self._forget()
        if self.scaler is not None:
            self.scaler.update()
        return updated

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def held(self) -> MixedState:
        """Bytes that it holds now, by bucket: 2 + 2 + 4 + 8 a parameter for Adam in 16 bits."""
        state = [v for values in self.optimizer.state.values() for v in values.values()]
        tensors = [each for each in state if isinstance(each, Tensor)]
        return MixedState(
            weights=storage_bytes(self.parameters + self._frozen),
            gradients=storage_bytes(p.grad for p in self.parameters),
            master=storage_bytes(self.master),
            moments=storage_bytes(each for each in tensors if each.ndim),
            unscaled=storage_bytes(p.grad for p in self.master),
            steps=storage_bytes(each for each in tensors if not each.ndim),
        )

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on, beside the weights; with `master`, weights too."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "master": [p.detach() for p in self.master] if self.has_master else None,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "generator": None if self.generator is None else self.generator.get_state(),
        }

    @checked
    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()`; the weights are those of its master copies, if it has any.

        Raises ValueError where one has a part, such as a scaler, that the other lacks, or a master
        copy is of another shape; nothing has changed then.
        """
        has = {name: value is not None for name, value in self.state_dict().items()}
        if has != {name: value is not None for name, value in state.items()}:
            parts = ", ".join(name for name, there in has.items() if there)
            refuse("state", dict(state), f"a state_dict() of {parts}")
        self._check_master(state["master"])
        moments_alike("state['optimizer']", state["optimizer"], self.optimizer.state_dict())
        if self.generator is not None:
            _check_generator(self.generator, state["generator"])
        with whole_or_not(self.optimizer):
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scaler is not None:
                self.scaler.load_state_dict(state["scaler"])
        if self.generator is not None:
            self.generator.set_state(state["generator"])
        if self.has_master:
            for mine, saved in zip(self.master, state["master"], strict=True):
                mine.copy_(saved)
            self._write()

    def _check_master(self, saved: Any) -> None:
        """Raise ValueError unless these are the master copies of as many, and such, parameters."""
        if not self.has_master:
            return
        if not isinstance(saved, list | tuple) or len(saved) != len(self.master):
            refuse("state['master']", saved, f"a list of {len(self.master)} tensors")
        for number, (mine, each) in enumerate(zip(self.master, saved, strict=True)):
            alike(f"state['master'][{number}]", each, mine)

    def _write(self) -> None:
        """Step 1: what was updated as the weights, in `fmt`."""
        for parameter, master in zip(self.parameters, self.master, strict=True):
            parameter.copy_(_to(self.fmt, master, self.mode, self.generator))

    def _remember(self) -> None:
        """Without master copies: the weights in FP32, for as long as an update takes."""
        if not self.has_master:
            for parameter, master in zip(self.parameters, self.master, strict=True):
                master.data = parameter.detach().to(torch.float32, copy=True)

    def _forget(self) -> None:
        if not self.has_master:
            for master in self.master:
                master.data = master.data.new_empty(0)


def _to(
    fmt: Format, x: Tensor, mode: Mode = "nearest", generator: torch.Generator | None = None
) -> Tensor:
    """x as numbers of `fmt`; FP32 is what it is in."""
    return x if fmt == FP32 else round_to(x, fmt, mode, generator)


def _check_generator(mine: torch.Generator, saved: Any) -> None:
    try:
        torch.Generator(mine.device).set_state(saved)
    except (RuntimeError, TypeError):
        refuse("state['generator']", saved, "what get_state() of such a generator gives")


def _check(parameters: Iterable[Tensor]) -> None:
    """Raise ValueError unless all are FP32, and hold numbers."""
    for parameter in parameters:
        if parameter.dtype != torch.float32 or parameter.is_meta:
            where = "on the device meta" if parameter.is_meta else f"of {parameter.dtype}"
            refuse_what("A parameter of params", where, "of torch.float32, and is cast here")
