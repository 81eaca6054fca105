"""Which samples a step reads: a position in the data that knows nothing of ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, SupportsIndex

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, whole

_MOST = 2**32  # samples: the numbers of an epoch are held in memory


class SampleOrder:
    """Every sample once an epoch, in another order each epoch, `batch` at a time.

    samples: how many there are, numbered from 0. batch: samples of a step over all ranks together.
    seed: another one gives other orders.

    Epochs follow each other without a gap, so a batch may end one and begin the next: step t reads
    the samples t x batch to (t + 1) x batch - 1 of one endless row, however many ranks there are.
    What is to be saved are four whole numbers.
    """

    @checked
    def __init__(self, samples: SupportsIndex, batch: SupportsIndex, seed: int = 0) -> None:
        self.samples = count("samples", samples, most=_MOST)
        self.batch = count("batch", batch, most=_MOST)
        self.seed = whole("seed", seed)
        self.epoch = self.next = 0
        self._order: tuple[int, int, Tensor] | None = None

    def take(self) -> Tensor:
        """The numbers (batch,) of the next step's samples, int64; the position moves on."""
        taken, missing = [], self.batch
        while missing:
            rows = self._epoch()[self.next : self.next + missing]
            taken.append(rows)
            missing -= len(rows)
            self.next += len(rows)
            if self.next == self.samples:
                self.epoch, self.next = self.epoch + 1, 0
        return torch.cat(taken)

    def state_dict(self) -> dict[str, int]:
        """Where it is: the epoch, the next sample's place in it, and what orders it."""
        names = ("samples", "seed", "epoch", "next")
        return {name: getattr(self, name) for name in names}

    @checked
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another one was; its batch may have been of another size.

        Raises ValueError for the position in other data, or none at all.
        """
        names = self.state_dict().keys()
        if set(state_dict) != set(names):
            refuse("state_dict", dict(state_dict), f"a dictionary of {', '.join(names)}")
        samples = count("samples", state_dict["samples"])
        if samples != self.samples:
            raise ValueError(
                f"the position is one among {samples:,} samples, and here are {self.samples:,}: go "
                "on with the data that the run began with."
            )
        seed, epoch = whole("seed", state_dict["seed"]), count("epoch", state_dict["epoch"], 0)
        self.next = count("next", state_dict["next"], 0, self.samples - 1)
        self.seed, self.epoch = seed, epoch

    def _epoch(self) -> Tensor:
        """The order of this epoch's samples, made once."""
        if self._order is None or self._order[:2] != (self.seed, self.epoch):
            # Hashed, so that epoch 1 of seed 0 is not epoch 0 of seed 1.
            digest = hashlib.sha256(f"{self.seed} {self.epoch}".encode()).digest()
            random = torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))
            order = torch.randperm(self.samples, generator=random)
            self._order = self.seed, self.epoch, order
        return self._order[2]


def share(rows: Tensor, rank: int, ranks: int) -> Tensor:
    """The part of a batch that one rank reads; raises ValueError where parts would be uneven, whose
    means would not add up to the mean of the batch."""
    if len(rows) % ranks:
        raise ValueError(
            f"a batch of {len(rows)} does not divide by {ranks} ranks: take one of "
            f"{len(rows) // ranks * ranks or ranks}, or another number of ranks."
        )
    return rows.view(ranks, -1)[rank]
