"""Distributed samplers: samples dealt to ranks and their workers, with and without repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from dlsys.annotated import checked
from dlsys.checks import count, refuse, some

Item = TypeVar("Item")


@checked
def dealt(
    items: Sequence[Item], rank: int = 0, ranks: int = 1, worker: int = 0, workers: int = 1
) -> list[Item]:
    """Each item to exactly one worker of one rank, whatever the numbers: every `ranks`-th, of these
    every `workers`-th. For samples or for shards; some may get one more than others, or none.
    """
    ranks, workers = count("ranks", ranks), count("workers", workers)
    mine = items[count("rank", rank, 0, ranks - 1) :: ranks]
    return list(mine[count("worker", worker, 0, workers - 1) :: workers])


@checked
def dealt_evenly(
    items: Sequence[Item], rank: int = 0, ranks: int = 1, drop_last: bool = False
) -> list[Item]:
    """This rank's items, equally many on every rank, as torch's DistributedSampler deals them.

    Ranks that sum gradients must make as many steps each, so what does not divide is dropped, or
    filled up with items from the front, which are then seen twice. Raises ValueError for no items.
    """
    ranks = count("ranks", ranks)
    some("items", items)
    if drop_last:
        if len(items) < ranks:
            refuse("ranks", ranks, f"at most {len(items)}, the number of items, to drop the rest")
        size = len(items) // ranks
    else:
        size = -(-len(items) // ranks)
    mine = range(count("rank", rank, 0, ranks - 1), size * ranks, ranks)
    return [items[i % len(items)] for i in mine]
