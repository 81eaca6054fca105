"""What a rank did in its last step, and the most that it held: counted where it happens."""

from __future__ import annotations

import weakref
from collections import Counter

from torch import Tensor

from dlsys.zero.plan import Action


class Alive:
    """Bytes of one sort that are alive, and the most there were."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def add(self, nbytes: int) -> None:
        """Count what is about to be, or, where negative, what is no more."""
        self.now += nbytes
        self.peak = max(self.peak, self.now)

    def until_gone(self, tensor: Tensor, nbytes: int) -> None:
        """Take these bytes away when nobody holds the memory of `tensor` any more."""
        weakref.finalize(tensor.untyped_storage(), self.add, -nbytes)


class Journal:
    """The actions of the last step, bytes moved, gathered weights and whole gradients.

    After `end_step` the next entry begins a new step, and a new peak of gradients.
    """

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.moved: Counter[str] = Counter()
        self.weights, self.gradients = Alive(), Alive()
        self._passes, self._is_over = 0, False

    def note(self, kind: str, unit: int, micro_batch: int | None = None) -> None:
        """An action on a unit (-1: all) begins; None: for the micro-batch that began last."""
        self._open()
        last = max(self._passes - 1, 0)
        self.actions.append(Action(kind, unit, last if micro_batch is None else micro_batch))

    def begin_pass(self) -> None:
        """The next micro-batch's backward begins."""
        self._open()
        self._passes += 1

    def move(self, way: str, nbytes: int) -> None:
        """So many bytes go "to host" or "to device"."""
        self._open()
        self.moved[way] += nbytes

    def end_step(self) -> None:
        """What comes now belongs to the next step."""
        self._is_over = True

    def _open(self) -> None:
        if self._is_over:
            self.actions, self.moved, self._passes, self._is_over = [], Counter(), 0, False
            self.gradients.peak = self.gradients.now
