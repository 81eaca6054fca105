"""MFU and HFU, what they leave out, and where the way from the peak to what is reached goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, some
from dlsys.hardware import DEVICES
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.units import Catalogue


def mfu(model_flops: float, seconds: float, peak_flops: float, devices: int = 1) -> float:
    """Model FLOPs utilization: FLOPs that the model needs / (seconds x devices x peak FLOP/s).

    - model_flops: of forward and backward on all tokens of a step, whatever is computed twice.

    Raises ValueError for more than 1, which no device does. Source: Chowdhery et al. 2022 (PaLM),
    section 4.1 and appendix B.
    """
    return _share("model_flops", model_flops, seconds, peak_flops, devices)


def hfu(
    model_flops: float,
    recomputed_flops: float,
    seconds: float,
    peak_flops: float,
    devices: int = 1,
) -> float:
    """Hardware FLOPs utilization: as `mfu`, with the FLOPs of recomputation counted."""
    at_least("model_flops", model_flops, 0)
    at_least("recomputed_flops", recomputed_flops, 0)
    flops = model_flops + recomputed_flops
    return _share("model_flops + recomputed_flops", flops, seconds, peak_flops, devices)


def _share(name: str, flops: float, seconds: float, peak_flops: float, devices: int) -> float:
    at_least(name, flops, 0)
    positive("seconds", seconds)
    positive("peak_flops", peak_flops)
    most = seconds * count("devices", devices) * peak_flops
    if not flops <= most:
        refuse(name, flops, f"at most {most:.3g}, the peak of all devices in these seconds")
    return flops / most


# -- published runs ------------------------------------------------------------------------------


@checked
@dataclass(frozen=True)
class PublishedRun:
    """What a paper prints of a run's speed: tokens/s of all devices, or FLOP/s of each.

    `counted` is what its FLOP/s count, in units of a step's without recomputation (4/3 where every
    layer is run again and counted).
    """

    model: str
    device: str
    devices: int
    source: str
    tokens_per_second: float | None = None
    flops_per_second: float | None = None
    counted: float = 1.0

    def __post_init__(self) -> None:
        _ = self.spec, self.peak  # unknown names are refused
        count("devices", self.devices)
        at_least("counted", self.counted, 1)
        if (self.tokens_per_second is None) == (self.flops_per_second is None):
            refuse(
                "flops_per_second", self.flops_per_second, "given, or tokens_per_second, not both"
            )
        for name in ("tokens_per_second", "flops_per_second"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))

    @property
    def spec(self) -> TransformerSpec:
        """The model's shape."""
        return CATALOGUE[self.model]

    @property
    def peak(self) -> float:
        """FLOP/s of a device, in BF16."""
        return DEVICES[self.device].rate("bf16")

    @checked
    def mfu(self, attention: bool = True) -> float:
        """From tokens/s: 6 N a token, and 12 L a d s for attention's scores and sums if counted.

        From FLOP/s: as printed, without what is recomputed; both conventions are then the paper's.
        """
        if self.flops_per_second is not None:
            return mfu(self.flops_per_second / self.counted, 1.0, self.peak)
        spec, tokens = self.spec, self.tokens_per_second or 0.0
        extra = 12 * spec.layers * spec.heads * spec.head_size * spec.sequence
        flops = spec.approximate_training_flops(1) + extra * bool(attention)
        return mfu(tokens * flops, 1.0, self.peak, self.devices)

    def hfu(self) -> float | None:
        """As printed FLOP/s say it; None where they are not printed."""
        if self.flops_per_second is None:
            return None
        return mfu(self.flops_per_second, 1.0, self.peak)


_LLAMA = "Grattafiori et al. 2024, arXiv 2407.21783, table 4: "
RUNS: Catalogue[PublishedRun] = Catalogue(
    "run",
    {
        "palm-540b": PublishedRun(
            "palm-540b",
            "tpu-v4",
            6144,
            "Chowdhery et al. 2022, arXiv 2204.02311, section 4.1: MFU 46.2 % with attention, "
            "45.7 % without, HFU 57.8 %",
            tokens_per_second=238_300.0,
        ),
        "llama3-405b-8k": PublishedRun(
            "llama3-405b", "h100-sxm", 8192, _LLAMA + "43 %, 32 in a batch", None, 430e12
        ),
        "llama3-405b-16k": PublishedRun(
            "llama3-405b", "h100-sxm", 16_384, _LLAMA + "41 %, 16 in a batch", None, 400e12
        ),
        "llama3-405b-long": PublishedRun(
            "llama3-405b", "h100-sxm", 16_384, _LLAMA + "38 %, sequences of 131,072", None, 380e12
        ),
        "gpt3-175b-megatron": PublishedRun(
            "gpt3-175b",
            "a100-80",
            384,
            "Narayanan et al. 2021, arXiv 2104.04473, table 2: 153 TFLOP/s, with a forward pass "
            "that is run again counted (equation 3)",
            None,
            153e12,
            4 / 3,
        ),
    },
)


# -- from the peak to what is reached ------------------------------------------------------------


class Stair(NamedTuple):
    """A step down: what takes it, and FLOP/s before and after."""

    name: str
    before: float
    after: float

    @property
    def lost(self) -> float:
        """FLOP/s that it takes."""
        return self.before - self.after


@checked
def waterfall(peak: float, levels: Mapping[str, float]) -> list[Stair]:
    """The way down from a peak: each of `levels` names what takes FLOP/s and what is left then.

    Raises ValueError for a level above the one before.
    """
    positive("peak", peak)
    some("levels", levels)
    stairs: list[Stair] = []
    for name, after in levels.items():
        before = stairs[-1].after if stairs else peak
        at_least(f"levels[{name!r}]", after, 0)
        if after > before:
            refuse(f"levels[{name!r}]", after, f"at most {before:.4g}, the level before")
        stairs.append(Stair(name, before, after))
    return stairs
