"""Activation checkpointing: run a part of the forward pass again in backward instead of keeping it.

`checkpoint` stands on torch's saved-tensor hooks: operations record their graph as always, and
where one would save a tensor it saves a number, the tensor's place. The first number that backward
asks for runs the function again, and this time the tensors are caught. So the graph is the plain
one: any arguments and results, `torch.autograd.grad` and second derivatives work as without it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_unflatten

from dlsys.annotated import checked
from dlsys.recomputation.states import State

Result = TypeVar("Result")


class RecomputationError(RuntimeError):
    """What ran again in backward is not what ran in forward."""


@checked
def checkpoint(function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Result:
    """function(*args, **kwargs), of which backward has the arguments alone and runs it again.

    - Tensors are found in lists, tuples and dictionaries, too, and need no gradient. They are saved
      as an operation saves what it is given: hooks around the call (another checkpoint, `Offload`)
      get them. All other arguments are held as they are.
    - The second run has the random state (of the CPU, and of the devices of the tensors) and the
      autocast state of the first; the random state is put back after it. It ends as soon as the
      last tensor that backward needs is there.
    - Where nothing is to be differentiated (`no_grad`, `inference_mode`), it is a plain call.

    Backward raises RecomputationError where the second run saves other tensors than the first, or
    finds a parameter changed, and RuntimeError where an argument was changed in place. It cannot
    see other values of the same shape: the function must read nothing else that changes.

    Source: Chen et al. 2016 (arXiv 1604.06174), section 3; Griewank and Walther 2000 (Revolve).
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    return Region(function, args, kwargs).run(*args, **kwargs)


class Around(Protocol):
    """What else goes on while the function runs; see `keep_results.py`."""

    def first(self) -> AbstractContextManager[Any]:
        """Around the first run."""

    def again(self) -> AbstractContextManager[Any]:
        """Around a run in backward."""


class Region:
    """One call of a checkpointed function: the arguments, and what its backward needs of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        around: Around | None = None,
    ) -> None:
        leaves, self._form = tree_flatten((args, kwargs))
        tensors = {place: leaf for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
        self._function, self._around = function, around
        self._others = [None if place in tensors else leaf for place, leaf in enumerate(leaves)]
        self._places = list(tensors)
        self._inputs = held(tensors.values())
        self._state = State(tensors.values())
        self._saved: list[_Saved] = []
        self._caught: dict[int, tuple[Tensor, int]] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The first run, in forward, of the arguments as they came."""
        around = self._around.first() if self._around else nullcontext()
        with around, saved_tensors_hooks(self._pack, self._unpack):
            return self._function(*args, **kwargs)

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Where one was changed in place, torch says so here.
        leaves = self._others.copy()
        for place, tensor in zip(self._places, self._inputs.grad_fn.saved_tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self._form)

    def _pack(self, x: Tensor) -> _Place:
        place = _Place(len(self._saved))
        self._saved.append(_Saved(weakref.ref(place), _look(x)))
        return place

    def _unpack(self, place: _Place) -> Tensor:
        if place.number not in self._caught:
            self._run_again()
        x, version = self._caught.pop(place.number)
        if x._version != version:
            raise RecomputationError(
                f"Tensor {place.number} that {_name(self._function)} saves, {_words(_look(x))}, is "
                "changed in place by the function later, and backward needs it as it was."
            )
        return x

    def _run_again(self) -> None:
        """Catch every tensor that the graph still has a place for."""
        needed = [number for number, saved in enumerate(self._saved) if saved.place() is not None]
        caught: dict[int, tuple[Tensor, int]] = {}
        number = -1

        def catch(x: Tensor) -> Tensor:
            nonlocal number
            number += 1
            alone = x.detach()  # without the second run's graph
            if number > needed[-1]:
                return alone
            self._compare(number, x)
            if self._saved[number].place() is not None:
                caught[number] = alone, x._version
            if number == needed[-1]:
                raise _Ended
            return alone

        args, kwargs = self._arguments()
        around = self._around.again() if self._around else nullcontext()
        try:
            hooks = saved_tensors_hooks(catch, lambda x: x)
            with self._state.restored(), torch.enable_grad(), around, hooks:
                self._function(*args, **kwargs)
        except _Ended:  # this region's: another's hooks see nothing of what is saved in here
            pass
        if number < needed[-1]:
            raise RecomputationError(
                f"{_name(self._function)} saved {len(self._saved)} tensors in forward, and "
                f"{number + 1} when it ran again in backward. {_ADVICE}"
            )
        self._caught.update(caught)
        if torch._C._current_graph_task_id() != -1:
            # What this backward did not ask for, for it goes to some inputs alone, is let go.
            Variable._execution_engine.queue_callback(self._caught.clear)

    def _compare(self, number: int, x: Tensor) -> None:
        """Raise RecomputationError where the second run does not save what the first did."""
        then, now = self._saved[number].look, _look(x)
        if then == now:
            return
        what = f"Tensor {number} that {_name(self._function)} saves"
        if then[:-1] == now[:-1]:
            raise RecomputationError(
                f"{what} is a parameter, {_words(now)}, that was changed in place between forward "
                "and backward: take the optimizer's step after backward."
            )
        raise RecomputationError(
            f"{what} was {_words(then)} in forward, and is {_words(now)} when it runs again in "
            f"backward. {_ADVICE}"
        )


class _Place:
    """What the graph has in place of a saved tensor; it lives as long as the graph wants it."""

    __slots__ = ("__weakref__", "number")

    def __init__(self, number: int) -> None:
        self.number = number


Look = tuple[torch.Size, torch.dtype, torch.device, int | None]


class _Saved(NamedTuple):
    """A tensor that the first run saved: its place, dead where nobody needs it, and its look."""

    place: weakref.ref[_Place]
    look: Look


class _Ended(Exception):  # noqa: N818  (it is no error)
    """Ends a region's second run.

    An Exception, for after others torch would leave out the forward hooks that are to run always.
    A function that stops it goes on for nothing.
    """


_ADVICE = "It must do the same both times: look for what it reads beside its arguments."


def _look(x: Tensor) -> Look:
    """Shape, type and device of a tensor, and how often it was changed, if a parameter's."""
    base = x if x._base is None else x._base
    return x.shape, x.dtype, x.device, x._version if isinstance(base, nn.Parameter) else None


def _words(look: Look) -> str:
    shape, dtype, device, _ = look
    return f"of shape {tuple(shape)} and {dtype} on {device}"


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


class _Hold(torch.autograd.Function):
    """A node that has saved tensors and nothing to differentiate."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensors: Iterable[Tensor]) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(*tensors)
        return torch.empty(0)


def held(tensors: Iterable[Tensor]) -> Any:
    """A tensor whose `grad_fn` has these as `saved_tensors`, for as long as it is held itself.

    So hooks around it see them, and torch notes where one is changed in place.
    """
    return _Hold.apply(torch.empty(0, requires_grad=True), tuple(tensors))
