"""The numbers of the quiz on input pipelines, computed."""

import itertools

import pytest

from dlsys.input_pipeline import (
    InputPipeline,
    ShuffleBuffer,
    Stage,
    exponential_utilization,
    run_mates,
    simulate,
    workers_needed,
)
from tests.book.quizzes import contract

WORKER, STEP = Stage("load", 7, 80), 70
LOADER = Stage("load", 0.0, 1.0, workers=6, prefetch=3, sample_bytes=0.5)
HELD = simulate(InputPipeline((LOADER, Stage("step", 0.0, 100.0))), 60).peak_bytes
STAGES = (Stage("read", 30, workers=1), Stage("transform", 200, workers=4), Stage("transfer", 10))
FIRST = simulate(InputPipeline((*STAGES, Stage("step", 100))), 9).first_batch_seconds


def ahead(utilization: float) -> int:
    """The least number of batches ahead with which a balanced, varying step is used so much."""
    return next(
        q for q in itertools.count(1) if exponential_utilization(1, q) >= utilization - 1e-9
    )


NUMBERS = {
    "input_pipeline-workers": workers_needed(WORKER.seconds(40), STEP),
    "input_pipeline-memory": HELD,
    "input_pipeline-first": FIRST,
    "input_pipeline-depth": ahead(0.95),
    "input_pipeline-mates": run_mates(2000, 20_000, 128),
}

MISCONCEPTIONS = {
    "input_pipeline-workers": {
        "every 72 ms": WORKER.seconds(40) // STEP,
        "left out": workers_needed(7 * 40, STEP),
        "come whole": WORKER.seconds(40) / STEP,
        "Upside down": STEP / WORKER.seconds(40),
        "for one sample": WORKER.seconds(1) / STEP,
    },
    "input_pipeline-memory": {
        "One more is being used": 6 * 3 * 0.5,
        "how many workers": 3 * 0.5,
        "what is the prefetch factor": 6 * 0.5,
        "ahead already": (6 * 3 + 6) * 0.5,
        "or multiply": (6 + 3) * 0.5,
    },
    "input_pipeline-first": {
        "Do they share one": 30 + 200 / 4 + 10,
        "When does it begin": 30 + 200 + 10 + 100,
        "slowest stage decides": 200,
        "in the long run": 200 / 4,
        "do not make it later": 30 + 4 * 200 + 10,
    },
    "input_pipeline-depth": {
        "a length, too": ahead(0.95) + 1,
        "So many lengths": 1 / 0.05,
        "enough for 90 %": ahead(0.90),
        "Without variation": 1,
        "three quarters": ahead(0.75),
    },
    "input_pipeline-mates": {
        "Twice too many": 127 * 2000 / 20_000,
        "for one other": 2000 / 40_000,
        "without a buffer": 127,
        "Half too few": 127 * 2000 / 80_000,
        "fit into the buffer": 20_000 / 2000,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_stage_that_is_busy_is_the_one_to_speed_up():
    plan = InputPipeline(
        (
            Stage("read", 3, prefetch=4),
            Stage("transform", 10, prefetch=2),
            Stage("transfer", 0.5),
            Stage("step", 6),
        )
    )
    timeline = simulate(plan, 1000)
    shares = {n: [part / timeline.seconds for part in timeline.spent(n)] for n in plan.seconds()}
    assert shares["read"][:3] == pytest.approx([0.3, 0, 0.7], abs=0.01)
    assert shares["transform"][0] > 0.99
    assert shares["transfer"][:2] == pytest.approx([0.05, 0.95], abs=0.01)
    assert shares["step"][:2] == pytest.approx([0.6, 0.4], abs=0.01)
    faster = {n: simulate(plan.sped_up(n), 1000).samples_per_second for n in plan.seconds()}
    assert max(faster, key=faster.__getitem__) == "transform"
    assert faster["transform"] / timeline.samples_per_second == pytest.approx(1.67, abs=0.01)
    for other in ("read", "transfer", "step"):
        assert faster[other] == pytest.approx(timeline.samples_per_second)


def test_held_samples_generator_and_place_are_enough_to_go_on():
    buffer = ShuffleBuffer(5, seed=2)
    walk = buffer.shuffle(range(40))
    for _ in range(11):
        next(walk)
    state = buffer.state_dict()
    for left_out in state:
        other = ShuffleBuffer(5, seed=9)
        other.load_state_dict(other.state_dict() | {k: state[k] for k in state if k != left_out})
        assert [*other.shuffle(range(other.taken, 40))] != [*whole(state)]
    assert [*whole(state)] == list(walk)


def whole(state):
    """What a buffer with this state goes on with."""
    other = ShuffleBuffer(5)
    other.load_state_dict(state)
    return other.shuffle(range(other.taken, 40))
