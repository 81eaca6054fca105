"""Hooks of DataParallel: what they are made of, and one that measures the gradient noise scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.data_parallel.ddp import GradientBucket
from dlsys.data_parallel.noise import NoiseScale, noise_scale
from dlsys.world import Communicator, Handle


class Then:
    """A handle that waits for others and finishes with `function` of their results."""

    def __init__(self, function: Callable[..., Any], *handles: Handle) -> None:
        self._function, self._handles = function, handles

    def wait(self) -> Any:
        """Wait for all of them, then compute the result."""
        return self._function(*(handle.wait() for handle in self._handles))


class OneRank:
    """A hook that remembers, and so belongs to one rank (of one group)."""

    _owner: Communicator | None = None

    def _claim(self, comm: Communicator) -> None:
        """Raise ValueError where another rank, or this one in another group, has used it before."""
        if self._owner not in (None, comm):
            raise ValueError(
                f"One {type(self).__name__} object is used with {self._owner} and with {comm}, but "
                "what it remembers is one rank's: make it inside the rank program."
            )
        self._owner = comm


class NoiseMeter(OneRank):
    """A hook of DataParallel that all-reduces as usual and measures the noise scale meanwhile.

    A rank's own gradient is one of the small batch, their mean one of the large batch: both are
    there in every step, for the price of adding up squares. One hook object for each rank.
    """

    def __init__(self) -> None:
        self.own_square = self.mean_square = 0.0
        self.steps = 0

    def __call__(self, comm: Communicator, bucket: GradientBucket) -> Handle:
        """Start the all-reduce of the mean; `wait` adds its square."""
        self._claim(comm)
        self.steps += bucket.index == 0
        self.own_square += float(bucket.flat.double().square().sum())

        def squared(mean: Tensor) -> Tensor:
            self.mean_square += float(mean.double().square().sum())
            return mean

        return Then(squared, comm.all_reduce(bucket.flat, op="mean", async_op=True))

    @checked
    def estimate(self, comm: Communicator, batch: float) -> NoiseScale:
        """The noise scale over all steps so far; `batch` is the samples behind one rank's gradient.

        All ranks call it: their own squares are averaged, 8 bytes in all. Raises ValueError where
        no step was measured, or for one rank, where both batches are the same.
        """
        positive("batch", batch)
        if not self.steps:
            raise ValueError("No step was measured: pass this object as DataParallel's hook.")
        own = comm.all_reduce(torch.tensor(self.own_square, dtype=torch.float64), op="mean")
        small, large = float(own) / self.steps, self.mean_square / self.steps
        return noise_scale(batch, small, batch * comm.size, large)
