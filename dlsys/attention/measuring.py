"""Bytes as they are: the most that a call holds at once, and what autograd keeps for backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dlsys.annotated import checked
from dlsys.tensors import Alive, address, storage_bytes


@checked
def peak_bytes(step: Callable[[], Any]) -> int:
    """The most bytes alive at once, of storages that operations of `step()` make.

    Results and buffers count, each storage once and whole; what an operation uses inside it, and
    what was there before, does not.
    """
    watch = _Watch()
    with watch:
        step()
    return watch.peak


@checked
def saved_bytes(function: Callable[[], Any]) -> int:
    """Bytes of the storages that autograd saves while `function()` runs, each once and whole."""
    saved: list[Tensor] = []

    def pack(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        result = function()  # held, so that no storage is freed and its address used again
    nbytes = storage_bytes(saved)
    del result
    return nbytes


class _Watch(TorchDispatchMode):
    """Counts storages from the operation that makes them until nobody holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self.alive = 0, Alive(self._changed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {address(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = func(*args, **kwargs or {})
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and address(x) not in given:  # a view makes none
                self.alive.see(x)
        return result

    def _changed(self) -> None:
        self.peak = max(self.peak, self.alive.nbytes)
