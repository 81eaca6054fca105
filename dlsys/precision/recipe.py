"""FP8 and FP4 recipes: how a linear layer is computed in short formats, by name and with source.

A linear layer of weights W (out, in) has three matrix products: forward y = x W^T, and backward
dx = dy W and dW = dy^T x. Each reads two of the three tensors, and sums in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlsys.annotated import checked
from dlsys.checks import counts, refuse, refuse_what
from dlsys.plain_data import plain_data
from dlsys.precision.block_formats import MXFP4, MXFP8_E4M3, NVFP4, Block
from dlsys.precision.plan import BF16, FP8_E4M3, FP8_E5M2, FP32, Format, Integer
from dlsys.units import Catalogue


@plain_data
@checked
@dataclass(frozen=True)
class LinearRecipe:
    """In which formats a linear layer's three products read inputs x, weights W and gradients dy.

    A Block has its own scales, which lie along the dimension that a product sums over. A format
    without blocks has one scale for a whole tensor: its largest element's, or with `history` that
    of as many steps before; with `scaled` false none. None leaves a tensor as it is.

    - `stochastic`: gradients are rounded stochastically; everything else to nearest
    - `hadamard`: before dW = dy^T x, each so many tokens of both are mixed by a random orthogonal
      matrix of +-1, which spreads outliers and cancels in the product; 0: none
    - `high`: layers whose names match one of these patterns stay as they are

    Raises ValueError for what does not go together.
    """

    inputs: Format | Integer | Block | None
    weights: Format | Integer | Block | None
    gradients: Format | Integer | Block | None
    scaled: bool = True
    history: int = 0
    stochastic: bool = False
    hadamard: int = 0
    high: tuple[str, ...] = ("head",)
    why: str = ""

    def __post_init__(self) -> None:
        counts(self, "history", "hadamard", least=0)
        counts(self, "hadamard", least=0, most=1024)
        if self.hadamard & (self.hadamard - 1):
            refuse("hadamard", self.hadamard, "0 or a power of two")
        if self.history and not (self.scaled and not self._has_blocks):
            refuse_what("history", f"{self.history}", "0 where blocks, or nothing, have scales")
        if self.history and self.hadamard:
            refuse_what("hadamard", f"{self.hadamard}", "0 with scales of the steps before")
        if self._has_blocks and not self.scaled:
            refuse("scaled", self.scaled, "True with blocks, which have scales")

    @property
    def _has_blocks(self) -> bool:
        return any(isinstance(f, Block) for f in (self.inputs, self.weights, self.gradients))


TILE = Block(FP8_E4M3, 128, FP32)
"""DeepSeek-V3's of inputs and gradients: 128 elements of a token (or of a channel) and a scale."""
SQUARE = replace(TILE, rows=128)
"""DeepSeek-V3's of weights: 128 x 128 elements and a scale."""
MXFP4_UP = replace(MXFP4, scale_up=True, name="MXFP4, scales up")
"""In which nothing saturates, so that stochastic rounding is right on average."""
_MXFP8 = replace(MXFP8_E4M3, scale_up=True)

LINEAR_RECIPES: Catalogue[LinearRecipe] = Catalogue(
    "recipe of linear layers",
    {
        "fp32": LinearRecipe(None, None, None, why="nothing is rounded: what others are held to"),
        "bf16": LinearRecipe(
            *(BF16, BF16, BF16),
            scaled=False,
            high=(),
            why="no scales: BF16 has FP32's range (Kalamkar et al. 2019, arXiv 1905.12322)",
        ),
        "fp8-current": LinearRecipe(
            *(FP8_E4M3, FP8_E4M3, FP8_E5M2),
            why="a scale for each tensor from its own largest element; gradients in E5M2 for range "
            "(Micikevicius et al. 2022, arXiv 2209.05433; torchao float8, tensorwise)",
        ),
        "fp8-delayed": LinearRecipe(
            *(FP8_E4M3, FP8_E4M3, FP8_E5M2),
            history=16,
            why="scales from the 16 steps before (Transformer Engine, DelayedScaling)",
        ),
        "deepseek-v3": LinearRecipe(
            *(TILE, SQUARE, TILE),
            why="E4M3 throughout, in tiles of 1 x 128 and, for weights, blocks of 128 x 128 with "
            "FP32 scales (DeepSeek-AI 2024, arXiv 2412.19437, section 3.3)",
        ),
        "mxfp8": LinearRecipe(
            *(_MXFP8, _MXFP8, _MXFP8),
            why="E4M3 throughout, in blocks of 32 with powers of two, rounded up, as scales "
            "(Mishra et al. 2025, arXiv 2506.08027)",
        ),
        "mxfp4": LinearRecipe(
            *(MXFP4, MXFP4, MXFP4),
            why="all three tensors in blocks of the MX specification, all rounded to nearest",
        ),
        "mxfp4-stochastic": LinearRecipe(
            *(MXFP4_UP, MXFP4_UP, MXFP4_UP),
            stochastic=True,
            hadamard=32,
            why="stochastic gradients in blocks where nothing saturates, tokens mixed for dW "
            "(after Tseng et al. 2025, arXiv 2502.20586, who keep the forward pass in BF16 or FP8)",
        ),
        "nvfp4": LinearRecipe(
            *(NVFP4, replace(NVFP4, rows=16, name="NVFP4, 16 x 16"), NVFP4),
            stochastic=True,
            hadamard=16,
            why="weights in 16 x 16, stochastic gradients, tokens mixed for dW (NVIDIA 2025, arXiv "
            "2509.25149, who also keep some 15 % of the layers in BF16)",
        ),
    },
)
