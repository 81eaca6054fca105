"""Bytes as they are: the most that a call holds at once, and what autograd keeps for backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from dlsys.annotated import checked
from dlsys.meter import Alive, LiveStorages


@checked
def peak_bytes(step: Callable[[], Any]) -> int:
    """The most bytes alive at once, of storages that operations of `step()` make.

    Results and buffers count, each storage once and whole; what an operation uses inside it, and
    what was there before, does not.
    """
    with LiveStorages() as live:
        step()
    return live.alive.peak


@checked
def saved_bytes(function: Callable[[], Any]) -> int:
    """The most bytes alive at once of what autograd saves while `function()` runs, each storage
    once and whole."""
    saved = Alive()
    with saved_tensors_hooks(saved.see, lambda x: x):
        function()
    return saved.peak
