"""Loaders beside their price and beside torch's DataLoader, and reads in order and at random.

    python bench/input_pipeline.py           all of it, half a minute
    python bench/input_pipeline.py sleep     one part: sleep, empty, reads or tokens

`sleep`: workers sleep 20 ms a batch, the step 5 ms; the share of the price that is reached, the
median of the turns. `empty`: seconds a batch of loaders that have nothing to do, in microseconds.
`reads`: seconds for 4 KiB in order and at random out of a file of 256 MiB, with the file's pages
dropped from the cache before each turn where the system allows it. `tokens`: bytes a second of
training and encoding. Sides take turns in one run.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from dlsys.input_pipeline import (
    InputPipeline,
    ProcessLoader,
    Stage,
    ThreadLoader,
    permutation,
    train_tokenizer,
)

TURNS, BATCHES = 5, [[k] for k in range(100)]
PIECE, PIECES = 4096, 2**16


class Sleeping(Dataset):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return len(BATCHES)

    def __getitem__(self, i: int) -> int:
        time.sleep(self.seconds)
        return i


def loaders(seconds: float) -> dict[str, Callable[[], Iterable[Any]]]:
    def fetch(rows: list[int], rng: random.Random) -> list[int]:
        if seconds:
            time.sleep(seconds)
        return rows

    data = Sleeping(seconds)
    return {
        "ThreadLoader": lambda: ThreadLoader(fetch, BATCHES, 4, 2),
        "ProcessLoader": lambda: ProcessLoader(fetch, BATCHES, 4, 2, start="fork"),
        "torch": lambda: DataLoader(
            data, num_workers=4, prefetch_factor=2, multiprocessing_context="fork"
        ),
    }


def seconds_after_the_first(loader: Iterable[Any], step: float) -> float:
    """For the batches after the first eight, so that starting workers does not count."""
    begin = 0.0
    for k, _ in enumerate(loader):
        if k == 8:
            begin = time.perf_counter()
        time.sleep(step) if step else None
    return (time.perf_counter() - begin) / (len(BATCHES) - 8)


def by_turns(sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, side in sides.items():
            found[name].append(side())
    return {name: statistics.median(each) for name, each in found.items()}


def sleep() -> None:
    stages = Stage("load", 0.0, 0.020, 4, 2), Stage("step", 0.0, 0.005)
    best = 1 / InputPipeline(stages).price().samples_per_second
    sides = loaders(0.020)
    took = by_turns(
        {n: lambda side=side: seconds_after_the_first(side(), 0.005) for n, side in sides.items()}
    )
    for name, each in took.items():
        print(f"{name:13} reaches {best / each:.2f} of its price")


def empty() -> None:
    sides = loaders(0.0)
    took = by_turns(
        {n: lambda side=side: seconds_after_the_first(side(), 0.0) for n, side in sides.items()}
    )
    for name, each in took.items():
        print(f"{name:13} takes {1e6 * each:6.0f} microseconds a batch")


def reads() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(os.urandom(PIECE) * PIECES)

        def reading(order: list[int]) -> float:
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                begin = time.perf_counter()
                for piece in order:
                    os.pread(file.fileno(), PIECE, piece * PIECE)
                return (time.perf_counter() - begin) / len(order)

        some = permutation(PIECES)[: PIECES // 8]
        took = by_turns(
            {
                "in order": lambda: reading(list(range(PIECES // 8))),
                "at random": lambda: reading(some),
            }
        )
    for name, each in took.items():
        print(f"{PIECE} bytes {name:9} take {1e6 * each:6.1f} microseconds")
    print(f"at random takes {took['at random'] / took['in order']:.1f} times as long")


def tokens() -> None:
    root = Path(__file__).parent.parent
    text = b"".join(path.read_bytes() for path in sorted((root / "chapters").glob("*.md")))
    for part in (len(text) // 4, len(text) // 2, len(text)):
        begin = time.perf_counter()
        tokenizer = train_tokenizer(text[:part], 1000)
        trained = time.perf_counter()
        coded = tokenizer.encode(text[:part])
        ended = time.perf_counter()
        print(
            f"{part:9,} bytes: trained in {trained - begin:.2f} s, encoded in "
            f"{ended - trained:.2f} s, {part / len(coded):.2f} bytes a token"
        )


PARTS = {"sleep": sleep, "empty": empty, "reads": reads, "tokens": tokens}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        print(f"-- {name}")
        PARTS[name]()
