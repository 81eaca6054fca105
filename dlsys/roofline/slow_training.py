"""A training step of the small GPT that is slow on purpose, and its repairs, one after the other.

Every repair leaves the loss what it was, so each may be judged by what it counts and the seconds
that it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, some
from dlsys.model import GPT, SMALL
from dlsys.roofline.counter import Counted, count_operations
from dlsys.roofline.measuring import best_seconds
from dlsys.transformer import TransformerSpec

REPAIRS = {
    "input": "the text becomes numbers once, not letter by letter in every step",
    "batch": "all sequences go through the model together, not one after the other",
    "logging": "the loss that is logged is the one that was trained on, not one more forward pass",
    "format": "numbers of 32 bits, not of 64",
    "optimizer": "one operation updates all parameters, not a dozen for each of them",
}
"""What may be repaired, in any order."""
TEXT = "Whatever is computed twice, or waits for its turn, is paid for in time. " * 256


class SlowTraining:
    """A training run whose step has every fault but those of `repaired`, names of REPAIRS.

    - batch: sequences of a step, of the spec's length and of letters of TEXT.

    `letters`: how many were turned into numbers one at a time. Raises ValueError for another name.
    """

    @checked
    def __init__(
        self, repaired: Sequence[str] = (), batch: int = 8, spec: TransformerSpec = SMALL
    ) -> None:
        odd = set(repaired) - REPAIRS.keys()
        if odd or isinstance(repaired, str):
            refuse("repaired", repaired, f"names among {', '.join(REPAIRS)}")
        if spec.vocab <= max(map(ord, TEXT)):
            refuse("spec", spec, f"one with a vocab above {max(map(ord, TEXT))}, for letters")
        most = len(TEXT) // (spec.sequence + 1)
        self.repaired, self.batch = frozenset(repaired), count("batch", batch, most=most)
        self.spec, self.letters, self.logged = spec, 0, 0.0
        dtype = torch.float32 if "format" in repaired else torch.float64
        self.model = GPT(spec, dtype=dtype)
        fused = "optimizer" in repaired
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-3, foreach=False if not fused else None, fused=fused
        )
        self.numbers = self.numbered() if "input" in repaired else None

    def numbered(self) -> Tensor:
        """The batch (b, s + 1), of the whole text as numbers, each letter looked up in a list."""
        known = [chr(i) for i in range(self.spec.vocab)]
        self.letters += len(TEXT)
        numbers = torch.tensor([known.index(letter) for letter in TEXT])
        rows = self.spec.sequence + 1
        return numbers[: self.batch * rows].view(self.batch, rows)

    def step(self) -> float:
        """One optimizer step; returns the loss before it."""
        rows = self.numbered() if self.numbers is None else self.numbers
        parts = [rows] if "batch" in self.repaired else list(rows.split(1))
        self.optimizer.zero_grad()
        losses = []
        for part in parts:
            loss = self._loss(part) / len(parts)
            loss.backward()
            losses.append(loss.detach())
        self.logged = float(torch.stack(losses).sum() if "logging" in self.repaired else 0.0)
        if "logging" not in self.repaired:
            with torch.no_grad():
                self.logged = sum(float(self._loss(part)) for part in parts) / len(parts)
        self.optimizer.step()
        return self.logged

    def _loss(self, rows: Tensor) -> Tensor:
        """The mean loss of rows (b, s + 1)."""
        return self.model(rows[:, :-1], rows[:, 1:])


@dataclass(frozen=True)
class Profile:
    """A step as it was counted and timed, after these repairs."""

    repaired: tuple[str, ...]
    letters: int
    counted: Counted
    seconds: float
    loss: float


@checked
def profile_repairs(
    order: Sequence[str] = tuple(REPAIRS), batch: int = 8, repeats: int = 3
) -> list[Profile]:
    """The slow step, and after each repair in this order: what is left of it.

    Counts are the same on every machine, seconds are this one's at best of some repeats.
    """
    names = list(order)
    some("order", names)
    if isinstance(order, str) or len(set(names)) < len(names):
        refuse("order", order, f"names among {', '.join(REPAIRS)}, each once")
    count("repeats", repeats)  # before anything takes time
    trainings = [SlowTraining(names[:done], batch) for done in range(len(names) + 1)]
    profiles = []
    for done, training in enumerate(trainings):
        training.step()  # the optimizer makes its state
        training.letters = 0
        counted = count_operations(training.step)
        letters = training.letters
        seconds = best_seconds(training.step, repeats)
        fresh = SlowTraining(names[:done], batch).step()
        profiles.append(Profile(tuple(names[:done]), letters, counted, seconds, fresh))
    return profiles
