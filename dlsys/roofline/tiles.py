"""Tiles and waves: a product is cut into tiles, and multiprocessors take one each in every wave.

What is computed is whole tiles and what takes time is whole waves, so a product that is a little
too large for either does work that nobody asked for. A warp of 32 threads has nothing to do with
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, counts, positive, refuse, some
from dlsys.plain_data import plain_data
from dlsys.units import Catalogue


@checked
@plain_data
@dataclass(frozen=True)
class Processor:
    """Multiprocessors of a device, FLOP/s of all together, and bytes/s from its shared cache."""

    name: str
    multiprocessors: int
    rate: float
    cache_bandwidth: float

    def __post_init__(self) -> None:
        counts(self, "multiprocessors")
        positive("rate", self.rate)
        positive("cache_bandwidth", self.cache_bandwidth)


PROCESSORS: Catalogue[Processor] = Catalogue(
    "processor",
    {
        # NVIDIA A100 whitepaper, 2020: 108 SMs, 1,410 MHz; an L2 cache that is read at 5,120 bytes
        # a clock. 312 TFLOP/s dense.
        "a100-80": Processor("A100 80 GB", 108, 312e12, 5120 * 1.41e9),
        # NVIDIA H100 whitepaper, 2022: 132 SMs in SXM, at 1,830 MHz for 989 TFLOP/s. Its cache's
        # rate is not printed: taken as the A100's a clock, and twice, as two SMs of a cluster
        # share what they read.
        "h100-sxm": Processor("H100 SXM", 132, 989e12, 2 * 5120 * 1.83e9),
    },
)


@plain_data
class Tile(NamedTuple):
    """What one multiprocessor computes of a product: m x n elements of the result."""

    m: int
    n: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n}"


TILES = tuple(
    Tile(m, n)
    for m, n in (
        *((256, 128), (128, 256), (128, 128), (256, 64), (64, 256)),
        *((128, 64), (64, 128), (64, 64)),
    )
)
"""Sizes that cuBLAS has. Source: NVIDIA, Matrix Multiplication Background User's Guide, 2.3."""


def waves(tiles: int, multiprocessors: int) -> int:
    """Rounds in which all tiles are computed: ceil(tiles / multiprocessors)."""
    return -(-count("tiles", tiles) // count("multiprocessors", multiprocessors))


@checked
def wave_utilization(tiles: int, multiprocessors: int) -> float:
    """The part of the multiprocessors' time that tiles fill: tiles / (SMs ceil(tiles / SMs)).

    One tile more than a whole wave halves it at worst; with many waves the last hardly counts.
    """
    return tiles / (multiprocessors * waves(tiles, multiprocessors))


class Tiled(NamedTuple):
    """A product cut into tiles: how many, in how many waves, what part of each is of use, seconds.

    useful: of the tiles' elements, those of the result. wave: `wave_utilization`.
    """

    tile: Tile
    tiles: int
    waves: int
    useful: float
    wave: float
    seconds: float


@checked
def tiled(m: int, k: int, n: int, tile: Tile, processor: Processor) -> Tiled:
    """A product of (m, k) and (k, n), in 16 bits, cut into tiles.

    Each tile multiplies m_t x n_t elements over all of k, and reads 2 (m_t + n_t) k bytes from the
    cache for them: a small tile waits for these. A wave takes the longer of both.
    """
    sizes = count("m", m), count("k", k), count("n", n)
    high, wide = _check("tile", tile)
    number = -(-sizes[0] // high) * -(-sizes[2] // wide)
    sms, rounds = processor.multiprocessors, waves(number, processor.multiprocessors)
    flops = sms * 2 * high * wide * sizes[1]
    read = sms * 2 * (high + wide) * sizes[1]
    each = max(flops / processor.rate, read / processor.cache_bandwidth)
    useful = sizes[0] * sizes[2] / (number * high * wide)
    share = wave_utilization(number, sms)
    return Tiled(Tile(high, wide), number, rounds, useful, share, rounds * each)


def _check(name: str, tile: object) -> Tile:
    if not (isinstance(tile, tuple) and len(tile) == 2):
        refuse(name, tile, "a Tile such as Tile(256, 128)")
    return Tile(count(f"{name}.m", tile[0]), count(f"{name}.n", tile[1]))


@checked
def choose_tile(
    m: int, k: int, n: int, processor: Processor, tiles: Sequence[Tile] = TILES
) -> Tiled:
    """The tile with which a product takes least: of several equal ones the first."""
    some("tiles", tiles)
    for tile in tiles:
        _check("One of tiles", tile)
    return min((tiled(m, k, n, tile, processor) for tile in tiles), key=lambda each: each.seconds)


def blocked_elements(m: int, k: int, n: int, block: int) -> int:
    """Elements that a product reads and writes if it keeps a square block of each matrix at hand.

    m k ceil(n/b) + k n ceil(m/b) read, m n written once. With b = 1, the naive product, that grows
    as 2 m k n; with the b of sqrt(M / 3) that a cache of M elements allows, as 1 / sqrt(M). Source:
    Hong and Kung 1981.
    """
    m, k, n, b = count("m", m), count("k", k), count("n", n), count("block", block)
    return m * k * math.ceil(n / b) + k * n * math.ceil(m / b) + m * n
