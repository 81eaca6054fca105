"""Seconds of rounding ten million FP32 values, beside the casts of torch and of ml_dtypes.

    python bench/precision.py         half a minute

A cast there and back gives what `round_to` gives, the rounded values in FP32. A figure is the least
of several turns, in which all take part one after another; a ratio below 1 means that ours is
faster. torch casts to FP8, FP16 and BF16 alone, and to nearest alone; what it makes of numbers
beyond the largest of E4M3 differs from version to version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import torch

from dlsys.precision import (
    BF16,
    FP4_E2M1,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    MXFP4,
    MXFP8_E4M3,
    NVFP4,
    Format,
    decode,
    encode,
    quantize,
    round_to,
)

VALUES, TURNS = 10_000_000, 5
CASTS: Mapping[Format, tuple[torch.dtype | None, type]] = {
    FP8_E4M3: (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
    FP8_E5M2: (torch.float8_e5m2, ml_dtypes.float8_e5m2),
    FP16: (torch.float16, np.float16),
    BF16: (torch.bfloat16, ml_dtypes.bfloat16),
    FP4_E2M1: (None, ml_dtypes.float4_e2m1fn),
}


def least(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each way over the turns; the first turn warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begin)
    return {name: min(times[1:]) for name, times in seconds.items()}


def show(title: str, seconds: Mapping[str, float]) -> None:
    """A line: each way's milliseconds, and the ratio of ours, the first, to each other one."""
    names = list(seconds)
    ours = seconds[names[0]]
    figures = "   ".join(f"{name} {seconds[name] * 1e3:6.0f} ms" for name in names)
    ratios = ", ".join(f"{ours / seconds[name]:.2f} of {name}'s" for name in names[1:])
    print(f"{title:24} {figures}   {ratios}", flush=True)


def formats(x: torch.Tensor) -> None:
    plain = x.numpy()
    for fmt, (dtype, theirs) in CASTS.items():
        ways: dict[str, Callable[[], object]] = {"ours": lambda fmt=fmt: round_to(x, fmt)}
        if dtype is not None:
            ways["torch"] = lambda dtype=dtype: x.to(dtype).to(torch.float32)
        ways["ml_dtypes"] = lambda theirs=theirs: plain.astype(theirs).astype(np.float32)
        show(str(fmt), least(ways))


def modes(x: torch.Tensor) -> None:
    random = torch.Generator().manual_seed(0)
    ways = {
        "stochastic": lambda: round_to(x, FP8_E4M3, "stochastic", random),
        "its random numbers": lambda: torch.rand(VALUES, generator=random),
        "toward zero": lambda: round_to(x, FP8_E4M3, "toward zero"),
        "nearest, saturating": lambda: round_to(x, FP8_E4M3, saturate=True),
    }
    show("FP8 E4M3", least(ways))


def bits(x: torch.Tensor) -> None:
    patterns = encode(x, FP8_E4M3)
    ways = {"encode": lambda: encode(x, FP8_E4M3), "decode": lambda: decode(patterns, FP8_E4M3)}
    show("FP8 E4M3", least(ways))


def blocks(x: torch.Tensor) -> None:
    rows = x.view(-1, 1000)
    for fmt in (MXFP8_E4M3, MXFP4, NVFP4):
        show(str(fmt), least({"quantize": lambda fmt=fmt: quantize(rows, fmt)}))


if __name__ == "__main__":
    x = torch.randn(VALUES, generator=torch.Generator().manual_seed(0))
    for part in (formats, modes, bits, blocks):
        part(x)
