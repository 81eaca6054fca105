"""What plain forms cost: attention with its whole table in slow memory, and a matrix product."""

from __future__ import annotations

from dlsys.annotated import checked
from dlsys.attention.price import Cost, Kernel, sizes
from dlsys.checks import count


@checked
def naive_forward_cost(
    queries: int,
    keys: int,
    head_size: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
) -> Cost:
    """Forward with the whole table in slow memory: scores, softmax, weighted sum, a kernel each.

    The scores are written and read, the weights written and read: 4 elements a pair beside
    operands and result. Each kernel reads its operands once, which flatters it where they do not
    fit in fast memory. Keys are read once for a group of query heads.
    """
    number, rows, columns, d = sizes(queries, keys, head_size, heads, kv_heads, batch)
    table, q, k = rows * columns, rows * d, columns * d
    return Cost(
        (
            Kernel("scores", number * 2 * table * d, number * (q + k), number * table),
            Kernel("softmax", 0, number * table, number * table),
            Kernel("weighted sum", number * 2 * table * d, number * (table + k), number * q),
        )
    )


@checked
def naive_backward_cost(
    queries: int,
    keys: int,
    head_size: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
) -> Cost:
    """Backward from the weights that forward kept: four products and the softmax's own gradient.

    7 elements a pair: weights for dV, dP written, both read and dS written, dS for dQ and for dK.
    """
    number, rows, columns, d = sizes(queries, keys, head_size, heads, kv_heads, batch)
    table, q, k = rows * columns, rows * d, columns * d
    kernels = (
        ("dV", table + q, k),
        ("dP", q + k, table),
        ("softmax", 2 * table, table),
        ("dQ", table + k, q),
        ("dK", table + q, k),
    )
    return Cost(
        tuple(
            Kernel(name, (name != "softmax") * number * 2 * table * d, number * read, number * out)
            for name, read, out in kernels
        )
    )


@checked
def naive_saved_bytes(
    queries: int,
    keys: int,
    head_size: int,
    heads: int = 1,
    kv_heads: int | None = None,
    batch: int = 1,
    itemsize: int = 4,
) -> int:
    """Bytes that plain attention keeps for backward: q, k, v, and a weight for each pair."""
    number, rows, columns, d = sizes(queries, keys, head_size, heads, kv_heads, batch)
    return number * count("itemsize", itemsize) * ((rows + 2 * columns) * d + rows * columns)


@checked
def matmul_cost(rows: int, inner: int, columns: int, tile: int = 1, inner_tile: int = 1) -> Cost:
    """A product whose result is made tile by tile, each kept until it is done.

    rows * inner * ceil(columns / tile) + inner * columns * ceil(rows / tile) elements are read,
    rows * columns written. Whatever inner_tile is: it says how much of the operands is resident.
    Source: Hong and Kung 1981.
    """
    m, k, n = count("rows", rows), count("inner", inner), count("columns", columns)
    b = count("tile", tile)
    count("inner_tile", inner_tile)
    read = m * k * -(-n // b) + k * n * -(-m // b)
    return Cost((Kernel("product", 2 * m * k * n, read, m * n),))
