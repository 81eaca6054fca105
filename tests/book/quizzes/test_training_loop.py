"""The numbers of the quiz on the training loop, computed."""

import math

import pytest
import torch

from dlsys.hardware import DEVICES
from dlsys.training_loop import (
    clip_or_refuse,
    fit_extremes,
    linear_rule,
    square_root_rule,
    state_bytes,
    step_plan,
    update_tokens,
)
from tests.book.quizzes import contract

SHAPE, RANK = (1024, 4096), 256
H200 = DEVICES["h200"]


def times_too_much(tokens: list[int], number: int) -> float:
    """What a token of a micro-batch counts for with equal shares, by what it should."""
    right = step_plan(tokens).actions[1 + 2 * number].share / tokens[number]
    return round(1 / len(tokens) / tokens[number] / right, 9)


def tokens_for(bytes_per_parameter: float, utilization: float = 0.5) -> float:
    return update_tokens(bytes_per_parameter, H200.rate("bf16"), H200.memory_bandwidth, utilization)


def megabytes(shape: tuple[int, int], rank: int = RANK) -> float:
    return state_bytes("galore", [shape], rank) / 1e6


NUMBERS = {
    "unequal-parts": times_too_much([300, 100], 1),
    "galore-state": megabytes(SHAPE),
    "update-in-tokens": tokens_for(28),
    "fewest-steps": round(fit_extremes([100, 400], [1000, 400]).least_steps, 6),
}

MISCONCEPTIONS = {
    "unequal-parts": {
        "than a token of the other": 300 / 100,
        "the part of the batch": 400 / 100,
        "with equal parts": times_too_much([200, 200], 1),
        "The other way round": 1 / times_too_much([300, 100], 1),
    },
    "galore-state": {
        "for the whole matrix": state_bytes("adamw", [SHAPE]) / 1e6,
        "the two moments alone": 4 * RANK * 2 * 4096 / 1e6,
        "projects the shorter side": 4 * RANK * (4096 + 2 * 1024) / 1e6,
        "keeps two moments": 4 * RANK * (1024 + 4096) / 1e6,
    },
    "update-in-tokens": {
        "a pass of its own": tokens_for(84),
        "half of the peak": tokens_for(28, 1.0),
        "that are read": tokens_for(16),
        "The state alone": tokens_for(8),
    },
    "fewest-steps": {
        "at a batch of 400": 400,
        "in proportion": 1000 * 100 / 400,
        "no least": 100,
        "However large": 0,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_critical_batch_that_the_quiz_names_is_the_runs() -> None:
    found = fit_extremes([100, 400], [1000, 400])
    assert found.critical_batch == pytest.approx(400)
    assert found.least_samples == pytest.approx(80_000)


def test_a_token_of_the_large_micro_batch_counts_for_two_thirds() -> None:
    assert times_too_much([300, 100], 0) == pytest.approx(2 / 3)


def test_the_rates_are_those_of_the_rules() -> None:
    assert square_root_rule(0.001, 288, 32) == pytest.approx(0.003)
    assert linear_rule(0.001, 288, 32) == pytest.approx(0.009)


def test_clipping_an_infinity_is_nan_unless_one_looks_first() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([math.inf, 1.0])
    assert not clip_or_refuse([weight], 1.0)[1]
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert weight.grad.isnan().tolist() == [True, False]
