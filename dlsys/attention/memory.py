"""Two levels of memory that count: what running code reads, writes, and holds at once."""

from __future__ import annotations

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse_what
from dlsys.tensors import of_numbers, of_shape


class FastMemoryFullError(ValueError):
    """More would be resident than fast memory holds."""


class FastMemory:
    """Fast memory of so many elements (None: any number), and the road to slow memory.

    Tensors are (lanes, rows, columns) or (lanes, rows). Lanes are independent of each other, as
    heads are, and each has a fast memory of its own, as each multiprocessor of a GPU has: `read`
    and `written` count all lanes together, `resident` and `peak` one. What is read is a view, so
    counting costs no time. `load`, `room` and `keep` raise FastMemoryFullError beyond `capacity`.
    """

    @checked
    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = None if capacity is None else count("capacity", capacity)
        self.read = self.written = self.resident = self.peak = 0

    @property
    def elements(self) -> int:
        """Elements that crossed, both ways."""
        return self.read + self.written

    @checked
    def load(self, slow: Tensor) -> Tensor:
        """Read a part of slow memory; it stays until it is freed. Returns the part itself."""
        self.keep(slow)
        self.read += slow.numel()
        return slow

    @checked
    def keep(self, fast: Tensor) -> Tensor:
        """Count a tensor that was computed in fast memory as resident until it is freed."""
        self.resident += _of_a_lane(fast)
        if self.capacity is not None and self.resident > self.capacity:
            raise FastMemoryFullError(
                f"{self.resident:,} elements would be resident in a fast memory of "
                f"{self.capacity:,}: take smaller tiles, or free some first."
            )
        self.peak = max(self.peak, self.resident)
        return fast

    @checked
    def store(self, fast: Tensor, slow: Tensor) -> None:
        """Write what is in fast memory to a place of the same shape in slow memory."""
        of_numbers("fast", fast)
        of_numbers("slow", slow)
        if fast.shape != slow.shape:
            refuse_what("fast", of_shape(fast), f"of the shape of slow, {tuple(slow.shape)}")
        # What was loaded is a view: changed in place, it stands there already.
        if fast.data_ptr() != slow.data_ptr():
            slow.copy_(fast)
        self.written += slow.numel()

    @checked
    def free(self, *fast: Tensor) -> None:
        """Let go of tensors that were loaded or kept; raises ValueError for more than there are."""
        freed = sum(map(_of_a_lane, fast))
        if freed > self.resident:
            refuse_what(
                "fast", f"{freed:,} elements", f"at most the {self.resident:,} resident ones"
            )
        self.resident -= freed


def _of_a_lane(x: Tensor) -> int:
    return x.numel() // max(1, x.shape[0]) if x.dim() else 1


@checked
def tiled_matmul(
    a: Tensor, b: Tensor, memory: FastMemory, tile: int = 32, inner_tile: int = 1
) -> Tensor:
    """a (m, k) times b (k, n) in a fast memory: tile x tile elements of the result at a time.

    Each is kept until it is done, while `inner_tile` columns of a and rows of b at a time come past
    it: tile^2 + 2 tile inner_tile are resident. With tile=1 it is the plain triple loop.
    Source: Hong and Kung 1981. Traffic: `plain_price.matmul_cost`.
    """
    size, step = count("tile", tile), count("inner_tile", inner_tile)
    _check_product(a, b)
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(1, m, n, dtype=a.dtype)
    for i in range(0, m, size):
        for j in range(0, n, size):
            done = memory.keep(a.new_zeros(1, min(size, m - i), min(size, n - j)))
            for inner in range(0, k, step):
                left = memory.load(a[None, i : i + size, inner : inner + step])
                right = memory.load(b[None, inner : inner + step, j : j + size])
                done += left @ right
                memory.free(left, right)
            memory.store(done, out[:, i : i + size, j : j + size])
            memory.free(done)
    return out[0]


def _check_product(a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
        raise ValueError(
            f"a is {tuple(a.shape)} of {a.dtype} and b {tuple(b.shape)} of {b.dtype}; they must be "
            "(m, k) and (k, n), of one type."
        )
