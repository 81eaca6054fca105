"""Offload: what is saved for backward waits in the host's memory, in place of being run again."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dlsys.annotated import checked
from dlsys.checks import count


class Offload(saved_tensors_hooks):
    """While open, what is saved for backward moves to the host, and comes back when it is needed.

        with Offload() as offload:
            loss = model(tokens, targets)
        loss.backward()

    Each storage moves once, whole, however many operations save it; parameters stay, and so does
    what has fewer than `least_bytes` bytes. `prefetch` is how many storages ahead come back, in
    reverse of the order in which they went, while backward computes; on a GPU pinned memory lets
    them. On a CPU they are copied as well, so that bytes are counted as anywhere.

    - moved_bytes, returned_bytes: that went to the host, and that came back
    - host_bytes: that wait in the host's memory now; peak_host_bytes: the most so far

    Source: Rhu et al. 2016 (vDNN, arXiv 1602.08124); torch's is `save_on_cpu`.
    """

    @checked
    def __init__(self, least_bytes: int = 0, prefetch: int = 0) -> None:
        self._least = count("least_bytes", least_bytes, least=0)
        self._prefetch = count("prefetch", prefetch, least=0)
        self.moved_bytes = self.returned_bytes = self.host_bytes = self.peak_host_bytes = 0
        self._here: dict[tuple[int, int], weakref.ref[_Moved]] = {}
        self._order: list[weakref.ref[_Moved]] = []
        super().__init__(self._pack, self._unpack)

    def __enter__(self) -> Offload:  # type: ignore[override]
        super().__enter__()
        return self

    def _pack(self, x: Tensor) -> Tensor | _View:
        base = x if x._base is None else x._base
        storage = x.untyped_storage()
        if isinstance(base, nn.Parameter) or storage.nbytes() < max(1, self._least):
            return x
        # Another version is another value, in the same place.
        key = storage._cdata, x._version
        moved = (self._here.get(key) or _nothing)()
        if moved is None:
            moved = _Moved(x, len(self._order))
            self._count(moved.nbytes)
            weakref.finalize(moved, self._count, -moved.nbytes).atexit = False
            self._here[key] = weakref.ref(moved)
            # A storage that is gone leaves its place in memory to others.
            weakref.finalize(storage, self._here.pop, key, None).atexit = False
            self._order.append(self._here[key])
        return _View(moved, x)

    def _unpack(self, packed: Tensor | _View) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        for moved in self._from(packed.moved.place):
            self.returned_bytes += moved.bring()
        return packed.open()

    def _from(self, place: int) -> Iterator[_Moved]:
        """The storage at this place, and those before it that are to come with it."""
        for back in range(place, max(-1, place - self._prefetch - 1), -1):
            if moved := self._order[back]():
                yield moved

    def _count(self, nbytes: int) -> None:
        self.moved_bytes += max(0, nbytes)
        self.host_bytes += nbytes
        self.peak_host_bytes = max(self.peak_host_bytes, self.host_bytes)


def _nothing() -> None:
    """What a dead reference gives."""


class _Moved:
    """A storage in the host's memory, and, once somebody needs it, on its device again."""

    def __init__(self, x: Tensor, place: int) -> None:
        self.place, self.nbytes, self.device = place, x.untyped_storage().nbytes(), x.device
        there = _bytes_of(x.detach())
        pinned = x.is_cuda
        device = "meta" if x.is_meta else "cpu"
        self._host = torch.empty(self.nbytes, dtype=torch.uint8, device=device, pin_memory=pinned)
        self._host.copy_(there, non_blocking=pinned)
        self._back: Tensor | None = None

    def bring(self) -> int:
        """Copy it to its device, if it is not there; returns the bytes copied."""
        if self._back is not None:
            return 0
        self._back = torch.empty_like(self._host, device=self.device, pin_memory=False)
        self._back.copy_(self._host, non_blocking=True)
        return self.nbytes

    def view(self, x: tuple[Any, ...]) -> Tensor:
        dtype, *where = x
        assert self._back is not None
        return self._back.new_empty(0, dtype=dtype).set_(self._back.untyped_storage(), *where)


class _View:
    """A saved tensor: where it lies in a storage that has moved."""

    def __init__(self, moved: _Moved, x: Tensor) -> None:
        self.moved = moved
        self._where = x.dtype, x.storage_offset(), x.shape, x.stride()

    def open(self) -> Tensor:
        """The tensor, on its device."""
        return self.moved.view(self._where)


def _bytes_of(x: Tensor) -> Tensor:
    """All bytes of the storage that x lies in."""
    return x.new_empty(0, dtype=torch.uint8).set_(x.untyped_storage())
