"""Making replicas of one module: the ranks compare what they have, then take over rank 0's."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import torch
from torch import Tensor, nn

from dlsys.data_parallel.plan import BucketPlan, buckets
from dlsys.world import Communicator
from dlsys.world.call import in_words

_MESSAGE_BYTES = 250e6  # of each message a copy is made


def state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, in order of registration, and buffers by name; what is tied has one name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def plan_of(tensors: Mapping[str, Tensor], bucket_bytes: float | None) -> BucketPlan:
    """The bucket plan for tensors like these."""
    return buckets(
        {name: t.numel() * t.itemsize for name, t in tensors.items()},
        bucket_bytes,
        {name: str(t.dtype).removeprefix("torch.") for name, t in tensors.items()},
    )


def check_same(comm: Communicator, module: nn.Module, bucket_bytes: float | None) -> None:
    """Raise ValueError on every rank unless all pass alike modules; it names what differs first.

    Compared with rank 0's are names, shapes and dtypes of parameters and buffers, which parameters
    are frozen, and `bucket_bytes`.
    """
    if comm.size == 1:
        return
    mine, device = [f"bucket_bytes = {bucket_bytes}"], torch.device("cpu")
    for name, tensor in state(module).items():
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
                f"rank {rank} has {wrong} where rank 0 has {right}: DataParallel needs the same "
                "module on every rank, with the same parameters frozen."
            )


def _tell(comm: Communicator, text: str, src: int, device: torch.device) -> str:
    """The text of rank `src`, on every rank."""
    letters = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    # A broadcast needs the same shape everywhere, so the length goes ahead.
    length = int(comm.broadcast(torch.tensor([len(letters)], device=device), src))
    letters = letters if comm.rank == src else letters.new_empty(length)
    return bytes(comm.broadcast(letters, src).tolist()).decode()


@torch.no_grad()
def broadcast(comm: Communicator, tensors: Mapping[str, Tensor]) -> None:
    """Overwrite the tensors of every rank with rank 0's, in few messages, one dtype in each."""
    if comm.size == 1:
        return
    for bucket in plan_of(tensors, _MESSAGE_BYTES).buckets:
        # .data: what an earlier forward pass has saved is not out of date because of this.
        targets = [tensors[name].data for name in bucket.names]
        flat = comm.broadcast(torch.cat([tensor.reshape(-1) for tensor in targets]))
        if comm.rank != 0:
            pieces = flat.split([t.numel() for t in targets])
            pieces = [piece.view(t.shape) for piece, t in zip(pieces, targets, strict=True)]
            torch._foreach_copy_(targets, pieces)
