"""The numbers of the quiz on precision, computed."""

import math
from functools import cache

import pytest
import torch

from dlsys.memory_wall import model_state
from dlsys.precision import (
    BF16,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    INT8,
    DelayedScaling,
    Format,
    LossScaler,
    quantize,
    signal_to_noise,
)
from tests.book.quizzes import contract


@cache
def up_or_down(weight: float, update: float) -> tuple[tuple[float, float], ...]:
    """What BF16 makes of their sum by chance, each with its probability."""
    low, high = (BF16.round(weight + update, "stochastic", r) for r in (1 - 1e-9, 0.0))
    up = (weight + update - low) / (high - low)
    return (low, 1 - up), (high, up)


def after_chance(updates: int, update: float = 0.002, start: float = 3.0) -> float:
    """Where a weight of BF16 is on average: the mean of all that chance can make of it."""
    likely = {start: 1.0}
    for _ in range(updates):
        then: dict[float, float] = {}
        for weight, share in likely.items():
            for value, part in up_or_down(weight, update):
                then[value] = then.get(value, 0.0) + share * part
        likely = then
    return sum(weight * share for weight, share in likely.items())


@cache
def skips(steps: int, interval: int = 2000, most: float = 40_000.0) -> list[int]:
    """Which steps a scaler skips, where gradients overflow above a scale of `most`."""
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scaler, found = LossScaler(growth_interval=interval), []
    for step in range(1, steps + 1):
        parameter.grad = torch.full((1,), math.inf if scaler.factor > most else 1.0)
        before = scaler.skipped
        scaler.step(optimizer)
        scaler.update()
        found += [step] * (scaler.skipped - before)
    return found


def skipped_of(steps: int) -> int:
    """How many of so many steps: the first, and one in each round from there on."""
    first, second = skips(4000)
    return len(range(first, steps + 1, second - first))


def read_back(history: list[float], now: float) -> float:
    """The largest element of a tensor, as delayed scaling gives it back."""
    scaling = DelayedScaling(FP8_E4M3, len(history))
    for largest in history:
        scaling.quantize(torch.tensor([float(largest)]))
    return float(scaling.quantize(torch.tensor([float(now)])).dequantize())


def fall(state: float, activations: float) -> float:
    """By how many percent mixed precision lessens the memory of so many bytes in FP32."""
    parameters = state / model_state(1, "fp32-adam").total
    mixed = model_state(parameters, "mixed-adamw").total + activations / 2
    return 100 * (1 - mixed / (state + activations))


NUMBERS = {
    "next-number": 24 + FP8_E5M2.spacing(24),
    "mean-of-chance": after_chance(1000),
    "skipped-steps": skipped_of(100_000),
    "delayed-scale": read_back([6, 10, 8], 14),
    "small-activations": fall(36e9, 12e9),
}

MISCONCEPTIONS = {
    "next-number": {
        "the next power of two": 32,
        "the step from 1": 24 + FP8_E5M2.epsilon,
        "in proportion to 24": 24 * (1 + FP8_E5M2.epsilon),
        "halfway to the next": 24 + Format(5, 3).spacing(24),
        "not all there": 25,
    },
    "mean-of-chance": {
        "less than half a spacing": BF16.round(3 + 0.002),
        "a spacing each time": 3 + 1000 * BF16.spacing(3),
        "Nothing ends at": 4,
        "a single update": after_chance(1),
    },
    "skipped-steps": {
        "the very first": skipped_of(100_000) - 1,
        "it grows again": len(skips(2000)),
        "not 2,000": 1 + 100_000 // 2000,
        "At the beginning the scale": 0,
        "Only at the beginning": 100_000,
    },
    "delayed-scale": {
        "current scaling": float(quantize(torch.tensor([14.0]), FP8_E4M3).dequantize()),
        "the last step alone": read_back([8], 14),
        "the element that is stored": FP8_E4M3.max,
        "E4M3 ends at": 14 / (10 / FP8_E4M3.max),
    },
    "small-activations": {
        "what becomes of activations": 50,
        "what is left": 100 - fall(36e9, 12e9),
        "forgets the master weights": 100 * (36 / 4 + 6) / 48,
        "the part of the activations": 100 * 12 / 48,
        "against the memory of mixed": 100 * 6 / 42,
    },
}


class TestQuiz(contract.Quiz): ...


def test_between_24_and_the_next_number_of_e5m2_there_is_nothing() -> None:
    assert [FP8_E5M2.round(x) for x in (25, 26, 27)] == [24, 24, 28]


def test_a_scale_that_overflows_is_skipped_once_in_2001_steps() -> None:
    first, second = skips(4000)
    assert (first, second - first) == (1, 2001)


def stands_still(fmt: Format) -> float:
    """The running sum of ones that takes no more of them."""
    total = 0.0
    while (then := fmt.round(total + 1)) != total:
        total = then
    return total


def test_what_works_in_bf16_and_not_in_fp16_is_what_the_quiz_says() -> None:
    assert [stands_still(fmt) for fmt in (BF16, FP16)] == [256, 2048]
    assert [fmt.round(1e-9) > 0 for fmt in (BF16, FP16)] == [True, False]
    assert [fmt.round(1 + 0.001) > 1 for fmt in (BF16, FP16)] == [False, True]
    assert [math.isfinite(fmt.round(100_000)) for fmt in (BF16, FP16)] == [True, False]
    assert max(stands_still(fmt) for fmt in (BF16, FP16)) < 10_000


def test_the_falling_scale_has_halved_twenty_five_times() -> None:
    scale = 32_768.0
    for _ in range(25):
        scale *= LossScaler().backoff_factor
    assert scale == pytest.approx(0.001, rel=0.03)


def test_an_outlier_spoils_the_others_in_int8_and_hardly_in_fp8() -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0))
    with_outlier = torch.cat([x, torch.tensor([100 * float(x.abs().max())])])
    for fmt, loses in ((INT8, 30), (FP8_E4M3, 6)):
        before = signal_to_noise(x, quantize(x, fmt).dequantize())
        after = signal_to_noise(x, quantize(with_outlier, fmt).dequantize()[:-1])
        assert (before - after > loses) == (fmt == INT8), (before, after)
