"""FSDP, ZeRO's stage 3: a module whose weights are whole only while they are used.

Before a unit's forward its weights are gathered, after it they are freed; backward gathers them
again, and reduces its gradients to this rank's shard. The next unit's weights are on their way
while one computes. Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5; Zhao et al. 2023
(PyTorch FSDP, arXiv 2304.11277), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_iter, tree_map_only

from dlsys.reducer import has_gradient
from dlsys.world import Communicator, Handle
from dlsys.zero.flat import flat
from dlsys.zero.membership import Slot


class Gather(torch.autograd.Function):
    """A unit's shards -> its whole weights; backward: whole gradients -> shards of their mean."""

    @staticmethod
    def forward(ctx: Any, unit: Unit, *shards: Tensor) -> tuple[Tensor, ...]:
        """The weights, each in its shape."""
        ctx.unit = unit
        ctx.set_materialize_grads(False)  # None: this weight was not used
        return tuple(unit.weights())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, ...]:
        """Nothing goes further: a reduction brings the mean to .grad of the shards."""
        ctx.unit.engine.reduce(ctx.unit, gradients)
        return None, *(None for _ in gradients)


class Saved(NamedTuple):
    """What autograd keeps of a gathered weight until backward: where it stands, not what it is."""

    unit: Unit
    version: int
    shape: Sequence[int]
    stride: Sequence[int]
    offset: int | torch.SymInt


class Unit:
    """Parameters of one module and dtype, laid end to end, padded, and cut into one shard a rank.

    `shard` (elements,) is this rank's; `parameters` are views into it, which stand in the modules.
    Whole weights and gradients are of dtype `compute`, and its module's inputs where that is given.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        slots: Sequence[Slot],
        comm: Communicator,
        compute: torch.dtype | None,
        engine: Engine,
    ) -> None:
        self.name, self.module, self.comm, self.engine = name, module, comm, engine
        self.inside = set(module.modules())
        self.names, self.owners = [s.name for s in slots], [s.owners for s in slots]
        self.shapes = [slot.shape for slot in slots]
        self.layout = flat({slot.name: slot.parameter.numel() for slot in slots}, comm.size)
        self.pieces = self.layout.pieces(comm.rank)
        first = slots[0].parameter
        self.casts = compute if first.is_floating_point() else None
        self.compute = self.casts or first.dtype
        self.shard = self._shard_of_rank_0([slot.parameter for slot in slots])
        self.parameters = [
            nn.Parameter(self.shard[at : at + p.elements], requires_grad=first.requires_grad)
            for p, at in ((piece, piece.place) for piece in self.pieces)
        ]
        for owners, parameter in zip(self.owners, self.parameters, strict=True):
            parameter.is_shard = True  # type: ignore[attr-defined]
            for owner, leaf in owners:
                owner._parameters[leaf] = parameter
        self.whole: Tensor | None = None
        self._coming: Handle | None = None
        self.hide()

    @torch.no_grad()
    def _shard_of_rank_0(self, parameters: Sequence[Tensor]) -> Tensor:
        """This rank's part of rank 0's values."""
        whole = None
        if self.comm.rank == 0:
            whole = self.laid_out(parameters, parameters[0].dtype)
        return self.comm.scatter(whole).to(parameters[0].device)

    def laid_out(self, tensors: Sequence[Tensor | None], dtype: torch.dtype) -> Tensor:
        """Tensors of the parameters' shapes end to end, padded; zeros for None."""
        device = next(t for t in tensors if t is not None).device
        found = torch.zeros(self.layout.padded, dtype=dtype, device=device)
        for begin, tensor in zip(self.layout.begins, tensors, strict=True):
            if tensor is not None:
                found[begin : begin + tensor.numel()] = tensor.detach().reshape(-1)
        return found

    # -- whole weights ---------------------------------------------------------------------------

    @property
    def is_trained(self) -> bool:
        """Whether a gradient of it is wanted."""
        return any(parameter.requires_grad for parameter in self.parameters)

    @torch.no_grad()
    def ask(self) -> None:
        """Start to gather, unless the whole is here or on its way. One rank has it."""
        if self.whole is None and self._coming is None and self.comm.size > 1:
            self.engine.count(self.layout.padded * self.compute.itemsize)
            self._coming = self.comm.all_gather(self.shard.to(self.compute), async_op=True)

    def gather(self) -> Tensor:
        """The whole weights (padded,), when they have come."""
        self.ask()
        if self.whole is None:
            coming, self._coming = self._coming, None
            self.whole = coming.wait() if coming else self.shard.detach().to(self.compute)
            self.engine.whole[self.whole.untyped_storage()._cdata] = self
        return self.whole

    def weights(self) -> Iterator[Tensor]:
        """Each parameter in the whole, with its shape.

        `.data` makes an alias with a history of its own, which may leave an autograd function.
        """
        return (weight.data for weight in self.cut(self.gather()))

    def cut(self, whole: Tensor) -> Iterator[Tensor]:
        """Each parameter in a flat tensor (padded,), with its shape."""
        for begin, shape in zip(self.layout.begins, self.shapes, strict=True):
            yield whole[begin : begin + shape.numel()].view(shape)

    def free(self) -> None:
        """Give whole weights up; what is on its way is waited for, as handles have to be."""
        self.hide()
        if self._coming is not None:
            self.gather()
        if self.whole is not None:
            del self.engine.whole[self.whole.untyped_storage()._cdata]
            self.engine.count(-self.whole.nbytes if self.comm.size > 1 else 0)
            self.whole = None

    def show(self) -> None:
        """Let modules find whole weights where their parameters are.

        An attribute in a module's __dict__ comes before `_parameters`, which stay as they are.
        """
        grad = torch.is_grad_enabled()
        weights = Gather.apply(self, *self.parameters) if grad else self.weights()
        for owners, weight in zip(self.owners, weights, strict=True):
            for owner, leaf in owners:
                owner.__dict__[leaf] = weight
        self.is_shown = True
        self._refresh()

    def hide(self) -> None:
        """Let modules find their shards again."""
        for owner, leaf in (place for owners in self.owners for place in owners):
            owner.__dict__.pop(leaf, None)
        self.is_shown = False
        self._refresh()

    def _refresh(self) -> None:
        """Recurrent layers of torch keep a list of their weights besides."""
        for layer in {o for owners in self.owners for o, _ in owners if isinstance(o, nn.RNNBase)}:
            layer._flat_weights = [getattr(layer, name) for name in layer._flat_weights_names]

    # -- gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def add(self, mean: Tensor, used: Sequence[bool]) -> None:
        """Add this rank's shard of the mean gradient to .grad of its parameters.

        A weight that this rank did not use, and for which no other gave more than zeros, has none.
        """
        mean = mean.to(self.shard.dtype)
        for parameter, piece, was_used in zip(self.parameters, self.pieces, used, strict=True):
            mine = mean[piece.place : piece.place + piece.elements]
            if parameter.requires_grad and has_gradient(was_used, mine):
                parameter.grad = mine if parameter.grad is None else parameter.grad.add_(mine)


class Engine:
    """The passes of a model on one rank: what is whole, what comes next, what is being reduced."""

    def __init__(self, reshard: bool, at_end: Callable[[], None]) -> None:
        self.units: list[Unit] = []
        self.gathered = self.most_gathered = 0  # bytes of whole weights, here or on their way
        self._reshard = reshard
        self.whole: dict[int, Unit] = {}  # by the storage of its weights
        self._at_end = at_end
        self._order: list[Unit] = []  # in which units began in the last forward pass
        self._began: list[Unit] = []
        self._ended: list[Unit] = []
        self._reducing: tuple[Unit, list[bool], Handle] | None = None
        self._pass = -1

    def add(self, unit: Unit) -> None:
        """Take on a unit: from now on its module calls the engine before and after its forward."""
        self.units.append(unit)
        self._order.append(unit)
        before, after = partial(self._before, unit), partial(self._after, unit)
        unit.module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
        unit.module.register_forward_hook(after)

    def count(self, nbytes: int) -> None:
        """So many bytes of whole weights come, or go."""
        self.gathered += nbytes
        self.most_gathered = max(self.most_gathered, self.gathered)

    # -- forward ---------------------------------------------------------------------------------

    def begin(self) -> saved_tensors_hooks:
        """Start a forward pass of the whole model, whatever became of the last one."""
        if self._reducing is not None:  # of a backward pass that raised: of no use any more
            self._reducing[-1].wait()
            self._reducing = None
        self.free_all()
        self._began, self._ended = [], []
        return saved_tensors_hooks(self._pack, self._unpack)

    def end_forward(self) -> None:
        """What was asked for and not used goes; the next pass expects the order of this one."""
        for unit in self.units:
            if self._frees or unit not in self._began:
                unit.free()
        self._order = self._began

    def _before(self, unit: Unit, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Gather a unit, and ask for the next while they come in the order of the last pass."""
        unit.gather()
        if not in_backward():
            self._began.append(unit)
            following = self._order[len(self._began) - 1 : len(self._began) + 1]
            if len(following) == 2 and following[0] is unit:
                following[1].ask()
        unit.show()
        return cast((args, kwargs), unit.casts) if unit.casts else None

    def _after(self, unit: Unit, module: nn.Module, args: Any, output: Any) -> None:
        """Free a unit, and have its outputs tell when backward comes to them."""
        unit.hide()
        if in_backward():  # a checkpoint has computed it again, to go backward through it next
            return
        before = self._ended[-1] if self._ended else None
        self._ended.append(unit)
        enter = partial(self._enter, unit, unit.shard._version, before)
        for tensor in tree_iter(output):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda _: enter())
        if self._frees:
            unit.free()

    @property
    def _frees(self) -> bool:
        """Whether weights go after forward."""
        return self._reshard or not torch.is_grad_enabled()

    def _pack(self, tensor: Tensor) -> Any:
        """What autograd keeps of a tensor that backward will read."""
        unit = self.whole.get(tensor.untyped_storage()._cdata)
        if unit is None or tensor.dtype != unit.compute:
            return tensor
        place = tensor.shape, tensor.stride(), tensor.storage_offset()
        return Saved(unit, unit.shard._version, *place)

    def _unpack(self, kept: Any) -> Tensor:
        """The tensor again, gathered where it is not here."""
        if not isinstance(kept, Saved):
            return kept
        self._enter(kept.unit, kept.version, None)
        return kept.unit.gather().as_strided(kept.shape, kept.stride, kept.offset)

    # -- backward --------------------------------------------------------------------------------

    def begin_backward(self) -> None:
        """Note the backward pass that calls this, and see to its end."""
        if self._pass != torch._C._current_graph_task_id():
            self._pass = torch._C._current_graph_task_id()
            Variable._execution_engine.queue_callback(self._end_backward)

    def _enter(self, unit: Unit, version: int, before: Unit | None) -> None:
        """Backward comes to a unit: gather it, and ask for the one that ran before it."""
        self.begin_backward()
        if version != unit.shard._version:
            raise RuntimeError(
                f"weights of unit {unit.name!r} have changed since the forward pass that this "
                "backward belongs to: run backward before optimizer.step()."
            )
        if unit.whole is None:
            for other in [*self.whole.values()]:  # frozen ones, which no reduction frees
                if not other.is_trained and unit.module not in other.inside:
                    other.free()
        unit.gather()
        if not unit.is_shown:
            with torch.enable_grad():  # what a checkpoint inside of it computes again reads them
                unit.show()
        if before is not None:
            before.ask()

    def reduce(self, unit: Unit, gradients: Sequence[Tensor | None]) -> None:
        """A unit's backward is over: send its gradients, and free its weights.

        The reduction before is waited for first, so no more than two units' gradients are whole.
        """
        self.begin_backward()
        unit.free()
        self._settle()
        used = [gradient is not None for gradient in gradients]
        whole = unit.laid_out(gradients, unit.compute)
        self._reducing = unit, used, unit.comm.reduce_scatter(whole, "mean", async_op=True)

    def _settle(self) -> None:
        if self._reducing is not None:
            (unit, used, handle), self._reducing = self._reducing, None
            unit.add(handle.wait(), used)

    def _end_backward(self) -> None:
        self._settle()
        self.free_all()
        self._at_end()
        self._pass = -1

    def free_all(self) -> None:
        """Hold no whole weights."""
        for unit in self.units:
            unit.free()


def in_backward() -> bool:
    """Whether the caller runs inside a backward pass, as what a checkpoint recomputes does."""
    return torch._C._current_graph_task_id() != -1


def cast(tree: Any, dtype: torch.dtype) -> Any:
    """The same with its floating-point tensors in this dtype."""
    return tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, tree)
