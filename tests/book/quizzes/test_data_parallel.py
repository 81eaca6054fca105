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

NUMBERS = {
    "dp-bytes": gradient_bytes(8e9, 32) / 1e9,
    "dp-amdahl": amdahl_speedup(256, 0.15),
    "dp-topk": TopK(0.01).sent_bytes([(10**9,)], 8) / 1e6,
}

MISCONCEPTIONS = {
    "dp-bytes": {
        "reduce-scatter alone": gradient_bytes(8e9, 32) / 2e9,
        "over all ranks": 32 * gradient_bytes(8e9, 32) / 1e9,
        "What a rank receives": 2 * gradient_bytes(8e9, 32) / 1e9,
    },
    "dp-amdahl": {
        "15 % of its own step": constant_fraction_speedup(256, 0.15),
        "efficiency in percent": amdahl_speedup(256, 0.15) / 256 * 100,
        "very many ranks": 1 / 0.15,
    },
    "dp-topk": {
        "All seven others need it": TopK(0.01).sent_bytes([(10**9,)], 2) / 1e6,
        "One percent of an all-reduce": gradient_bytes(4e9, 8) / 1e8,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_the_noise_scale_gives_steps_and_samples() -> None:
    training = BatchTradeoff(least_steps=1, least_samples=1)  # a critical batch of 1
    assert training.steps(8) / training.steps(4) == pytest.approx(0.9)
    assert training.samples(8) / training.samples(4) == pytest.approx(1.8)
