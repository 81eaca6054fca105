"""The numbers of the quiz on data parallel, computed."""

from typing import Any

import pytest

from dlsys.data_parallel import (
    BatchTradeoff,
    amdahl_speedup,
    overlap,
)
from dlsys.data_parallel import step_bytes as gradient_bytes
from dlsys.hardware import Link
from dlsys.notebook import quiz
from tests.book.quizzes import contract

GRADIENTS = 15e9 / gradient_bytes(1, 4)  # of which a rank of four sends 15 GB
PART = (64 / 16 - 1) / 63  # with which 64 ranks are 16 times as fast


def exposed(last: float, all_reduce: float = 3.0, buckets: int = 10_000) -> float:
    """Seconds after a last backward pass of `last` seconds, where two ranks send 1 B/s.

    Rounded, as there are very many buckets, and not infinitely many.
    """
    link = Link("no latency", 0.0, 1.0)
    return round(overlap([all_reduce / buckets] * buckets, last, 2, link).exposed_seconds, 2)


NUMBERS = {
    "dp-bytes": gradient_bytes(GRADIENTS, 16) / 1e9,
    "dp-amdahl": amdahl_speedup(256, PART),
    "dp-pieces": exposed(2 / 4),
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
        "every rank spends": 256 * 16 / 64,
        "efficiency in percent": amdahl_speedup(256, PART) / 256 * 100,
        "rounded, or 1/r": round(amdahl_speedup(256, PART), -1),
        "very many ranks": 1 / PART,
        "the step of 64 ranks loses": amdahl_speedup(256, 1 - 16 / 64),
    },
    "dp-pieces": {
        "the old size": exposed(2),
        "gradients are as large": exposed(2) / 4,
        "1 s for each micro-batch": 4 * exposed(2),
        "after each micro-batch": 4 * exposed(2 / 4),
        "something is": exposed(0),
        "Forward of the last": exposed(3 / 4),
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_part_that_stays_makes_64_ranks_16_times_as_fast() -> None:
    assert amdahl_speedup(64, PART) == pytest.approx(16)
    stays = PART * amdahl_speedup(64, PART)  # of the step of 64 ranks
    assert stays == pytest.approx(0.75, abs=0.02)  # "about what the step of 64 ranks loses"


def test_the_options_on_the_critical_batch_are_steps_and_samples_of_a_trade() -> None:
    training = BatchTradeoff(least_steps=1, least_samples=1)  # a critical batch of 1
    for batch, steps, samples in ((4, -10, 80), (1, -25, 50), (1 / 8, -44, 11)):
        assert percent(training.steps(2 * batch) / training.steps(batch)) == steps
        assert percent(training.samples(2 * batch) / training.samples(batch)) == samples
        few = f"{-steps} % fewer steps, and {samples} % more samples."
        assert few in {answer["answer"] for answer in of("past-the-noise")["answers"]}


def percent(ratio: float) -> int:
    """By how many percent something grows to `ratio` times itself."""
    return round(100 * (ratio - 1))


def of(name: str) -> dict[str, Any]:
    """The question of this id."""
    return next(q for q in quiz.show("data_parallel").questions if q["id"] == name)
