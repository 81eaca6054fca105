"""The stages that the page shows: what one device computes, the bytes of the price, and what each keeps."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from dlsys import world
from dlsys.zero import price
from dlsys.zero.stages import Stage1, Stage2, Stage3


def units():
    """Three of whole numbers, whose parameters do not divide by the ranks."""
    numbers = torch.Generator().manual_seed(0)
    made = [nn.Sequential(nn.Linear(5, 5), nn.ReLU()) for _ in range(2)] + [nn.Linear(5, 3)]
    for parameter in (p for unit in made for p in unit.parameters()):
        parameter.data = torch.randint(-2, 3, parameter.shape, generator=numbers).float()
    return made


def batch(ranks):
    return torch.randint(-3, 4, (2 * ranks, 5), generator=torch.Generator().manual_seed(1)).float()


def trained(comm, stage, optimizer, x, steps):
    """The weights after some steps of a stage on this rank."""
    parts = units()
    mine = x.chunk(comm.size)[comm.rank]
    model = Stage3(parts, comm) if stage == 3 else nn.Sequential(*parts)
    kind = {1: Stage1, 2: Stage2}.get(stage)
    parameters = model.parameters()
    stepping = kind(parameters, optimizer, comm) if kind else optimizer(parameters)
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = None
        model(mine).square().sum().backward()
        stepping.step()
    if stage < 3:
        return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    whole = [comm.all_gather(shard.detach()) for shard in model.shards]
    sizes = [sum(p.numel() for p in unit.parameters()) for unit in parts]
    return torch.cat([w[:size] for w, size in zip(whole, sizes, strict=True)])


def on_one_device(optimizer, x, steps, ranks):
    """The mean over ranks of the sum over a rank's samples, as the stages have it."""
    model = nn.Sequential(*units())
    stepping = optimizer(model.parameters())
    for _ in range(steps):
        stepping.zero_grad()
        (model(x).square().sum() / ranks).backward()
        stepping.step()
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_step_of_whole_numbers_is_that_of_one_device_to_the_bit(stage, ranks):
    x, optimizer = batch(ranks), partial(SGD, lr=2.0**-10)
    found = world.simulate(trained, ranks, args=(stage, optimizer, x, 1)).results
    expected = on_one_device(optimizer, x, 1, ranks)
    for rank in range(ranks):
        assert torch.equal(found[rank], expected)


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_several_steps_of_adamw_are_those_of_one_device(stage, ranks):
    # A gradient that is nothing but rounding moves its weight with a smaller eps.
    x, optimizer = batch(ranks), partial(AdamW, lr=0.01, eps=1e-2)
    found = world.simulate(trained, ranks, args=(stage, optimizer, x, 4)).results
    expected = on_one_device(optimizer, x, 4, ranks)
    for rank in range(ranks):  # rounding in another order, through four steps
        torch.testing.assert_close(found[rank], expected, rtol=1e-4, atol=1e-5)


def a_step(comm, stage):
    unit = nn.Linear(16, 16, bias=False)  # 1,024 bytes, which divide
    model = (
        Stage3([unit, nn.Linear(16, 16, bias=False)], comm)
        if stage == 3
        else nn.Sequential(unit, nn.Linear(16, 16, bias=False))
    )
    kind = {1: Stage1, 2: Stage2}.get(stage)
    stepping = kind(model.parameters(), AdamW, comm) if kind else AdamW(model.parameters())
    model(torch.ones(1, 16)).sum().backward()
    stepping.step()


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_a_step_sends_what_is_priced(stage, ranks):
    sent = world.simulate(a_step, ranks, args=(stage,)).traffic.sent
    assert sent == [price(stage, 2048, ranks).bytes_per_rank] * ranks


def held(comm, stage):
    """Bytes of weights, gradients and moments that this rank keeps when a backward pass is over."""
    made = [nn.Linear(16, 16, bias=False) for _ in range(2)]
    model = Stage3(made, comm) if stage == 3 else nn.Sequential(*made)
    kind = {1: Stage1, 2: Stage2}.get(stage)
    stepping = kind(model.parameters(), AdamW, comm) if kind else AdamW(model.parameters())
    optimizer = stepping.optimizer if kind else stepping
    for _ in range(2):
        model(torch.ones(1, 16)).sum().backward()
        kept = [*model.parameters(), *(p for g in optimizer.param_groups for p in g["params"])]
        gradients = {id(p): p.grad.nbytes for p in kept if p.grad is not None}
        stepping.step()
    moments = sum(t.nbytes for s in optimizer.state.values() for t in s.values() if t.dim())
    weights = sum(p.nbytes for p in model.parameters())
    return weights, sum(gradients.values()), moments


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_each_stage_keeps_less_than_the_one_before(ranks):
    found = {s: world.simulate(held, ranks, args=(s,)).results[0] for s in (1, 2, 3)}
    size, part = 2048, 2048 // ranks
    assert found[1][0] == found[2][0] == size
    assert found[3] == (part, part, 2 * part)
    assert [kept[2] for kept in found.values()] == [2 * part] * 3
    assert found[2][1] == part


def test_a_unit_that_reads_token_numbers_gets_a_gradient_and_hands_none_back():
    def made():
        torch.manual_seed(0)
        return [nn.Embedding(7, 4), nn.Linear(4, 3)]

    tokens = torch.tensor([[0, 3, 5], [6, 3, 1]])

    def gradients(comm):
        model = Stage3(made(), comm)
        model(tokens.chunk(comm.size)[comm.rank]).square().mean().backward()
        return [shard.grad for shard in model.shards]

    found = world.simulate(gradients, 2).results
    alone = nn.Sequential(*made())
    alone(tokens).square().mean().backward()
    for unit, parts in zip(alone, zip(*found, strict=True), strict=True):
        whole = torch.cat([p.grad.reshape(-1) for p in unit.parameters()])
        torch.testing.assert_close(torch.cat(parts)[: len(whole)], whole)
