"""What attention costs: FLOPs, numbers that cross to and from slow memory, what fast memory holds.

Two levels: operands and results lie in slow memory; arithmetic is done on what has been read into
fast memory. All counts are of elements and exact. A group of g query heads shares one head of keys
and values: its queries are taken together, so a tile of them has g times as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.attention.plan import QUERIES, Outer, Tiling
from dlsys.checks import count, divisor
from dlsys.hardware import Device


class Kernel(NamedTuple):
    """One pass over memory: FLOPs of its products, elements read and written."""

    name: str
    flops: int
    read: int
    written: int


@checked
@dataclass(frozen=True)
class Cost:
    """What runs one after the other. Products alone count as FLOPs; a masked pair that is
    computed counts, too."""

    kernels: tuple[Kernel, ...]

    @property
    def flops(self) -> int:
        """FLOPs of all products."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def read(self) -> int:
        """Elements read from slow memory."""
        return sum(kernel.read for kernel in self.kernels)

    @property
    def written(self) -> int:
        """Elements written to slow memory."""
        return sum(kernel.written for kernel in self.kernels)

    @property
    def elements(self) -> int:
        """Elements that cross between the memories, both ways."""
        return self.read + self.written

    def intensity(self, itemsize: int = 2) -> float:
        """FLOPs for each byte that crosses."""
        return self.flops / (count("itemsize", itemsize) * self.elements)

    @checked
    def seconds(self, device: Device, number_format: str = "bf16", itemsize: int = 2) -> float:
        """The least time: each kernel takes max(FLOPs / rate, bytes / bandwidth), one by one."""
        rate, size = device.rate(number_format), count("itemsize", itemsize)
        return sum(
            max(k.flops / rate, size * (k.read + k.written) / device.memory_bandwidth)
            for k in self.kernels
        )

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.kernels + other.kernels)


class _Lanes(NamedTuple):
    """Heads of keys and values in all sequences, and the query heads of each."""

    number: int
    group: int


def lanes(heads: int, kv_heads: int | None, batch: int) -> _Lanes:
    """Raises ValueError where the heads do not divide by those of keys and values."""
    shared = heads if kv_heads is None else kv_heads
    shared = divisor("kv_heads", shared, {"heads": count("heads", heads)})
    return _Lanes(shared * count("batch", batch), heads // shared)


def sizes(
    queries: int, keys: int, head_size: int, heads: int, kv_heads: int | None, batch: int
) -> tuple[int, int, int, int]:
    """Lanes; and of each: rows of queries, all its heads' one below the other, keys, head size."""
    d, (number, g) = count("head_size", head_size), lanes(heads, kv_heads, batch)
    return number, g * count("queries", queries), count("keys", keys), d


@checked
def forward_cost(
    tiling: Tiling,
    head_size: int,
    outer: Outer = "queries",
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
) -> Cost:
    """The tiled forward pass: 4 d FLOPs for each pair of a visited tile.

    With queries outside, each is read once and written once with its log-sum-exp, and each tile of
    them reads the keys and values that it sees. With keys outside, each key and value is read once,
    and queries come again for each tile of keys, with their unfinished sums, maximum and total.
    """
    d, (number, g) = count("head_size", head_size), lanes(heads, kv_heads, batch)
    visits = _Visits.of(tiling)
    once = g * tiling.queries * (d + 1)  # the result and its log-sum-exp
    if outer == QUERIES:
        read = g * visits.rows * d + 2 * visits.columns_again * d
        written = once
    else:
        again = g * (visits.rows_again - visits.rows)
        read = 2 * visits.columns * d + g * visits.rows_again * d + again * (d + 2)
        written = once + again * (d + 2)
    flops = 4 * g * visits.pairs * d
    return Cost((Kernel("forward", number * flops, number * read, number * written),))


@checked
def backward_cost(
    tiling: Tiling,
    head_size: int,
    outer: Outer = "keys",
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
) -> Cost:
    """The tiled backward pass: 10 d FLOPs for each pair of a visited tile, scores once more.

    First the products of each result with its gradient, one number a query. With keys outside,
    gradients of keys and values stay, and those of queries come and go; with queries outside it is
    the other way round.
    """
    d, (number, g) = count("head_size", head_size), lanes(heads, kv_heads, batch)
    visits, rows = _Visits.of(tiling), g * tiling.queries
    sums = Kernel("row sums", 0, number * 2 * rows * d, number * rows)
    if outer == QUERIES:
        again = visits.columns_again - visits.columns
        read = g * visits.rows * (2 * d + 2) + 2 * visits.columns_again * d + 2 * again * d
        written = rows * d + 2 * (again + tiling.keys) * d
    else:
        again = g * (visits.rows_again - visits.rows)
        read = 2 * visits.columns * d + g * visits.rows_again * (2 * d + 2) + again * d
        written = 2 * tiling.keys * d + (again + rows) * d
    flops = 10 * g * visits.pairs * d
    return Cost((sums, Kernel("backward", number * flops, number * read, number * written)))


class _Visits(NamedTuple):
    """Counts of one lane: pairs of all visited tiles; queries and keys that some tile visits, each
    once; and queries once for each tile of keys that visits them, and keys the same way."""

    pairs: int
    rows: int
    columns: int
    rows_again: int
    columns_again: int

    @classmethod
    def of(cls, tiling: Tiling) -> _Visits:
        pairs = rows = columns = rows_again = columns_again = 0
        for tile in range(tiling.query_tiles):
            height = len(tiling.rows(tile))
            seen = min(tiling.keys, len(tiling.sees(tile)) * tiling.key_tile)
            pairs += height * seen
            columns_again += seen
            rows += height * (seen > 0)
        for tile in range(tiling.key_tiles):
            first = tiling.seen_by(tile).start * tiling.query_tile
            by = tiling.queries - first if tiling.seen_by(tile) else 0
            rows_again += by
            columns += len(tiling.columns(tile)) * (by > 0)
        return cls(pairs, rows, columns, rows_again, columns_again)


@checked
def forward_resident(tiling: Tiling, head_size: int, group: int = 1) -> int:
    """Elements in fast memory at most: r rows of queries and c keys take r(2d + 2) + 2cd + rc.

    Queries and their sums, a maximum and a total each, keys and values, and the scores.
    """
    d, (r, c) = count("head_size", head_size), _largest(tiling, count("group", group))
    return r * (2 * d + 2) + 2 * c * d + r * c


@checked
def backward_resident(tiling: Tiling, head_size: int, group: int = 1) -> int:
    """Elements in fast memory at most: r(3d + 2) + 4cd + 2rc.

    Queries, both their gradients, two numbers a query, keys, values, their gradients, and scores
    with their gradients. The row sums before it hold 2d for each row of any tile.
    """
    d, (r, c) = count("head_size", head_size), _largest(tiling, count("group", group))
    sums = 2 * group * len(tiling.rows(0)) * d
    return max(sums, r * (3 * d + 2) + 4 * c * d + 2 * r * c)


def _largest(tiling: Tiling, group: int) -> tuple[int, int]:
    """Rows and columns of the largest tile that is visited.

    Later queries see no fewer keys, and all tiles of queries but the last have as many: two tell.
    """
    last = range(max(0, tiling.query_tiles - 2), tiling.query_tiles)
    rows = max((len(tiling.rows(i)) for i in last if tiling.sees(i)), default=0)
    return group * rows, min(tiling.key_tile, tiling.keys) * (rows > 0)


@checked
def tiled_saved_bytes(
    queries: int,
    keys: int,
    head_size: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    itemsize: int = 4,
) -> int:
    """Bytes that tiled attention keeps for backward: q, k, v, the result, a log-sum-exp a query.

    The log-sum-exp has at least 4 bytes, whatever the rest has.
    """
    number, rows, columns, d = sizes(queries, keys, head_size, heads, kv_heads, batch)
    size = count("itemsize", itemsize)
    return number * (2 * size * (rows + columns) * d + max(size, 4) * rows)
