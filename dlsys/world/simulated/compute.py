"""What computing costs a simulated rank: time by its device's roofline, and memory by what lives.

A TorchDispatchMode sees every torch operation of a rank's thread, forward and backward, on any
device, meta included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from dlsys.hardware import Device
from dlsys.meter import Alive, flops_of
from dlsys.tensors import address
from dlsys.world.simulated.rank import Rank
from dlsys.world.span import Span

FORMATS = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
}


class Quiet:
    """While it is entered, operations are the world's own, not the program's."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class Charge(TorchDispatchMode):
    """Advances a rank's clock by max(FLOPs / peak, bytes / bandwidth) for every operation.

    FLOPs are those of products (`meter.flops_of`), at the dense peak of the result's
    format (of FP32 for formats that devices do not list, such as float64, and the slowest listed
    one where the device lacks that); bytes are those of every tensor
    read and written. Views are free, and so is making a tensor that reads none.
    `alive` are the bytes of tensors that this rank made or has seen.
    """

    def __init__(
        self, rank: Rank, device: Device | None, spans: list[Span], quiet: Quiet, hidden: Quiet
    ) -> None:
        super().__init__()
        self._rank, self._device, self._spans = rank, device, spans
        # `quiet`: free, but what it makes is this rank's; `hidden`: not this rank's doing at all.
        self._quiet, self._hidden = quiet, hidden
        self.alive = Alive()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run the operation, then charge it to the rank."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._hidden.depth:
            return result
        results = list(_tensors(result)) or list(_written(func, args, kwargs))
        for tensor in results:
            self.alive.see(tensor)
        if self._device is None or self._quiet.depth:
            return result
        operands = list(_tensors((args, kwargs)))
        if not operands or not results or _is_free(results, operands, func):
            return result
        self._charge(func, flops_of(func, args, kwargs, result), results, operands)
        return result

    def _charge(
        self, func: Any, flops: int, results: list[torch.Tensor], operands: list[torch.Tensor]
    ) -> None:
        device = self._device
        assert device is not None
        rate = device.flops.get(FORMATS.get(results[0].dtype, "fp32")) or min(device.flops.values())
        nbytes = sum(t.nbytes for t in operands) + sum(t.nbytes for t in results)
        seconds = max(flops / rate, nbytes / device.memory_bandwidth)
        if seconds > 0:
            start = self._rank.clock
            self._rank.clock = start + seconds
            name = func._overloadpacket.__name__
            self._spans.append(Span(self._rank.number, start, start + seconds, "compute", name))


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, torch.Tensor))


def _written(func: Any, args: tuple, kwargs: dict) -> Iterator[torch.Tensor]:
    """What an operation that returns nothing writes, as those on lists of tensors do."""
    if func._schema.is_mutable:
        for place, argument in enumerate(func._schema.arguments):
            if argument.is_write:
                yield from _tensors(args[place] if place < len(args) else kwargs.get(argument.name))


def _is_free(results: list[torch.Tensor], operands: list[torch.Tensor], func: Any) -> bool:
    """Whether the operation reads nothing: it makes a tensor, or sees an old one in a new way."""
    if func._schema.is_mutable:
        return False
    name = func._overloadpacket.__name__
    if name.endswith("_like") or name.startswith("new_"):
        return True
    return any(address(results[0]) == address(operand) for operand in operands)
