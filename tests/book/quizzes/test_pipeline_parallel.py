"""The numbers of the quiz on pipeline parallel, computed."""

from dlsys.pipeline_parallel import (
    bubble_fraction,
    gpipe,
    message_bytes,
    min_microbatches,
    one_f_one_b,
    step_seconds,
)
from tests.book.quizzes import contract

NUMBERS = {
    "bubble-total": gpipe(4, 12).price(1, 2).bubble_fraction * 100,
    "fewest": min_microbatches(8, 0.05),
    "in-flight": one_f_one_b(8, 32).peak_in_flight[5],
    "both-passes": one_f_one_b(2, 8).price(120, 220).makespan,
    "stage-message": message_bytes(1, 4096, 8192) / 1e6,
}

MISCONCEPTIONS = {
    "bubble-total": {"share of the time worked": gpipe(4, 12).price(1, 2).bubble_of_ideal * 100},
    "fewest": {"exactly 5 %": 7 / 0.05 - 7, "exactly 5 % of the time worked": 7 / 0.05},
    "in-flight": {
        "That is GPipe": gpipe(8, 32).peak_in_flight[5],
        "the first stage that holds": one_f_one_b(8, 32).peak_in_flight[2],
    },
    "both-passes": {
        "longer of the two": step_seconds(2, 8, 0, 220),
        "forward pass alone": step_seconds(2, 8, 120, 0),
        "runs both stages": step_seconds(1, 8, 240, 440),
    },
    "stage-message": {
        "four bytes": message_bytes(1, 4096, 8192, itemsize=4) / 1e6,
        "inside of the feed-forward": message_bytes(1, 4096, 4 * 8192) / 1e6,
        "in MiB": message_bytes(1, 4096, 8192) / 2**20,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_feedback_on_the_fewest_micro_batches_gives_the_bubble_they_leave() -> None:
    assert f"{bubble_fraction(8, 134):.2%}" == "4.96%"
    assert bubble_fraction(8, 133) == 0.05
