"""Seconds of an optimizer's update, by how torch runs it, on a GPU where there is one.

    python bench/updates.py

The price beside each is the bytes of one fused pass by the bandwidth that a copy reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from dlsys.training_loop import update_bytes

WAYS: dict[str, tuple[str, Callable[..., torch.optim.Optimizer], dict[str, object]]] = {
    "AdamW, one by one": ("adamw", torch.optim.AdamW, {"foreach": False}),
    "AdamW, foreach": ("adamw", torch.optim.AdamW, {"foreach": True}),
    "AdamW, one pass": ("adamw", torch.optim.AdamW, {"fused": True}),
    "momentum, one by one": ("momentum", torch.optim.SGD, {"momentum": 0.9, "foreach": False}),
    "momentum, one pass": ("momentum", torch.optim.SGD, {"momentum": 0.9, "fused": True}),
}


def seconds(call: Callable[[], object], times: int = 10) -> float:
    """The mean of so many calls, after three that warm up."""

    def run(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / number

    run(3)
    return run(times)


def main() -> None:
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    x = torch.empty(2**29 if gpu else 2**24, device=device)
    y = torch.empty_like(x)
    bandwidth = 2 * x.nbytes / seconds(lambda: y.copy_(x))
    cases = (
        [[(4096, 4096)] * 32, [(256, 256)] * 800] if gpu else [[(1024, 1024)] * 8, [(64, 64)] * 400]
    )
    for shapes in cases:
        print(f"{len(shapes)} matrices of {shapes[0]}; a copy moves {bandwidth / 1e9:.0f} GB/s")
        for way, (name, optimizer_cls, settings) in WAYS.items():
            parameters = [torch.nn.Parameter(torch.randn(s, device=device)) for s in shapes]
            for each in parameters:
                each.grad = torch.randn_like(each)
            took = seconds(optimizer_cls(parameters, lr=1e-3, **settings).step)
            price = update_bytes(name, shapes) / bandwidth
            print(f"  {way:20} {took * 1e3:8.2f} ms; one pass at that rate: {price * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
