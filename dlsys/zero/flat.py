"""Parameters laid one after the other, padded, and cut into one equal shard for each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, some, text
from dlsys.plain_data import plain_data


@plain_data
class Piece(NamedTuple):
    """A rank's part of one parameter: elements `start` to `stop` of it, flattened, which stand in
    the rank's shard from `place` on."""

    name: str
    start: int
    stop: int
    place: int

    @property
    def elements(self) -> int:
        """How many there are; 0 where another rank holds all of the parameter."""
        return self.stop - self.start


@plain_data
@dataclass(frozen=True)
class Flat:
    """Parameters (name, elements) laid end to end in order, cut into `ranks` equal shards.

    Cuts take no notice of where a parameter ends, so that every rank holds as much: zeros at the
    end, fewer than `ranks` of them, make the whole divisible.
    Source: Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), section 5; Zhao et al. 2023 (PyTorch
    FSDP, arXiv 2304.11277), section 3.2.1.
    """

    parameters: tuple[tuple[str, int], ...]
    ranks: int

    @property
    def elements(self) -> int:
        """Of all parameters, without padding."""
        return sum(elements for _, elements in self.parameters)

    @property
    def shard(self) -> int:
        """Elements of every rank's shard: ceil(elements / ranks)."""
        return -(-self.elements // self.ranks)

    @property
    def padded(self) -> int:
        """Elements of all shards together."""
        return self.shard * self.ranks

    @property
    def begins(self) -> tuple[int, ...]:
        """Where each parameter begins among all shards, one after the other."""
        return tuple(accumulate((n for _, n in self.parameters[:-1]), initial=0))

    def pieces(self, rank: int) -> tuple[Piece, ...]:
        """What `rank` holds of each parameter, in order; an empty piece where it holds nothing."""
        first = self.shard * count("rank", rank, least=0, most=self.ranks - 1)
        found = []
        for (name, elements), begin in zip(self.parameters, self.begins, strict=True):
            start = min(max(first - begin, 0), elements)
            stop = min(max(first + self.shard - begin, start), elements)
            place = min(max(begin + start - first, 0), self.shard)
            found.append(Piece(name, start, stop, place))
        return tuple(found)


class Dealt(Flat):
    """Parameters, each whole to one rank, for optimizers that look at a parameter as a whole.

    The largest is dealt first, and each to the rank with least, which holds at most 4/3 of what the
    best deal would give it (Graham 1969, longest processing time first). All shards are as long as
    the fullest one, where the others are padded.
    """

    @cached_property
    def _dealt(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Elements that each rank holds; and of each parameter its rank, and its place there."""
        loads, found = [0] * self.ranks, [(0, 0)] * len(self.parameters)
        sizes = [elements for _, elements in self.parameters]
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            rank = loads.index(min(loads))
            found[i] = rank, loads[rank]
            loads[rank] += sizes[i]
        return loads, found

    @property
    def shard(self) -> int:
        """Elements of every rank's shard: those of the rank that holds most."""
        return max(self._dealt[0])

    @property
    def begins(self) -> tuple[int, ...]:
        """Where each parameter begins among all shards, one after the other."""
        return tuple(rank * self.shard + place for rank, place in self._dealt[1])


@checked
def flat(parameters: Mapping[str, int], ranks: int) -> Flat:
    """The layout of `parameters` (elements by name, in order) among `ranks` ranks.

    Raises ValueError for no parameter, a count that is no whole number from 0 up, or no rank.
    """
    some("parameters", parameters)
    for name in parameters:
        text("A parameter's name", name)
    return Flat(
        tuple((name, count(f"The elements of {name!r}", n, 0)) for name, n in parameters.items()),
        count("ranks", ranks, most=1_000_000),
    )
