"""Laws of IO-aware attention: what fast memory buys, when compute binds, when plain wins.

Exact counts are in `price`; these are what one remembers, held by tests against the counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dlsys.annotated import checked
from dlsys.attention.plain_price import naive_backward_cost, naive_forward_cost
from dlsys.attention.plan import MOST_TILES, Tiling, tiling
from dlsys.attention.price import backward_cost, forward_cost, forward_resident
from dlsys.checks import count, refuse
from dlsys.hardware import Device
from dlsys.transformer import TransformerSpec

Passes = Literal["forward", "backward", "both"]
TABLES = {"forward": (4, 4, 2), "backward": (16, 7, 4), "both": (20, 11, 6)}
"""What a pair moves by the laws: tiled in d^2 / M; plain in elements, and more in d^2 / M."""
OF_PAIRS = {"scores", "position_scores", "weighted_sum"}


def forward_law(queries: int, keys: int, head_size: int, memory: int) -> float:
    """Elements that the tiled forward pass moves for its pairs: 4 queries keys d^2 / M.

    With thin tiles of keys a tile of queries may have some M / 2d rows, beside its sums; and each
    tile reads all keys and values, 2d elements each. What is read and written at least comes on
    top: `compulsory`. No algorithm needs less by more than a constant while M is at least d^2.
    Source: Dao et al. 2022 (arXiv 2205.14135), theorem 2; Saha and Ye 2024 (arXiv 2402.07443).
    """
    d, room = count("head_size", head_size), count("memory", memory)
    return 4.0 * count("queries", queries) * count("keys", keys) * d * d / room


def backward_law(queries: int, keys: int, head_size: int, memory: int) -> float:
    """Elements that the tiled backward pass moves for its pairs: 16 queries keys d^2 / M.

    A tile of some M / 4d keys and values stays with its gradients, and for each come queries, their
    two gradients, of which one goes back again: 4d elements.
    """
    return 4 * forward_law(queries, keys, head_size, memory)


def compulsory(queries: int, keys: int, head_size: int) -> int:
    """Elements that forward moves at least: q, k, v, the result, a log-sum-exp a query."""
    n, m, d = count("queries", queries), count("keys", keys), count("head_size", head_size)
    return 2 * n * d + 2 * m * d + n


@checked
def best_tiling(
    queries: int,
    keys: int,
    head_size: int,
    memory: int,
    key_tile: int = 1,
    is_causal: bool = False,
) -> Tiling:
    """The tiling with the largest tile of queries with which forward fits into `memory` elements.

    A wider tile of keys (hardware multiplies 16 at a time) takes room from the queries. Raises
    ValueError where not even one query fits.
    """
    d, columns = count("head_size", head_size), count("key_tile", key_tile)
    room = count("memory", memory) - 2 * min(columns, count("keys", keys)) * d
    rows = room // (2 * d + 2 + min(columns, keys))
    if rows < 1:
        least = forward_resident(tiling(1, keys, 1, columns), d)
        refuse(
            "memory",
            memory,
            f"at least {least:,} elements, for one query and these keys of head_size {d}",
        )
    return tiling(queries, keys, min(rows, count("queries", queries)), columns, is_causal)


def crossover_tile(length: int, head_size: int) -> float:
    """Rows of a tile of queries at which tiled forward moves as much as the plain form at least.

    4n^2 + 4nd = 2n^2 d / b + 2nd + n, so b = 2nd / (4n + 2d - 1), about d / 2. Smaller
    tiles make it worse.
    """
    n, d = count("length", length), count("head_size", head_size)
    return 2 * n * d / (4 * n + 2 * d - 1)


@checked
def crossover_memory(head_size: int, passes: Passes = "forward") -> int:
    """Elements of fast memory at which tiled and plain laws are equal, whatever the length.

    Both in the same memory: forward 4 n^2 d^2 / M = 4 n^2 + 2 n^2 d^2 / M, so d^2 / 2; backward
    16 n^2 d^2 / M = 7 n^2 + 4 n^2 d^2 / M, so 12/7 d^2; "both" together 14/11 d^2. Rounded down.
    """
    tiled, plain, again = TABLES[passes]
    return (tiled - again) * count("head_size", head_size) ** 2 // plain


@checked
def crossover_limit(head_size: int, passes: Passes = "forward") -> int:
    """Elements from which on the tiled law is below what the plain form moves in any memory.

    Its operands come once in each kernel: d^2, 16/7 d^2 and 20/11 d^2. Rounded down.
    """
    tiled, plain, _ = TABLES[passes]
    return tiled * count("head_size", head_size) ** 2 // plain


@checked
def rows_to_bind(device: Device, number_format: str = "bf16", itemsize: int = 2) -> float:
    """Rows of a tile of queries from which forward is bound by compute: ridge * itemsize / 2.

    4d FLOPs for a pair and 2d elements of each key for a tile of b rows: 2b FLOPs an element,
    whatever d is. Rows count in all heads of a group.
    """
    return device.ridge(number_format) * count("itemsize", itemsize) / 2


@checked
def overtaking_length(spec: TransformerSpec, is_causal: bool = False) -> float:
    """Tokens of a sequence from which scores and weighted sum take more FLOPs than a layer's
    weights: 6h for a plain layer of 12 h^2 weights, twice that where a mask's half is left out.

    The layer is the last one. Weights take FLOPs in proportion to tokens, pairs to their square;
    where positions are relative, their scores belong to the pairs.
    """
    flops = replace(spec, sequence=1).operations(1, spec.layers - 1)
    pairs = sum(flops[name] for name in flops.keys() & OF_PAIRS)
    weights = sum(flops.values()) - pairs
    return (2 if is_causal else 1) * weights / pairs


@checked
def naive_pays(length: int, head_size: int, memory: int, passes: Passes = "forward") -> bool:
    """Whether the plain form moves less than the best tiling, both in so many elements, by counts.

    Backward keeps as many keys as fit, with one query at a time. Where not even one fits, the plain
    form pays. Raises ValueError for more than 100,000 tokens.
    """
    n, d = count("length", length, most=MOST_TILES), count("head_size", head_size)
    room, lead = count("memory", memory), 0
    if passes != "backward":
        if room < forward_resident(tiling(1), d):
            return True
        tiles = best_tiling(n, n, d, room)
        plain = naive_forward_cost(n, n, d, memory=room)
        lead += forward_cost(tiles, d).elements - plain.elements
    if passes != "forward":
        keys = (room - (3 * d + 2)) // (4 * d + 2)
        if keys < 1:
            return True
        tiles = tiling(n, key_tile=keys)  # in tiles of any size, all queries come past each key
        plain = naive_backward_cost(n, n, d, memory=room)
        lead += backward_cost(tiles, d).elements - plain.elements
    return lead > 0
