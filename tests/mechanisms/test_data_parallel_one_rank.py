"""The ladder that the page shows: one device's gradients, the bytes of the price, and each rung faster."""

from functools import partial

import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.data_parallel import DataParallel, buckets, step_bytes
from dlsys.data_parallel.one_rank import (
    Overlapped,
    average_buckets,
    average_each,
    into_buckets,
)
from dlsys.hardware import Device, Link
from dlsys.model import GPT, SMALL

BUCKET = 100  # bytes: the second and third layer share one
WAYS = {
    "each": lambda comm, model: partial(average_each, comm, model),
    "buckets": lambda comm, model: partial(average_buckets, comm, model, BUCKET),
    "overlapped": lambda comm, model: Overlapped(comm, model, BUCKET).finish,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
several = pytest.mark.parametrize("ranks", [1, 2, 4])


def model() -> nn.Module:
    """Of whole numbers, so that every order of sums gives the same bits."""
    draw = torch.Generator().manual_seed(0)
    made = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2))
    for parameter in made.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape, generator=draw).float()
    return made


def batch() -> torch.Tensor:
    return torch.randint(-3, 4, (8, 5), generator=torch.Generator().manual_seed(1)).float()


def on_ranks(comm, way):
    made, mine = model(), batch().chunk(comm.size)[comm.rank]
    finish = way(comm, made)
    (made(mine).square().sum() * comm.size).backward()
    finish()
    return [p.grad for p in made.parameters()]


def alone() -> list[torch.Tensor]:
    made = model()
    made(batch()).square().sum().backward()
    return [p.grad for p in made.parameters()]


@ways
@several
def test_each_rung_gives_every_rank_what_one_device_computes(way, ranks):
    for found in world.simulate(on_ranks, ranks, args=(way,)).results:
        assert all(map(torch.equal, found, alone()))


@several
def test_the_last_of_several_micro_batches_sends_the_sum(ranks):
    def accumulated(comm):
        made, parts = model(), batch().chunk(comm.size)[comm.rank].chunk(2)
        overlapped = Overlapped(comm, made, BUCKET)
        for part in parts:
            overlapped.syncs = part is parts[-1]
            (made(part).square().sum() * comm.size).backward()
        overlapped.finish()
        return [p.grad for p in made.parameters()]

    accumulating = world.simulate(accumulated, ranks)
    for found in accumulating.results:
        assert all(map(torch.equal, found, alone()))
    at_once = world.simulate(on_ranks, ranks, args=(WAYS["overlapped"],))
    assert accumulating.traffic.nbytes == at_once.traffic.nbytes


@several
def test_what_grew_out_of_it_gives_the_same_bits_and_sends_the_same(ranks):
    def grown(comm):
        made = DataParallel(model(), comm, BUCKET)
        (made(batch().chunk(comm.size)[comm.rank]).square().sum() * comm.size).backward()
        return [p.grad for p in made.parameters()]

    shown = world.simulate(on_ranks, ranks, args=(WAYS["overlapped"],))
    other = world.simulate(grown, ranks)
    for found, same in zip(shown.results, other.results, strict=True):
        assert all(map(torch.equal, found, same))
    reduced = other.traffic.by_kind().get("all_reduce", 0)
    assert shown.traffic.by_kind().get("all_reduce", 0) == reduced


def test_buckets_are_those_of_the_plan():
    gpt = GPT(SMALL)
    names = {id(p): name for name, p in gpt.named_parameters()}
    found = [[names[id(p)] for p in bucket] for bucket in into_buckets(gpt, 200e3)]
    plan = buckets({name: p.nbytes for name, p in gpt.named_parameters()}, bucket_bytes=200e3)
    assert found == [list(bucket.names) for bucket in plan.buckets]


def test_every_way_sends_the_bytes_of_the_price_and_overlap_is_the_fastest():
    slow = Device("slow", {"fp32": 1e6}, memory=1e9, memory_bandwidth=1e30)
    runs = [
        world.simulate(on_ranks, 4, args=(way,), device=slow, link=Link("network", 1e-4, 1e6, ""))
        for way in WAYS.values()
    ]
    nbytes = sum(p.nbytes for p in model().parameters())
    for run in runs:  # parts of a ring are whole numbers of elements
        assert run.traffic.nbytes == pytest.approx(4 * step_bytes(nbytes, 4), abs=1)
    each, in_buckets, overlapped = (run.seconds for run in runs)
    assert each > in_buckets > overlapped


def test_a_parameter_without_a_gradient_is_no_silent_mistake():
    def unused(comm):
        made = model()
        overlapped = Overlapped(comm, made, BUCKET)
        made[:3](batch()).sum().backward()
        overlapped.finish()

    with pytest.raises(ValueError, match="zip"):
        world.simulate(unused, 2)
