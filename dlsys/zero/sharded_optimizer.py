"""ZeRO's stages 1 and 2: any optimizer, whose state and update the ranks share.

A step reduces gradients to this rank's shard of their mean, updates its shard of the weights, and
gathers the weights of all: 2(n-1)/n of their bytes, which is what an all-reduce sends.
Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from dlsys import world
from dlsys.annotated import checked
from dlsys.checks import count, flag, positive, refuse
from dlsys.reducer import Reducer
from dlsys.tensors import Params, address, bucketed, computed_in, listed, storage_bytes
from dlsys.world import Communicator
from dlsys.world.alike import check_same, take_over
from dlsys.zero.clipping import clip
from dlsys.zero.local_shard import Place, States, placed, take_back
from dlsys.zero.price import Held
from dlsys.zero.sharded_bucket import ShardedBucket

_BUCKET_BYTES = 25 * 2**20  # DDP's default
_WHOLE = (torch.optim.Adafactor, torch.optim.Muon)


class ShardedOptimizer(torch.optim.Optimizer):
    """`optimizer_cls(params, **kw)`, of which every rank holds and computes 1/n.

    - Construction: every rank takes over rank 0's parameters, which then lie end to end in buckets;
      those that need no gradient are left alone from then on.
    - stage=1 keeps whole gradients, this rank's own; stage=2 reduces each bucket of `bucket_bytes`
      bytes (None: 25 MiB) while backward goes on, once a micro-batch, and frees it: .grad is None
      when backward() returns.
    - `master_dtype`: this rank's shard of weights is updated in a copy of this dtype, and rounded.
    - `whole_tensors`: ranks are dealt whole parameters instead of slices, for an optimizer that
      looks at a parameter as a whole, such as Adafactor and Muon; shards are then less even.

    All ranks call every method in the same order, and use the same parameters; one that no rank has
    used is left alone, as on one device. comm=None means the world that the caller is in.
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
        **kw: Any,
    ) -> None:
        groups = listed(params)
        self.stage = count("stage", stage, most=2)
        if bucket_bytes is not None:
            positive("bucket_bytes", bucket_bytes)
        computed_in("master_dtype", master_dtype)
        if issubclass(optimizer_cls, _WHOLE) and not whole_tensors:
            what = f"True for {optimizer_cls.__name__}, which looks at a parameter as a whole"
            refuse("whole_tensors", whole_tensors, what)
        self.comm = world.current() if comm is None else comm
        # Made for one number, it says what its defaults are, and what is wrong with its settings.
        probe = optimizer_cls([torch.zeros(1, 1, requires_grad=True)], **kw)
        super().__init__(groups, probe.defaults)
        every = [p for group in self.param_groups for p in group["params"]]
        numbers = {parameter: str(number) for number, parameter in enumerate(every)}
        named = [_named(group, numbers) for group in self.param_groups]
        sizes = f"groups of {[len(each) for each in named]} parameters"
        check_same(self, self.comm, chain.from_iterable(named), [sizes])
        take_over(self.comm, every)
        # Few whole tensors are not dealt evenly, so they are all in one bucket.
        limit = bucket_bytes or (float("inf") if whole_tensors else _BUCKET_BYTES)
        options = self.comm, stage == 2, whole_tensors, master_dtype
        self._frozen: list[tuple[str, Tensor]] = []
        made: list[tuple[float, ShardedBucket]] = []
        own: list[dict[str, Any]] = []
        for group, pairs in zip(self.param_groups, named, strict=True):
            self._frozen += [pair for pair in pairs if not pair[1].requires_grad]
            trained = [pair for pair in pairs if pair[1].requires_grad]
            found = list(_laid_out(trained, limit, options))
            shards = (shard for _, bucket in found for shard in bucket.shards)
            own.append({**_settings(group), "params": [s for s in shards if s.numel()]})
            made += found
        # Groups go through the model side by side; each has its parameters in the order of forward.
        made.sort(key=lambda pair: -pair[0])
        self.buckets = [bucket for _, bucket in made]  # in the order in which backward fills them
        self.inner = optimizer_cls(own, **kw)
        self.state = self.inner.state  # by this rank's pieces
        self._reducer, self._is_reduced = Reducer(self.buckets, in_flight=1), False
        if self.stage == 2:
            self._reducer.watch()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once it is built: a group has to be laid out in buckets with all others."""
        if hasattr(self, "_reducer"):
            raise RuntimeError("ShardedOptimizer takes all groups when it is built.")
        super().add_param_group(param_group)

    # -- a step ----------------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Reduce what is not yet reduced, update this rank's shards, and gather the weights.

        `more` goes to the step of `optimizer_cls`.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                refuse("closure", closure, "a function without arguments, or None")
            with torch.enable_grad():
                loss = closure()
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise RuntimeError(
                    f"{name!r} was frozen when it was given to ShardedOptimizer, and no bucket has "
                    "a place for its gradient: build the optimizer after requires_grad_(True)."
                )
        self._reduce()
        self._settle()
        for bucket in self.buckets:
            bucket.follow()
            bucket.show_gradients()
        self.inner.step(**more)
        self.inner.zero_grad()
        for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
            group.update(_settings(own))  # some keep numbers of their own there
        self._gather()
        self._is_reduced = False
        for bucket in self.buckets:
            if self.stage == 1:  # what stays are whole gradients
                bucket.forget_gradients()
            else:  # nobody can see whether a model's own zero_grad() will be called
                bucket.is_used_up = True
        return loss

    def _settle(self) -> None:
        """Give the inner optimizer the groups' settings, as schedulers have left them."""
        for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
            own.update(_settings(group))

    def _reduce(self) -> None:
        """Have this step's gradients in the buckets' shards; stage 2 has them already."""
        if self.stage == 1 and not self._is_reduced:
            self._reducer.end()
            self._is_reduced = True

    @torch.no_grad()
    def _gather(self) -> None:
        """Give every rank every shard; the next bucket is on its way while one is taken in."""
        order = self.buckets[::-1]  # that of forward
        for before, bucket in zip([None, *order], [*order, None], strict=True):
            if bucket is not None:
                bucket.start_gather()
            if before is not None:
                before.finish_gather()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, whole ones and shards; after a pass that raised, on all ranks."""
        flag("set_to_none", set_to_none)
        self._reducer.reset()
        self._is_reduced = False
        for bucket in self.buckets:
            bucket.forget_gradients()
        super().zero_grad(set_to_none)

    @checked
    def clip_grad_norm_(self, max_norm: SupportsFloat) -> Tensor:
        """torch.nn.utils.clip_grad_norm_ for all ranks' gradients together; returns their norm.

        Call it between backward and step, on every rank; whole gradients stay as they are.
        """
        self._reduce()
        return clip(self.comm, self._gradients(), [], max_norm)

    def _gradients(self) -> list[Tensor]:
        """The gradients of this rank's pieces that there are."""
        return [g for bucket in self.buckets for g in bucket.gradients if g is not None]

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        """Refused: a rank has a part of it."""
        raise RuntimeError("a rank has a part of the state: use local_shards().")

    def load_state_dict(self, state_dict: Any) -> None:
        """Refused, see `state_dict`."""
        raise RuntimeError("a rank has a part of the state: use load_local_shards().")

    def _mine(self) -> dict[str, Place]:
        """By name this rank's piece of a parameter, its first element, and the whole shape.

        Raises ValueError where two parameters have one name.
        """
        found = {}
        for bucket in self.buckets:
            pieces = zip(bucket.shards, bucket.pieces, bucket.parameters, strict=True)
            for shard, piece, parameter in pieces:
                if piece.name in found:
                    raise ValueError(
                        f"two parameters have the name {piece.name!r}: give each group names of "
                        "its own."
                    )
                found[piece.name] = shard, piece.start, parameter.shape
        return {name: each for name, each in found.items() if each[0].numel()}

    def local_shards(self) -> States:
        """By a parameter's name, or its number where it has none, this rank's part of its "weight"
        and of its state: a `LocalShard` where there is a number for each element. Nothing is sent.
        """
        mine = self._mine().items()
        return {name: placed(*each, self.state.get(each[0], {})) for name, each in mine}

    @checked
    @torch.no_grad()
    def load_local_shards(self, states: Mapping[str, Any]) -> None:
        """Take what `local_shards` gave on this rank of as many, and gather the weights; all ranks
        call it. A part may be any object with a `tensor`, such as one that was read for this rank.

        Raises ValueError for other names, sizes or places.
        """
        self._settle()
        take_back(states, self._mine(), self.inner)
        self.state = self.inner.state
        self._gather()

    def held(self) -> Held:
        """Bytes that this rank holds now, by the storages of its tensors; counters of steps, a
        number for each piece, are left out."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        shards = [shard for bucket in self.buckets for shard in bucket.shards]
        weights = {address(parameter) for parameter in parameters}
        copies = [shard for shard in shards if address(shard) not in weights]
        values = (v for each in self.state.values() for v in each.values())
        state = [v for v in values if isinstance(v, Tensor) and v.dim()]
        return Held(
            weights=storage_bytes(parameters),
            gradients=storage_bytes([*(p.grad for p in parameters), *self._gradients()]),
            optimizer=storage_bytes([*copies, *state]),
            gathered=0,
            unreduced=0,
        )


def _named(group: Mapping[str, Any], numbers: Mapping[Tensor, str]) -> list[tuple[str, Tensor]]:
    """A group's parameters by their names, or by their numbers where they have none."""
    names = group.get("param_names") or [numbers[p] for p in group["params"]]
    return list(zip(names, group["params"], strict=True))


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _laid_out(
    named: Sequence[tuple[str, Tensor]], limit: float, options: tuple[Any, ...]
) -> Iterator[tuple[float, ShardedBucket]]:
    """A group's buckets, and after which part of the group each begins."""
    for each in bucketed(named, limit):
        names, parameters = zip(*each, strict=True)
        yield named.index(each[0]) / len(named), ShardedBucket(parameters, names, *options)
