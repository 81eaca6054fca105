"""Dropout whose masks agree between the ranks where tensors do, and differ where those differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dlsys.world import Communicator

Seed = Callable[[Communicator, Tensor], int]


def same_seed(comm: Communicator, x: Tensor) -> int:
    """A seed that rank 0 draws, on every rank: for what is the same on every rank, as x is."""
    return int(comm.broadcast(_draw(x)))


def own_seed(comm: Communicator, x: Tensor) -> int:
    """A seed of this rank's own, also where the ranks' random states agree."""
    return (int(_draw(x)) + comm.rank) % 2**32


def _draw(x: Tensor) -> Tensor:
    return torch.randint(2**32, (), device="cpu" if x.is_meta else x.device)


class Seeded(nn.Module):
    """A module without parameters that drops out, under a seed drawn for each call.

    The seed comes from torch's global random state, which goes on from there: so dropout follows
    torch.manual_seed, and a checkpoint that puts that state back and calls the module again, on
    all ranks, gets the same mask.
    """

    def __init__(self, module: nn.Module, seed: Seed, comm: Communicator) -> None:
        super().__init__()
        self.module, self.seed, self.comm = module, seed, comm

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        """What the module makes of its arguments."""
        if not self.training:
            return self.module(x, *more)
        with seeded(self.seed(self.comm, x), x):
            return self.module(x, *more)


@contextmanager
def seeded(seed: int, x: Tensor) -> Iterator[None]:
    """A random state of its own for x's device, put back at the end."""
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        yield
