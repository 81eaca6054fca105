"""The exercises on data parallel: their figures are those of the package, and what holds for all."""

import re
from random import Random

import pytest

from dlsys.data_parallel import buckets, constant_fraction_speedup, noise_scale, overlap
from dlsys.hardware import Link
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_eight_gpus_are_right() -> None:
    text, link, many = model_answer("data_parallel"), Link("no latency", 0.0, 1.0), 10_000
    assert "5.6 times with 30 %, and 4 times with 50 %" in text
    for r, best in ((0.3, 8.0), (0.5, 6.0)):
        assert constant_fraction_speedup(8, r) == pytest.approx({0.3: 5.6, 0.5: 4}[r])
        each = r / (1 - r) / (2 * 7 / 8) / many  # bytes of a bucket, for one second of compute
        step = overlap([each] * many, 2 / 3, 8, link, forward_seconds=1 / 3)
        assert 8 / step.seconds == pytest.approx(best, rel=1e-3)
    assert f"{0.3 / 0.7:.2f} of the time of compute" in text
    assert "1.33 times compute at the least, which makes 6.0 times at best" in text
    assert constant_fraction_speedup(8, 1 / (4 + 1)) == 6.4
    assert "to 20 % of the step, which makes 6.4 times" in text


def test_the_exercises_cut_buckets_and_hide_them_as_the_package_does() -> None:
    answers, random = solved("data_parallel"), Random(5)
    link = Link("no latency", 0.0, 1.0)
    for _ in range(20):
        sizes = [4 * random.randint(1, 9) for _ in range(12)]
        plan = buckets([(str(i), size) for i, size in enumerate(sizes)], 40)
        cut = [[int(name) for name in bucket.names] for bucket in plan.buckets]
        assert answers["cut_buckets"](sizes, 40, 40) == cut
        backward = [random.randint(1, 9) for _ in cut]
        seconds = [bucket.nbytes for bucket in plan.buckets]  # two ranks at 1 B/s send S
        step = overlap(plan, sum(backward), 2, link, shares=backward)
        assert answers["exposed"](backward, seconds) == pytest.approx(step.exposed_seconds)


def test_the_timeline_of_the_exercises_is_that_of_the_simulated_buckets() -> None:
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in load("solutions", "data_parallel")["cells"]
    }
    drawn = re.findall(r"(?:backward|network ) \|(.*)", cells["timeline-question"])
    step = overlap([4, 3, 4, 2], 12, 2, Link("no latency", 0.0, 1.0), shares=[2, 5, 2, 3])
    for line, spans in zip(drawn, (step.backward, step.network), strict=True):
        columns = [".."] * 16
        for bucket, start, end in spans:
            columns[int(start) : int(end)] = [f"b{bucket}", *["--"] * int(end - start - 1)]
        assert line.split() == columns
    assert step.hidden_fraction == pytest.approx(solved("data_parallel")["hidden_fraction"])


def test_one_design_of_a_data_parallel_run_is_the_cheapest_that_is_done_in_time() -> None:
    answers = solved("data_parallel")
    fitting = [d for d in answers["every"] if answers["hours"](d) <= 9]
    cheapest, next_best = sorted(map(answers["dollars"], fitting))[:2]
    assert cheapest == answers["dollars"](answers["design"])
    assert next_best > 1.05 * cheapest


def test_the_noise_scale_of_the_trial_does_not_stand_in_the_model_of_the_runs() -> None:
    """The bank has it that the critical batch of the runs, which stands open, is refused for it."""
    answers = solved("data_parallel")
    measured = noise_scale(8, 385.5, 512, 7.5).simple
    assert measured == answers["noise_scale"]
    assert 0.05 < abs(answers["TRADEOFF"].critical_batch / measured - 1) < 0.25
