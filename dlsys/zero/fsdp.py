"""FSDP, ZeRO's stage 3: a module whose weights are whole only while they are used.

Before a unit's forward its weights are gathered, after it they are freed; backward gathers them
again, and reduces its gradients to this rank's shard. The next unit's weights are on their way
while one computes. Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5; Zhao et al. 2023
(PyTorch FSDP, arXiv 2304.11277), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_iter, tree_map_only

from dlsys.tensors import address
from dlsys.world import Handle
from dlsys.zero.sharded_unit import Gathered, ShardedUnit


class Gather(torch.autograd.Function):
    """A unit's shards -> its whole weights; backward: whole gradients -> shards of their mean."""

    @staticmethod
    def forward(ctx: Any, engine: Engine, unit: ShardedUnit, *shards: Tensor) -> tuple[Tensor, ...]:
        """The weights, each in its shape."""
        ctx.engine, ctx.unit = engine, unit
        ctx.set_materialize_grads(False)  # None: this weight was not used
        return tuple(unit.cut(unit.gather()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        """Nothing goes further: a reduction brings the mean to .grad of the shards."""
        ctx.engine.reduce(ctx.unit, gradients)
        return None, None, *(None for _ in gradients)


class Saved(NamedTuple):
    """What autograd keeps of a gathered weight until backward: where it stands, not what it is."""

    unit: ShardedUnit
    shape: Sequence[int]
    stride: Sequence[int]
    offset: int | torch.SymInt


class Engine:
    """The passes of a model on one rank: what is whole, what comes next, what is being reduced."""

    def __init__(self, reshard: bool, at_end: Callable[[], None]) -> None:
        self.units: list[ShardedUnit] = []
        self.gathered = Gathered()
        self._reshard, self._at_end = reshard, at_end
        self._order: list[ShardedUnit] = []  # in which units began in the last forward pass
        self._began: list[ShardedUnit] = []  # in this one
        self._ended: ShardedUnit | None = None  # the last one
        self._reducing: tuple[ShardedUnit, list[bool], Handle] | None = None
        self._pass = -1  # autograd's number of the backward pass under way

    def add(self, unit: ShardedUnit) -> None:
        """Take on a unit: from now on its module calls the engine before and after its forward."""
        self.units.append(unit)
        self._order.append(unit)
        before, after = partial(self._before, unit), partial(self._after, unit)
        unit.module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        unit.module.register_forward_hook(after)

    # -- forward ---------------------------------------------------------------------------------

    def begin(self) -> saved_tensors_hooks:
        """Start a forward pass of the whole model, whatever became of the last one."""
        if self._reducing is not None:  # of a backward pass that raised: of no use any more
            self._reducing[-1].wait()
            self._reducing = None
        self._free_all()
        self._began, self._ended = [], None
        return saved_tensors_hooks(self._pack, self._unpack)

    def end_forward(self) -> None:
        """What was asked for and not used goes; the next pass expects the order of this one."""
        used = set() if self._frees else {*self._began}
        for unit in self.units:
            if unit not in used:
                unit.free()
        self._order = self._began

    def _before(self, unit: ShardedUnit, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Gather a unit, and ask for the next while they come in the order of the last pass."""
        unit.gather()
        if not in_backward():
            self._began.append(unit)
            done = len(self._began)
            if done < len(self._order) and self._began == self._order[:done]:
                self._order[done].ask()
        self._show(unit)
        return cast((args, kwargs), unit.casts) if unit.casts else None

    def _after(self, unit: ShardedUnit, module: nn.Module, args: Any, output: Any) -> None:
        """Free a unit, and have its outputs tell when backward comes to them."""
        unit.hide()
        if in_backward():  # a checkpoint has computed it again, to go backward through it next
            return
        enter = partial(self._enter, unit, unit.shard._version, self._ended)
        self._ended = unit
        for tensor in tree_iter(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: enter())
        if self._frees:
            unit.free()

    @property
    def _frees(self) -> bool:
        """Whether weights go after forward."""
        return self._reshard or not torch.is_grad_enabled()

    def _show(self, unit: ShardedUnit) -> None:
        """Let a unit's modules find whole weights, from which a backward pass comes to `reduce`."""
        if torch.is_grad_enabled():
            unit.show(Gather.apply(self, unit, *unit.parameters))
        else:
            unit.show(unit.cut(unit.gather()))

    def _pack(self, tensor: Tensor) -> Any:
        """What autograd keeps of a tensor that backward will read."""
        unit = self.gathered.units.get(address(tensor))
        if unit is None or tensor.dtype != unit.compute:
            return tensor
        return Saved(unit, tensor.shape, tensor.stride(), tensor.storage_offset())

    def _unpack(self, kept: Any) -> Tensor:
        """The tensor again, gathered where it is not here."""
        if not isinstance(kept, Saved):
            return kept
        return kept.unit.gather().as_strided(kept.shape, kept.stride, kept.offset)

    # -- backward --------------------------------------------------------------------------------

    def _enter(self, unit: ShardedUnit, version: int, before: ShardedUnit | None) -> None:
        """Backward comes to a unit: gather it, and ask for the one that ran before it."""
        self._begin_backward()
        if version != unit.shard._version:
            raise RuntimeError(
                f"weights of unit {unit.name!r} have changed since the forward pass that this "
                "backward belongs to: run backward before optimizer.step()."
            )
        if unit.whole is None:
            for other in [*self.gathered.units.values()]:  # frozen ones, which no reduction frees
                is_trained = any(p.requires_grad for p in other.parameters)
                if not is_trained and unit.module not in other.module.modules():
                    other.free()
        unit.gather()
        if not unit.is_shown:
            with torch.enable_grad():  # what a checkpoint inside of it computes again reads them
                self._show(unit)
        if before is not None:
            before.ask()

    def reduce(self, unit: ShardedUnit, gradients: Sequence[Tensor | None]) -> None:
        """A unit's backward is over: send its gradients, and free its weights.

        The reduction before is waited for first, so no more than two units' gradients are whole.
        """
        self._begin_backward()
        unit.free()
        self._settle()
        used = [gradient is not None for gradient in gradients]
        whole = unit.laid_out(gradients, unit.compute)
        self._reducing = unit, used, unit.comm.reduce_scatter(whole, "mean", async_op=True)

    def _begin_backward(self) -> None:
        """Note the backward pass that calls this, and see to its end."""
        if self._pass != torch._C._current_graph_task_id():
            self._pass = torch._C._current_graph_task_id()
            Variable._execution_engine.queue_callback(self._end_backward)

    def _settle(self) -> None:
        if self._reducing is not None:
            (unit, used, handle), self._reducing = self._reducing, None
            unit.add(handle.wait(), used)

    def _end_backward(self) -> None:
        self._settle()
        self._free_all()
        self._at_end()
        self._pass = -1

    def _free_all(self) -> None:
        for unit in self.units:
            unit.free()


def in_backward() -> bool:
    """Whether the caller runs inside a backward pass, as what a checkpoint recomputes does."""
    return torch._C._current_graph_task_id() != -1


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """The same with its floating-point tensors in this dtype."""
    return tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, tree)
