"""The numbers of the quiz on memory wall, computed."""

from dataclasses import replace

from dlsys.hardware import DEVICES
from dlsys.memory_wall import RECIPES, devices_needed, training_seconds
from dlsys.transformer import CATALOGUE
from dlsys.units import DAY, GIB
from tests.book.quizzes import contract

GPT3 = 3.14e23
A100 = DEVICES["a100-80"].rate("bf16")
IN_32 = RECIPES["mixed-adamw-fp32-gradients"].total

NUMBERS = {
    "bytes-per-parameter": RECIPES["8bit-adam"].total + IN_32 - RECIPES["mixed-adamw"].total,
    "devices-50b": devices_needed(50e9, "mixed-adamw-fp32-gradients", 80e9),
    "gibibytes": 24 * GIB / 1e9,
    "a100-days": training_seconds(GPT3, A100, 0.4) / DAY / 1e3,
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
        "at the peak": training_seconds(GPT3, A100) / DAY / 1e3,
        "not multiplied": training_seconds(GPT3, A100) / DAY / 1e3 * 0.4,
        "in thousands": training_seconds(GPT3, A100, 0.4) / DAY,
    },
}


class TestQuiz(contract.Quiz): ...


def test_gradients_that_stay_in_32_bits_make_the_state_an_eighth_larger() -> None:
    assert IN_32 / RECIPES["fp32-adam"].total == 1 + 1 / 8
    assert RECIPES["mixed-adamw-both-gradients"].total / RECIPES["fp32-adam"].total == 1 + 1 / 4


def test_the_feedback_on_recomputation_gives_the_share_of_the_attention_core() -> None:
    gpt3 = CATALOGUE["gpt3-175b"]
    core = 4 * gpt3.sequence**2 * gpt3.hidden * gpt3.layers  # two products, forward
    assert f"{core / gpt3.training_flops(1):.1%}" == "0.9%"
    assert f"{core / gpt3.forward_flops(1):.1%}" == "2.7%"
    long = replace(gpt3, sequence=131_072)
    assert core * 64**2 / long.training_flops(1) > 0.2
