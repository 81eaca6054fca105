"""Kernels by hand: a product in blocks, a convolution as a product, functions that are looked up.

Each has torch's result; what it moves is counted, not told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from time import perf_counter

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what, some
from dlsys.roofline.plan import output_side
from dlsys.tensors import of_numbers, of_shape

# -- a product in blocks -------------------------------------------------------------------------


@checked
def blocked_matmul(a: Tensor, b: Tensor, block: int) -> tuple[Tensor, int]:
    """a (m, k) times b (k, n) in square blocks: the result, and the elements read and written.

    A block of the result stays at hand until it is done; each step reads a block of a and of b.
    Equals `tiles.blocked_elements`. Raises ValueError where the shapes do not fit.
    """
    of_numbers("a", a)
    of_numbers("b", b)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        refuse_what("b", of_shape(b), f"(k, n) for a {of_shape(a)}, whose k it shares")
    size, moved = count("block", block), 0
    out = a.new_empty(a.shape[0], b.shape[1])
    for rows in range(0, out.shape[0], size):
        for columns in range(0, out.shape[1], size):
            place = out[rows : rows + size, columns : columns + size]
            held = torch.zeros_like(place)
            for inner in range(0, a.shape[1], size):
                left = a[rows : rows + size, inner : inner + size]
                right = b[inner : inner + size, columns : columns + size]
                held += left @ right
                moved += left.numel() + right.numel()
            place.copy_(held)
            moved += held.numel()
    return out, moved


@checked
def autotune(
    candidates: Iterable[int],
    run: Callable[[int], object],
    repeats: int = 3,
    clock: Callable[[], float] = perf_counter,
) -> dict[int, float]:
    """Seconds that `run(candidate)` takes at best of some repeats, the quickest candidate first.

    The first call of each is not counted: it has caches to fill. Candidates take turns, so that a
    slow moment of the machine hits all of them alike.
    """
    times = count("repeats", repeats, most=1000)
    each = [count("One of candidates", candidate) for candidate in candidates]
    some("candidates", each)
    best = dict.fromkeys(each, math.inf)
    for turn in range(times + 1):
        for candidate in each:
            start = clock()
            run(candidate)
            seconds = clock() - start
            if turn:
                best[candidate] = min(best[candidate], seconds)
    return dict(sorted(best.items(), key=lambda item: item[1]))


# -- a convolution as a product ------------------------------------------------------------------


@checked
def im2col(x: Tensor, kernel: int, stride: int = 1, padding: int = 0) -> Tensor:
    """x (b, c, h, w) -> (b, c k k, places): under each place of a k x k kernel, what it sees.

    Each input number is written up to k^2 times. Raises ValueError where the kernel does not fit.
    """
    of_numbers("x", x)
    if x.dim() != 4 or not x.numel():
        refuse_what("x", of_shape(x), "(b, c, h, w) numbers")
    padding = count("padding", padding, least=0, most=max(x.shape[2:]))
    high, wide = (output_side(side, kernel, stride, padding) for side in x.shape[2:])
    batch, channels = x.shape[:2]
    padded = torch.nn.functional.pad(x, (padding,) * 4)
    seen = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (b, c, h', w', k, k)
    columns = seen.permute(0, 1, 4, 5, 2, 3)
    return columns.reshape(batch, channels * kernel * kernel, high * wide)


@checked
def conv2d(x: Tensor, weight: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """torch's conv2d with square kernels, as one product: weight (f, c k k) times `im2col(x)`.

    x (b, c, h, w), weight (f, c, k, k) -> (b, f, h', w'). Raises ValueError where they do not fit.
    """
    of_numbers("weight", weight)
    fits = weight.dim() == 4 and weight.shape[2] == weight.shape[3]
    if not fits or x.dim() != 4 or weight.shape[1] != x.shape[1]:
        refuse_what("weight", of_shape(weight), f"(f, c, k, k) for x {of_shape(x)}, whose c it has")
    kernel = weight.shape[2]
    out = weight.flatten(1) @ im2col(x, kernel, stride, padding)
    high = output_side(x.shape[2], kernel, stride, padding)
    return out.unflatten(2, (high, -1))


# -- functions -----------------------------------------------------------------------------------


@checked
def gelu(x: Tensor) -> Tensor:
    """x Phi(x) = x (1 + erf(x / sqrt 2)) / 2, exactly; nothing about it is random."""
    of_numbers("x", x)
    return x * (torch.erf(x * math.sqrt(0.5)) + 1) * 0.5


@checked
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by a tanh: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, off by less than 1e-3.

    Source: Hendrycks and Gimpel 2016, section 2.
    """
    of_numbers("x", x)
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class ExpTable:
    """exp(x) by look-up: exp(x) = 2^i 2^f, with i whole and 2^f the nearest of 2^bits entries.

    Its relative error is at most 2^(2^-bits / 2) - 1, about 0.35 / 2^bits, beside that of float32
    itself. Raises ValueError for more than 20 bits.
    """

    @checked
    def __init__(self, bits: int) -> None:
        self.bits = count("bits", bits, least=0, most=20)
        self.entries = torch.exp2(torch.arange(2**self.bits) / 2**self.bits)

    @property
    def bound(self) -> float:
        """The largest relative error."""
        return 2.0 ** (2.0**-self.bits / 2) - 1

    @checked
    def exp(self, x: Tensor) -> Tensor:
        """x of any shape, from -80 to 80 -> exp(x), in float32."""
        of_numbers("x", x)
        if x.numel() and not bool((x.abs() <= 80).all()):
            refuse("x", x, "from -80 to 80 everywhere, for a float32 holds no exp beyond")
        steps = (x.double() * (2**self.bits / math.log(2))).round().long()
        whole = steps >> self.bits
        return torch.ldexp(self.entries[steps - (whole << self.bits)], whole)
