"""Which samples a rank reads next: an order that can be saved and resumed anywhere in an epoch."""

from __future__ import annotations

from typing import Any

from dlsys.annotated import checked
from dlsys.checks import count, refuse, whole
from dlsys.input_pipeline.shuffling import MOST, permutation


class ResumableOrder:
    """Batches of sample numbers, epoch after epoch, whose state is five whole numbers.

    - samples: how many there are. batch: of all ranks together; a multiple of `ranks`.
    - rank, ranks: this one gets every `ranks`-th sample of each batch.

    An epoch ends with its last whole batch (drop_last), the samples left over being others in each
    epoch. A permutation is made of seed and epoch alone, so nothing random has to be saved.
    """

    @checked
    def __init__(
        self, samples: int, batch: int, seed: int = 0, rank: int = 0, ranks: int = 1
    ) -> None:
        self.samples = count("samples", samples, most=MOST)
        self.batch = count("batch", batch, most=self.samples)
        self.seed, self.ranks = whole("seed", seed), count("ranks", ranks)
        self.rank = count("rank", rank, 0, self.ranks - 1)
        if self.batch % self.ranks:
            raise ValueError(f"a batch of {batch} does not divide by {ranks} ranks.")
        self.epoch = self.step = 0
        self._order: tuple[Any, ...] = ()  # once made: seed, epoch, permutation

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return self.samples // self.batch

    def __iter__(self) -> ResumableOrder:
        return self

    def __next__(self) -> list[int]:
        """This rank's samples of the next batch."""
        if self._order[:2] != (self.seed, self.epoch):
            self._order = self.seed, self.epoch, permutation(self.samples, self.seed, self.epoch)
        begin = self.step * self.batch
        rows: list[int] = self._order[2][begin + self.rank : begin + self.batch : self.ranks]
        self.step += 1
        if self.step == self.steps:
            self.epoch, self.step = self.epoch + 1, 0
        return rows

    def state_dict(self) -> dict[str, int]:
        """Samples, batch, seed, epoch and step: alike on all ranks, whatever their number."""
        names = "samples", "batch", "seed", "epoch", "step"
        return {name: getattr(self, name) for name in names}

    @checked
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on at the saved batch; raises ValueError for another number of samples, or batch.

        Step 9 of batches of 32 begins at another sample than step 9 of batches of 64.
        """
        names = [*self.state_dict()]
        if set(state_dict) != set(names):
            refuse("state_dict", state_dict, f"a dictionary of {', '.join(names)}")
        for name in ("samples", "batch"):
            if count(name, state_dict[name]) != getattr(self, name):
                refuse(f"{name} of state_dict", state_dict[name], f"{getattr(self, name)}, as here")
        seed, epoch = whole("seed", state_dict["seed"]), count("epoch", state_dict["epoch"], 0)
        self.step = count("step", state_dict["step"], 0, self.steps - 1)
        self.seed, self.epoch = seed, epoch
