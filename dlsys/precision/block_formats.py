"""Block formats as data: short numbers that share a scale, and what a value takes in bits."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsys.annotated import checked
from dlsys.checks import counts
from dlsys.plain_data import plain_data
from dlsys.precision.plan import (
    E8M0,
    FP4_E2M1,
    FP6_E2M3,
    FP6_E3M2,
    FP8_E4M3,
    FP8_E5M2,
    Format,
    Integer,
    PowerOfTwo,
)


@plain_data
@checked
@dataclass(frozen=True)
class Block:
    """Numbers in blocks of `size` that share a scale: a value is element x scale.

    Blocks lie along the last dimension; those of several `rows` also along the one before it, and
    are the same for a matrix and its transpose where both are of one length.
    `format` is the elements', `scale` the scale's. With `tensor_scale` one FP32 number more, for
    the whole tensor, brings the scales themselves into range: element x scale x tensor scale.
    A scale that is a power of two is chosen by exponents alone, and the block's largest element may
    saturate; with `scale_up` it is the smallest power of two with which none does.
    Sources: OCP Microscaling (MX) specification v1.0, sections 5 and 6.3; NVIDIA 2025, Pretraining
    Large Language Models with NVFP4 (arXiv 2509.25149); Mishra et al. 2025, Recipes for
    Pre-training LLMs with MXFP8 (arXiv 2506.08027), for `scale_up`.
    """

    format: Format | Integer
    size: int
    scale: Format | PowerOfTwo
    tensor_scale: bool = False
    scale_up: bool = False
    rows: int = 1
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        counts(self, "size", "rows")

    def __str__(self) -> str:
        shape = f"{self.rows} x {self.size}" if self.rows > 1 else f"{self.size}"
        return self.name or f"{self.format} in blocks of {shape} with {self.scale} scales"

    @property
    def bits(self) -> float:
        """Bits for each value, its part of the scale counted: 4 + 8/32 = 4.25 for MXFP4."""
        return self.format.bits + self.scale.bits / (self.size * self.rows)


MXFP8_E4M3 = Block(FP8_E4M3, 32, E8M0, name="MXFP8 E4M3")
MXFP8_E5M2 = Block(FP8_E5M2, 32, E8M0, name="MXFP8 E5M2")
MXFP6_E3M2 = Block(FP6_E3M2, 32, E8M0, name="MXFP6 E3M2")
MXFP6_E2M3 = Block(FP6_E2M3, 32, E8M0, name="MXFP6 E2M3")
MXFP4 = Block(FP4_E2M1, 32, E8M0, name="MXFP4")
NVFP4 = Block(FP4_E2M1, 16, FP8_E4M3, tensor_scale=True, name="NVFP4")
