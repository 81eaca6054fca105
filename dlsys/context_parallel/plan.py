"""Which rank has which tokens of a sequence, and how many scores it computes in each round."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import TYPE_CHECKING, Any, Literal

from dlsys.annotated import checked
from dlsys.checks import count, refuse
from dlsys.plain_data import plain_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlsys.context_parallel.price import Price

MOST = 2**30
"""Tokens of the longest sequence."""
Kind = Literal["contiguous", "zigzag", "striped"]


class LayoutError(ValueError):
    """A layout under which the ranks together would not compute what one device computes."""


@plain_data
@dataclass(frozen=True)
class Layout:
    """The tokens of each rank: `chunks[rank]` are ranges of positions, in the order of the rank.

    `documents` are the first positions of the texts that are packed into the sequence, 0 first. A
    query sees the keys of its own document up to its own position.
    """

    chunks: tuple[tuple[range, ...], ...]
    documents: tuple[int, ...] = (0,)

    @property
    def ranks(self) -> int:
        """How many ranks share the sequence."""
        return len(self.chunks)

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return sum(map(self.tokens, range(self.ranks)))

    def tokens(self, rank: int) -> int:
        """How many tokens a rank has."""
        return sum(map(len, self.chunks[rank]))

    @property
    def most(self) -> int:
        """Tokens of the rank that has most."""
        return max(map(self.tokens, range(self.ranks)))

    def positions(self, rank: int) -> list[int]:
        """Where in the sequence each token of a rank stands."""
        return [position for chunk in self.chunks[rank] for position in chunk]

    def order(self) -> list[int]:
        """Where each position stands if the ranks' tokens follow each other, `most` for each."""
        most = self.most
        place = {
            position: rank * most + i
            for rank in range(self.ranks)
            for i, position in enumerate(self.positions(rank))
        }
        return [place[position] for position in range(self.length)]

    def whole(self) -> Layout:
        """The same sequence on one rank."""
        return Layout(((range(self.length),),), self.documents)

    def blocks(self, mine: int, theirs: int) -> Iterator[tuple[slice, range, slice, range]]:
        """Pairs of chunks, my queries and their keys, in which some query may see some key.

        Each chunk as a slice of the rank's tokens, and as positions of the sequence.
        """
        for rows, queries in self._placed(mine):
            first = self.documents[bisect_right(self.documents, queries[0]) - 1]
            for columns, keys in self._placed(theirs):
                if keys[0] <= queries[-1] and keys[-1] >= first:
                    yield rows, queries, columns, keys

    def _placed(self, rank: int) -> Iterator[tuple[slice, range]]:
        ends = accumulate(map(len, self.chunks[rank]), initial=0)
        return zip((slice(*both) for both in pairwise(ends)), self.chunks[rank], strict=True)

    def scores(self, mine: int, theirs: int) -> int:
        """Pairs of a query of rank `mine` and a key of rank `theirs` that it sees."""
        ends = [*self.documents[1:], self.length]
        return sum(
            _seen(_between(queries, first, end), _between(keys, first, end))
            for _, queries, _, keys in self.blocks(mine, theirs)
            for first, end in zip(self.documents, ends, strict=True)
        )

    def computed(self, mine: int, theirs: int) -> int:
        """The same where a pair of chunks of which any score is seen is computed whole."""
        return sum(len(q) * len(k) for _, q, _, k in self.blocks(mine, theirs))

    def load(self) -> list[int]:
        """The scores that each rank computes in all."""
        ranks = range(self.ranks)
        return [sum(self.scores(rank, owner) for owner in ranks) for rank in ranks]

    @property
    def balance(self) -> float:
        """The mean load over the largest: the share of its time that a device would compute."""
        load = self.load()
        return sum(load) / len(load) / max(load)

    def check(self) -> None:
        """Raise LayoutError where a position has no rank or two, a chunk or document no token."""
        for rank, chunks in enumerate(self.chunks):
            if not chunks or not all(chunks):
                raise LayoutError(f"rank {rank} has chunks {list(chunks)}; each rank has tokens.")
        owner: dict[int, int] = {}
        for rank in range(self.ranks):
            for position in self.positions(rank):
                other = owner.setdefault(position, rank)
                if other != rank:
                    raise LayoutError(f"position {position} is on ranks {other} and {rank}.")
        absent = next((p for p in range(self.length) if p not in owner), None)
        if absent is not None:
            raise LayoutError(f"no rank has position {absent} of {self.length} tokens.")
        self.check_documents()

    def check_documents(self) -> None:
        """Raise LayoutError where documents do not begin one after the other, from 0 on."""
        starts = [*self.documents, self.length]
        if starts[0] or not all(one < next_ for one, next_ in pairwise(starts)):
            raise LayoutError(
                f"documents begin at {list(self.documents)}; the first must begin at 0, and each "
                f"before the next, and before the end at {self.length}."
            )

    def price(self, *args: Any, **options: Any) -> Price:
        """Bytes and seconds of one layer's attention; see `price.price`."""
        from dlsys.context_parallel.price import price

        return price(self, *args, **options)

    def draw(self) -> Figure:
        """The scores by the rank that computes them; see `draw.draw_scores`."""
        from dlsys.context_parallel.draw import draw_scores

        return draw_scores({f"{self.length} tokens on {self.ranks} ranks": self})


@checked
def layout(
    length: int, ranks: int, kind: Kind = "zigzag", documents: Sequence[int] = (0,)
) -> Layout:
    """Share `length` tokens of a sequence out over ranks, as evenly as whole tokens can be.

    - contiguous: rank r has the r-th of n pieces. Its queries see few keys where r is small.
    - zigzag: of 2n pieces rank r has the r-th and the r-th from the end.
    - striped: rank r has every n-th token, from the r-th on.

    Zigzag: Llama 3 (arXiv 2407.21783, section 3.3.2). Striped: Brandon et al. 2023 (2311.09431).
    Raises ValueError for fewer tokens than ranks; LayoutError for documents that are none.
    """
    length, n = count("length", length, most=MOST), count("ranks", ranks)
    if length < n:
        refuse("length", length, f"at least 1 token for each of {n} ranks")

    def cut(sizes: Iterable[int]) -> list[range]:
        return [range(*both) for both in pairwise(accumulate(sizes, initial=0))]

    sizes = [(rank + 1) * length // n - rank * length // n for rank in range(n)]
    chunks: list[tuple[range, ...]]
    if kind == "contiguous":
        chunks = [(piece,) for piece in cut(sizes)]
    elif kind == "striped":
        chunks = [(range(rank, length, n),) for rank in range(n)]
    else:
        halves = cut([(size + 1) // 2 for size in sizes] + [size // 2 for size in reversed(sizes)])
        both = zip(halves, reversed(halves), strict=True)
        chunks = [tuple(filter(None, two)) for two in islice(both, n)]
    starts = tuple(count(f"documents[{i}]", at, 0) for i, at in enumerate(documents))
    made = Layout(tuple(chunks), starts)
    made.check_documents()
    return made


def _between(positions: range, first: int, end: int) -> range:
    """Those positions that lie in a document."""
    skip, stop = (max(0, -(-(at - positions.start) // positions.step)) for at in (first, end))
    return positions[skip:stop]


def _seen(queries: range, keys: range) -> int:
    """Pairs with key <= query. Where both ranges have one step s, query i sees i + c of the keys.

    c = (first query - first key) // s + 1, and i + c counts from 0 to the number of keys.
    """
    if queries.step != keys.step:
        return sum(bisect_right(keys, query) for query in queries)
    c = (queries.start - keys.start) // queries.step + 1
    some = range(max(0, -c), min(len(queries), len(keys) - c))  # these see some and not all
    all_of_them = len(queries) - max(0, min(len(queries), len(keys) - c))
    return sum(some) + c * len(some) + all_of_them * len(keys)
