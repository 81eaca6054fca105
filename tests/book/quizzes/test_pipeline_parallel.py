"""The numbers of the quiz on pipeline parallel, computed."""

import pytest
import torch

from dlsys.pipeline_parallel import (
    bubble_fraction,
    gpipe,
    interleaved,
    message_bytes,
    min_microbatches,
    one_f_one_b,
)
from tests.book.quizzes import contract

GB_OF_STAGE = 48 // 8 * 0.5
# What a hundred micro-batches more add to a step, when the pipeline is full.
SHORT, LONG = (one_f_one_b(4, m).price([9, 9, 12, 9], [21, 21, 28, 21]) for m in (100, 200))
ROUNDS = LONG.makespan - SHORT.makespan
WAITED = [long - short for long, short in zip(LONG.idle, SHORT.idle, strict=True)]
SLOW = sum(WAITED) / 4 / ROUNDS

NUMBERS = {
    "larger-batch": gpipe(4, 2 * 12).price(1, 2).bubble_fraction * 100,
    "fewest": min_microbatches(4, 0.025, v=3),
    "in-flight": one_f_one_b(8, 32).peak_in_flight[5] * GB_OF_STAGE,
    "slow-stage": SLOW * 100,
    "stage-message": message_bytes(1, 4096, 8192) / 1e6,
}

MISCONCEPTIONS = {
    "larger-batch": {
        "share of the time worked": gpipe(4, 24).price(1, 2).bubble_of_ideal * 100,
        "half as many": gpipe(4, 6).price(1, 2).bubble_fraction * 100,
        "the work does not": gpipe(4, 12).price(1, 2).bubble_fraction * 100,
        "not p.": 4 / (24 + 4) * 100,
    },
    "fewest": {
        "exactly 2.5 %": min_microbatches(4, 0.025, v=3) - 1,
        "one stage on each rank": min_microbatches(4, 0.025),
        "of the time worked": 3 / 0.025 / 3 + 1,
        "not p.": (4 / 0.025 - 4) / 3 + 1,
        "Twelve stages": min_microbatches(12, 0.025),
    },
    "in-flight": {
        "That is GPipe": gpipe(8, 32).peak_in_flight[5] * GB_OF_STAGE,
        "the first stage. A later": one_f_one_b(8, 32).peak_in_flight[0] * GB_OF_STAGE,
        "the sixth": one_f_one_b(8, 32).peak_in_flight[4] * GB_OF_STAGE,
        "the first stage that holds": one_f_one_b(8, 32).peak_in_flight[2] * GB_OF_STAGE,
        "an eighth of the layers": one_f_one_b(8, 32).peak_in_flight[5] * 48 * 0.5,
        "one micro-batch. How": GB_OF_STAGE,
    },
    "slow-stage": {
        "fills and drains": WAITED[2],
        "three fast ranks": WAITED[0] / ROUNDS * 100,
        "of the time worked": SLOW / (1 - SLOW) * 100,
        "takes longer": (40 / 30 - 1) * 100,
        "they work": 100 - SLOW * 100,
        "The digits": SLOW,
    },
    "stage-message": {
        "four bytes": message_bytes(1, 4096, 8192, itemsize=4) / 1e6,
        "inside of the feed-forward": message_bytes(1, 4096, 4 * 8192) / 1e6,
        "in MiB": message_bytes(1, 4096, 8192) / 2**20,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_the_fewest_micro_batches_gives_the_bubble_they_leave() -> None:
    cost = interleaved(4, 40, 3).price(1, 2)
    assert f"{cost.bubble_fraction:.2%}" == f"{bubble_fraction(4, 40, 3):.2%}" == "2.44%"
    assert bubble_fraction(4, 39, 3) == 0.025


def test_the_gradients_of_undivided_means_add_up_to_so_many_times_that_of_the_mean() -> None:
    torch.manual_seed(0)
    weight, x = torch.zeros(5, requires_grad=True), torch.randn(64, 5)
    ((x @ weight + 1).square().mean()).backward()
    whole = weight.grad.norm()
    weight.grad = None
    for part in x.chunk(16):
        (part @ weight + 1).square().mean().backward()
    assert weight.grad.norm() / whole * 0.5 == pytest.approx(8, rel=1e-5)


def test_1f1b_holds_no_more_of_a_longer_step_and_gpipe_all_of_it() -> None:
    assert max(gpipe(4, 8).peak_in_flight) == 8
    assert [max(one_f_one_b(4, m).peak_in_flight) for m in (8, 16, 128)] == [4, 4, 4]
    assert gpipe(4, 8).price(1, 2).bubble_fraction == 3 / 11
