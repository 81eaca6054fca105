"""Counts what a real training step holds for backward at every moment, whoever keeps it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import flop_registry

from dlsys.model import GPT
from dlsys.recomputation import Plan


class Held(TorchDispatchMode):
    """Watches every operation: the bytes alive that forward, or its repetition, made.

    What backward makes (gradients) does not count, nor what was there before, nor whole numbers.
    So what is alive of the rest while an operation of backward runs was saved for backward.
    """

    def __init__(self, before: Sequence[Tensor]) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage()._cdata for tensor in before}
        self.alive: dict[int, int] = {}
        self.backward = self.again = False
        self.curve: list[int] = []
        self.flops = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self.backward and not self.again and self.curve[-1:] != [self.now]:
            self.curve.append(self.now)
        result = function(*args, **(kwargs or {}))
        # FlopCounterMode would do, but it keeps what is to be freed in circles until Python looks.
        count = flop_registry.get(function._overloadpacket, lambda *args, **kwargs: 0)
        self.flops += count(*args, **(kwargs or {}), out_val=result)
        for each in torch.utils._pytree.tree_leaves(result):
            if isinstance(each, Tensor):
                self.born(each)
        return result

    @property
    def now(self) -> int:
        return sum(self.alive.values())

    def born(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known:
            return
        self.known.add(key)
        weakref.finalize(storage, self.died, key)
        counted = tensor.is_floating_point() or tensor.dtype == torch.bool
        if counted and (self.again or not self.backward):
            self.alive[key] = storage.nbytes()

    def died(self, key: int) -> None:
        self.known.discard(key)
        self.alive.pop(key, None)

    @contextmanager
    def running_again(self) -> Iterator[None]:
        self.again = True
        try:
            yield
        finally:
            self.again = False


@dataclass
class Counted:
    """A step: bytes when forward had ended, at every change in backward, and FLOPs of products."""

    kept: int
    curve: list[int]
    flops: int
    grads: list[Tensor]

    @property
    def peak(self) -> int:
        return max(self.kept, *self.curve)


def count_step(
    plan: Plan, modules: Sequence[nn.Module], x: Tensor, early_stop: bool = True
) -> Counted:
    """Train one step of the modules, one a layer, with torch.utils.checkpoint where the plan says.

    A module's core is its `attention.core`. x is what the first one is given, and the last one's
    result is summed up to the loss. What a segment is given counts, unless it is whole numbers.
    """
    parameters = [p for module in modules for p in module.parameters()]
    buffers = [b for module in modules for b in module.buffers()]
    held = Held([*parameters, *buffers])
    contexts = {"context_fn": lambda: (nullcontext(), held.running_again())}

    def again(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: checkpoint(function, *args, use_reentrant=False, **contexts)

    held.born(x)
    with set_checkpoint_early_stop(early_stop), held:
        y = x
        for start, stop, mode in plan.segments:
            part = nn.Sequential(*modules[start:stop])
            cores = [m.attention.core for m in part if hasattr(m, "attention")]
            with replaced_forward(cores if mode == "selective" else (), again):
                y = again(part)(y) if mode == "recompute" else part(y)
        loss = y.float().sum() if y.dim() else y
        del y, part, cores
        kept = held.now - loss.untyped_storage().nbytes()
        held.backward = True
        loss.backward()
    curve = [nbytes - loss.untyped_storage().nbytes() for nbytes in held.curve]
    return Counted(kept, curve, held.flops, [p.grad for p in parameters])


@contextmanager
def replaced_forward(modules: Sequence[nn.Module], by: Callable[..., Any]) -> Iterator[None]:
    for module in modules:
        module.forward = by(module.forward)
    yield
    for module in modules:
        del module.forward


class Embed(nn.Module):
    """The first layer of a GPT's chain."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = [gpt]  # in a list, so that its parameters are not this module's too
        self.own = nn.ModuleList(m for m in (gpt.embedding, gpt.positions) if m is not None)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gpt[0].embed(tokens, self.gpt[0].positions_of(tokens))


class Head(nn.Module):
    """The last layer: norm, head and loss."""

    def __init__(self, gpt: GPT, targets: Tensor) -> None:
        super().__init__()
        self.gpt, self.targets = [gpt], targets
        self.own = nn.ModuleList((gpt.norm, gpt.head))

    def forward(self, x: Tensor) -> Tensor:
        return self.gpt[0].read_out(x, self.targets)


def chain_modules(gpt: GPT, targets: Tensor) -> list[nn.Module]:
    """A GPT without rotary positions as the modules of its chain."""
    return [Embed(gpt), *gpt.layers, Head(gpt, targets)]
