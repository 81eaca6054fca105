"""Selective checkpointing: the results of some operations are kept, and those not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.recomputation.checkpointing import RecomputationError, Region, held

Policy = Callable[..., bool]
LINEAR = (torch.ops.aten.mm, torch.ops.aten.addmm)
"""The operations of linear layers: most of a layer's FLOPs, and none of its s x s matrices."""
_SKIPPED = torch.ops.aten.detach  # checkpoints detach what they catch, in the second run alone


def keeping_results(keep: Sequence[Any] | Policy) -> Callable[..., Any]:
    """A function that is called as `checkpoint` is, and runs again all but what `keep` names.

    - keep: operations of torch (`torch.ops.aten.mm`), or `keep(operation, *args, **kwargs)`, which
      is asked in forward at each call of one, with torch's arguments, and says whether the result
      stays. A result that stays is saved as the arguments of the checkpoint are.

    The checkpoint raises RecomputationError where a result that is to stay is changed in place
    before the function ends, and in backward where the second run calls other operations.

    Source: the selective policy is that of PyTorch's `create_selective_checkpoint_contexts`; what
    pays, Korthikanti et al. 2022 (arXiv 2205.05198), section 5.
    """
    if not callable(keep) and not isinstance(keep, list | tuple):
        refuse("keep", keep, "operations, such as (torch.ops.aten.mm,), or a function of one")

    def policy(operation: Any, *args: Any, **kwargs: Any) -> bool:
        if callable(keep):
            return bool(keep(operation, *args, **kwargs))
        return operation in keep or operation.overloadpacket in keep

    @checked
    def checkpoint(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        return Region(function, args, kwargs, _Results(policy)).run(*args, **kwargs)

    return checkpoint


class _Results:
    """What stays of one call: the results of some of its operations, by place among all."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._forms: dict[int, tuple[Any, Any, int]] = {}
        self._held: Any = None

    @contextmanager
    def first(self) -> Iterator[None]:
        """Let the function run, then save what is to stay."""
        mode = _Note(self._policy)
        with mode:
            yield
        saved: list[Tensor] = []
        for place, (operation, result, versions) in mode.results.items():
            leaves, form = tree_flatten(result)
            if [leaf._version for leaf in leaves] != versions:
                raise RecomputationError(
                    f"The result of {operation}, which is to be kept, is changed in place by the "
                    "function: keep that of another operation, or change a copy."
                )
            self._forms[place] = operation, form, len(leaves)
            saved += [leaf.detach() for leaf in leaves]  # without its graph, which holds this
        mode.results.clear()
        self._held = held(saved)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Let the function run on what stayed."""
        saved = iter(self._held.grad_fn.saved_tensors)
        results = {
            place: (operation, tree_unflatten([next(saved) for _ in range(number)], form))
            for place, (operation, form, number) in self._forms.items()
        }
        with _Take(results):
            yield


class _Places(TorchDispatchMode):
    """Counts the operations that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.place = -1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is _SKIPPED:
            return func(*args, **kwargs or {})
        self.place += 1
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of the operation, which is the one at `self.place`."""
        return func(*args, **kwargs)


class _Note(_Places):
    """Notes the results that are to stay, and how often they had been changed."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy
        self.results: dict[int, tuple[Any, Any, list[int]]] = {}

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if self._policy(func, *args, **kwargs):
            leaves, _ = tree_flatten(result)
            self.results[self.place] = func, result, [leaf._version for leaf in leaves]
        return result


class _Take(_Places):
    """Gives the results that stayed, in place of running their operations."""

    def __init__(self, results: dict[int, tuple[Any, Any]]) -> None:
        super().__init__()
        self._results = results

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        then, result = self._results.get(self.place, (func, None))
        if then is not func:
            raise RecomputationError(
                f"Operation {self.place} was {then} in forward, and is {func} when it runs again "
                "in backward: the function must do the same both times."
            )
        if self.place not in self._results:
            return func(*args, **kwargs)
        # What is given back gets the second run's graph, which is not to stay with what is saved.
        return tree_map(Tensor.detach, result)
