"""The numbers of the quiz on memory wall, computed."""

from dataclasses import replace

from dlsys.hardware import DEVICES
from dlsys.memory_wall import RECIPES, activations, devices_needed, training_seconds
from dlsys.transformer import CATALOGUE
from dlsys.units import DAY, GIB
from tests.book.quizzes import contract

RUN = 6 * 30e9 * 600e9
A100 = DEVICES["a100-80"].rate("bf16")
IN_32 = RECIPES["mixed-adamw-fp32-gradients"].total


def days(flops: float = RUN, utilization: float = 0.4, devices: int = 256) -> float:
    return training_seconds(flops, A100, utilization, devices) / DAY


NUMBERS = {
    "bytes-per-parameter": RECIPES["8bit-adam"].total + IN_32 - RECIPES["mixed-adamw"].total,
    "devices-50b": devices_needed(50e9, "mixed-adamw-fp32-gradients", 80e9),
    "gibibytes": 24 * GIB / 1e9,
    "a100-days": days(),
}

MISCONCEPTIONS = {
    "bytes-per-parameter": {
        "gradients in 16 bits": RECIPES["8bit-adam"].total,
        "averages in 32 bits": IN_32,
    },
    "devices-50b": {
        "16 bytes": devices_needed(50e9, "mixed-adamw", 80e9),
        "20 bytes": devices_needed(50e9, "mixed-adamw-both-gradients", 80e9),
        f"{11 * 80} GB; part of the {IN_32 * 50}": 11,
    },
    "gibibytes": {"the other way round": 24e9 / GIB, "24 x 1.024": 24 * 1.024},
    "a100-days": {
        "at the peak": days(utilization=1),
        "not multiplied": days(utilization=1) * 0.4,
        "forward pass alone": days(RUN / 3),
        "one device": days(devices=1),
        "hours": 24 * days(),
    },
}


class TestQuiz(contract.Quiz): ...


def test_gradients_that_stay_in_32_bits_make_the_state_an_eighth_larger() -> None:
    assert IN_32 / RECIPES["fp32-adam"].total == 1 + 1 / 8
    assert RECIPES["mixed-adamw-both-gradients"].total / RECIPES["fp32-adam"].total == 1 + 1 / 4


def test_what_is_said_of_an_estimate_by_a_square_root_is_so() -> None:
    gpt3 = CATALOGUE["gpt3-175b"]
    stream = 8 * gpt3.sequence * gpt3.hidden
    estimate = 2 * 8 * gpt3.sequence * (gpt3.parameters() / 12) ** 0.5
    full, plain = (activations(gpt3, 8, flash=flash) for flash in (False, True))
    said = [full, plain, estimate, 17 * estimate]
    assert [round(nbytes / 1e9) for nbytes in said] == [2203, 657, 4, 67]
    assert round(2 * stream / 1e9, 1) == 0.4
    assert round(estimate / (2 * stream)) == 10
    assert full.per_layer == (34 + 80) * stream


def test_the_devices_of_the_question_on_days_do_32_petaflops() -> None:
    assert round(256 * A100 * 0.4 / 1e15) == 32


def test_the_feedback_on_recomputation_gives_the_share_of_the_attention_core() -> None:
    gpt3 = CATALOGUE["gpt3-175b"]
    core = 4 * gpt3.sequence**2 * gpt3.hidden * gpt3.layers  # two products, forward
    assert f"{core / gpt3.training_flops(1):.1%}" == "0.9%"
    assert f"{core / gpt3.forward_flops(1):.1%}" == "2.7%"
    long = replace(gpt3, sequence=131_072)
    assert core * 64**2 / long.training_flops(1) > 0.2
