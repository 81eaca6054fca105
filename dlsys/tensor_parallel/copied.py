"""What ranks hold in common: parameters of which each finds a part of the gradient, and masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dlsys.tensor_parallel.autograd import copies
from dlsys.world import Communicator


def sum_gradients(module: nn.Module, names: Sequence[str], comm: Communicator) -> None:
    """From now on each backward pass through `module` sums these parameters' gradients over `comm`.

    They are those with dotted `names` in `module`, of one dtype. Hooks have its forward pass use
    `copies` of them, so their gradients travel in one message when those of the whole module are
    known, and are final when they reach `.grad`: they accumulate, and other hooks see the sum.
    """
    if not names or comm.size == 1:
        return
    places = [name.rpartition(".")[::2] for name in names]
    originals: list[list[Any]] = []

    def swap_in(module: nn.Module, _: Any) -> None:
        held: list[Any] = [module.get_submodule(path)._parameters for path, _ in places]
        mine = [table[leaf] for table, (_, leaf) in zip(held, places, strict=True)]
        originals.append(mine)
        for table, (_, leaf), shared in zip(held, places, copies(mine, comm), strict=True):
            table[leaf] = shared

    def swap_back(module: nn.Module, *_: Any) -> None:
        for (path, leaf), parameter in zip(places, originals.pop(), strict=True):
            module.get_submodule(path)._parameters[leaf] = parameter

    module.register_forward_pre_hook(swap_in)
    module.register_forward_hook(swap_back, always_call=True)


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
