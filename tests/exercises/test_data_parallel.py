"""The exercises on data parallel: their figures are those of the package, and what holds for all."""

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from dlsys import world
from dlsys.data_parallel import (
    DataParallel,
    buckets,
    noise_scale,
    overlap,
)
from dlsys.hardware import Link
from dlsys.world import Communicator
from tests.exercises import contract
from tests.exercises.notebooks import code_cells, load, model_answer, solved
from tests.exercises.wrong_answers.data_parallel import SIZES


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_eight_gpus_are_right() -> None:
    text, link, many = model_answer("data_parallel"), Link("no latency", 0.0, 1.0), 10_000
    assert "5.6 times with 30 %, and 4 times with 50 %" in text
    for r, best in ((0.3, 8.0), (0.5, 6.0)):
        assert (1 - r) * 8 == pytest.approx({0.3: 5.6, 0.5: 4}[r])
        each = r / (1 - r) / (2 * 7 / 8) / many  # bytes of a bucket, for one second of compute
        step = overlap([each] * many, 2 / 3, 8, link, forward_seconds=1 / 3)
        assert 8 / step.seconds == pytest.approx(best, rel=1e-3)
    assert f"{0.3 / 0.7:.2f} of the time of compute" in text
    assert "1.33 times compute at the least, which makes 6.0 times at best" in text
    assert 8 / (1 + 1 / 4) == 6.4
    assert "to 20 % of the step, which makes 6.4 times" in text


def test_a_loop_that_sums_in_place_makes_the_gradient_as_long_as_the_exercises_say() -> None:
    def loop(comm: Communicator) -> float:
        weight = torch.zeros(1, requires_grad=True)
        for _ in range(3):
            ((6 * weight).mean() / 3).backward()
            comm.all_reduce(weight.grad, out=weight.grad)
        return weight.grad.item() / 4 / 6

    answer = solved("data_parallel")["times_as_long"]
    assert world.simulate(loop, 4).results == pytest.approx([answer] * 4)


def test_the_exercises_cut_buckets_and_hide_them_as_the_package_does() -> None:
    answers, random = solved("data_parallel"), Random(5)
    link = Link("no latency", 0.0, 1.0)
    for _ in range(20):
        sizes = [4 * random.randint(1, 9) for _ in range(12)]
        plan = buckets({str(i): size for i, size in enumerate(sizes)}, 40)
        cut = [[int(name) for name in bucket.names] for bucket in plan.buckets]
        assert answers["cut_buckets"](sizes, 40, 40) == cut
        backward = [random.randint(1, 9) for _ in cut]
        seconds = [bucket.nbytes for bucket in plan.buckets]  # two ranks at 1 B/s send S
        step = plan.price(2, link, sum(backward), shares=backward)
        assert answers["exposed"](backward, seconds) == pytest.approx(step.exposed_seconds)


def test_the_timeline_of_the_exercises_is_that_of_the_simulated_buckets() -> None:
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in load("solutions", "data_parallel")["cells"]
    }
    drawn = re.findall(r"(?:backward|network ) \|(.*)", cells["timeline-question"])
    step = overlap([2] * 4, 12, 2, Link("no latency", 0.0, 1.0))
    for line, spans in zip(drawn, (step.compute[1:], step.network), strict=True):
        columns = [".."] * 14
        for bucket, start, end in spans:
            columns[int(start) : int(end)] = [f"b{bucket}", *["--"] * int(end - start - 1)]
        assert line.split() == columns


class Layer(torch.autograd.Function):
    """x times the sum of a weight, whose backward pass takes 3 ms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        ctx.save_for_backward(x, weight)
        return x * weight.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        ctx.comm.compute(3e-3)
        (gradient,) = gradients
        return gradient * weight.sum(), (gradient * x).sum() * torch.ones_like(weight), None


class Layers(torch.nn.Module):
    """Weights that are registered by letter, and used in an order of their own."""

    def __init__(self, registered: str, used: str, comm: Communicator) -> None:
        super().__init__()
        self.used, self.comm = used, comm
        for name in registered:
            self.register_parameter(name, torch.nn.Parameter(torch.ones(250)))

    def forward(self, x: Tensor) -> Tensor:
        for name in self.used:
            x = Layer.apply(x, self.get_parameter(name), self.comm)
        return x


def ms_of(registered: str, used: tuple[str, str], passes: int = 1, bucket_ms: float = 2) -> float:
    """Milliseconds of a step of DataParallel: weights by letter, and those used on two ranks."""

    def step(comm: Communicator, passes: int) -> None:
        module = Layers(registered, used[comm.rank], comm)
        model = DataParallel(module, bucket_bytes=1000)
        for _ in range(passes):
            model(torch.ones(1, requires_grad=True)).backward()

    wire = Link("a bucket of 1,000 bytes in bucket_ms", 0.0, 1e6 / bucket_ms)
    before, after = (world.simulate(step, 2, args=(n,), link=wire).seconds for n in (0, passes))
    return 1e3 * (after - before)


def test_data_parallel_waits_as_long_as_the_exercises_say() -> None:
    answers, four = solved("data_parallel"), ("abcd", "abcd")
    assert ms_of("abcd", four) == pytest.approx(12 + 2)
    assert ms_of("abcd", four, bucket_ms=4) == pytest.approx(12 + answers["slower"])
    assert ms_of("abc", ("abca", "abca")) == pytest.approx(12 + answers["shared_first"])
    assert ms_of("bcd", ("dbcd", "dbcd")) == pytest.approx(12 + answers["shared_last"])
    assert ms_of("abcd", ("abcd", "abc")) == pytest.approx(12 + answers["skipped"])
    assert ms_of("abcd", four, passes=2) == pytest.approx(24 + answers["synced"])


def parts_of(samples: int, room: int) -> Iterator[list[int]]:
    """The ways to go through samples in micro-batches, with room for so many in each."""
    if not samples:
        yield []
    for size in range(1, min(samples, room) + 1):
        yield from ([size, *rest] for rest in parts_of(samples - size, room))


def test_no_other_micro_batches_end_earlier_than_those_of_the_exercises() -> None:
    cells = {cell.id: cell.source for cell in code_cells(load("solutions", "data_parallel"))}
    answers, took = dict(solved("data_parallel")), {}
    for sizes in parts_of(7, 3):
        assert cells["step"].count(SIZES) == 1
        exec(cells["step"].replace(SIZES, f"sizes = {sizes}"), answers)
        took[tuple(sizes)] = answers["on_layers"](answers["step_gradients"], "7 7", 3, 3, 6).seconds
    assert took[1, 3, 3] == pytest.approx(1.168) == pytest.approx(min(took.values()))
    full_last = {seconds for sizes, seconds in took.items() if sizes[-1] == 3}
    assert max(full_last) == pytest.approx(1.168)
    assert min(seconds for sizes, seconds in took.items() if sizes[-1] < 3) > 1.2


def test_one_design_of_a_data_parallel_run_is_the_cheapest_that_is_done_in_time() -> None:
    answers = solved("data_parallel")
    fitting = [d for d in answers["every"] if answers["hours"](d) <= 9]
    cheapest, next_best = sorted(map(answers["dollars"], fitting))[:2]
    assert cheapest == answers["dollars"](answers["design"])
    assert next_best > 1.05 * cheapest


def test_the_noise_scale_of_the_trial_does_not_stand_in_the_model_of_the_runs() -> None:
    """The bank has it that the critical batch of the runs, which stands open, is refused for it."""
    answers = solved("data_parallel")
    measured = noise_scale(8, 385.5, 32, 97.5).simple
    assert measured == answers["noise_scale"]
    assert 0.05 < abs(answers["TRADEOFF"].critical_batch / measured - 1) < 0.25
