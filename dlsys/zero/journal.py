"""What a rank did in its last step, and the most that it held: counted where it happens."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from dlsys.zero.plan import Action


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the storages that these tensors lie in, each counted once; others do not count."""
    storages = (each.untyped_storage() for each in tensors if isinstance(each, Tensor))
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


class Alive:
    """Bytes of one sort that are alive, and the most there were."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def add(self, nbytes: int) -> None:
        """Count what is about to be; less where negative."""
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def lose(self, nbytes: int) -> None:
        """Count what is no more."""
        self.now -= nbytes

    def until_gone(self, tensor: Tensor, nbytes: int) -> None:
        """Lose these bytes when nobody holds the memory of `tensor` any more."""
        weakref.finalize(tensor.untyped_storage(), self.lose, nbytes)


class Journal:
    """The actions of the last step, and peaks of gathered weights and of whole gradients."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.weights, self.gradients = Alive(), Alive()

    def note(self, kind: str, unit: int, micro_batch: int) -> None:
        """Write an action down."""
        self.actions.append(Action(kind, unit, micro_batch))
