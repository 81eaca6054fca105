"""What is counted while operations run: storages, as long as anybody holds them, and FLOPs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dlsys.tensors import address


def storages(result: Any) -> list[Tensor]:
    """A tensor for each storage of what an operation gave."""
    tensors = (each for each in tree_leaves(result) if isinstance(each, Tensor))
    return [*{address(each): each for each in reversed([*tensors])}.values()][::-1]


class Alive:
    """Bytes of all storages that it has seen and somebody still holds, each once and whole.

    changed: what is called after each change of `nbytes`.
    """

    def __init__(self, changed: Callable[[], Any] | None = None) -> None:
        self.nbytes, self._changed = 0, changed
        self._seen: dict[int, weakref.ref[Any]] = {}

    def see(self, tensor: Tensor) -> None:
        """Count the storage of this tensor until it is freed."""
        storage, key = tensor.untyped_storage(), address(tensor)
        if key not in self._seen:
            nbytes = storage.nbytes()
            self._seen[key] = weakref.ref(storage, lambda _: self._gone(key, nbytes))
            self._add(nbytes)

    def _gone(self, key: int, nbytes: int) -> None:
        del self._seen[key]  # another storage may come to lie there
        self._add(-nbytes)

    def _add(self, nbytes: int) -> None:
        self.nbytes += nbytes
        if nbytes and self._changed:
            self._changed()


def flops_of(function: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of matrix products, by torch's own formulas; 0 for what has none."""
    if function.overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        query, key, value = (each.shape for each in args[:3])  # the one that torch does not count
        return 2 * query[:-1].numel() * key[-2] * (query[-1] + value[-1])
    formula = flop_registry.get(function.overloadpacket)
    return formula(*args, **kwargs, out_val=result) if formula else 0
