"""The exercises on pipeline parallel: their figures are those of the package, and what holds for all."""

import re
from itertools import product

import pytest

from dlsys.pipeline_parallel import (
    Plan,
    gpipe,
    one_f_one_b,
    zero_bubble,
    zero_bubble_h2,
    zero_bubble_v,
)
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_h1_and_h2_are_right() -> None:
    text = model_answer("pipeline_parallel")
    split = (zero_bubble, zero_bubble_h2, zero_bubble_v)
    plain, h1, h2, v = (plan(12, 36).price(1, 2) for plan in (one_f_one_b, *split))
    assert [each.makespan for each in (plain, h1, h2, v)] == [141, 119, 119, 113.5]
    assert h1.busy == h2.busy == (108,) * 12
    assert h1.idle == h2.idle == (11,) * 12
    assert (h1.bubble_of_span, h2.bubble_of_span) == (h1.bubble_fraction, 0)
    assert [max(each.peak_in_flight) for each in (plain, h1, h2, v)] == [12, 12, 23, 2 * 12]
    for shown in (plain, h1, v):
        assert f"{shown.bubble_fraction:.1%}".replace("%", " %") in text
    ends = [(spans[0].start, spans[-1].end) for spans in h2.spans]
    assert ends == [(s, 108 + s) for s in range(12)]  # so the next step fits in 108 later
    assert h1.spans[0][0].start == 0
    assert h1.spans[0][-1].end == 119  # nor can the next step start earlier
    assert "10 x 108 + 11 = 1,091" in text
    assert "10 x 119 = 1,190" in text
    assert sum(zero_bubble_v(12, 36).messages) == 2 * sum(zero_bubble(12, 36).messages)


def test_the_trial_of_the_tail_shows_other_numbers_than_are_asked_for() -> None:
    found = solved("pipeline_parallel")
    plans = [plan(4, 6) for plan in (gpipe, one_f_one_b, zero_bubble)]
    assert found["predicted_ms"] == [plan.price(1, 2).makespan for plan in plans]
    assert found["predicted_held"] == [plan.peak_in_flight[0] for plan in plans]
    smaller = [plan(3, 4) for plan in (gpipe, one_f_one_b, zero_bubble)]
    shown = {plan.price(1, 2).makespan for plan in smaller}
    assert not shown & set(found["predicted_ms"])


def test_the_timeline_of_the_exercises_is_that_of_the_simulated_plan() -> None:
    cells = {
        cell["id"]: "".join(cell["source"])
        for cell in load("solutions", "pipeline_parallel")["cells"]
    }
    drawn = re.findall(r"rank \d \|(.*)", cells["picture-question"])
    spans = one_f_one_b(4, 5).price([1, 1, 2, 1], [1, 1, 2, 1]).spans
    for line, row in zip(drawn, spans, strict=True):
        columns = ["."] * 24
        for (kind, _, k), start, end in row:
            columns[int(start) : int(end)] = [f"{kind}{k}", *["--"] * int(end - start - 1)]
        assert line.split() == columns
    assert (
        one_f_one_b(4, 5).price(1.25, 1.25).makespan == solved("pipeline_parallel")["balanced_ms"]
    )


def test_where_a_slow_machine_costs_most_is_that_of_the_simulated_plans() -> None:
    def step(plan: Plan, slow: int) -> float:
        seconds = [2 if rank == slow else 1 for rank in range(4)]
        return plan.price(seconds, seconds).makespan

    assert [step(one_f_one_b(4, 5), slow) for slow in (0, 1, 3)] == solved("pipeline_parallel")[
        "moved_ms"
    ]
    assert {step(gpipe(4, 5), slow) for slow in range(4)} == {26}  # as its hint says


def test_no_order_with_so_little_room_is_shorter_than_that_of_the_solution() -> None:
    """A micro-batch takes 3 p seconds there and back, and with n in flight one more starts when
    one has come back. So micro-batch j n starts after 3 p j, and the last r end 3 apart."""
    order = solved("pipeline_parallel")["one_f_one_b_order"]
    for p, m, most in product(range(1, 8), (1, 2, 5, 8, 13), range(1, 9)):
        ranks = [[(kind, s, k) for kind, k in order(s, p, m, most)] for s in range(p)]
        plan = Plan("mine", p, m, ranks)
        plan.check(most)
        n = min(most, m)
        rounds = -(-m // n)
        least = max(3 * (m + p - 1), 3 * (p * rounds + m - n * (rounds - 1) - 1))
        assert plan.price(1, 2).makespan == least, (p, m, most)
        if most >= p:
            assert plan.ranks == one_f_one_b(p, m).ranks


def test_the_delays_by_transfers_are_those_of_the_simulated_plans() -> None:
    plans = gpipe(4, 16), one_f_one_b(4, 16)
    later = [p.price(70, 130, 5).makespan - p.price(70, 130).makespan for p in plans]
    assert later == pytest.approx(solved("pipeline_parallel")["delays_ms"])


def test_the_number_of_micro_batches_is_the_best_one_of_a_batch_four_times_as_large() -> None:
    def step(sequences: int, m: int, fixed: float) -> float:
        each = sequences / m + fixed
        return one_f_one_b(16, m).price(each / 3, 2 * each / 3).makespan

    sequences = 960
    fixed = 15 * (sequences / 60) ** 2 / sequences  # with which 60 is the best number
    for batch, best in (
        (sequences, 60),
        (4 * sequences, solved("pipeline_parallel")["micro_batches"]),
    ):
        numbers = {*range(10, 400, 78), *range(best - 3, best + 4)}
        assert min(numbers, key=lambda m: step(batch, m, fixed)) == best
