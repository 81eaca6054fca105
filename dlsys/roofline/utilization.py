"""MFU and HFU, what they leave out, and where the way from the peak to what is reached goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, counts, fraction, positive, refuse, some
from dlsys.hardware import DEVICES
from dlsys.transformer import CATALOGUE, TransformerSpec
from dlsys.units import Catalogue


@checked
def mfu(model_flops: float, seconds: float, peak_flops: float, devices: int = 1) -> float:
    """Model FLOPs utilization: FLOPs that the model needs / (seconds x devices x peak FLOP/s).

    - model_flops: of forward and backward on all tokens of a step, whatever is computed twice.

    Raises ValueError for more than 1, which no device does. Source: Chowdhery et al. 2022 (PaLM),
    section 4.1 and appendix B.
    """
    return _share("model_flops", model_flops, seconds, peak_flops, devices)


@checked
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
    flops = float(model_flops) + float(recomputed_flops)
    return _share("model_flops + recomputed_flops", flops, seconds, peak_flops, devices)


def _share(name: str, flops: float, seconds: float, peak_flops: float, devices: int) -> float:
    at_least(name, flops, 0)
    positive("seconds", seconds)
    positive("peak_flops", peak_flops)
    most = float(seconds) * count("devices", devices) * float(peak_flops)
    if not flops <= most:
        refuse(name, flops, f"at most {most:.3g}, the peak of all devices in these seconds")
    return flops / most


# -- what MFU counts as work, though nobody has a use for it --------------------------------------


@checked
def padding_share(lengths: Sequence[int], padded_to: int | None = None) -> float:
    """The part of a batch that is padding, which MFU counts: 1 - sum of lengths / (n longest).

    padded_to: tokens of each row; None: the longest of them.
    """
    some("lengths", lengths)
    tokens = [count("lengths", each, least=0) for each in lengths]
    row = max(1, *tokens) if padded_to is None else count("padded_to", padded_to)
    if max(tokens) > row:
        refuse("padded_to", row, f"at least {max(tokens)}, the longest of the lengths")
    return 1 - sum(tokens) / (len(tokens) * row)


@checked
def accepted_tokens(drafted: int, acceptance: float) -> float:
    """Tokens that a pass over `drafted` guesses yields: (1 - a^(g+1)) / (1 - a), of g + 1 computed.

    acceptance: a, the chance that a guess is taken; the first that is not ends the pass, whose own
    token replaces it. Source: Leviathan et al. 2023 (speculative decoding), equation 1.
    """
    guesses = count("drafted", drafted, least=0, most=10_000)
    fraction("acceptance", acceptance)
    return sum(acceptance**i for i in range(guesses + 1))


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
        counts(self, "devices")
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
        """HFU by the printed FLOP/s; None where they are not printed."""
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
    """A step down: what takes it, FLOP/s before and after, and whether it is measured."""

    name: str
    before: float
    after: float
    measured: bool

    @property
    def lost(self) -> float:
        """FLOP/s that it takes."""
        return self.before - self.after


@checked
def waterfall(peak: float, levels: Mapping[str, float], measured: Sequence[str]) -> list[Stair]:
    """The way down from a peak: each of `levels` names what takes FLOP/s and what is left then.

    measured: the names that somebody measured; the others are inferred. Raises ValueError for a
    level above the one before, and a measured name that is no level.
    """
    positive("peak", peak)
    some("levels", levels)
    odd = set(measured) - set(levels)
    if odd:
        refuse("measured", sorted(odd), f"names of levels, of {', '.join(levels)}")
    stairs: list[Stair] = []
    for name, after in levels.items():
        before = stairs[-1].after if stairs else peak
        at_least(f"levels[{name!r}]", after, 0)
        if after > before:
            refuse(f"levels[{name!r}]", after, f"at most {before:.4g}, the level before")
        stairs.append(Stair(name, before, after, name in measured))
    return stairs


@checked
def inferred_bubble(rate: float, batches: int, slower: float, fewer: int) -> float:
    """What a pipeline waits, in micro-batches, from two runs that differ in their number alone.

    A step of m micro-batches takes m + w; so rate (1 + w/m) = slower (1 + w/fewer), and
    w = (rate - slower) / (slower / fewer - rate / m). Rounded speeds leave a wide margin: 430 and
    400 TFLOP/s with 32 and 16 give 2.6, and with 5 TFLOP/s less or more 1.7 to 3.6. Raises
    ValueError for speeds that no w >= 0 explains.
    """
    positive("rate", rate)
    positive("slower", slower)
    m, f = count("batches", batches), count("fewer", fewer)
    room = slower / f - rate / m
    if not (slower <= rate and room > 0):
        raise ValueError(
            f"No bubble explains a rate of {rate:.4g} with {m} batches and a slower one of "
            f"{slower:.4g} with fewer, {f}: that must be above {rate * f / m:.4g}, and not faster."
        )
    return (rate - slower) / room
