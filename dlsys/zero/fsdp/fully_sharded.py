"""Fully sharded data parallelism on real tensors: ZeRO's stage 3, as PyTorch's FSDP does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count, divisor, flag, refuse, refuse_what
from dlsys.tensors import computed_in, storage_bytes
from dlsys.world import Communicator
from dlsys.world.alike import check_same, take_over
from dlsys.zero.clipping import bounds, clip
from dlsys.zero.fsdp.backward import Backward, in_backward
from dlsys.zero.fsdp.forward import Forward
from dlsys.zero.fsdp.gathering import Gathering
from dlsys.zero.fsdp.membership import membership
from dlsys.zero.fsdp.replicated import Replicated
from dlsys.zero.fsdp.saving import gathered, load, places_of, shards_of, whole_state
from dlsys.zero.fsdp.sharded_flat import Ranks
from dlsys.zero.fsdp.sharded_unit import ShardedUnit, flats_of
from dlsys.zero.journal import Journal
from dlsys.zero.local_shard import States, check_states, load_states, placed, taken
from dlsys.zero.plan import UPDATE, Action, Unit
from dlsys.zero.price import Held


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
    - compute_dtype: of gathered weights and floating-point inputs; shards keep their own, and so do
      gradients. reduce_dtype: of gradients on their way, as computed in where None.
    - reshard_after_forward: False keeps weights from forward until their backward is over, and
      sends 2 (n-1)/n D instead of 3.
    - prefetch: how many units ahead weights are asked for, in the order in which the last forward
      pass used them.
    - shard: k shards the model among k consecutive ranks, in n/k replicas (hybrid sharding).

    Construction takes over rank 0's values, a unit at a time. Gradients are final when backward()
    returns, in .grad of the shards. Every rank runs the same units in the same order; a unit that
    ran without using a parameter gives it zeros, one that did not run gives nothing. After a
    forward or backward pass that raised on all ranks the next one works; gradients are dropped.
    What is no attribute of this is the module's.
    comm=None means the world that the caller is in. Raises ValueError on every rank where modules
    differ. Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054); Zhao et al. 2023 (PyTorch
    FSDP, arXiv 2304.11277).
    """

    @checked
    def __init__(
        self,
        module: nn.Module,
        comm: Communicator | None = None,
        units: Any = None,
        compute_dtype: torch.dtype | None = None,
        *,
        reduce_dtype: torch.dtype | None = None,
        reshard_after_forward: bool = True,
        prefetch: int = 1,
        shard: int | None = None,
    ) -> None:
        super().__init__()
        flag("reshard_after_forward", reshard_after_forward)
        prefetch = count("prefetch", prefetch, least=0)
        computed_in("compute_dtype", compute_dtype)
        computed_in("reduce_dtype", reduce_dtype)
        comm = world.current() if comm is None else comm
        self.comm, self.module, self.compute_dtype = comm, module, compute_dtype
        self._device = next((p.device for p in module.parameters()), torch.device("cpu"))
        members = membership(module, units)
        options = f"options {compute_dtype}, {reduce_dtype}, {reshard_after_forward}, {prefetch}"
        names = [name for name, _, _ in members.units]
        check_same(self, comm, module, [f"{options}, {shard}", f"units {names}"])
        self._ranks, self._journal = _ranks(comm, shard), Journal()
        make = flats_of(self._ranks, compute_dtype, reduce_dtype, self._journal)
        self._units: list[ShardedUnit] = []
        while members.units:  # the slots of a unit are let go of before the next one is cut
            self._units.append(ShardedUnit(len(self._units), *members.units.pop(0), make))
        self._replicated = Replicated(comm, members.replicated, compute_dtype)
        take_over(comm, [*self._replicated.parameters, *module.buffers()])
        gathering = Gathering(self._units, prefetch, self._journal, self._device)
        self._backward = Backward(gathering, self._end_of_backward)
        self._forward = Forward(gathering, self._backward, bool(reshard_after_forward))
        self._replicated.call_when_ready(self._backward.begin)
        self._seen: Any = None  # versions of the shards when the last step began
        self._micro_batch = -1

    def __getattr__(self, name: str) -> Any:
        """What is no attribute of this is the module's: its methods, its settings."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    # -- passes ----------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own output, whatever it is."""
        args, kwargs = self._cast((args, kwargs))
        if in_backward():  # a checkpoint calls this again, and everything is as it was
            return self.module(*args, **kwargs)
        if self._backward.drop():
            self.zero_grad()
        for unit in self._units:
            unit.check()
        self._count_micro_batch()
        with self._replicated.shown(), self._forward.of_all(self._micro_batch):
            return self.module(*args, **kwargs)

    def _cast(self, inputs: Any) -> Any:
        dtype = self.compute_dtype
        if dtype is None:
            return inputs
        return tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, inputs)

    def _count_micro_batch(self) -> None:
        """A step begins when the optimizer has written to the shards, or no gradient is left."""
        versions = self._versions()
        has_gradients = any(unit.is_kept for unit in self._units) or any(
            parameter.grad is not None for parameter in self.parameters()
        )
        if versions != self._seen or not has_gradients:
            self._journal.actions.clear()
            self._seen, self._micro_batch = versions, -1
        self._micro_batch += 1

    def _versions(self) -> list[tuple[int, ...]]:
        return [unit.versions for unit in self._units]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here keep whole gradients, in the dtype of the parameters, and send
        nothing; the first one after sends the sums. All ranks do the same."""
        before, self._backward.syncs = self._backward.syncs, False
        try:
            yield
        finally:
            self._backward.syncs = before

    def average(self) -> None:
        """Reduce the gradients that `no_sync` has kept, as the end of backward does; all ranks call
        it. For passes that do not end one by one, such as those of a pipeline's stages."""
        self._backward.drop()
        self._backward.end()

    def _end_of_backward(self) -> None:
        self._replicated.hide()
        if self._backward.syncs:
            self._replicated.average()

    # -- gradients -------------------------------------------------------------------------------

    def clip_grad_norm_(
        self,
        max_norm: SupportsFloat,
        norm_type: SupportsFloat = 2.0,
        error_if_nonfinite: bool = False,
    ) -> Tensor:
        """torch.nn.utils.clip_grad_norm_ for the gradients of every shard; returns their norm.

        Every rank calls it.
        """
        most, order = bounds(max_norm, norm_type, error_if_nonfinite)
        of_all = {id(p) for p in self._replicated.parameters}
        found = [(id(p) in of_all, p.grad) for p in self.parameters() if p.grad is not None]
        shards = [gradient for is_whole, gradient in found if not is_whole]
        whole = [gradient for is_whole, gradient in found if is_whole]
        group, device = self._ranks.shard, self._device
        return clip(group, shards, whole, device, most, order, error_if_nonfinite)

    # -- saving ----------------------------------------------------------------------------------

    def full_parameters(self) -> dict[str, Tensor]:
        """Every parameter whole, by its name in the module; every rank calls it, and gets all."""
        found = {s.name: s.parameter.detach() for s in self._replicated.slots}
        for unit in self._units:
            found |= gathered(unit)
        return {name: found[name] for name, _ in self.module.named_parameters()}

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What the module's own state_dict would be if nothing were sharded; every rank calls it.

        It loads into the plain module. Options are those of nn.Module.
        """
        state = self.module.state_dict(*args, **kwargs)
        return whole_state(state, self.module, self.full_parameters(), kwargs.get("prefix", ""))

    @checked
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load what `state_dict` of this or of the plain module gave: every rank takes its shards.

        Raises ValueError where names or shapes do not fit.
        """
        flag("strict", strict)
        if assign is not False:
            refuse("assign", assign, "False: shards stay where they are")
        return load(self.module, shards_of(state_dict, self.module, self._units), strict)

    @checked
    def local_shards(self, optimizer: torch.optim.Optimizer | None = None) -> States:
        """By a parameter's name this rank's part of its "weight", and of its state in `optimizer`:
        a `LocalShard` where there is a number for each element. Nothing is sent."""
        self._check_own(optimizer)
        state = {} if optimizer is None else optimizer.state
        places = places_of(self._units) | {
            slot.name: (slot.parameter, 0, slot.shape) for slot in self._replicated.slots
        }
        return {name: placed(*each, state.get(each[0], {})) for name, each in places.items()}

    @checked
    def load_local_shards(
        self, states: Mapping[str, Any], optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Take what `local_shards` gave on this rank of as many. A part may be any object with a
        `tensor`, such as one that was read for this rank. Without `optimizer` weights alone.

        Raises ValueError for other names or other sizes.
        """
        self._check_own(optimizer)
        mine: dict[str, Tensor] = dict(self.module.named_parameters())
        check_states(states, mine)
        found = {mine[name]: taken(values, mine[name]) for name, values in states.items()}
        if optimizer is not None:
            load_states(optimizer, found)

    def _check_own(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Raise ValueError for an optimizer of other parameters, such as one built before this."""
        mine = {id(parameter) for parameter in self.module.parameters()}
        groups = [] if optimizer is None else optimizer.param_groups
        if any(id(parameter) not in mine for group in groups for parameter in group["params"]):
            refuse_what("optimizer", "of other parameters", "built on this model's .parameters()")

    # -- what is held and what was done ----------------------------------------------------------

    @property
    def units(self) -> list[Unit]:
        """The units as a plan takes them, in the order that `actions` counts them by.

        `step_plan(3, model.units, ranks)` is the step that this runs.
        """
        return [Unit(unit.name, unit.elements, unit.module is self.module) for unit in self._units]

    @property
    def actions(self) -> list[Action]:
        """What was done in the last step, in the order in which it was."""
        done = list(self._journal.actions)
        if done and self._versions() != self._seen:
            done.append(Action(UPDATE, -1, self._micro_batch))
        return done

    @checked
    def held(self, optimizer: torch.optim.Optimizer | None = None) -> Held:
        """Bytes that this rank holds, by the storages of its tensors: weights, gradients and this
        optimizer's state at rest, and the most beside them so far, gathered or not yet reduced."""
        parameters = list(self.parameters())
        gradients = [p.grad for p in parameters] + [f.whole for u in self._units for f in u.flats]
        states = [] if optimizer is None else tree_leaves(list(optimizer.state.values()))
        return Held(
            weights=storage_bytes(parameters),
            gradients=storage_bytes(gradients),
            optimizer=storage_bytes(states),
            gathered=self._journal.weights.peak,
            unreduced=self._journal.gradients.peak,
        )


def _ranks(comm: Communicator, shard: int | None) -> Ranks:
    """The groups of hybrid sharding: `shard` consecutive ranks, and those of the same place."""
    shard = comm.size if shard is None else divisor("shard", shard, {"ranks": comm.size})
    if shard == comm.size:
        return Ranks(comm, comm, None)
    inside = comm.split(comm.rank // shard, axis="shard")
    across = comm.split(comm.rank % shard, axis="replica")
    assert inside is not None
    return Ranks(comm, inside, across)
