"""Accumulation: what rounding does to running sums, and to those of a matrix product."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import count, finite, refuse_what
from dlsys.precision.plan import Format, Mode
from dlsys.precision.rounding import round_to
from dlsys.tensors import of_numbers, of_shape


@checked
def accumulate(
    values: Tensor,
    fmt: Format,
    start: float = 0.0,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
) -> Tensor:
    """The partial sums of `values` (n, ...), one after the other, in FP64: (n, ...).

    Start and values are rounded to nearest in `fmt`, and each sum to `fmt` in `mode`. A sum stands
    still once a value is below half of its spacing; with a weight as `start` and updates as
    `values`, the weight does.
    """
    of_numbers("values", values)
    if not values.ndim:
        refuse_what("values", of_shape(values), "(n, ...): what is added one after the other")
    finite("start", start)
    values = round_to(values.double(), fmt)
    total = torch.full_like(values[:1].sum(0), fmt.round(start))
    sums = torch.empty_like(values)
    for into, value in zip(sums, values, strict=True):
        total = round_to(total + value, fmt, mode, generator)
        into.copy_(total)
    return sums


@checked
def matmul(a: Tensor, b: Tensor, inputs: Format, accumulator: Format, group: int = 4) -> Tensor:
    """a (m, k) @ b (k, n) as a tensor core does it, in FP64.

    a and b are rounded to `inputs`; products are exact; each `group` of them along k is added to
    the accumulator at once, and the sum rounded to `accumulator`. V100: FP16 or FP32 accumulators
    and groups of four (Markidis et al. 2018, arXiv 1803.04014). Raises ValueError where the shapes
    do not fit.
    """
    for name, x in (("a", a), ("b", b)):
        of_numbers(name, x)
        if x.ndim != 2:
            refuse_what(name, of_shape(x), "a matrix")
    if a.shape[1] != b.shape[0]:
        refuse_what("b", of_shape(b), f"of {a.shape[1]} rows, as a has columns")
    group = count("group", group)
    a, b = round_to(a.double(), inputs), round_to(b.double(), inputs)
    total = a.new_zeros(a.shape[0], b.shape[1])
    for first in range(0, a.shape[1], group):
        part = a[:, first : first + group] @ b[first : first + group]
        total = round_to(total + part, accumulator)
    return total


@checked
def signal_to_noise(x: Tensor, rounded: Tensor) -> float:
    """10 log10 (sum x^2 / sum (x - rounded)^2), in decibels; infinite where both are equal.

    `expected_signal_to_noise` says what to expect.
    """
    of_numbers("x", x)
    of_numbers("rounded", rounded)
    if x.shape != rounded.shape:
        refuse_what("rounded", of_shape(rounded), f"of the shape of x, {tuple(x.shape)}")
    signal = float(x.double().square().sum())
    noise = float((x.double() - rounded.double()).square().sum())
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf
