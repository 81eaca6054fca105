"""The exercises on precision: their figures are those of the package, and what holds for all."""

import math
from itertools import pairwise
from random import Random

import pytest
import torch

from dlsys.memory_wall import model_state
from dlsys.precision import (
    BF16,
    FP8_E4M3,
    FP16,
    FP32,
    Format,
    LossScaler,
    accumulate,
    round_to,
    signal_to_noise,
)
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_ten_bits_of_the_exercises_are_those_of_the_package() -> None:
    answers, ten = solved("precision"), Format(4, 5)
    assert answers["largest"] == ten.max
    assert answers["largest_without"] == Format(4, 5, infinities=False).max
    assert answers["smallest"] == ten.min_subnormal
    assert answers["apart"] == ten.spacing(100)
    assert answers["digits"] == pytest.approx(ten.digits)
    holds = [
        mantissa
        for mantissa in range(1, 7)
        if (nine := Format(8 - mantissa, mantissa)).max >= 1e4 and nine.min_subnormal <= 1e-6
    ]
    assert answers["mantissa_bits"] == max(holds)


@pytest.mark.parametrize("fmt", [FP8_E4M3, BF16, FP16, Format(3, 2)], ids=str)
def test_the_exercises_round_as_the_package_does(fmt: Format) -> None:
    rounded, random = solved("precision")["rounded"], Random(3)
    own = (fmt.mantissa, fmt.least_exponent, fmt.max)
    powers = (fmt.least_exponent - fmt.mantissa - 2, fmt.largest_exponent + 2)
    for _ in range(500):
        x = random.choice([-1, 1]) * math.ldexp(
            random.randrange(512, 1024), random.randint(*powers) - 9
        )
        chance = random.random()
        assert rounded(x, *own) == fmt.round(x, saturate=True)
        assert rounded(x, *own, chance) == fmt.round(x, "stochastic", chance, saturate=True)


@pytest.mark.parametrize("own", [(3, -6, 448.0), (1, 0, 6.0), (4, -3, 31.0)])
def test_the_ladder_that_checks_use_is_what_the_rounding_leaves_alone(
    own: tuple[int, int, float],
) -> None:
    answers = solved("precision")
    rungs = answers["ladder"](*own)
    assert [answers["rounded"](x, *own) for x in rungs] == rungs
    assert rungs[-1] == own[2]
    between = [(a + b) / 2 for a, b in pairwise(rungs)]
    assert {answers["rounded"](x, *own) for x in between} == set(rungs[::2])


def stands_still(fmt: Format, value: float) -> float:
    """The running sum of such values that takes no more of them."""
    total, value = 0.0, fmt.round(value)
    while (then := fmt.round(total + value)) != total:
        total = then
    return total


def test_of_the_four_runs_each_loses_what_the_solution_says() -> None:
    updates = {name: {fmt.round(w - 2e-5) != w for w in weights(fmt)} for name, fmt in FORMATS}
    assert updates == {"BF16": {False}, "FP16": {True}}
    kept = {name: [fmt.round(x) != 0 for x in (1e-9, 1e-8, 1e-6)] for name, fmt in FORMATS}
    assert kept == {"BF16": [True, True, True], "FP16": [False, False, True]}
    assert math.isfinite(FP16.round(1e-2))
    assert FP16.round(1e-5) > 0
    assert stands_still(BF16, 1.0) == 256
    assert solved("precision")["first"] == {
        "A": "updates",
        "B": "gradients",
        "C": "nothing",
        "D": "sums",
    }


FORMATS = (("BF16", BF16), ("FP16", FP16))


def weights(fmt: Format) -> list[float]:
    """Numbers of the format from 0.02 to 0.03."""
    return [fmt.round(0.02 + k * 1e-4) for k in range(101)]


@pytest.mark.parametrize(("name", "fmt"), FORMATS)
def test_a_weight_stands_still_from_the_step_on_that_the_solution_says(
    name: str, fmt: Format
) -> None:
    still, weight = solved("precision")[f"still_in_{name.lower()}"], fmt.round(0.1)

    def moves(step: float) -> bool:
        return fmt.round(weight - 6e-4 * (1 - step / 10_000)) != weight

    assert moves(still - 2)
    assert not moves(still + 2)


def test_weights_move_below_the_size_of_the_solution_and_not_above() -> None:
    answers, random = solved("precision"), Random(2)
    size = answers["moving_below"]
    for _ in range(200):
        below, above = (BF16.round(random.uniform(*ends)) for ends in ((size / 2, size), (size, 1)))
        assert below == size or BF16.round(below + 1e-4) != below
        assert BF16.round(above + 1e-4) == above
    draws = [BF16.round(BF16.round(0.1) + 1e-4, "stochastic", k / 10_000) for k in range(10_000)]
    moved = sum(x != BF16.round(0.1) for x in draws)
    assert 10_000 / moved == pytest.approx(answers["wait"], rel=1e-2)


@pytest.mark.parametrize("kinds", ["sssisscnssssscss", "iissssssnsss"])
@pytest.mark.parametrize("interval", [1, 3, 4])
def test_the_scaler_of_the_exercises_takes_the_steps_of_the_packages(
    kinds: str, interval: int
) -> None:
    answers = solved("precision")
    parameters = [torch.zeros(5, requires_grad=True), torch.zeros(3, requires_grad=True)]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler, clean = LossScaler(2.0**16, growth_interval=interval), 0
    for k, kind in enumerate(kinds):
        scaled = [(g * scaler.factor).half() for g in answers["gradients_at"](9, kind, k)]
        given, scale, clean = answers["scaler_step"](
            scaled, scaler.factor, clean, interval, 2.0**-6
        )
        for parameter, gradient in zip(parameters, scaled, strict=True):
            parameter.data.zero_()
            parameter.grad = gradient.float()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 2.0**-6)
        skipped = scaler.skipped
        scaler.step(optimizer)
        scaler.update()
        assert scale == scaler.factor
        assert (given is None) == (scaler.skipped > skipped)
        for parameter, gradient in zip(parameters, given or (), strict=given is not None):
            assert torch.allclose(-parameter.detach(), gradient, rtol=1e-3)


def test_a_scale_changes_the_faulty_run_and_not_the_repaired_one() -> None:
    answers = solved("precision")
    x, y = answers["rows"](1)
    losses = {}
    for name in ("faulty", "repaired"):
        for scale in (1.0, 64.0, 1024.0):
            weights = torch.zeros(6)
            for _ in range(200):
                weights, before = answers[name](weights, x, y, scale, 1.0), weights
            losses[name, scale] = float((x @ weights - y).square().mean())
            if (name, scale) == ("faulty", 1.0):
                assert torch.equal(weights, before)
    right = losses["repaired", 1024.0]
    assert losses["repaired", 64.0] == right
    # Without a scale the last digits of gradients, which are subnormal, are lost.
    assert losses["repaired", 1.0] == pytest.approx(right, rel=1e-3)
    assert losses["faulty", 1.0] > 10 * losses["repaired", 1.0]
    assert losses["faulty", 1024.0] > losses["faulty", 64.0] > 1


def test_the_chunked_sum_is_exact_in_a_wide_format_and_stagnates_in_a_narrow_one() -> None:
    answers = solved("precision")
    values = answers["positive"](5, BF16, 600)
    assert answers["chunked_sum"](values, 100, FP32) == pytest.approx(sum(values), rel=1e-5)
    running = accumulate(torch.tensor(values, dtype=torch.float64), BF16)
    assert answers["chunked_sum"](values, len(values), BF16) == float(running[-1])
    for fmt, still in ((BF16, answers["still_bf16"]), (FP16, answers["still_fp16"])):
        assert stands_still(fmt, 0.003) == still


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("times", [1, 4])
def test_the_largest_chunk_is_where_the_error_passes_two_percent(seed: int, times: int) -> None:
    answers = solved("precision")
    largest = {"bf16": BF16, "fp16": FP16} if times == 1 else {"four_times": BF16}
    for name, fmt in largest.items():
        values = [times * value for value in answers["positive"](seed, fmt)]
        chunk, exact = answers[f"chunk_{name}"], sum(values)
        off = [abs(answers["chunked_sum"](values, c, fmt) / exact - 1) for c in (chunk, 2 * chunk)]
        assert off[0] < 0.01 < 0.02 < off[1]


def test_one_design_of_blocks_has_the_fewest_bits_with_outliers() -> None:
    answers = solved("precision")
    fits = [d for d in answers["every"] if answers["decibels"](d, answers["WITH"]) >= 29]
    fewest, next_best = sorted(map(answers["bits"], fits))[:2]
    assert fewest == answers["bits"](answers["design"]) < next_best
    cheap = [d for d in answers["every"] if answers["bits"](d) <= next_best]
    found = [answers["decibels"](d, answers["WITH"]) for d in cheap]
    assert min(abs(each - 29) for each in found) > 0.5, "chance decides"


def test_without_outliers_mantissa_bits_are_worth_more_than_exponent_bits() -> None:
    answers = solved("precision")
    design, without = answers["design"], answers["WITHOUT"]
    assert answers["decibels"](design, without) < 29
    mending = [
        (name, value)
        for name, allowed in answers["CHOICES"].items()
        for value in allowed
        if answers["bits"](other := design | {name: value}) <= answers["bits"](design)
        and answers["decibels"](other, without) >= 29
    ]
    assert mending == [("elements", "FP6 E2M3")]
    assert answers["changes"] == "elements"


def test_so_many_mantissa_bits_have_45_decibels() -> None:
    answers = solved("precision")
    x = answers["WITHOUT"]
    noise = {m: signal_to_noise(x, round_to(x, Format(8, m))) for m in (2, 5, 6)}
    assert noise[2] == pytest.approx(25.5, abs=0.05)
    assert noise[5] < 45 < noise[6]
    assert answers["mantissa_bits_45"] == 6


def test_the_memory_of_the_exercises_is_that_of_the_recipes() -> None:
    answers = solved("precision")
    mixed = model_state(3_000_000_000, "mixed-adamw")
    assert mixed.total == model_state(3_000_000_000, "fp32-adam").total == 48e9
    before, after = 48e9 + 2 * 20e9, 48e9 + 2 * 12e9
    assert answers["falls"] == pytest.approx(1 - after / before)
    assert answers["state_bytes"] == mixed.total - 6 * 3e9
    falls = [8 * b / (48 + 20 * b) for b in range(20)]
    assert next(b for b, fall in enumerate(falls) if fall >= 0.3) == answers["batch"]
    assert answers["falls_at_most"] == pytest.approx(8e9 / 20e9)


def test_the_figures_of_the_model_answer_on_bf16_are_right() -> None:
    text, weight = model_answer("precision"), BF16.round(0.02)
    assert "Round 0.02 that is 1.2e-4" in text
    assert f"{BF16.spacing(0.02):.1e}" == "1.2e-04"
    assert "half the spacing round 0.02 is 6e-5" in text
    assert f"{BF16.spacing(0.02) / 2:.0e}" == "6e-05"
    assert BF16.round(weight + 1e-5) == BF16.round(weight - 1e-5) == weight
    assert "BF16 has 7 mantissa bits where FP16 has 10: its numbers lie eight times" in text
    assert BF16.epsilon == 8 * FP16.epsilon
    assert (BF16.mantissa, FP16.mantissa) == (7, 10)
    moments = [BF16.round(1 + k / 128) for k in range(128)]
    assert all(BF16.round(0.999 * v) == v for v in moments)
    halves = [BF16.spacing(v) / 2 / v for v in moments]
    assert "half the spacing is 0.2 to 0.4 %" in text
    assert [round(100 * half, 1) for half in (min(halves), max(halves))] == [0.2, 0.4]
    assert "stands still at 256 of them" in text
    assert stands_still(BF16, 1.0) == 256
    assert "four times too small, and what is divided by its root twice too large" in text
    assert round(1000 / 256) == 4
    assert round(math.sqrt(1000 / 256)) == 2
    assert "its largest number is nearly that of FP32" in text
    assert BF16.max == pytest.approx(FP32.max, rel=1e-2)
    assert "gradients of 1e-9 are no trouble" in text
    assert BF16.round(1e-9) == pytest.approx(1e-9, rel=BF16.epsilon)
