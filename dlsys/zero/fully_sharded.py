"""`FullyShardedDataParallel`: a whole model in the units of `fsdp`, as a module like any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import flag
from dlsys.reducer import AllReduced, Reducer
from dlsys.tensors import address, bucketed, computed_in, storage_bytes
from dlsys.world import Communicator
from dlsys.world.alike import check_same, named_tensors, take_over
from dlsys.zero.clipping import clip
from dlsys.zero.fsdp import Engine, cast, in_backward
from dlsys.zero.local_shard import Place, States, placed, take_back
from dlsys.zero.membership import Slot, membership
from dlsys.zero.plan import Unit
from dlsys.zero.price import Held
from dlsys.zero.sharded_unit import ShardedUnit


class FullyShardedDataParallel(nn.Module):
    """A `module` of whose parameters, gradients and optimizer state every rank holds 1/n.

    Build the optimizer after it, on `.parameters()`; give every rank its part of the batch, and
    call it as the module. Parameters keep their names, and each is this rank's shard, (elements,)
    in one dimension, maybe none: a view into the unit's flat shard. So every optimizer that works
    element by element does as on one device.

    - units: module types, or a function that says of a module whether it is one. A unit's weights
      are gathered before its forward and again before its backward, and freed after each; its
      gradients are reduced as soon as its backward is over. None: every member of an nn.ModuleList
      or nn.Sequential, and what is left, the outer unit, which is whole through all of forward and
      all of backward. Otherwise what is in no unit stays replicated, and its gradients are averaged
      at the end of backward. A parameter belongs to the innermost unit that holds all who share it.
    - compute_dtype: of gathered weights, of their gradients on the way, and of the floating-point
      inputs of each unit and of the module; shards and their gradients keep their own dtype.
    - over: by their type, units that other ranks share than those of `comm`, with these ranks'
      communicator, as experts are shared by the ranks that hold the same ones.
    - reshard_after_forward: False keeps weights from forward until their backward is over, and
      sends 2 (n-1)/n D instead of 3.

    Construction takes over rank 0's values, a unit at a time. Gradients are final when backward()
    returns, in .grad of the shards; a parameter that no rank used has none. Every rank runs the
    same units in the same order and uses the same parameters of each, as under torch's
    `fully_shard`. After a pass that raised on all ranks the next one works.
    comm=None means the world that the caller is in. Raises ValueError on every rank where modules
    differ.
    """

    @checked
    def __init__(
        self,
        module: nn.Module,
        comm: Communicator | None = None,
        units: Any = None,
        compute_dtype: torch.dtype | None = None,
        reshard_after_forward: bool = True,
        over: Mapping[type[nn.Module], Communicator] | None = None,
    ) -> None:
        super().__init__()
        flag("reshard_after_forward", reshard_after_forward)
        computed_in("compute_dtype", compute_dtype)
        comm = world.current() if comm is None else comm
        self.comm, self.module, self.compute_dtype = comm, module, compute_dtype
        members, self._replicated = membership(module, units)
        options = {"compute_dtype": compute_dtype, "reshard_after_forward": reshard_after_forward}
        said = ", ".join(f"{name} = {value}" for name, value in options.items())
        units_said = f"units {[name for name, *_ in members]}"
        check_same(self, comm, named_tensors(module), [said, units_said])
        take_over(comm, [*(slot.parameter for slot in self._replicated), *module.buffers()])
        self._engine = Engine(reshard_after_forward, self._show_replicated)
        for name, part, slots in members:
            for alike in _alike(slots):
                ranks = (over or {}).get(type(part), comm)
                args = name, part, alike, ranks, compute_dtype, self._engine.gathered
                self._engine.add(ShardedUnit(*args))
        self._reducer = _averaging(self._replicated, comm)

    def __getattr__(self, name: str) -> Any:
        """The module's attribute, where this has none."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output, whatever it is."""
        if self.compute_dtype:
            args, kwargs = cast((args, kwargs), self.compute_dtype)
        if in_backward():  # a checkpoint calls this again, and everything is as it was
            return self.module(*args, **kwargs)
        self._check()
        self._reducer.reset()
        self._show_replicated(self.compute_dtype)
        with self._engine.begin():
            output = self.module(*args, **kwargs)
        self._engine.end_forward()
        if not torch.is_grad_enabled():
            self._show_replicated()
        return output

    def _check(self) -> None:
        """Raise RuntimeError where a parameter is no longer a part of the shard."""
        for unit in self._engine.units:
            shard = address(unit.shard)
            for name, owners in zip(unit.names, unit.owners, strict=True):
                parameters = [owner._parameters[leaf] for owner, leaf in owners]
                if any(p is None or address(p) != shard for p in parameters):
                    raise RuntimeError(
                        f"{name!r} is not the shard that FullyShardedDataParallel made: move, "
                        "convert and replace parameters before it is built."
                    )

    def _show_replicated(self, dtype: torch.dtype | None = None) -> None:
        """Let modules find replicated parameters in this dtype, None: as they are.

        Converted ones stay until backward is over, for a checkpoint that computes again.
        """
        for slot in self._replicated:
            for owner, leaf in slot.owners:
                owner.__dict__.pop(leaf, None)
                if dtype and slot.parameter.is_floating_point():
                    owner.__dict__[leaf] = slot.parameter.to(dtype)

    @checked
    def clip_grad_norm_(self, max_norm: SupportsFloat) -> Tensor:
        """torch.nn.utils.clip_grad_norm_ for the gradients of every shard; returns their norm.

        Every rank calls it.
        """
        whole = [s.parameter.grad for s in self._replicated if s.parameter.grad is not None]
        mine = (p.grad for unit in self._engine.units for p in unit.parameters)
        return clip(self.comm, [g for g in mine if g is not None], whole, max_norm)

    # -- saving ----------------------------------------------------------------------------------

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Every parameter whole, by its name in the module; every rank calls it, and gets all.

        `module.load_state_dict` of the plain module takes it.
        """
        found = {slot.name: slot.parameter.detach() for slot in self._replicated}
        for unit in self._engine.units:
            weights = unit.cut(unit.comm.all_gather(unit.shard))
            found |= zip(unit.names, weights, strict=True)
        return {name: found[name] for name, _ in self.module.named_parameters()}

    @checked
    def local_shards(self, optimizer: torch.optim.Optimizer | None = None) -> States:
        """By a parameter's name this rank's part of its "weight", and of its state in `optimizer`:
        a `LocalShard` where there is a number for each element. Nothing is sent."""
        state = {} if optimizer is None else optimizer.state
        mine = self._mine().items()
        return {name: placed(*each, state.get(each[0], {})) for name, each in mine}

    def _mine(self) -> dict[str, Place]:
        """By name this rank's part of a parameter, its first element, and the whole shape."""
        found: dict[str, Place] = {
            slot.name: (slot.parameter, 0, slot.parameter.shape) for slot in self._replicated
        }
        for unit in self._engine.units:
            shards = zip(unit.parameters, unit.pieces, unit.shapes, strict=True)
            found |= {piece.name: (mine, piece.start, shape) for mine, piece, shape in shards}
        return found

    @checked
    def load_local_shards(
        self, states: Mapping[str, Any], optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Take what `local_shards` gave on this rank of as many. A part may be any object with a
        `tensor`, such as one that was read for this rank. Without `optimizer` weights alone.

        Raises ValueError for other names, sizes or places.
        """
        take_back(states, self._mine(), optimizer)

    # -- what is held ----------------------------------------------------------------------------

    @property
    def units(self) -> list[Unit]:
        """The units as a plan takes them, for `step_plan(3, model.units, ranks)`."""
        return [
            Unit(unit.name, unit.layout.elements, unit.module is self.module)
            for unit in self._engine.units
        ]

    @checked
    def held(self, optimizer: torch.optim.Optimizer | None = None) -> Held:
        """Bytes that this rank holds, by the storages of its tensors, and the most whole weights so
        far; `unreduced` is not counted."""
        parameters = list(self.parameters())
        states = [] if optimizer is None else tree_leaves(list(optimizer.state.values()))
        return Held(
            weights=storage_bytes(parameters),
            gradients=storage_bytes(p.grad for p in parameters),
            optimizer=storage_bytes(states),
            gathered=self._engine.gathered.most,
            unreduced=0,
        )


def _alike(slots: list[Slot]) -> list[list[Slot]]:
    """Slots of one dtype together, frozen ones apart."""
    kinds: dict[Any, list[Slot]] = {}
    for slot in slots:
        kinds.setdefault((slot.parameter.dtype, slot.parameter.requires_grad), []).append(slot)
    return list(kinds.values())


def _averaging(slots: list[Slot], comm: Communicator) -> Reducer:
    """What averages the gradients of replicated parameters, as DataParallel does."""
    trained = [(slot.name, slot.parameter) for slot in slots if slot.parameter.requires_grad]
    buckets = bucketed(trained, float("inf"))
    reducer = Reducer([AllReduced([p for _, p in b], [n for n, _ in b], comm) for b in buckets])
    reducer.watch()
    return reducer
