"""ZeRO's stages 1 and 2 on real tensors: any optimizer, whose state is split among the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, SupportsFloat

import torch
from torch import Tensor

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import flag, refuse
from dlsys.tensors import Params, listed
from dlsys.world import Communicator
from dlsys.zero.clipping import bounds
from dlsys.zero.journal import Journal
from dlsys.zero.local_shard import States, check_states, load_states, taken
from dlsys.zero.optimizer.arguments import check_options
from dlsys.zero.optimizer.bucket import Bucket
from dlsys.zero.optimizer.gradient_shards import AveragedGradients, GradientShards
from dlsys.zero.optimizer.in_backward import InBackward
from dlsys.zero.optimizer.layout import Layout
from dlsys.zero.optimizer.resident import Resident, resident
from dlsys.zero.optimizer.sharded_state import exchange, load, merged, of_part, on_cpu
from dlsys.zero.plan import UPDATE, Action


class ShardedOptimizer(torch.optim.Optimizer):
    """`optimizer_cls(params, **kw)`, of which every rank holds and computes 1/n.

    A step reduces gradients to this rank's shard of their mean, updates its shard of the weights,
    and gathers the weights of all: 2(n-1)/n of their bytes, which is what an all-reduce sends.

    - Construction: every rank takes over rank 0's parameters; those that need no gradient are left
      alone from then on, and one that is frozen later is not updated.
    - stage=1 keeps whole gradients, this rank's own; stage=2 reduces each bucket of `bucket_bytes`
      bytes (None: 25 MiB) while backward goes on, once a micro-batch, and frees it: .grad is None
      when backward() returns. What a step has used the next backward pass does not add to.
    - `master_dtype`: this rank's shard of weights of another dtype is updated in a copy of this
      dtype and rounded; a copy whose weight somebody else has written to follows it.
    - `whole_tensors`: ranks are dealt whole parameters instead of slices, for an optimizer that
      looks at a parameter as a whole, such as Adafactor and Muon; shards are then less even.
    - `averaged`: gradients are means already, as DataParallel and DDP leave them. None is reduced;
      but their all-reduce and the gather of weights send 3(n-1)/n.
    - `offload="cpu"`: this rank's shards of gradients, state and weights, and its update, are on
      the CPU; `moved` counts the bytes that pass "to host" and "to device" in a step.
    - Unused parameters have gradients of zeros, as in DataParallel: that another rank has used one
      is known only to whoever adds them up. With `averaged`, None is None.
    - A backward pass that raised: zero_grad() sends zeros for what this rank had not sent.

    All ranks call every method in the same order. `actions` are those of the last step, as (kind,
    bucket, micro-batch), buckets counted in the order of forward; `inner` is the optimizer of this
    rank's parts. comm=None means the world that the caller is in.
    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5; offload: Ren et al. 2021
    (ZeRO-Offload, arXiv 2101.06840).
    """

    @checked
    def __init__(
        self,
        params: Params,
        optimizer_cls: type[torch.optim.Optimizer],
        comm: Communicator | None = None,
        *,
        stage: int = 1,
        bucket_bytes: float | None = None,
        master_dtype: torch.dtype | None = None,
        whole_tensors: bool = False,
        averaged: bool = False,
        offload: Literal["cpu"] | None = None,
        **kw: Any,
    ) -> None:
        groups = listed(params)
        check_options(optimizer_cls, stage, bucket_bytes, master_dtype, whole_tensors, averaged)
        self.comm = world.current() if comm is None else comm
        self.stage, self.inner = stage, None  # type: int, torch.optim.Optimizer | None
        self._optimizer_cls, self._kw, self._journal = optimizer_cls, kw, Journal()
        self._host = torch.device(offload) if offload else None
        self._layout = Layout(self.comm, bucket_bytes, whole_tensors, master_dtype, self._host)
        kind = AveragedGradients if averaged else InBackward if stage == 2 else GradientShards
        self._gradients = kind(self.comm, self._journal, self._host)
        # Made for one number, it says what its defaults are, and what is wrong with its settings.
        probe = optimizer_cls([torch.zeros(1, 1, requires_grad=True)], **kw)
        super().__init__(groups, probe.defaults)

    @property
    def buckets(self) -> list[Bucket]:
        """What is reduced and gathered at once, in the order of forward."""
        return self._layout.buckets

    @property
    def actions(self) -> list[Action]:
        """What the last step did, in order; the unit is a bucket's index, or -1 for all."""
        return list(self._journal.actions)

    @property
    def moved(self) -> dict[str, int]:
        """Bytes of the last step that went "to host" and "to device"."""
        return dict(self._journal.moved)

    def held(self) -> Resident:
        """Bytes that this rank holds now, counted from the storages of its tensors."""
        state = [v for each in self.state.values() for v in each.values() if isinstance(v, Tensor)]
        own = (part.tensor.grad for part in self._layout.parts)
        return resident(
            weights=[p for group in self.param_groups for p in group["params"]],
            shards=[*self._gradients.tensors(), *(each for each in own if each is not None)],
            copies=[part.tensor for part in self._layout.parts if part.copied],
            state=state,
            unreduced=self._journal.gradients.peak,
            is_offloaded=self._host is not None,
        )

    # -- a step ----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Reduce what is not yet reduced, update this rank's shards, and gather the weights."""
        loss = None
        if closure is not None:
            if not callable(closure):
                refuse("closure", closure, "a function without arguments, or None")
            with torch.enable_grad():
                loss = closure()
        self._check_frozen()
        self._gradients.reduce()
        self._update()
        self._layout.gather(self._journal)
        self._gradients.stepped()
        self._journal.end_step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, whole ones and shards; all ranks call it after a pass that raised
        on one of them."""
        flag("set_to_none", set_to_none)
        self._gradients.forget(to_zero=not set_to_none)
        super().zero_grad(set_to_none)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes in here only add to whole gradients, which stage 2 then holds; the first
        one after reduces the sum, or the step where there is none. All ranks do the same."""
        before, self._gradients.syncs = self._gradients.syncs, False
        try:
            yield
        finally:
            self._gradients.syncs = before
            self._gradients.left_whole()

    def clip_grad_norm_(
        self,
        max_norm: SupportsFloat,
        norm_type: SupportsFloat = 2.0,
        error_if_nonfinite: bool = False,
    ) -> Tensor:
        """torch.nn.utils.clip_grad_norm_ for all ranks' gradients together; returns their norm.

        Call it between backward and step, on every rank. Stage 1 reduces for it, and whole
        gradients stay as they are.
        """
        most, order = bounds(max_norm, norm_type, error_if_nonfinite)
        return self._gradients.clip(most, order, error_if_nonfinite)

    def _update(self) -> None:
        self._journal.note(UPDATE, -1)
        inner = self._ready_inner()
        for bucket in self.buckets:
            for part in bucket.parts:
                part.refresh()
                gradient = (
                    self._gradients.of(bucket, part) if part.parameter.requires_grad else None
                )
                part.tensor.grad = None if gradient is None else gradient.to(part.tensor)
        inner.step()
        for group, made in zip(self.param_groups, inner.param_groups, strict=True):
            group.update(_settings(made))  # some keep numbers of their own there
        for part in self._layout.parts:
            if part.tensor.grad is not None:
                self.state[part.parameter] = inner.state[part.tensor]
                part.tensor.grad = None

    def _ready_inner(self) -> torch.optim.Optimizer:
        """The inner optimizer, with the groups' settings as schedulers have left them."""
        assert self.inner is not None
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update(_settings(group))
        return self.inner

    def _check_frozen(self) -> None:
        for name, parameter in self._layout.frozen:
            if parameter.requires_grad:
                raise RuntimeError(
                    f"{name!r} was frozen when it was given to ShardedOptimizer, and no bucket has "
                    "a place for its gradient: build the optimizer after requires_grad_(True)."
                )

    # -- groups ----------------------------------------------------------------------------------

    @torch.no_grad()
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """See torch; all ranks call it."""
        if not isinstance(param_group, dict) or "params" not in param_group:
            refuse("param_group", param_group, "a dictionary with 'params'", TypeError)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        parts = self._layout.add(group)
        self._add_to_inner({**_settings(group), "params": [part.tensor for part in parts]})
        self._gradients.watch(self.buckets)

    def _add_to_inner(self, group: dict[str, Any]) -> None:
        if self.inner is None:
            self.inner = self._optimizer_cls([group], **self._kw)
        else:
            self.inner.add_param_group(group)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """That of `optimizer_cls` on one device, on every rank and on the CPU; all ranks call it.

        It can be loaded there, or here on any number of ranks. A master copy is in it as "master".
        """
        device, numbers = self.param_groups[0]["params"][0].device, self._numbers()
        mine = {
            numbers[id(part.parameter)]: on_cpu(part, self.state[part.parameter])
            for part in self._layout.parts
            if part.parameter in self.state
        }
        state = merged(exchange(self.comm, mine, device))
        return {"state": state, "param_groups": super().state_dict()["param_groups"]}

    def local_shards(self) -> States:
        """By a parameter's name, or its number where it has none, this rank's part of its "weight"
        and of its state: a `LocalShard` where there is a number for each element. Nothing is sent.

        Raises ValueError where two parameters have one name.
        """
        names = [name for bucket in self.buckets for name in bucket.names]
        if len({*names}) < len(names):
            raise ValueError("two parameters have the same name: give each group names of its own.")
        return {
            p.piece.name: of_part(p, self.state.get(p.parameter, {})) for p in self._layout.parts
        }

    @checked
    @torch.no_grad()
    def load_local_shards(self, states: Mapping[str, Any]) -> None:
        """Take what `local_shards` gave on this rank of as many, and gather the weights; all ranks
        call it. A part may be any object with a `tensor`, such as one that was read for this rank.

        Raises ValueError for other names or other sizes.
        """
        parts = {part.piece.name: part for part in self._layout.parts}
        check_states(states, {name: part.tensor for name, part in parts.items()})
        found = {part.tensor: taken(states[name], part.tensor) for name, part in parts.items()}
        inner = self._ready_inner()
        load_states(inner, found)
        for part in parts.values():
            self.state[part.parameter] = inner.state[part.tensor]
        self._layout.gather(Journal())

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of a state dict of one device, or of `state_dict()`."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            refuse("state_dict", state_dict, "what an optimizer's state_dict() gives")
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        saved = [number for group in state_dict["param_groups"] for number in group["params"]]
        numbers, parts = self._numbers(), self._layout.parts
        entries = [state_dict["state"].get(saved[numbers[id(p.parameter)]]) for p in parts]
        inner = self._ready_inner()
        load(inner, parts, entries)
        for part, values in zip(parts, entries, strict=True):
            if values is not None:
                self.state[part.parameter] = inner.state[part.tensor]

    def _numbers(self) -> dict[int, int]:
        """The number of each parameter in a state dict, by its id."""
        every = [p for group in self.param_groups for p in group["params"]]
        return {id(p): number for number, p in reversed(list(enumerate(every)))}


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}
