"""The numbers of the quiz on data parallel, computed."""

import pytest

from dlsys.data_parallel import (
    BatchTradeoff,
    TopK,
    amdahl_speedup,
    constant_fraction_speedup,
)
from dlsys.data_parallel import step_bytes as gradient_bytes
from tests.book.quizzes import contract

GRADIENTS = 15e9 / gradient_bytes(1, 4)  # of which a rank of four sends 15 GB
PART = (64 / 16 - 1) / 63  # with which 64 ranks are 16 times as fast

NUMBERS = {
    "dp-bytes": gradient_bytes(GRADIENTS, 16) / 1e9,
    "dp-amdahl": amdahl_speedup(256, PART),
    "dp-topk": TopK(0.01).sent_bytes([(10**9,)], 8) / 1e6,
}

MISCONCEPTIONS = {
    "dp-bytes": {
        "Four times the ranks": 15 * 4,
        "gets smaller with more ranks": 15 / 4,
        "very many ranks": 2 * GRADIENTS / 1e9,
        "Those are the gradients": GRADIENTS / 1e9,
        "reduce-scatter alone": gradient_bytes(GRADIENTS, 16) / 2e9,
        "not the gradients": gradient_bytes(15e9, 16) / 1e9,
    },
    "dp-amdahl": {
        "every rank spends": constant_fraction_speedup(256, 1 - 16 / 64),
        "efficiency in percent": amdahl_speedup(256, PART) / 256 * 100,
        "very many ranks": 1 / PART,
        "the step of 64 ranks loses": amdahl_speedup(256, 1 - 16 / 64),
    },
    "dp-topk": {
        "All seven others need it": TopK(0.01).sent_bytes([(10**9,)], 2) / 1e6,
        "One percent of an all-reduce": gradient_bytes(4e9, 8) / 1e8,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_part_that_stays_makes_64_ranks_16_times_as_fast() -> None:
    assert amdahl_speedup(64, PART) == pytest.approx(16)
    stays = PART * amdahl_speedup(64, PART)  # of the step of 64 ranks
    assert stays == pytest.approx(0.75, abs=0.02)  # "about what the step of 64 ranks loses"


def test_the_feedback_on_the_noise_scale_gives_steps_and_samples() -> None:
    training = BatchTradeoff(least_steps=1, least_samples=1)  # a critical batch of 1
    assert training.steps(8) / training.steps(4) == pytest.approx(0.9)
    assert training.samples(8) / training.samples(4) == pytest.approx(1.8)
