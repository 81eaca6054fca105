"""Holds priced operations to measured ones, on a GPU where there is one, else on this processor.

Prints, for products of several shapes and for work on elements, the share of its roof that each
reached: of the data sheet's roof for a GPU of the catalogue, of the measured one for a processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from dlsys.hardware import DEVICES, Device
from dlsys.roofline import best_seconds, count_operations, measure, price


def programs(size: int, device: str, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured, by name."""
    a, b = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
    few, heads = a[:8], torch.ones(256, size // 8, 64, device=device, dtype=dtype)
    wide = torch.ones(size, 8 * size, device=device, dtype=dtype)
    out = torch.empty_like(wide)
    yield f"product {size} x {size} x {size}", lambda: a @ b
    yield f"product {size} x {size} x {size}, one row more", lambda: torch.cat((a, a[:1])) @ b
    yield f"product 8 x {size} x {size}", lambda: few @ b
    yield "scores of 256 heads", lambda: heads @ heads.transpose(1, 2)
    yield "addition", lambda: torch.add(wide, 1, out=out)
    yield "addition into memory that is new", lambda: wide + 1
    yield "GELU", lambda: F.gelu(wide)
    yield "softmax", lambda: wide.softmax(-1)
    yield "layer norm", lambda: F.layer_norm(wide, wide.shape[-1:])


def of_catalogue(name: str) -> Device | None:
    """The device of the catalogue that torch calls by this name."""
    known = {"A100-SXM4-80GB": "a100-80", "H100 80GB HBM3": "h100-sxm", "H200": "h200"}
    return next((DEVICES[key] for word, key in known.items() if word in name), None)


def seconds(program: Callable[[], Any], device: str) -> float:
    """At best of ten runs, each until the device is done."""

    def run() -> None:
        program()
        if device == "cuda":
            torch.cuda.synchronize()

    return best_seconds(run, 10)


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    size = parser.parse_args().size
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype, name = (torch.bfloat16, "bf16") if device == "cuda" else (torch.float32, "fp32")
    roof = of_catalogue(torch.cuda.get_device_name()) if device == "cuda" else measure().device
    if roof is None:
        raise SystemExit(f"{torch.cuda.get_device_name()} is not in the catalogue of hardware")
    print(f"{roof.name}, {name}: corner at {roof.ridge(name):.3g} FLOPs a byte")
    for what, program in programs(size, device, dtype):
        counted = count_operations(program)
        took, priced = seconds(program, device), price(counted.operations, roof, name).seconds
        intensity, share = counted.total.intensity, priced / took
        print(f"{what:45} {intensity:8.2f} FLOPs a byte, {share:6.1%} of its roof")


if __name__ == "__main__":
    main()
