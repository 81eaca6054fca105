"""What a step holds for backward, moment by moment, and what it runs, as it happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._pytree import tree_iter

from dlsys.annotated import checked
from dlsys.meter import Alive, Flops
from dlsys.recomputation.price import BACKWARD, FORWARD, REBUILD
from dlsys.tensors import address


class Instant(NamedTuple):
    """A change: in which pass, FLOPs of the step so far, and bytes held from here on."""

    action: str
    flops: int
    nbytes: int


@dataclass(frozen=True)
class Measured:
    """What a step held and ran.

    - curve: bytes held for backward after each change of them; left_bytes: at the end of the step
    - forwards: how often the forward of each module ran; a second run may have ended inside it
    - forward_flops, backward_flops, recomputed_flops: of matrix products and attention, as torch
      counts them; recomputed ones are those that backward runs again
    """

    curve: tuple[Instant, ...] = field(repr=False)
    forwards: Mapping[nn.Module, int] = field(repr=False)
    forward_flops: int
    backward_flops: int
    recomputed_flops: int

    @property
    def peak(self) -> Instant:
        """The instant from which on the most is held; the first of several."""
        return max(self.curve, key=lambda instant: instant.nbytes, default=Instant(FORWARD, 0, 0))

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once."""
        return self.peak.nbytes

    @property
    def left_bytes(self) -> int:
        """Bytes held at the end of the step: 0 where backward freed all."""
        return self.curve[-1].nbytes if self.curve else 0

    @property
    def kept_bytes(self) -> int:
        """Bytes held where the first forward pass ends."""
        forward = [i.nbytes for i in takewhile(lambda i: i.action == FORWARD, self.curve)]
        return forward[-1] if forward else 0


@checked
def measure(step: Callable[[], Any]) -> Measured:
    """Run `step()`, forward and backward, and count what it holds for backward and what it runs.

    Held is each storage that autograd, or a checkpoint of any kind, saves: once, whole, from when
    it is saved until it is freed. Parameters and buffers of the modules that run are left out, and
    whole numbers (token ids), which are data. Works on the meta device. A backward pass that
    builds a graph (`create_graph`) counts as run again.
    """
    watch = _Watch()
    with _watching(watch), watch.flops, saved_tensors_hooks(_same, _same):
        step()
    flops = watch.by_action
    return Measured(
        tuple(watch.curve),
        dict(watch.forwards),
        flops[FORWARD],
        flops[BACKWARD],
        flops[REBUILD],
    )


def _same(x: Any) -> Any:
    return x


class _Watch:
    """What is alive of what was saved."""

    def __init__(self) -> None:
        self.curve: list[Instant] = []
        self.forwards: Counter[nn.Module] = Counter()
        self.flops, self.by_action = Flops(self._runs), Counter[str]()
        self._fixed: set[int] = set()
        self._alive = Alive(self._changed)
        self._unpacking = 0

    @property
    def action(self) -> str:
        """What goes on: gradients are computed without a graph, and forwards with one."""
        if self._unpacking:
            return REBUILD
        if torch._C._current_graph_task_id() == -1:
            return FORWARD
        return REBUILD if torch.is_grad_enabled() else BACKWARD

    def look_through(self, pack: Callable[..., Any], unpack: Callable[..., Any]) -> Any:
        """The same hooks, with what goes in and comes out noted."""

        def packed(x: Tensor) -> Any:
            try:
                value = pack(x)
            except BaseException:  # by which a checkpoint ends its second run, having caught x
                self._note(x)
                raise
            # What stands for a tensor that is let go holds none of its bytes.
            if any(isinstance(v, Tensor) and address(v) == address(x) for v in tree_iter(value)):
                self._note(x)
            return value

        def unpacked(value: Any) -> Any:
            self._unpacking += 1
            try:
                x = unpack(value)
            finally:
                self._unpacking -= 1
            self._note(x)
            return x

        return packed, unpacked

    def runs(self, module: nn.Module) -> None:
        """A module's forward begins."""
        if module not in self.forwards:
            for each in (*module.parameters(), *module.buffers()):
                self._fixed.add(address(each))
        self.forwards[module] += 1

    def _note(self, x: Tensor) -> None:
        whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
        if whole or isinstance(x if x._base is None else x._base, nn.Parameter):
            return
        if address(x) not in self._fixed:
            self._alive.see(x)

    def _runs(self, flops: int) -> None:
        self.by_action[self.action] += flops

    def _changed(self) -> None:
        self.curve.append(Instant(self.action, self.flops.total, self._alive.now))


class _Here(threading.local):
    """The watch of this thread: a simulated rank is one."""

    watch: _Watch | None = None


_here = _Here()
_plain = saved_tensors_hooks.__init__
_open = 0


def _looked_through(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
    watch = _here.watch
    hooks = (
        (pack_hook, unpack_hook) if watch is None else watch.look_through(pack_hook, unpack_hook)
    )
    _plain(self, *hooks)


@contextmanager
def _watching(watch: _Watch) -> Iterator[None]:
    """While open, every pair of hooks that this thread makes is looked through.

    A pair hides what is saved from those around it, so one around the step would see nothing of
    what a checkpoint, ours or torch's, saves in its second run.
    """
    global _open
    before, _here.watch = _here.watch, watch
    thread = threading.get_ident()

    def runs(module: nn.Module, args: Any) -> None:
        if threading.get_ident() == thread:
            watch.runs(module)

    handle = register_module_forward_pre_hook(runs)
    _open += 1
    saved_tensors_hooks.__init__ = _looked_through  # type: ignore[method-assign]
    try:
        yield
    finally:
        _open -= 1
        if not _open:  # other ranks may be measuring
            saved_tensors_hooks.__init__ = _plain  # type: ignore[method-assign]
        handle.remove()
        _here.watch = before
