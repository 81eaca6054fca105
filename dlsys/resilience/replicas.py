"""A check for silent data corruption: is what all ranks have alike, alike to the last bit?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.checks import refuse_what, some
from dlsys.resilience.detect import Majority, majority
from dlsys.tensors import strided
from dlsys.world import Communicator, current
from dlsys.world.memory import as_bytes


@checked
def compare_replicas(
    replicas: nn.Module | Mapping[str, Tensor], comm: Communicator | None = None
) -> dict[str, Majority]:
    """The tensors that differ between ranks, by name, with the ranks that differ from most.

    - replicas: a module, whose parameters and buffers are compared, or tensors by name; every rank
      passes those of the same names.
    - comm: None for the world that the caller is in.

    Each rank hashes its bytes, with shape and type, and sends 8 bytes a tensor in one all-gather.
    Data-parallel ranks stay alike of themselves, so a rank that differs computed, kept or received
    something wrong. What is wrong before gradients are summed becomes wrong for all alike, and is
    not seen here: compare norms of local gradients instead (`outliers`). Two different contents
    pass for the same once in 2^64.
    """
    tensors = _tensors(replicas)
    comm = current() if comm is None else comm
    device = next((t.device for t in tensors.values()), torch.device("cpu"))
    # Names count as well: ranks of other names would compare other tensors.
    numbers = [_hash(f"{name}\n".encode(), tensor) for name, tensor in tensors.items()]
    mine = torch.tensor([numbers], dtype=torch.int64, device=device)
    every = comm.all_gather(mine).tolist()
    verdicts = zip(tensors, zip(*every, strict=True), strict=True)
    found = {name: majority(of_ranks) for name, of_ranks in verdicts}
    return {name: verdict for name, verdict in found.items() if not verdict.agreed}


def _tensors(replicas: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    if isinstance(replicas, nn.Module):
        replicas = dict(_named(replicas))
    some("replicas", replicas)
    for name, tensor in replicas.items():
        strided(f"replicas[{name!r}]", tensor)
        if tensor.is_meta:
            refuse_what(f"replicas[{name!r}]", "on the device meta", "on a device that holds bytes")
    return dict(replicas)


def _named(module: nn.Module) -> Iterable[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _hash(name: bytes, tensor: Tensor) -> int:
    """64 bits of the SHA-256 of a tensor, as a signed number."""
    form = f"{tensor.dtype} {tuple(tensor.shape)}\n".encode()
    digest = hashlib.sha256(name + form)
    digest.update(as_bytes(tensor.cpu()).numpy())  # type: ignore[arg-type]
    return int.from_bytes(digest.digest()[:8], "big", signed=True)
