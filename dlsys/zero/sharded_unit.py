"""A unit of FSDP: parameters of which this rank keeps a shard, and borrows the rest for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from dlsys.reducer import has_gradient
from dlsys.tensors import address
from dlsys.world import Communicator, Handle
from dlsys.zero.flat import flat
from dlsys.zero.membership import Slot


class Gathered:
    """What a rank has borrowed: units by the storage of their whole weights, and bytes of these.

    Bytes on their way count, too: memory for them is taken.
    """

    def __init__(self) -> None:
        self.units: dict[int, ShardedUnit] = {}
        self.nbytes = self.most = 0

    def count(self, nbytes: int) -> None:
        """So many bytes come, or go."""
        self.nbytes += nbytes
        self.most = max(self.most, self.nbytes)


class ShardedUnit:
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
        gathered: Gathered,
    ) -> None:
        self.name, self.module, self.comm, self.gathered = name, module, comm, gathered
        self.names, self.owners = [s.name for s in slots], [s.owners for s in slots]
        self.shapes = [slot.parameter.shape for slot in slots]
        self.layout = flat({slot.name: slot.parameter.numel() for slot in slots}, comm.size)
        self.pieces, first = self.layout.pieces(comm.rank), slots[0].parameter
        self.casts = compute if first.is_floating_point() else None
        self.compute = self.casts or first.dtype
        whole = None
        if comm.rank == 0:  # whose values all take over
            whole = self.laid_out([slot.parameter for slot in slots], first.dtype)
        self.shard = comm.scatter(whole).to(first.device)
        self.parameters = [
            nn.Parameter(mine, requires_grad=first.requires_grad) for mine in self.mine(self.shard)
        ]
        places = [place for owners in self.owners for place in owners]
        self.recurrent = {owner for owner, _ in places if isinstance(owner, nn.RNNBase)}
        for owners, parameter in zip(self.owners, self.parameters, strict=True):
            parameter.is_shard = True  # type: ignore[attr-defined]
            for owner, leaf in owners:
                owner._parameters[leaf] = parameter
        self.whole: Tensor | None = None
        self._coming: Handle | None = None
        self.hide()

    @torch.no_grad()
    def laid_out(self, tensors: Sequence[Tensor | None], dtype: torch.dtype) -> Tensor:
        """Tensors of the parameters' shapes end to end, padded; zeros for None."""
        device = next(t for t in tensors if t is not None).device
        found = torch.zeros(self.layout.padded, dtype=dtype, device=device)
        for begin, tensor in zip(self.layout.begins, tensors, strict=True):
            if tensor is not None:
                found[begin : begin + tensor.numel()] = tensor.reshape(-1)
        return found

    def cut(self, whole: Tensor) -> Iterator[Tensor]:
        """Each parameter in a flat tensor (padded,), with its shape."""
        for begin, shape in zip(self.layout.begins, self.shapes, strict=True):
            yield whole[begin : begin + shape.numel()].view(shape)

    def mine(self, shard: Tensor) -> Iterator[Tensor]:
        """This rank's part of each parameter in a flat shard."""
        return (shard[piece.place : piece.place + piece.elements] for piece in self.pieces)

    # -- whole weights ---------------------------------------------------------------------------

    @torch.no_grad()
    def ask(self) -> None:
        """Start to gather, unless the whole is here or on its way. One rank has it."""
        if self.whole is None and self._coming is None and self.comm.size > 1:
            self.gathered.count(self.layout.padded * self.compute.itemsize)
            self._coming = self.comm.all_gather(self.shard.to(self.compute), async_op=True)

    def gather(self) -> Tensor:
        """The whole weights (padded,), when they have come."""
        self.ask()
        if self.whole is None:
            coming, self._coming = self._coming, None
            self.whole = coming.wait() if coming else self.shard.detach().to(self.compute)
            self.gathered.units[address(self.whole)] = self
        return self.whole

    def free(self) -> None:
        """Give whole weights up; what is on its way is waited for, as handles have to be."""
        self.hide()
        if self._coming is not None:
            self.gather()
        if self.whole is not None:
            del self.gathered.units[address(self.whole)]
            self.gathered.count(-self.whole.nbytes if self.comm.size > 1 else 0)
            self.whole = None

    def show(self, weights: Iterable[Tensor]) -> None:
        """Let modules find whole weights where their parameters are.

        An attribute in a module's __dict__ comes before `_parameters`, which stay as they are.
        """
        for owners, weight in zip(self.owners, weights, strict=True):
            for owner, leaf in owners:
                owner.__dict__[leaf] = weight
        self.is_shown = True

    def hide(self) -> None:
        """Let modules find their shards again."""
        for owner, leaf in (place for owners in self.owners for place in owners):
            owner.__dict__.pop(leaf, None)
        for layer in self.recurrent:  # these keep a list of their weights besides
            layer._flat_weights = [getattr(layer, name) for name in layer._flat_weights_names]
        self.is_shown = False

    # -- gradients -------------------------------------------------------------------------------

    @torch.no_grad()
    def add(self, mean: Tensor, used: Sequence[bool]) -> None:
        """Add this rank's shard of the mean gradient to .grad of its parameters.

        A weight that this rank did not use, and for which no other gave more than zeros, has none.
        """
        parts = self.mine(mean.to(self.shard.dtype))
        for parameter, mine, was_used in zip(self.parameters, parts, used, strict=True):
            if parameter.requires_grad and has_gradient(was_used, mine):
                parameter.grad = mine if parameter.grad is None else parameter.grad.add_(mine)
