"""Random and autocast states as they were, so that what runs again does the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor


class State:
    """The random and autocast states in which a function runs, for its tensors' devices."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        devices = {x.device for x in tensors if x.device.type not in ("cpu", "meta")}
        self._devices = sorted(devices, key=str)
        self._random = self._read()
        self._kinds = ["cpu", *sorted({device.type for device in devices})]
        self._autocast = [_autocast(kind) for kind in self._kinds]

    def _read(self) -> list[Tensor]:
        mine = [torch.get_device_module(d).get_rng_state(d) for d in self._devices]
        return [torch.get_rng_state(), *mine]

    def _write(self, states: list[Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1:], strict=True):
            torch.get_device_module(device).set_rng_state(state, device)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """While open, the states are these; then the random states are what they were."""
        now = self._read()
        with ExitStack() as stack:
            stack.callback(self._write, now)
            self._write(self._random)
            for kind, then in zip(self._kinds, self._autocast, strict=True):
                if then != _autocast(kind):
                    enabled, dtype, cache = then
                    stack.enter_context(torch.autocast(kind, dtype, enabled, cache))
            yield


def _autocast(kind: str) -> tuple[bool, torch.dtype, bool]:
    enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    return enabled, dtype, torch.is_autocast_cache_enabled()
