"""Parameters that several ranks have copies of, where each finds a part of the gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

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
        held = [_where(module.get_submodule(path), leaf) for path, leaf in places]
        mine = [table[leaf] for table, (_, leaf) in zip(held, places, strict=True)]
        originals.append(mine)
        for table, (_, leaf), shared in zip(held, places, copies(mine, comm), strict=True):
            table[leaf] = shared

    def swap_back(module: nn.Module, *_: Any) -> None:
        for (path, leaf), parameter in zip(places, originals.pop(), strict=True):
            _where(module.get_submodule(path), leaf)[leaf] = parameter

    module.register_forward_pre_hook(swap_in)
    module.register_forward_hook(swap_back, always_call=True)


def _where(module: nn.Module, leaf: str) -> dict[str, Any]:
    """Where a module finds what it computes with: what is shown in a parameter's stead is an
    attribute, and comes first."""
    return module.__dict__ if leaf in module.__dict__ else module._parameters
