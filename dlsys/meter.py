"""What torch's operations hold and compute, as they run: bytes that are alive, FLOPs of products.

`Alive` is fed by whoever sees tensors: a TorchDispatchMode (`LiveStorages`), the hooks of what
autograd saves (`saved_tensors_hooks(alive.see, ...)`), or a simulated world.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from dlsys.tensors import address

aten = torch.ops.aten
LIKE: Mapping[Any, Any] = {
    aten.addmm_: aten.addmm,
    aten.baddbmm_: aten.baddbmm,
    aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        aten._scaled_dot_product_flash_attention_backward
    ),
}
"""What torch's FLOP counter leaves out, and what it costs as much as: products that add in place;
flash attention on a CPU, two products forward, and five backward, of which one is of the scores."""
PRODUCTS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    **{operation: flop_registry[other] for operation, other in LIKE.items()},
}
"""torch's formulas for the FLOPs of matrix products, convolutions and attention, by operation."""


def flops_of(function: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of an operation that was dispatched, where it is a product; else 0."""
    formula = PRODUCTS.get(function.overloadpacket)
    return formula(*args, **kwargs, out_val=result) if formula else 0


class Flops(TorchDispatchMode):
    """`total`: FLOPs of products while it is entered; `noted` is called with those of each."""

    def __init__(self, noted: Callable[[int], Any] = lambda flops: None) -> None:
        super().__init__()
        self.total, self._noted = 0, noted

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, and count it."""
        kwargs = kwargs or {}
        if is_composite(function):
            with self:
                return function.decompose(*args, **kwargs)
        result = function(*args, **kwargs)
        if flops := flops_of(function, args, kwargs, result):
            self.total += flops
            self._noted(flops)
        return result


def is_composite(function: Any) -> bool:
    """Whether others make it up: a linear layer comes whole where nobody wants gradients."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(function.has_kernel_for_dispatch_key(key))


class Alive:
    """Bytes of all storages that it has seen and somebody still holds, each once and whole.

    `now`, and the most there were, `peak`, which may be set back; changed: what is called after
    each change.
    """

    def __init__(self, changed: Callable[[], Any] | None = None) -> None:
        self.now = self.peak = 0
        self._changed = changed
        self._seen: dict[int, weakref.ref[Any]] = {}

    def see(self, tensor: Tensor) -> Tensor:
        """Count the storage of this tensor until it is freed; returns the tensor, as a hook has
        to."""
        storage, key = tensor.untyped_storage(), address(tensor)
        if key not in self._seen:
            nbytes = storage.nbytes()
            self._seen[key] = weakref.ref(storage, lambda _: self._gone(key, nbytes))
            self._add(nbytes)
        return tensor

    def _gone(self, key: int, nbytes: int) -> None:
        del self._seen[key]  # another storage may come to lie there
        self._add(-nbytes)

    def _add(self, nbytes: int) -> None:
        self.now += nbytes
        self.peak = max(self.peak, self.now)
        if nbytes and self._changed:
            self._changed()


class LiveStorages(TorchDispatchMode):
    """`alive`: storages that operations make while it is entered. What an operation uses inside it
    does not count, nor does a view, which lies in the storage of what it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = Alive()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, and count what it makes."""
        result = function(*args, **(kwargs or {}))
        given = {address(x) for x in tree_iter((args, kwargs)) if isinstance(x, Tensor)}
        for x in tree_iter(result):
            if isinstance(x, Tensor) and address(x) not in given:
                self.alive.see(x)
        return result
