"""What a sharded optimizer did in a step, and what it holds, counted where it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

GATHER, REDUCE, UPDATE, FREE_GRADIENTS = "gather", "reduce", "update", "free gradients"


@dataclass(frozen=True)
class Resident:
    """Bytes that a rank holds at rest, of real storages; each is counted once, in full.

    `weights`, `gradients` and `optimizer` (master copy and state) lie on the parameters' device,
    `host` is all that is offloaded, and `steps` are the counters of steps, one number a parameter.
    `unreduced` is the most bytes that whole gradients took at one time since the last step began:
    0 where they are at rest, as in stage 1.
    """

    weights: int
    gradients: int
    optimizer: int
    host: int = 0
    steps: int = 0
    unreduced: int = 0

    @property
    def at_rest(self) -> int:
        """The three buckets."""
        return self.weights + self.gradients + self.optimizer


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages that these tensors lie in."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


class Ledger:
    """A step's actions (kind, unit, micro-batch), bytes moved and whole gradients; the next step's
    first entry clears it."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, int, int]] = []
        self.moved: Counter[str] = Counter()
        self.whole = self.most_whole = 0
        self._passes, self._is_over = 0, False

    def act(self, kind: str, unit: int) -> None:
        """An action on the bucket `unit` (-1: all) begins."""
        self._open()
        self.actions.append((kind, unit, max(self._passes - 1, 0)))

    def begin_pass(self) -> None:
        """The next micro-batch's backward begins."""
        self._open()
        self._passes += 1

    def move(self, way: str, nbytes: int) -> None:
        """So many bytes go "to host" or "to device"."""
        self._open()
        self.moved[way] += nbytes

    def hold(self, nbytes: int) -> None:
        """So many bytes of whole gradients more are there; fewer where negative."""
        self.whole += nbytes
        self.most_whole = max(self.most_whole, self.whole)

    def end_step(self) -> None:
        """What comes now belongs to the next step."""
        self._is_over = True

    def _open(self) -> None:
        if self._is_over:
            self.actions, self.moved = [], Counter()
            self._passes, self.most_whole, self._is_over = 0, self.whole, False
