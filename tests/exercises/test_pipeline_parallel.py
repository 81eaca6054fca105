"""The exercises on pipeline parallel: their figures are those of the package, and what holds for all."""

import re

import pytest

from dlsys.pipeline_parallel import gpipe, interleaved, one_f_one_b, zero_bubble
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_the_bubble_of_1f1b_are_right() -> None:
    text = model_answer("pipeline_parallel")
    before, after, more = (
        plan.price(1, 2) for plan in (gpipe(12, 36), one_f_one_b(12, 36), one_f_one_b(12, 108))
    )
    assert before.makespan == after.makespan == 141
    assert (after.busy[0], after.idle[0]) == (108, 33)
    assert before.bubble_fraction == after.bubble_fraction == pytest.approx(11 / 47)
    assert after.bubble_of_ideal == pytest.approx(11 / 36)
    assert (max(before.peak_in_flight), min(before.peak_in_flight)) == (36, 36)
    assert (max(after.peak_in_flight), min(after.peak_in_flight)) == (12, 1)
    assert max(more.peak_in_flight) == 12
    halves, split = interleaved(12, 36, 2), zero_bubble(12, 36)
    assert sum(halves.messages) / 2 == pytest.approx(sum(gpipe(12, 36).messages), rel=0.05)
    assert max(split.peak_in_flight) == 12
    assert min(split.peak_in_flight) > min(after.peak_in_flight)
    for shown in (after, more, halves.price(1, 2), split.price(1, 2)):
        assert f"{shown.bubble_fraction:.1%}".replace("%", " %") in text
    assert "141 units" in text


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


def test_the_delays_by_transfers_are_those_of_the_simulated_plans() -> None:
    plans = gpipe(4, 16), one_f_one_b(4, 16)
    later = [p.price(70, 130, 5).makespan - p.price(70, 130).makespan for p in plans]
    assert later == pytest.approx(solved("pipeline_parallel")["delays_ms"])
