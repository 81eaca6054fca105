"""Times attention forward and backward: ours beside the plain form and torch's own, in turn.

Prints the median of each turn's ratio of seconds, and the most bytes alive beside q, k and v, for
several lengths, with and without a causal mask. Ratios of one run alone mean something.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from dlsys.attention import flash_attention, naive_attention, peak_bytes


def forms(is_causal: bool) -> dict[str, Callable[..., Tensor]]:
    """What is compared, by name."""
    return {
        "ours": lambda q, k, v: flash_attention(q, k, v, is_causal),
        "plain": lambda q, k, v: naive_attention(q, k, v, is_causal),
        "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
    }


def step(form: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    """Forward and backward."""
    form(*inputs).sum().backward()


def seconds(form: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[float, float]:
    """Of forward alone, and of forward with backward."""
    start = time.perf_counter()
    with torch.no_grad():
        form(*inputs)
    between = time.perf_counter()
    step(form, inputs)
    return between - start, time.perf_counter() - between


def compare(length: int, heads: int, head_size: int, is_causal: bool, turns: int) -> None:
    """A line for one size: ratios of seconds, and megabytes."""
    shape = (1, heads, length, head_size)
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    named = forms(is_causal)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in named}
    for turn in range(turns + 1):
        for name, form in named.items():
            both = seconds(form, inputs)
            if turn:  # the first one warms up
                taken[name].append(both)
    peaks = {
        name: peak_bytes(lambda form=form: step(form, inputs)) / 1e6 for name, form in named.items()
    }
    ratios = [
        f"{median(a[i] / b[i] for a, b in zip(taken['ours'], taken[other], strict=True)):.2f}"
        for other in ("plain", "sdpa")
        for i in (0, 1)
    ]
    megabytes = ", ".join(f"{name} {peak:.1f} MB" for name, peak in peaks.items())
    mask = "causal" if is_causal else "no mask"
    print(
        f"{length:>6} tokens, {mask:>7}: ours / plain {ratios[0]} forward, {ratios[1]} both; "
        f"ours / sdpa {ratios[2]} forward, {ratios[3]} both; {megabytes}"
    )


def main() -> None:
    """Print a line for each length and mask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    torch.manual_seed(0)
    for length in given.lengths:
        for is_causal in (False, True):
            compare(length, given.heads, given.head_size, is_causal, given.turns)


if __name__ == "__main__":
    main()
