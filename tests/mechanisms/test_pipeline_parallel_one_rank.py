"""GPipe and 1F1B as a page shows them: one device's gradients, and the plan's order and bytes."""

import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.pipeline_parallel import gpipe, one_f_one_b
from dlsys.pipeline_parallel.one_rank import Rank, run_1f1b, run_gpipe

WIDTH, ROWS = 3, 2  # of a stage, of a micro-batch
PLANS = {run_gpipe: gpipe, run_1f1b: one_f_one_b}
programs = pytest.mark.parametrize("program", PLANS, ids=["gpipe", "1f1b"])


class Watched(Rank):
    """A rank that notes what it does, and how many micro-batches it holds."""

    def __init__(self, comm, stage):
        super().__init__(comm, stage)
        self.done, self.peak = [], 0
        comm.watched = self

    def forward(self, x):
        super().forward(x)
        self.peak = max(self.peak, len(self.held))
        self.done.append("F")

    def backward(self):
        super().backward()
        self.done.append("B")


def stages_of(p: int) -> list[nn.Module]:
    """Layers of whole numbers, so that every order of sums gives the same bits."""
    torch.manual_seed(p)
    made = [nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(p)]
    for parameter in nn.ModuleList(made).parameters():
        nn.init._no_grad_uniform_(parameter, -3, 3)
        parameter.data.round_()
    return made


def micro_batches(m: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(m)
    x = torch.randint(-3, 4, (m, ROWS, WIDTH), generator=draw)
    return list(x.double())


def on_ranks(comm, program, m: int, loss=lambda y: y.square().sum()):
    """This rank's gradients."""
    layer = stages_of(comm.size)[comm.rank]
    last = comm.rank == comm.size - 1
    program(comm, (lambda x: loss(layer(x))) if last else layer, micro_batches(m))
    return [p.grad for p in layer.parameters()]


def alone(p: int, m: int) -> list[list[torch.Tensor]]:
    """The gradients of one device that accumulates, by stage."""
    layers = stages_of(p)
    for x in micro_batches(m):
        nn.Sequential(*layers)(x).square().sum().backward()
    return [[p.grad for p in layer.parameters()] for layer in layers]


@programs
@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_ranks_have_the_gradients_of_one_device_and_do_what_is_planned(monkeypatch, program, p, m):
    monkeypatch.setattr("dlsys.pipeline_parallel.one_rank.Rank", Watched)
    seen = {}

    def watched(comm):
        gradients = on_ranks(comm, program, m)
        seen[comm.rank] = comm.watched
        return gradients

    run, plan = world.simulate(watched, p), PLANS[program](p, m)
    for came, right in zip(run.results, alone(p, m), strict=True):
        assert all(map(torch.equal, came, right))
    assert [[a.kind for a in rank] for rank in plan.ranks] == [seen[r].done for r in range(p)]
    assert list(plan.peak_in_flight) == [seen[r].peak for r in range(p)]
    assert run.traffic.sent == [8 * ROWS * WIDTH * n for n in plan.messages]


@programs
def test_the_same_program_runs_on_processes(program):
    came = world.launch(on_ranks, 2, args=(program, 3)).results
    for mine, right in zip(came, alone(2, 3), strict=True):
        assert all(map(torch.equal, mine, right))
