"""Whole parameters dealt out to ranks, for optimizers that look at a parameter as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dlsys.checks import count
from dlsys.zero.flat import Flat, Piece


@dataclass(frozen=True)
class Dealt(Flat):
    """Parameters (name, elements), each to one rank: the largest first, to the rank with least.

    All shards are as long as the fullest one, where the others are padded: that is what the largest
    parameter costs, which no other rank takes a part of. No rank holds more than 4/3 of what the
    best deal would give it (Graham 1969, longest processing time first).
    """

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The rank that holds each parameter."""
        loads, owners = [0] * self.ranks, [0] * len(self.parameters)
        sizes = [elements for _, elements in self.parameters]
        for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
            owners[place] = rank = loads.index(min(loads))
            loads[rank] += sizes[place]
        return tuple(owners)

    @property
    def shard(self) -> int:
        """Elements of every rank's shard: those of the rank that holds most."""
        return max(self.load(rank) for rank in range(self.ranks))

    def load(self, rank: int) -> int:
        """Elements that `rank` holds, without padding."""
        pairs = zip(self.parameters, self.owners, strict=True)
        return sum(elements for (_, elements), owner in pairs if owner == rank)

    @property
    def begins(self) -> tuple[int, ...]:
        """Where each parameter begins among all shards, one after the other."""
        places, shard = [self.pieces(rank) for rank in range(self.ranks)], self.shard
        return tuple(r * shard + places[r][i].place for i, r in enumerate(self.owners))

    def pieces(self, rank: int) -> tuple[Piece, ...]:
        """All of each parameter that `rank` holds, and an empty piece of each other one."""
        count("rank", rank, least=0, most=self.ranks - 1)
        found, place = [], 0
        for (name, elements), owner in zip(self.parameters, self.owners, strict=True):
            mine = elements if owner == rank else 0
            found.append(Piece(name, 0, mine, place))
            place += mine
        return tuple(found)
