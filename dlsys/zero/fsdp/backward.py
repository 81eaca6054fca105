"""Backward through sharded units: weights gathered again, gradients reduced, both freed.

In reverse of forward a unit asks for the weights of the one before it, waits for its own, computes,
sends its gradients and frees its weights. Zhao et al. 2023 (PyTorch FSDP, arXiv 2304.11277), 3.3.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Variable

from dlsys.zero.fsdp.gathering import Gathering
from dlsys.zero.fsdp.sharded_flat import Reduction, ShardedFlat
from dlsys.zero.fsdp.sharded_unit import ShardedUnit
from dlsys.zero.plan import BACKWARD, FREE_GRADIENTS, REDUCE


def in_backward() -> bool:
    """Whether the caller runs inside a backward pass, as what a checkpoint recomputes does."""
    return torch._C._current_graph_task_id() != -1


class Run:
    """One forward pass of the model: the units that began, and their uses as they ended."""

    def __init__(self, micro_batch: int) -> None:
        self.micro_batch = micro_batch
        self.began: list[ShardedUnit] = []
        self.ended: list[Use] = []
        self.first: dict[ShardedUnit, int] = {}


class Use:
    """One call of a unit in a run.

    By a clock that counts calls it ended at `end`, and the run's first call of this unit began at
    `first`. `place` is its place among those that have ended, `versions` what the shards were.
    """

    def __init__(self, backward: Backward, unit: ShardedUnit, run: Run, now: int) -> None:
        self._backward, self.unit, self.run = backward, unit, run
        self.end, self.first = now, run.first.setdefault(unit, now)
        self.place = -1
        self.versions = unit.versions

    def enter(self, _: Tensor | None = None) -> None:
        """Backward has come to an output of this call, or to what it saved."""
        self._backward.enter(self)

    def take(self, flat: ShardedFlat, index: int, gradient: Tensor) -> None:
        """Backward has the gradient of a weight."""
        self._backward.take(self, flat, index, gradient)


class Backward:
    """The backward passes of one model on one rank.

    `syncs` says whether gradients are reduced; `at_end` is called when those of all units are.
    """

    def __init__(self, gathering: Gathering, at_end: Callable[[], None]) -> None:
        self._gathering, self._at_end = gathering, at_end
        self.syncs = True
        self._task = -1  # autograd's number of the pass that is under way
        self._entered: set[Use] = set()
        self._open: dict[ShardedUnit, Use] = {}  # units that it is in, each with a use of its run
        self._reducing: tuple[ShardedUnit, list[Reduction]] | None = None
        self._averaging: list[Reduction] = []

    def begin(self) -> None:
        """Note the backward pass that calls this, and see to its end."""
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        if self._task != -1:
            raise RuntimeError(
                "this backward pass began before another one ended: where that one raised, run "
                "forward again first; in checkpoints use use_reentrant=False."
            )
        self._task = task
        Variable._execution_engine.queue_callback(_End(self))

    def enter(self, use: Use) -> None:
        """Backward comes to a call of a unit: what began after it is through."""
        if use in self._entered:
            return
        self.begin()
        self._entered.add(use)
        if use.versions != use.unit.versions:
            raise RuntimeError(
                f"weights of unit {use.unit.name!r} have changed since the forward pass that this "
                "backward belongs to: run backward before optimizer.step()."
            )
        self._finish_after(use.end)
        self._open.setdefault(use.unit, use)
        self._gathering.micro_batch = use.run.micro_batch
        first = max(use.place - self._gathering.prefetch, 0)
        ahead = use.run.ended[first : max(use.place, 0)]
        self._gathering.ask_for([use.unit, *(each.unit for each in reversed(ahead))])
        self._gathering.wait(use.unit)
        with torch.enable_grad():  # what a checkpoint inside of the unit computes again reads them
            self._gathering.show(use)

    def take(self, use: Use, flat: ShardedFlat, index: int, gradient: Tensor) -> None:
        """The gradient of a weight has come: lay it where those of its unit are."""
        self.begin()
        self._open.setdefault(use.unit, use)
        flat.take(index, gradient, flat.reduce if self.syncs else flat.dtype)

    def _finish_after(self, end: int) -> None:
        """Finish the units of which every call began after `end`.

        Of the nodes that are ready autograd takes the one that was made last, so nothing of theirs
        is left; and ranks that used other parameters come to the same order.
        """
        for unit, use in sorted(self._open.items(), key=lambda pair: -pair[1].first):
            if use.first > end:
                self._finish(unit)

    def _finish(self, unit: ShardedUnit) -> None:
        """A unit's backward is over: send its gradients, and free its weights."""
        del self._open[unit]
        self._gathering.note(BACKWARD, unit)
        if self.syncs:
            self._reduce(unit)
        self._gathering.free([unit])

    def _reduce(self, unit: ShardedUnit) -> None:
        """Send gradients; first wait for those sent before, so that no more than two are whole."""
        if any(flat.is_trained for flat in unit.flats):
            self._settle()
            self._gathering.note(REDUCE, unit)
            self._reducing = unit, unit.start_reduce()

    def _settle(self) -> None:
        """Wait for what was sent last, and let its whole gradients go."""
        if self._reducing is None:
            return
        (unit, reductions), self._reducing = self._reducing, None
        for reduction in reductions:
            reduction.settle()
            if reduction.is_last:
                reduction.finish()
            else:
                self._averaging.append(reduction)
        self._gathering.note(FREE_GRADIENTS, unit)

    def end(self) -> None:
        """At the end of backward: finish what is open, and wait for all."""
        self._finish_after(-1)
        for unit in reversed(self._gathering.units):
            if self.syncs and unit.is_kept:  # under no_sync, by a pass that this one is not like
                self._reduce(unit)
        self._settle()
        for reduction in self._averaging:
            reduction.finish()
        self._at_end()
        self._forget()

    def _forget(self) -> None:
        """Be in no pass, and hold no weights."""
        self._gathering.free(self._gathering.units)
        self._averaging.clear()
        self._entered.clear()
        self._open.clear()
        self._task = -1

    def raised(self) -> None:
        """Hold no weights of a pass that raised; what is under way is for `drop` to wait for."""
        if self._task != -1:
            here = [unit for unit in self._gathering.units if not unit.is_coming]
            self._gathering.free(here)

    def drop(self) -> bool:
        """End a pass that raised, and drop its gradients; returns whether there was one."""
        if self._task == -1:
            return False
        (_, reductions), self._reducing = self._reducing or (None, []), None
        for reduction in [*reductions, *self._averaging]:
            reduction.drop()
        for unit in self._gathering.units:
            for flat in unit.flats:
                flat.forget()
        self._forget()
        return True


class _End:
    """What autograd calls at the end of a backward pass, and lets go of when the pass raises."""

    def __init__(self, backward: Backward) -> None:
        self._backward = backward

    def __call__(self) -> None:
        self._backward.end()

    def __del__(self) -> None:
        self._backward.raised()
