"""Seconds of saving and restoring, ours beside torch.distributed.checkpoint.

    python bench/resilience.py           all of it, a minute on a quiet machine
    python bench/resilience.py save      one part: save, restore, verified or stall

Four real processes hold tensors of 192 MiB that are cut by rows (DTensors, for torch) and of 24 MiB
that all of them have. Both sides write one file a rank and have it on the disk by fsync; ours also
computes the SHA-256 of all that is written, and compares the ranks' copies. `restore` is of a
checkpoint that was verified; `verified` verifies it first, of which torch has no form. Sides take
turns in one run; seconds are the slowest rank's, the least and the median of the turns; a ratio
below 1 means that ours is faster. `stall` is how long the training stands still for a save beside
it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import Shard as CutAlong

from dlsys import world
from dlsys.resilience import AsyncSaver, Shard, restore, save, verify

RANKS, WARM, TURNS = 4, 1, 7
CUT, COPIED, ROWS = 48, 6, 1024  # tensors of 4 MiB
Act = Callable[[int], None]


def state(comm: world.Communicator) -> tuple[dict[str, DTensor], dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(0)
    mesh = init_device_mesh("cpu", (comm.size,))
    whole = [torch.randn(ROWS, 1024, generator=random) for _ in range(CUT + COPIED)]
    cut = {f"cut{i}": distribute_tensor(x, mesh, [CutAlong(0)]) for i, x in enumerate(whole[:CUT])}
    return cut, {f"copied{i}": x for i, x in enumerate(whole[CUT:])}


def shards(comm: world.Communicator, cut: dict[str, DTensor]) -> dict[str, Shard]:
    first = comm.rank * ROWS // comm.size
    return {name: Shard(x.to_local(), (first, 0), tuple(x.shape)) for name, x in cut.items()}


def saving(comm: world.Communicator, root: Path) -> dict[str, Act]:
    cut, copied = state(comm)

    def ours(turn: int) -> None:
        save({**shards(comm, cut), **copied}, root / f"ours{turn}", turn, comm)

    def theirs(turn: int) -> None:
        dcp.save({**cut, **copied}, checkpoint_id=root / f"theirs{turn}")

    return {"ours": ours, "dcp": theirs}


def restoring(comm: world.Communicator, root: Path, known: bool = True) -> dict[str, Act]:
    cut, copied = state(comm)
    path: Any = save({**shards(comm, cut), **copied}, root / "ours", 1, comm)
    if known:
        path = verify(path)
    dcp.save({**cut, **copied}, checkpoint_id=root / "theirs")
    right = {name: x.to_local().clone() for name, x in cut.items()}

    def ours(turn: int) -> None:
        back = restore(path, {**shards(comm, cut), **copied}, comm)
        assert all(back[name].tensor.equal(each) for name, each in right.items())

    def theirs(turn: int) -> None:
        dcp.load({**cut, **copied}, checkpoint_id=root / "theirs")
        assert all(cut[name].to_local().equal(each) for name, each in right.items())

    return {"ours": ours, "dcp": theirs}


def verifying(comm: world.Communicator, root: Path) -> dict[str, Act]:
    return restoring(comm, root, known=False)


def stalling(comm: world.Communicator, root: Path) -> dict[str, Act]:
    cut, copied = state(comm)
    saver, pending = AsyncSaver(root / "ours", comm, keep=1), []
    group = dist.new_group(backend="gloo")

    def ours(turn: int) -> None:
        saver.save({**shards(comm, cut), **copied}, turn)

    def theirs(turn: int) -> None:
        path = root / f"theirs{turn}"
        pending.append(dcp.async_save({**cut, **copied}, checkpoint_id=path, process_group=group))

    def settle(turn: int) -> None:
        saver.wait()
        while pending:
            pending.pop().result()

    return {"ours": ours, "dcp": theirs, "settle": settle}


PARTS = {"save": saving, "restore": restoring, "verified": verifying, "stall": stalling}


def alternate(comm: world.Communicator, part: str, folder: str) -> dict[str, list[float]]:
    """Seconds of each side and turn, on this rank."""
    warnings.simplefilter("ignore")
    root = Path(folder)
    acts: dict[str, Any] = PARTS[part](comm, root)
    settle = acts.pop("settle", lambda turn: None)
    found: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(WARM + TURNS):
        for name in acts if turn % 2 else reversed(acts):
            comm.barrier()
            begin = time.perf_counter()
            acts[name](turn)
            found[name].append(time.perf_counter() - begin)
            settle(turn)
            comm.barrier()
            if comm.rank == 0 and part in ("save", "stall"):
                for each in root.iterdir():
                    shutil.rmtree(each)
            comm.barrier()
    return found


def show(part: str) -> None:
    """Run both sides of a part, and print them with ours as a share of theirs."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        run = world.launch(alternate, RANKS, args=(part, folder), check=False, timeout=500)
    sides = {
        name: torch.tensor([mine[name][WARM:] for mine in run.results]).amax(0)
        for name in run.results[0]
    }
    nbytes = (CUT + COPIED) * ROWS * 4096
    for name, seconds in sides.items():
        rate = nbytes / seconds.min().item() / 1e9
        print(f"{part}, {name:5} {seconds.min():6.3f} s {seconds.median():6.3f} s {rate:5.2f} GB/s")
    ours, theirs = sides.values()
    print(
        f"ratios {ours.min() / theirs.min():.2f} (median of turns {(ours / theirs).median():.2f})"
    )


if __name__ == "__main__":
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{(CUT + COPIED) * 4} MiB by {RANKS} ranks; load averages {loads}")
    for each in sys.argv[1:] or PARTS:
        show(each)
