"""Tensors rounded to a format, and their bits: what plan.py does to one number, to all at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dlsys.annotated import checked
from dlsys.checks import refuse_what
from dlsys.precision.plan import Format, Integer, Mode
from dlsys.tensors import dense, of_shape, strided

_CHUNK = 2**15
"""Elements worked on at a time: all stays in the cache in between, and torch does so few in one
thread. After each operation on more, threads wait for each other: milliseconds on busy cores."""
_WORDS = {torch.float32: (torch.int32, 23, 127), torch.float64: (torch.int64, 52, 1023)}
"""The integer type of the same size, the mantissa bits and the bias of a type to compute in."""


@checked
@torch.no_grad()
def round_to(
    x: Tensor,
    fmt: Format | Integer,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
    saturate: bool = False,
) -> Tensor:
    """x with each element a number of `fmt`, in the shape and type of x; no gradient flows.

    An element becomes what `Format.round` makes of it, bit for bit: within its power of two the
    format's numbers lie q apart, and x / q is rounded to a whole number. Stochastic rounding draws
    its random numbers from `generator`, or from torch's default one. Raises ValueError where a
    number of `fmt` is none of x's type.
    """
    dense("x", x)
    if not x.is_floating_point():
        refuse_what("x", f"of {x.dtype}", "of a floating-point type")
    _refuse_what_does_not_fit(x.dtype, fmt)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    # FP32 holds q and x / q of every format whose exponent is shorter than its own, and whole
    # numbers of steps are below 2^22 in it, as `_whole` needs them.
    narrow = isinstance(fmt, Integer) or (fmt.exponent < 8 and fmt.mantissa < 22)
    dtype = torch.float32 if narrow and x.dtype != torch.float64 else torch.float64
    for part, into in zip(x.reshape(-1).split(_CHUNK), out.view(-1).split(_CHUNK), strict=True):
        part = part.to(dtype)
        q = _spacing(part, fmt) if isinstance(fmt, Format) else 1.0
        rounded = _whole(part / q, mode, generator).mul_(q)
        into.copy_(_within(rounded, part, fmt, mode, saturate))
    return out


@checked
def encode(
    x: Tensor,
    fmt: Format,
    mode: Mode = "nearest",
    generator: torch.Generator | None = None,
    saturate: bool = False,
) -> Tensor:
    """The bits of x rounded to `fmt`, as whole numbers: uint8 where they fit, otherwise int64.

    Raises ValueError for NaN in a format that has none.
    """
    _refuse_meta("x", x)
    value = round_to(x, fmt, mode, generator, saturate)
    nan = value.isnan()
    if not fmt.nan and bool(nan.any()):
        refuse_what("x", "NaN in places", f"numbers: {fmt} has no bits for NaN")
    # Beside FP32's bits those of a shorter format are cut off, and counted from another bias:
    # multiplied by 2^(bias - 127), its subnormals are FP32's.
    moved = (value.abs().double() * 2.0 ** (fmt.bias - 127)).float().view(torch.int32).long()
    pattern = moved >> (23 - fmt.mantissa)
    if fmt.infinities:
        pattern[value.isinf()] = fmt.infinity_pattern
    if fmt.nan:
        pattern[nan] = fmt.nan_pattern
    pattern |= value.signbit().long() << (fmt.bits - 1)
    return pattern.to(torch.uint8) if fmt.bits <= 8 else pattern


@checked
def decode(patterns: Tensor, fmt: Format) -> Tensor:
    """The numbers, in FP32, whose bits in `fmt` are these whole numbers; raises ValueError."""
    strided("patterns", patterns)
    _refuse_meta("patterns", patterns)
    if patterns.is_floating_point() or patterns.is_complex() or patterns.dtype == torch.bool:
        refuse_what("patterns", of_shape(patterns), "whole numbers")
    bits = patterns.long()
    if bool(((bits < 0) | (bits >= 2**fmt.bits)).any()):
        first, last = int(bits.min()), int(bits.max())
        refuse_what("patterns", f"from {first} to {last}", f"from 0 to {2**fmt.bits - 1}")
    magnitude = bits & ((1 << fmt.bits - 1) - 1)
    # The way back from `encode`.
    moved = (magnitude << (23 - fmt.mantissa)).to(torch.int32).view(torch.float32)
    value = (moved.double() * 2.0 ** (127 - fmt.bias)).float()
    if fmt.infinities:
        value[magnitude == fmt.infinity_pattern] = math.inf
        value[magnitude > fmt.infinity_pattern] = math.nan
    elif fmt.nan:
        value[magnitude == fmt.nan_pattern] = math.nan
    return torch.where(bits == magnitude, value, -value)


def _spacing(x: Tensor, fmt: Format) -> Tensor:
    """q of each element: the power of two below it, times 2^-mantissa."""
    integer, mantissa, bias = _WORDS[x.dtype]
    least, most = ((e + bias) << mantissa for e in (fmt.least_exponent, fmt.largest_exponent))
    # The bits of x without sign and mantissa are the power of two below |x|; subnormals all have
    # that of the smallest normal number, and infinity needs a finite one.
    power = (x.view(integer) & ((2 * bias + 1) << mantissa)).clamp_(least, most)
    return power.sub_(fmt.mantissa << mantissa).view(x.dtype)


def _whole(steps: Tensor, mode: Mode, generator: torch.Generator | None) -> Tensor:
    """Steps rounded to whole numbers; a zero keeps its sign."""
    size = steps.abs()
    # Beside 1.5 x 2^23 (2^52) FP32 (FP64) has whole numbers alone, and rounds a half to even.
    # round() and trunc() give the same, and set all threads to work however few numbers there are.
    large = 1.5 * 2.0 ** _WORDS[steps.dtype][1]
    whole = (size + large).sub_(large)
    if mode != "nearest":
        whole -= (whole > size).to(steps.dtype)
    if mode == "stochastic":
        random = torch.rand(
            steps.shape, generator=generator, dtype=steps.dtype, device=steps.device
        )
        whole += (random < size - whole).to(steps.dtype)
    return whole.copysign_(steps)


def _within(
    rounded: Tensor, x: Tensor, fmt: Format | Integer, mode: Mode, saturate: bool
) -> Tensor:
    """`rounded`, and what is beyond the format's largest number as it is to be."""
    if saturate or isinstance(fmt, Integer) or not fmt.nan:
        return rounded.clamp_(-fmt.max, fmt.max)
    beyond = rounded.abs() > fmt.max
    if mode == "toward zero":
        beyond = x.isinf()
        rounded.clamp_(-fmt.max, fmt.max)
    special = rounded.new_tensor(math.inf if fmt.infinities else math.nan)
    return torch.where(beyond, special.copysign(rounded), rounded)


def _refuse_meta(name: str, x: Tensor) -> None:
    """Raise ValueError where there are no numbers to look at."""
    if x.is_meta:
        refuse_what(name, "on the device meta", "on one that holds numbers")


def _refuse_what_does_not_fit(dtype: torch.dtype, fmt: Format | Integer) -> None:
    """Raise ValueError unless every number of `fmt` is one of `dtype`."""
    limits = torch.finfo(dtype)
    if isinstance(fmt, Integer):
        fits = fmt.max <= 2 / limits.eps
    else:
        # A mantissa no longer and a largest number no larger: then its subnormals are there, too.
        fits = fmt.epsilon >= limits.eps and fmt.max <= limits.max
    if not fits:
        refuse_what("x", f"of {dtype}", f"of a type that holds every number of {fmt}: x.double()")
