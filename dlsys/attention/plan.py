"""A tiled schedule of attention as data: which tile of queries meets which tile of keys, and when.

Attention is a table of pairs: query i meets key j unless a mask forbids it. A tiling cuts the table
into tiles; a schedule says in which order they are visited. Tiles without a pair are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from dlsys.annotated import checked
from dlsys.checks import count, counts, refuse, whole
from dlsys.plain_data import plain_data

Outer = Literal["queries", "keys"]
Align = Literal["upper-left", "lower-right"]
QUERIES, KEYS = "queries", "keys"
MOST_STEPS = 1_000_000
MOST_TILES = 100_000


@plain_data
class Step(NamedTuple):
    """The tile of queries of this number meets the tile of keys of that number, both from 0."""

    queries: int
    keys: int


@checked
@plain_data
@dataclass(frozen=True)
class Tiling:
    """A table of queries by keys, cut into tiles; those at the ends may be smaller.

    offset: query i may see keys 0 to i + offset; None: all keys. With a causal mask it is 0 where
    both begin together (torch's `is_causal`, "upper-left"), and keys - queries where both end
    together ("lower-right", as for a few new tokens after many). Raises ValueError for a size that
    is not above zero, or more than 100,000 tiles on a side.
    """

    queries: int
    keys: int
    query_tile: int
    key_tile: int
    offset: int | None = None

    def __post_init__(self) -> None:
        counts(self, "queries", "keys", "query_tile", "key_tile")
        if self.offset is not None:
            object.__setattr__(self, "offset", whole("offset", self.offset))
        for name, number in ((QUERIES, self.query_tiles), (KEYS, self.key_tiles)):
            if number > MOST_TILES:
                refuse(f"the number of tiles of {name}", number, f"at most {MOST_TILES:,}")

    @property
    def query_tiles(self) -> int:
        """Tiles of queries: ceil(queries / query_tile)."""
        return -(-self.queries // self.query_tile)

    @property
    def key_tiles(self) -> int:
        """Tiles of keys: ceil(keys / key_tile)."""
        return -(-self.keys // self.key_tile)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it may see."""
        if self.offset is None:
            return self.queries * self.keys
        # Row i sees min(keys, i + offset + 1) keys, and none where that is negative.
        first, last = 1 + self.offset, self.queries + self.offset
        return _sum_clipped(last, self.keys) - _sum_clipped(first - 1, self.keys)

    def rows(self, tile: int) -> range:
        """The queries of a tile."""
        start = count("tile", tile, least=0, most=self.query_tiles - 1) * self.query_tile
        return range(start, min(start + self.query_tile, self.queries))

    def columns(self, tile: int) -> range:
        """The keys of a tile."""
        start = count("tile", tile, least=0, most=self.key_tiles - 1) * self.key_tile
        return range(start, min(start + self.key_tile, self.keys))

    def sees(self, tile: int) -> range:
        """The tiles of keys of which a tile of queries sees at least one key."""
        rows = self.rows(tile)
        seen = self.keys if self.offset is None else min(self.keys, rows.stop + self.offset)
        return range(-(-max(0, seen) // self.key_tile))

    def seen_by(self, tile: int) -> range:
        """The tiles of queries that see at least one key of a tile of keys."""
        columns = self.columns(tile)
        first = 0 if self.offset is None else max(0, columns.start - self.offset)
        start = first // self.query_tile if first < self.queries else self.query_tiles
        return range(start, self.query_tiles)

    def is_cut(self, step: Step) -> bool:
        """Whether the mask forbids some pair of this tile, so that it must be looked at there."""
        if not isinstance(step, Step):
            refuse("step", step, "a Step such as Step(0, 0)")
        rows, columns = self.rows(step.queries), self.columns(step.keys)
        return self.offset is not None and columns.stop - 1 > rows.start + self.offset

    @checked
    def schedule(self, outer: Outer = "queries") -> Schedule:
        """The tiles with a pair, in the order of two loops; see `Schedule`.

        Raises ValueError for more than a million steps.
        """
        if self.query_tiles * self.key_tiles > MOST_STEPS:
            refuse(
                "the number of tiles", self.query_tiles * self.key_tiles, f"at most {MOST_STEPS:,}"
            )
        return Schedule(self, outer, tuple(self._loops(outer)))

    def _loops(self, outer: Outer) -> Iterator[Step]:
        if outer == QUERIES:
            for i in range(self.query_tiles):
                yield from (Step(i, j) for j in self.sees(i))
        else:
            for j in range(self.key_tiles):
                yield from (Step(i, j) for i in self.seen_by(j))


def _sum_clipped(top: int, most: int) -> int:
    """1 + 2 + ... + top, where each summand counts as at most `most`."""
    top = max(0, top)
    small = min(top, most)
    return small * (small + 1) // 2 + (top - small) * most


@checked
def tiling(
    queries: int,
    keys: int | None = None,
    query_tile: int = 128,
    key_tile: int = 128,
    is_causal: bool = False,
    align: Align = "upper-left",
) -> Tiling:
    """A tiling of so many queries and keys (as many, unless said otherwise); see `Tiling`."""
    rows = count("queries", queries)
    columns = rows if keys is None else count("keys", keys)
    offset = (columns - rows if align == "lower-right" else 0) if is_causal else None
    return Tiling(rows, columns, query_tile, key_tile, offset)


@checked
@plain_data
@dataclass(frozen=True)
class Schedule:
    """Tiles in the order in which they are visited, and which operand stays in fast memory.

    outer "queries": a tile of queries stays with its result while keys and values come past it
    (FlashAttention-2 forward). outer "keys": a tile of keys and values stays, and queries come past
    with their unfinished results (FlashAttention forward, and backward in both).
    Source: Dao et al. 2022 (arXiv 2205.14135), algorithm 1; Dao 2023 (arXiv 2307.08691).
    """

    tiling: Tiling
    outer: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if self.outer not in (QUERIES, KEYS):
            refuse("outer", self.outer, f"{QUERIES!r} or {KEYS!r}")

    def check(self) -> None:
        """Prove that each pair that the mask allows is visited exactly once, and each operand that
        stays comes once; raises ValueError that names the step. See `check.check`."""
        from dlsys.attention.check import check

        check(self)

    def price(self, head_size: int, **more: Any) -> Any:
        """What forward costs in this order; see `price.forward_cost`."""
        from dlsys.attention.price import forward_cost

        return forward_cost(self.tiling, head_size, cast(Outer, self.outer), **more)

    def draw(self) -> Any:
        """A Matplotlib figure of the visits; see `draw.draw`."""
        from dlsys.attention.draw import draw

        return draw(self)
