"""What ran, counted: FLOPs of passes, and what an update computes, moves and touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dlsys.annotated import checked
from dlsys.checks import refuse
from dlsys.meter import Flops
from dlsys.tensors import address


@checked
def count_flops(call: Callable[[], Any]) -> int:
    """FLOPs of the products of matrices in `call()`, as torch's FlopCounterMode has them.

    With flash attention on a CPU, which that mode does not know, counted as it counts a GPU's: two
    products forward; five backward, of which the first computes the scores again.
    """
    with Flops() as flops:
        call()
    return flops.total


class UpdateCount(NamedTuple):
    """What one `optimizer.step()` takes: operations on numbers; bytes that its operations read and
    write, one by one; bytes that a single pass would; and the names of the operations."""

    flops: int
    moved: int
    touched: int
    operations: frozenset[str]


# Operations on numbers for each element that an operation writes.
_FLOPS = {
    **dict.fromkeys(("mul", "add", "sub", "div", "sqrt", "neg", "reciprocal", "rsqrt"), 1),
    **{"lerp": 3, "addcmul": 3, "addcdiv": 3},
}


@checked
def count_update(optimizer: torch.optim.Optimizer) -> UpdateCount:
    """Take one step of an optimizer and count it; for rules that work number by number.

    `add` with a factor counts as two. Raises ValueError for rules with other operations, such as
    products of matrices.
    """
    held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    lasting = [*held, *(p.grad for p in held)]
    lasting += [v for state in optimizer.state.values() for v in state.values()]
    mode = _Counting({address(each) for each in lasting if isinstance(each, Tensor)})
    with mode:
        optimizer.step()
    size = {address(x): x.nbytes for x in mode.tensors}
    touched = sum(size[each] for each in [*mode.read, *mode.written])
    return UpdateCount(mode.flops, mode.moved, touched, frozenset(mode.operations))


class _Counting(TorchDispatchMode):
    """Adds up each operation; `lasting` are storages that were there before."""

    def __init__(self, lasting: set[int]) -> None:
        super().__init__()
        self.lasting = lasting
        self.flops = self.moved = 0
        self.operations: set[str] = set()
        self.read: set[int] = set()
        self.written: set[int] = set()
        self.tensors: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and count what it reads and writes."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = func._schema.name.split("::")[1].rstrip("_")
        result = list(_with_elements(out))
        if not result or name in ("detach", "alias", "view", "t"):
            return out
        if name not in _FLOPS:
            refuse("optimizer: an operation", name, f"among {', '.join(_FLOPS)}")
        self.operations.add(name)
        inputs = list(_with_elements((args, kwargs)))
        self.tensors += inputs + result
        factor = kwargs.get("alpha", 1) not in (1, -1)
        self.flops += sum(x.numel() for x in result) * (_FLOPS[name] + factor)
        self.moved += sum(x.nbytes for x in inputs + result)
        self.read |= {address(x) for x in inputs} & self.lasting
        self.written |= {address(x) for x in result} & self.lasting
        return out


def _with_elements(tree: Any) -> Iterator[Tensor]:
    return (x for x in tree_leaves(tree) if isinstance(x, Tensor) and x.dim())
