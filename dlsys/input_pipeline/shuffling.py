"""Orders in which samples are read: permutations, shuffle buffers, shards, and what they cost."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from dlsys.annotated import checked
from dlsys.checks import count, refuse, some, whole

Item = TypeVar("Item")
MOST = 10**8  # samples whose order is held in memory


def epoch_random(seed: int, epoch: int) -> random.Random:
    """The random numbers of one epoch: those of epoch 1 of seed 0 are not epoch 0's of seed 1."""
    return random.Random(f"{whole('seed', seed)} {count('epoch', epoch, 0)}")


def permutation(samples: int, seed: int = 0, epoch: int = 0) -> list[int]:
    """Every sample once, each order equally likely; another one in each epoch."""
    order = list(range(count("samples", samples, 0, MOST)))
    epoch_random(seed, epoch).shuffle(order)
    return order


class ShuffleBuffer:
    """Items in nearly random order out of an iterator, of which `size` are held at a time.

    Each time a random one of those held is given out, and the next one takes its place; an item
    comes out at most size - 1 places early. What is left at the end comes in random order.

    `state_dict()` has all that the rest of the order depends on, the items held among it.
    """

    @checked
    def __init__(self, size: int, seed: int = 0, epoch: int = 0) -> None:
        self.size = count("size", size, most=MOST)
        self.random = epoch_random(seed, epoch)
        self.held: list[Any] = []
        self.taken = 0

    @checked
    def shuffle(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, shuffled. After `load_state_dict` the source has to go on at item `taken`."""
        for item in items:
            self.taken += 1
            if len(self.held) < self.size:
                self.held.append(item)
                continue
            yield self._swap(item)
        self.random.shuffle(self.held)
        while self.held:
            yield self.held.pop()

    def _swap(self, item: Any) -> Any:
        place = self.random.randrange(self.size)
        given, self.held[place] = self.held[place], item
        return given

    def state_dict(self) -> dict[str, Any]:
        """Items held, items taken from the source, and the generator."""
        return {"held": [*self.held], "taken": self.taken, "random": self.random.getstate()}

    @checked
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another one was; raises ValueError for anything but such a state."""
        if set(state_dict) != set(self.state_dict()):
            raise ValueError(
                f"state_dict has {', '.join(map(str, state_dict)) or 'nothing'}; it must have "
                f"{', '.join(self.state_dict())}."
            )
        held, taken = state_dict["held"], count("taken", state_dict["taken"], 0)
        if not isinstance(held, list | tuple) or len(held) > self.size:
            refuse("held", held, f"a list of at most {self.size} items, the buffer's size")
        found = random.Random()
        try:
            version, numbers, gauss = state_dict["random"]  # JSON has made lists of its tuples
            found.setstate((version, tuple(numbers), gauss))
        except (TypeError, ValueError, OverflowError):
            refuse("random", state_dict["random"], "what random.Random.getstate() gives")
        self.held, self.taken = [*held], taken
        self.random.setstate(found.getstate())


@checked
def shard_order(
    sizes: Sequence[int], seed: int = 0, epoch: int = 0, buffer: int = 1
) -> Iterator[int]:
    """Shards in random order, each read from front to back, then through a shuffle buffer.

    sizes: samples of each shard; samples are numbered through all of them.
    """
    some("sizes", sizes)
    first = [0]
    for size in sizes:
        first.append(first[-1] + count("A size of sizes", size))
    count("buffer", buffer, most=MOST)
    shards = permutation(len(sizes), seed, epoch)
    rows = (i for shard in shards for i in range(first[shard], first[shard + 1]))
    return ShuffleBuffer(buffer, seed, epoch).shuffle(rows)


@checked
def seeks(order: Iterable[int]) -> int:
    """Reads of an order that do not begin where the last one ended."""
    expected, jumps = None, 0
    for row in order:
        jumps += whole("A sample of order", row) != expected
        expected = row + 1
    return jumps


@checked
def displacements(order: Sequence[int]) -> list[int]:
    """By how many places each sample of an order comes later than it lies; negative: earlier.

    Raises ValueError where order is not one of the samples 0 to len(order) - 1.
    """
    if sorted(whole("A sample of order", row) for row in order) != list(range(len(order))):
        raise ValueError("order has not every sample from 0 on once, as it must.")
    return [place - row for place, row in enumerate(order)]
