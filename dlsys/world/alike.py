"""Replicas of one module: the ranks compare what they have, then take over rank 0's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import torch
from torch import Tensor, nn

from dlsys.tensors import bucketed
from dlsys.world.call import in_words
from dlsys.world.communicator import Communicator

_MESSAGE_BYTES = 250e6  # of each message a copy is made


def check_same(
    who: object, comm: Communicator, named: Iterable[tuple[str, Tensor]], options: Sequence[str]
) -> None:
    """Raise ValueError on every rank unless all pass alike tensors; it names what differs first.

    Compared with rank 0's are names, shapes and dtypes of parameters and buffers, which parameters
    are frozen, and `options` in words, of the class of `who`.
    """
    if comm.size == 1:
        return
    mine, device = list(options), torch.device("cpu")
    for name, tensor in named:
        frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
        mine.append(f"{name}, {in_words(tensor)}{', frozen' if frozen else ''}")
        if not tensor.is_meta:
            device = tensor.device
    theirs = _tell(comm, "\n".join(mine), 0, device).split("\n")
    pairs = zip_longest(mine, theirs, fillvalue="nothing more")
    different = next((i for i, (here, there) in enumerate(pairs) if here != there), -1)
    # Everybody hears of it: a rank that alone raised would leave the others waiting.
    found = comm.all_gather(torch.tensor([different], device=device)).tolist()
    for rank, i in enumerate(found):
        if i >= 0:
            wrong = _tell(comm, mine[i] if i < len(mine) else "nothing more", rank, device)
            right = theirs[i] if i < len(theirs) else "nothing more"
            raise ValueError(
                f"rank {rank} has {wrong} where rank 0 has {right}: {type(who).__name__} needs the "
                "same parameters on every rank, the same of them frozen, and the same options."
            )


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers of a module, by name."""
    return [*module.named_parameters(), *module.named_buffers()]


def _tell(comm: Communicator, text: str, src: int, device: torch.device) -> str:
    """The text of rank `src`, on every rank."""
    letters = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    # A broadcast needs the same shape everywhere, so the length goes ahead.
    length = int(comm.broadcast(torch.tensor([len(letters)], device=device), src))
    letters = letters if comm.rank == src else letters.new_empty(length)
    return bytes(comm.broadcast(letters, src).tolist()).decode()


@torch.no_grad()
def take_over(comm: Communicator, tensors: Iterable[Tensor]) -> None:
    """Overwrite the tensors of every rank with rank 0's, in few messages, one dtype in each."""
    if comm.size == 1:
        return
    # .data: what an earlier forward pass has saved is not out of date because of this.
    for bucket in bucketed([(None, tensor.data) for tensor in tensors], _MESSAGE_BYTES):
        targets = [tensor for _, tensor in bucket]
        flat = comm.broadcast(torch.cat([target.reshape(-1) for target in targets]))
        if comm.rank != 0:
            pieces = zip(flat.split([t.numel() for t in targets]), targets, strict=True)
            torch._foreach_copy_(targets, [piece.view(t.shape) for piece, t in pieces])
