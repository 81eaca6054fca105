"""What a format costs in accuracy: the noise that rounding to it adds, computed in advance.

Where a number is as likely anywhere between two neighbours q apart, the error of rounding to the
nearer one is uniform on [-q/2, q/2], and its mean square q^2 / 12 (Widrow and Kollar 2008). A
floating-point format's q is in proportion to the number, so that its noise is in proportion to the
signal: one bit more of mantissa takes a quarter of the noise, 6.02 dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.precision.block_formats import Block
from dlsys.precision.plan import Format, Integer

Distribution = Literal["normal", "laplace", "uniform"]
"""How numbers lie around zero: a bell curve, heavier tails, or equally likely up to a bound."""


@checked
def expected_signal_to_noise(
    fmt: Format | Integer, distribution: Distribution = "normal", deviation: float = 1.0
) -> float:
    """10 log10 (deviation^2 / noise), in decibels, for numbers of mean 0 that are rounded to `fmt`.

    noise = sum over powers of two of P(a number lies there) q^2 / 12, and what saturation adds:
    E (|x| - max)^2 beyond the largest number; at most the signal, which is lost where all of it
    rounds to zero. `deviation` is the numbers' standard deviation.
    """
    positive("deviation", deviation)
    tail = _TAILS[distribution]
    noise = tail(fmt.max / deviation).excess
    for low, high, q in _steps(fmt):
        share = tail(low / deviation).probability - tail(high / deviation).probability
        noise += share * (q / deviation) ** 2 / 12
    return -10 * math.log10(min(noise, 1.0))


@checked
def block_bytes(rows: int, columns: int, block: Block) -> int:
    """Bytes of a matrix (rows, columns) in a block format: elements, scales, a tensor's own scale.

    rows columns element bits / 8 + ceil(rows / block.rows) ceil(columns / block.size) scale
    bits / 8 + 4 with `tensor_scale`; halves of a byte rounded up.
    """
    rows, columns = count("rows", rows), count("columns", columns)
    scales = -(-rows // block.rows) * -(-columns // block.size)
    elements = math.ceil(rows * columns * block.format.bits / 8)
    return elements + math.ceil(scales * block.scale.bits / 8) + 4 * block.tensor_scale


@checked
def lora_parameters(rows: int, columns: int, rank: int) -> int:
    """Parameters of a LoRA beside a matrix (rows, columns): rank (rows + columns).

    Only they have gradients and optimizer state. Hu et al. 2021 (arXiv 2106.09685), section 4.1.
    """
    return count("rank", rank) * (count("rows", rows) + count("columns", columns))


def _steps(fmt: Format | Integer) -> Iterator[tuple[float, float, float]]:
    """(from, to, spacing) of |x|, over each range in which numbers lie equally far apart."""
    if isinstance(fmt, Integer):
        yield 0.0, fmt.max, 1.0
        return
    yield 0.0, fmt.min_normal, fmt.min_subnormal
    for exponent in range(fmt.least_exponent, fmt.largest_exponent + 1):
        low = math.ldexp(1.0, exponent)
        yield low, min(2 * low, fmt.max), low * fmt.epsilon


class _Tail(NamedTuple):
    """P(|x| > t) and E max(|x| - t, 0)^2 of numbers of deviation 1."""

    probability: float
    excess: float


def _normal(t: float) -> _Tail:
    probability = math.erfc(t / math.sqrt(2))
    density = math.sqrt(2 / math.pi) * math.exp(-t * t / 2)
    return _Tail(probability, max((1 + t * t) * probability - t * density, 0.0))


def _laplace(t: float) -> _Tail:
    probability = math.exp(-math.sqrt(2) * t)
    return _Tail(probability, probability)


def _uniform(t: float) -> _Tail:
    bound = math.sqrt(3)
    left = max(bound - t, 0.0)
    return _Tail(left / bound, left**3 / (3 * bound))


_TAILS: dict[str, Callable[[float], _Tail]] = {
    "normal": _normal,
    "laplace": _laplace,
    "uniform": _uniform,
}
