"""Training whose whole state is one nested dictionary, so that it goes on as if never interrupted.

What the next step depends on is in it: weights, the optimizer's moments, where the learning rate,
the random numbers and the data are. Leave one out, and the run goes on without complaint, with
other numbers.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Protocol, SupportsIndex

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what, shown
from dlsys.resilience.order import SampleOrder, share
from dlsys.resilience.random_states import RandomStates
from dlsys.resilience.restoring import restore
from dlsys.resilience.saving import MOST_STEPS
from dlsys.resilience.state import Shard
from dlsys.resilience.together import Together
from dlsys.resilience.verifying import Checkpoint, latest
from dlsys.tensors import alike, moments_alike, of_shape
from dlsys.world import Communicator

Loss = Callable[[nn.Module, Tensor], Tensor]
"""loss(model, rows) -> the mean loss, a scalar, of the samples of these numbers (int64)."""


class Part(Protocol):
    """Whatever has a state: torch's modules, optimizers and schedules, and much else."""

    def state_dict(self) -> Any:
        """What is to be saved."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Go on from it."""


class Trainer:
    """Steps of an optimizer on batches that `order` names, on one rank or on data-parallel ones.

    - model, optimizer, schedule: as torch has them, or anything with their methods `state_dict` and
      `load_state_dict`; a schedule steps once a step.
    - order: names the samples of a step, of which each rank reads its part.
    - loss: `loss(model, rows)` is the mean loss of the samples of these numbers.
    - comm: the ranks that share a batch; None is the world that the caller is in, or this process
      alone. Gradients are averaged by the model (a data-parallel wrapper) or by the optimizer.

    `parts` are what is saved and restored, by name, and whatever else has a state may join: an
    average of weights, a loss scaler, a generator. A state_dict that holds Shards is asked for the
    shards of the ranks there are now; any other comes back whole.
    `losses` are those of all steps so far, the mean over the ranks, and `step` is their number.
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        order: SampleOrder,
        loss: Loss,
        schedule: Any = None,
        comm: Communicator | None = None,
    ) -> None:
        self.model, self.optimizer, self.order, self.schedule = model, optimizer, order, schedule
        self.losses: list[float] = []
        self._loss, self._ranks, self._random = loss, Together(comm), RandomStates()
        share(torch.arange(order.batch), 0, self._ranks.size)  # or a sentence before all else
        self.parts: dict[str, Part] = {
            "model": model,
            "optimizer": optimizer,
            "order": order,
            "random": self._random,
        }
        if schedule is not None:
            self.parts["schedule"] = schedule
        for name, part in self.parts.items():
            _check_part(name, part, _CALLED.get(name, ()))

    @property
    def step(self) -> int:
        """Steps done since the run began, before any interruption."""
        return len(self.losses)

    def advance(self) -> float:
        """Do one step, and return its loss, the mean over the ranks."""
        ranks = self._ranks
        rows = share(self.order.take(), ranks.rank, ranks.size)
        self.optimizer.zero_grad()
        with self._random.own():
            loss = self._loss(self.model, rows)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            what = of_shape(loss) if isinstance(loss, Tensor) else shown(loss)
            refuse_what("What loss() returned", what, "one number that depends on parameters")
        loss.backward()
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        mean = loss.detach()
        if ranks.comm is not None and ranks.size > 1:
            mean = ranks.comm.all_reduce(mean, "mean")
        self.losses.append(float(mean))
        return self.losses[-1]

    def train(
        self,
        steps: SupportsIndex,
        save: Callable[[dict[str, Any], int], Any] | None = None,
        every: SupportsIndex = 1,
    ) -> list[float]:
        """Go on until `steps` steps are done; returns the losses of all of them.

        save: called as save(state, step) after each step whose number divides by `every`, and after
        the last one; `AsyncSaver(folder).save` and `lambda state, step: save(state, folder, step)`
        are what it may be.
        """
        last, period = count("steps", steps, 0, MOST_STEPS), count("every", every)
        if save is not None and not callable(save):
            refuse("save", save, "a function of a state and a step, or None")
        while self.step < last:
            self.advance()
            if save is not None and (self.step % period == 0 or self.step == last):
                save(self.state(), self.step)
        return self.losses

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, to be saved; all ranks call this.

        Its tensors are those that the next step changes.
        """
        losses = torch.tensor(self.losses, dtype=torch.float64, device="cpu")
        return {"losses": losses, **{name: p.state_dict() for name, p in self.parts.items()}}

    @checked
    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state()` was; where that fails nothing has changed.

        Raises ValueError where a part is missing in it, or a weight is missing, unexpected, or of
        another shape or kind of numbers, and what a part raises that cannot go on from its own.
        """
        missing = [name for name in ("losses", *self.parts) if name not in state]
        if missing:
            refuse("state", [*state], f"a dictionary that has {', '.join(missing)} as well")
        losses = state["losses"]
        if not isinstance(losses, Tensor) or losses.dim() != 1 or not losses.is_floating_point():
            what = of_shape(losses) if isinstance(losses, Tensor) else shown(losses)
            refuse_what("state['losses']", what, "a tensor of one loss for each step")
        for name, part in self.parts.items():
            if isinstance(part, nn.Module):
                _check_module(f"state[{name!r}]", state[name], part)
            if isinstance(part, torch.optim.Optimizer) and type(part).state_dict is _PLAIN:
                moments_alike(f"state[{name!r}]", state[name], part.state_dict())
        before: dict[str, Any] = {}
        try:
            for name, part in self.parts.items():
                before[name] = copy.deepcopy(part.state_dict())
                part.load_state_dict(state[name])
        except BaseException:
            for name in reversed(before):
                self.parts[name].load_state_dict(before[name])
            raise
        self.losses = losses.tolist()

    @checked
    def resume(self, folder: str | PathLike) -> Checkpoint | None:
        """Go on from the last good checkpoint below `folder`; None where there never was one.

        Rank 0 warns of each newer one that was refused; `skipped` of what is returned has the same
        sentences. The number of ranks may be another than that which saved. Raises as `latest`,
        `restore` and `load` do.
        """
        found = latest(folder, self._ranks.comm)
        if found is None:
            return None
        for sentence in found.skipped if self._ranks.rank == 0 else ():
            warnings.warn(f"skipped: {sentence}", RuntimeWarning, stacklevel=3)
        like = {name: wanted(part.state_dict()) for name, part in self.parts.items()}
        self.load(restore(found, {"losses": None, **like}, self._ranks.comm))
        return found


def wanted(state: Any) -> Any:
    """What to ask a checkpoint for: this rank's shards, and None for all of whatever has none."""
    if isinstance(state, Shard):
        return state
    if isinstance(state, Mapping):
        inside = {key: wanted(value) for key, value in state.items()}
        if any(value is not None for value in inside.values()):
            return inside
    return None


def _check_module(name: str, state: Any, module: nn.Module) -> None:
    """Raise ValueError unless a module's state has its names, and under each what fits there."""
    mine = module.state_dict()
    if not isinstance(state, Mapping) or state.keys() != mine.keys():
        odd = sorted(map(str, mine.keys() ^ state.keys())) if isinstance(state, Mapping) else state
        refuse_what(name, f"other than the model's in {shown(odd)}", "what its state_dict() gives")
    for key, each in mine.items():
        if isinstance(each, Tensor):
            alike(f"{name}[{key!r}]", state[key], each)


_PLAIN = torch.optim.Optimizer.state_dict
_CALLED = {"optimizer": ("zero_grad", "step"), "schedule": ("step",)}
"""What is called of a part beside its state."""


def _check_part(name: str, part: Any, called: tuple[str, ...]) -> None:
    methods = (*called, "state_dict", "load_state_dict")
    if not all(callable(getattr(part, method, None)) for method in methods):
        refuse(name, part, f"an object with the methods {', '.join(methods)}")
