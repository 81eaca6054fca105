"""What every rank of a sharded model must have alike, and what it takes over from rank 0."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dlsys.world import Communicator
from dlsys.world.call import in_words


def described(module: nn.Module) -> list[str]:
    """A line for each parameter and buffer: name, shape and dtype, and whether it is frozen."""
    lines = []
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
        lines.append(f"{name}, {in_words(tensor)}{', frozen' if is_frozen else ''}")
    return lines


def check_same(comm: Communicator, lines: Sequence[str], device: torch.device) -> None:
    """Raise ValueError on every rank unless all pass the same lines; it names one that differs."""
    if comm.size == 1:
        return
    device = torch.device("cpu") if device.type == "meta" else device
    mine = torch.tensor([zlib.crc32(line.encode()) for line in lines], device=device)
    lengths = comm.all_gather(torch.tensor([len(mine)], device=device)).tolist()
    most = max(lengths)
    padded = torch.full((1, most), -1, device=device)
    padded[0, : len(mine)] = mine
    every = comm.all_gather(padded)
    for rank, theirs in enumerate(every):
        different = (theirs != every[0]).nonzero().flatten().tolist()
        if different:
            line = lines[different[0]] if different[0] < len(lines) else "nothing more"
            raise ValueError(
                f"rank {rank} differs from rank 0 where this rank, {comm.rank}, has {line}: "
                "FullyShardedDataParallel needs the same module on every rank, with the same "
                "parameters frozen, and the same options."
            )


@torch.no_grad()
def take_over(comm: Communicator, tensors: Sequence[Tensor]) -> None:
    """Overwrite each tensor with rank 0's."""
    if comm.size == 1:
        return
    for tensor in tensors:
        values = comm.broadcast(tensor.detach())
        if comm.rank != 0:
            tensor.data.copy_(values)
