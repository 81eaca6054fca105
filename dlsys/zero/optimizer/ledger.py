"""What a sharded optimizer did in a step, and what it holds, counted where it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dlsys.zero.journal import Alive, storage_bytes
from dlsys.zero.plan import Action
from dlsys.zero.price import Held


@dataclass(frozen=True)
class Resident(Held):
    """`Held`, counted from real storages, each once and in full, on the parameters' device.

    `host` are the bytes of what is offloaded, `steps` those of the counters of steps, one number
    for each piece of a parameter, which the formulas leave out. `unreduced` counts since the last
    step began, and `gathered` is 0: whole weights are at rest.
    """

    host: int = 0
    steps: int = 0


class Ledger:
    """A step's actions, bytes moved and whole gradients; the next step's first entry clears it."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.moved: Counter[str] = Counter()
        self.whole = Alive()
        self._passes, self._is_over = 0, False

    def act(self, kind: str, unit: int) -> None:
        """An action on the bucket `unit` (-1: all) begins."""
        self._open()
        self.actions.append(Action(kind, unit, max(self._passes - 1, 0)))

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
        self.whole.add(nbytes)

    def resident(
        self,
        weights: Sequence[Tensor],
        shards: Sequence[Tensor],
        copies: Sequence[Tensor],
        state: Sequence[Tensor],
        is_offloaded: bool,
    ) -> Resident:
        """What these tensors take: the parameters, and this rank's shards of gradients, master
        copies and state of the optimizer."""
        whole = [parameter.grad for parameter in weights if parameter.grad is not None]
        numbers = [each for each in state if each.dim()] + list(copies)
        return Resident(
            weights=storage_bytes(weights),
            gradients=storage_bytes(whole if is_offloaded else [*whole, *shards]),
            optimizer=0 if is_offloaded else storage_bytes(numbers),
            gathered=0,
            unreduced=self.whole.peak,
            host=storage_bytes([*shards, *numbers]) if is_offloaded else 0,
            steps=storage_bytes(each for each in state if not each.dim()),
        )

    def end_step(self) -> None:
        """What comes now belongs to the next step."""
        self._is_over = True

    def _open(self) -> None:
        if self._is_over:
            self.actions, self.moved = [], Counter()
            self._passes, self.whole.peak, self._is_over = 0, self.whole.now, False
