"""Seconds and memory of a training step under ZeRO, ours beside torch's own engine.

    python bench/zero.py              all of it, about four minutes on a quiet machine
    python bench/zero.py stage_3      one part: stage_1, stage_2 or stage_3

Four real processes on gloo train a GPT of 17 million parameters, the same weights and batches on
both sides, whose steps alternate in one run. Seconds are the slowest rank's, and the least of the
steps; a ratio below 1 means that ours is faster. Seconds that all ranks' processors are busy stand
beside them, for they depend less on what else the machine does. Memory is the most that a step's
process takes beyond what it took before the model was built, each side in processes of its own.
Losses are held against each other.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dlsys import world
from dlsys.model import GPT
from dlsys.transformer import TransformerSpec
from dlsys.zero import FullyShardedDataParallel, ShardedOptimizer

RANKS, WARM, TURNS = 4, 2, 8
BUCKET = 4  # MiB, on both sides: 16 of them in 66 MiB of weights
SPEC = TransformerSpec(layers=8, hidden=384, heads=8, vocab=4096, sequence=64, tied=False)
ADAMW = {"lr": 1e-3}
Step = Callable[[], float]


def batch(rank: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(rank)
    words = torch.randint(SPEC.vocab, (2, SPEC.sequence + 1), generator=random)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> Step:
    data = batch(rank)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(*data)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


# -- both sides of each part -----------------------------------------------------------------------


def our_shards(comm: world.Communicator) -> Step:
    model = FullyShardedDataParallel(GPT(SPEC), comm)
    return stepper(model, torch.optim.AdamW(model.parameters(), **ADAMW), comm.rank)


def their_shards(comm: world.Communicator) -> Step:
    """Gathered and freed as often as ours: the outer unit, too."""
    model = GPT(SPEC)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model, reshard_after_forward=True)
    return stepper(model, torch.optim.AdamW(model.parameters(), **ADAMW), comm.rank)


def our_optimizer(comm: world.Communicator, stage: int) -> Step:
    model = GPT(SPEC)
    optimizer = ShardedOptimizer(
        model.parameters(),
        torch.optim.AdamW,
        comm,
        stage=stage,
        bucket_bytes=BUCKET * 2**20,
        **ADAMW,
    )
    return stepper(model, optimizer, comm.rank)


def their_optimizer(comm: world.Communicator) -> Step:
    model = DistributedDataParallel(GPT(SPEC), bucket_cap_mb=BUCKET, gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, **ADAMW)
    return stepper(model, optimizer, comm.rank)


PARTS: dict[str, dict[str, tuple]] = {
    "stage_1": {"ours": (our_optimizer, 1), "DDP + ZRO": (their_optimizer,)},
    "stage_2": {"ours": (our_optimizer, 2), "DDP + ZRO": (their_optimizer,)},
    "stage_3": {"ours": (our_shards,), "fully_shard": (their_shards,)},
}


# -- measuring -------------------------------------------------------------------------------------


def alternate(comm: world.Communicator, part: str) -> dict[str, list[tuple[float, ...]]]:
    """For each side and step the loss on this rank, its seconds, and those of its processor."""
    warnings.simplefilter("ignore")
    steps = {name: make(comm, *more) for name, (make, *more) in PARTS[part].items()}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in steps}
    for turn in range(WARM + TURNS):
        for name in steps if turn % 2 else reversed(steps):
            comm.barrier()
            begin, busy = time.perf_counter(), time.process_time()
            loss = steps[name]()
            comm.barrier()
            done = time.perf_counter() - begin, time.process_time() - busy
            found[name].append((loss, *done))
    return found


def peak(comm: world.Communicator, part: str, name: str) -> int:
    """The most bytes that training adds to this process, in steps after the first."""
    warnings.simplefilter("ignore")
    make, *more = PARTS[part][name]
    ctypes.CDLL(None).mallopt(-3, 2**20)  # large tensors go back at once when freed
    comm.all_gather(torch.zeros(1))
    before = _kilobytes("VmRSS")
    step = make(comm, *more)
    step()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    for _ in range(2):
        step()
    return (_kilobytes("VmHWM") - before) * 1024


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def show(part: str) -> None:
    """Run both sides of a part, and print them with ours as a share of theirs."""
    results = world.launch(alternate, RANKS, args=(part,), check=False, timeout=500).results
    figures: dict[str, tuple[float, ...]] = {}
    losses, turns = [], []
    for name in PARTS[part]:
        found = torch.tensor([mine[name] for mine in results], dtype=torch.float64)
        losses.append(found[:, :, 0])
        seconds, busy = found[:, WARM:, 1].amax(0), found[:, WARM:, 2].sum(0)
        turns.append(seconds)
        memory = world.launch(peak, RANKS, args=(part, name), check=False, timeout=300).results
        figures[name] = seconds.min().item(), busy.min().item(), max(memory) / 2**20
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    ours, theirs = figures.values()
    for name, (seconds, busy, mebibytes) in figures.items():
        print(f"{part}, {name:12} {seconds:5.2f} s {busy:5.2f} s busy {mebibytes:4.0f} MiB")
    least, busy, memory = (a / b for a, b in zip(ours, theirs, strict=True))
    median = (turns[0] / turns[1]).median()
    print(
        f"ratios {least:.2f} (median of turns {median:.2f}), busy {busy:.2f}, memory {memory:.2f}"
    )


if __name__ == "__main__":
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{SPEC.parameters() / 1e6:.1f} million parameters; load averages {loads}")
    for each in sys.argv[1:] or PARTS:
        show(each)
