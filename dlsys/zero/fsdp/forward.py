"""Forward through sharded units: weights gathered one unit ahead, shown to the modules, and freed.

A unit asks for the weights of the next, waits for its own, computes, and frees them.
Zhao et al. 2023 (PyTorch FSDP, arXiv 2304.11277), section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_iter

from dlsys.zero.fsdp.backward import Backward, Run, Use, in_backward
from dlsys.zero.fsdp.gathering import Gathering
from dlsys.zero.fsdp.sharded_unit import ShardedUnit
from dlsys.zero.plan import FORWARD


class Forward:
    """The forward passes of one model on one rank.

    `reshard` says whether weights are freed before backward.
    """

    def __init__(self, gathering: Gathering, backward: Backward, reshard: bool) -> None:
        self._gathering, self._backward, self._reshard = gathering, backward, reshard
        self._order: Sequence[ShardedUnit] = gathering.units  # in which units are expected to begin
        self._run: Run | None = None
        self._clock = 0
        self._uses: list[Use] = []  # that have begun and not ended
        for unit in gathering.units:
            unit.module.register_forward_pre_hook(self._before_each(unit), prepend=True)
            unit.module.register_forward_hook(self._after)

    @contextmanager
    def of_all(self, micro_batch: int) -> Iterator[None]:
        """Around a forward pass of the whole model; frees everything if it raises."""
        self._gathering.micro_batch = micro_batch
        run = self._run = Run(micro_batch)
        try:
            with saved_tensors_hooks(self._gathering.pack, self._gathering.unpack):
                yield
        except Exception:
            self._run = None
            self._uses.clear()
            self._gathering.free(self._gathering.units)
            raise
        self._run, self._order = None, run.began
        stays = run.began if self._keeps() else []
        self._gathering.free(unit for unit in self._gathering.units if unit not in stays)

    def _keeps(self) -> bool:
        """Whether weights stay until backward."""
        return not self._reshard and torch.is_grad_enabled()

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _before_each(self, unit: ShardedUnit) -> Any:
        return lambda module, args: self._before(unit)

    def _before(self, unit: ShardedUnit) -> None:
        """Gather this unit and ask for the next, and show the modules their weights."""
        run = self._run or Run(self._gathering.micro_batch)
        use = Use(self._backward, unit, run, self._tick())
        self._uses.append(use)
        run.began.append(unit)
        self._gathering.ask_for([unit, *self._ahead(run)])
        self._gathering.wait(unit)
        if not in_backward():
            self._gathering.belongs_to(use)
        self._gathering.show(use)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        """Free the unit, and have its outputs tell when backward comes to them."""
        use = self._uses.pop()
        use.unit.hide()
        if in_backward():  # a checkpoint has computed it again, to go backward through it next
            return
        use.end, run = self._tick(), use.run
        use.place = len(run.ended)
        run.ended.append(use)
        self._gathering.note(FORWARD, use.unit)
        for tensor in tree_iter(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(use.enter)
        if not self._keeps() and use.unit not in self._ahead(run):
            self._gathering.free([use.unit])

    def _ahead(self, run: Run) -> Sequence[ShardedUnit]:
        """The next units, as long as they come in the order in which they came before."""
        number = len(run.began)
        if run is not self._run or list(self._order[number - 1 : number]) != run.began[-1:]:
            return []
        return self._order[number : number + self._gathering.prefetch]
