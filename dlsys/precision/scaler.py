"""Loss scaling: gradients that FP16 would flush to zero are made larger before it can, and smaller
again before the optimizer sees them.

The loss times S gives every gradient times S. Where one of them is infinite or NaN, S was too
large: the step is skipped and S falls; after enough steps without, S grows. Micikevicius et al.
2018 (arXiv 1710.03740), section 3.2; torch.amp.GradScaler, whose methods these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, positive, refuse, refuse_what
from dlsys.precision.plan import FP32
from dlsys.tensors import dense
from dlsys.world import Communicator
from dlsys.world.environment import current_or_none


class LossScaler:
    """Scales a loss by `factor`, unscales gradients, and skips steps whose gradients overflowed.

    A step: `scale(loss).backward()`, `step(optimizer)`, `update()`; `unscale_(optimizer)` before
    `step` where gradients are looked at or clipped. After a skipped step `factor` is multiplied by
    `backoff_factor`, after `growth_interval` steps in a row without one by `growth_factor`; with
    `dynamic=False` it stays. `skipped` counts skipped steps.

    Each rank of `comm` scales what it has; a shard that overflows on one rank makes all ranks skip.
    comm=None: the world's that the caller is in, or nobody's. Raises ValueError for a factor that
    cannot be.
    """

    @checked
    def __init__(
        self,
        factor: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        comm: Communicator | None = None,
    ) -> None:
        self.dynamic = dynamic
        self.comm = current_or_none() if comm is None else comm
        self.skipped = 0
        self.load_state_dict(
            {
                "scale": factor,
                "growth_factor": growth_factor,
                "backoff_factor": backoff_factor,
                "growth_interval": growth_interval,
                "_growth_tracker": 0,
            }
        )

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times `factor`, in at least FP32, in which that is no infinity."""
        if not isinstance(loss, Tensor):
            refuse("loss", loss, "a Tensor such as torch.ones(())")
        dense("loss", loss)
        if not loss.is_floating_point():
            refuse_what("loss", f"of {loss.dtype}", "of a floating-point type")
        return loss.to(torch.promote_types(loss.dtype, torch.float32)) * self.factor

    @torch.no_grad()
    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by `factor`, and look for overflow.

        All ranks call it together. Raises RuntimeError the second time in a step, ValueError for
        gradients in FP16, which would lose again what scaling has kept, or where no rank has any.
        """
        _check(optimizer)
        gradients = list(_gradients(optimizer))
        if optimizer in self._overflowed:
            raise RuntimeError(
                "unscale_ was called on this optimizer before in this step: its gradients would be "
                f"divided by {self.factor:g} twice. A step ends with update()."
            )
        for gradient in gradients:
            if gradient.dtype == torch.float16:
                refuse_what(
                    "A gradient", "of torch.float16", "copied to FP32 before it is unscaled"
                )
        overflow = any(not bool(gradient.isfinite().all()) for gradient in gradients)
        some, overflow = self._on_any_rank(optimizer, bool(gradients), overflow)
        if not some:
            refuse_what("optimizer", "one without gradients", "called after backward()")
        for gradient in gradients:
            gradient.mul_(1 / self.factor)
        self._overflowed[optimizer] = overflow

    def step(self, optimizer: Any) -> Any:
        """The optimizer's step, or None where it is skipped; unscales unless that was done.

        Raises RuntimeError the second time in a step.
        """
        _check(optimizer)
        if optimizer in self._stepped:
            raise RuntimeError(
                "step was called on this optimizer before in this step; a step ends with update()."
            )
        if optimizer not in self._overflowed:
            self.unscale_(optimizer)
        self._stepped.append(optimizer)
        if self._overflowed[optimizer]:
            self.skipped += 1
            return None
        return optimizer.step()

    def update(self) -> None:
        """End the step: change `factor` by what its gradients were.

        Raises RuntimeError where no optimizer was unscaled, or no factor makes gradients finite.
        """
        if not self._overflowed:
            raise RuntimeError("update was called, but neither step nor unscale_ before it.")
        overflow = any(self._overflowed.values())
        self._overflowed.clear()
        self._stepped.clear()
        if self.dynamic:
            self._adapt(overflow)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on, under the names of torch.amp.GradScaler."""
        return {
            "scale": self.factor,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._finite_steps,
        }

    @checked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()`, torch's among them; raises ValueError where it is none."""
        if (
            missing := {"scale", "growth_factor", "backoff_factor", "growth_interval"}
            - state.keys()
        ):
            refuse("state", dict(state), f"a state_dict(); it lacks {', '.join(sorted(missing))}")
        positive("factor", state["scale"])
        positive("growth_factor", state["growth_factor"])
        positive("backoff_factor", state["backoff_factor"])
        if state["growth_factor"] <= 1:
            refuse("growth_factor", state["growth_factor"], "above 1")
        if state["backoff_factor"] >= 1:
            refuse("backoff_factor", state["backoff_factor"], "below 1")
        interval = count("growth_interval", state["growth_interval"])
        self._finite_steps = count("_growth_tracker", state.get("_growth_tracker", 0), 0)
        self.growth_interval = interval
        self.factor = float(state["scale"])
        self.growth_factor = float(state["growth_factor"])
        self.backoff_factor = float(state["backoff_factor"])
        self._overflowed: dict[Any, bool] = {}
        self._stepped: list[Any] = []

    def _adapt(self, overflow: bool) -> None:
        if overflow:
            self.factor *= self.backoff_factor
            self._finite_steps = 0
            if self.factor < FP32.min_normal:
                raise RuntimeError(
                    "gradients are infinite or NaN however small the loss is made: it is not their "
                    "range that is wrong. Look for the first NaN of the forward pass."
                )
            return
        self._finite_steps += 1
        if self._finite_steps == self.growth_interval:
            self._finite_steps = 0
            # FP32 has to hold the factor.
            if self.factor * self.growth_factor <= FP32.max:
                self.factor *= self.growth_factor

    def _on_any_rank(self, optimizer: Any, *found: bool) -> list[bool]:
        """Each of `found`, or whether a rank found it."""
        if self.comm is None:
            return list(found)
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        device = next((p.device for p in parameters), None)
        mine = torch.tensor(found, dtype=torch.float32, device=device)
        return [value > 0 for value in self.comm.all_reduce(mine, op="max").tolist()]


def _check(optimizer: Any) -> None:
    if not (hasattr(optimizer, "param_groups") and hasattr(optimizer, "step")):
        refuse("optimizer", optimizer, "an Optimizer, with param_groups and step()")


def _gradients(optimizer: Any) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None:
                yield gradient._values() if gradient.is_sparse else gradient
