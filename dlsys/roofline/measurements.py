"""What an H100 took: seconds of operations and of training steps, for prices to be held against.

The numbers lie in h100.json beside this file; bench/h100.py measures them on a GPU, and says how.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from dlsys.annotated import checked
from dlsys.hardware import DEVICES, Device
from dlsys.roofline.plan import (
    Operation,
    elementwise,
    embedding,
    layer_norm,
    matmul,
    scores,
    softmax,
)
from dlsys.roofline.price import place
from dlsys.roofline.utilization import mfu

TOKENS, HIDDEN = 16_384, 12_288
"""Everything except the products was measured on this many tokens of this width, in BF16."""


class Timed(NamedTuple):
    """An operation as it is planned, and the seconds that it took."""

    operation: Operation
    seconds: float

    @property
    def rate(self) -> float:
        """FLOP/s that it reached."""
        return self.operation.flops / self.seconds

    @checked
    def share(self, device: Device, number_format: str = "bf16") -> float:
        """The part of its roof that it reached: seconds there / seconds taken; see `place`."""
        return place(self.operation, device, number_format).seconds / self.seconds


class Rung(NamedTuple):
    """A training step: seconds, FLOPs as the model needs them, and the most memory in use."""

    seconds: float
    flops: int
    peak_bytes: int

    @property
    def mfu(self) -> float:
        """Of the H100's BF16 peak, whatever format the step computes in."""
        return mfu(self.flops, self.seconds, DEVICES["h100-sxm"].rate("bf16"))


class Measurements(NamedTuple):
    """All that was measured, by name or by size.

    - streams: bytes/s over tensors of 1 GiB; formats: FLOP/s of products of 8,192 by 8,192
    - operations: those of layers; decode: (b, 12288) by (12288, 49152), over b;
      waves: (m, 4096) by (4096, 2048), over m; vocabulary: (8192, 1600) by (1600, n), over n
    - fusion: seconds of gelu(x + u) / 2 + x on (16384, 12288), "eager" and "compiled"
    - launches: seconds of a launch, "eager" and in a CUDA "graph"; optimizers: of AdamW's update of
      124 million parameters
    - ladder: steps of GPT-2 small on 16 sequences of 1,024 tokens, each with one thing changed from
      the one before; recomputation: of twelve layers of GPT-2 XL, by plan
    """

    device: str
    torch: str
    streams: Mapping[str, float]
    formats: Mapping[str, float]
    operations: Mapping[str, Timed]
    decode: Mapping[int, Timed]
    waves: Mapping[int, Timed]
    vocabulary: Mapping[int, Timed]
    fusion: Mapping[str, float]
    launches: Mapping[str, float]
    optimizers: Mapping[str, float]
    ladder: Mapping[str, Rung]
    recomputation: Mapping[str, Rung]


@cache
def on_h100() -> Measurements:
    """The measurements on an H100 SXM of 80 GB at 1,980 MHz and 700 W, with torch 2.11."""
    text = files(__package__).joinpath("h100.json").read_text(encoding="utf-8")
    held: dict[str, Any] = json.loads(text)
    plans = _planned()
    held["operations"] = {name: Timed(plans[name], s) for name, s in held["operations"].items()}
    squares = {int(n): s for n, s in held.pop("squares").items()}
    held["operations"] |= {f"square {n}": Timed(matmul(n, n, n), s) for n, s in squares.items()}
    shapes = {
        "decode": lambda b: (b, 12_288, 49_152),
        "waves": lambda m: (m, 4096, 2048),
        "vocabulary": lambda n: (8192, 1600, n),
    }
    for part, shape in shapes.items():
        took = {int(size): s for size, s in held[part].items()}
        held[part] = {size: Timed(matmul(*shape(size)), s) for size, s in took.items()}
    for part in ("ladder", "recomputation"):
        held[part] = {name: Rung(**rung) for name, rung in held[part].items()}
    return Measurements(**held)


def _planned() -> dict[str, Operation]:
    """The plan of each operation that was measured."""
    n = TOKENS * HIDDEN
    plans = {
        f"qkv {rows} x {wide}": matmul(rows, wide, 3 * wide)
        for rows, wide in ((32_768, 768), (32_768, 1600), (2048, 12_288))
    }
    for heads, s, d in ((384, 1024, 64), (96, 2048, 128)):
        shape = f"{heads} x {s} x {d}"
        plans[f"scores {shape}"] = scores(s, d, heads)
        plans[f"weighted sum {shape}"] = matmul(s, s, d, heads)
        plans[f"softmax {shape}"] = softmax(heads * s, s)
        plans[f"flash attention {shape}"] = _flash(heads, s, d)
    acts = {"gelu": 5, "gelu tanh": 9, "relu": 1, "sigmoid": 1, "tanh": 1}
    plans |= {name: elementwise(n, flops) for name, flops in acts.items()}
    return plans | {
        "layer norm": layer_norm(TOKENS, HIDDEN),
        "add": elementwise(n, 1, 2),
        # A mask of one byte an element is written beside the result.
        "dropout": Operation("dropout", 2 * n, 2 * n, 3 * n),
        "embedding": embedding(TOKENS, HIDDEN),
    }


def _flash(heads: int, s: int, d: int) -> Operation:
    """Causal attention in one kernel: the half of both products below the mask; q, k, v and the
    result through memory, and a log-sum-exp of 4 bytes a query."""
    side, nbytes = heads * s, 2 * heads * s * d
    return Operation("flash", 2 * side * s * d, 3 * nbytes, nbytes + 4 * side, product=True)
