"""The loss scaler: torch's own, step by step; and one decision for all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from dlsys import world
from dlsys.precision import FP16, LossScaler, round_to

NAN, INF = math.nan, math.inf
Make = Callable[..., torch.optim.Optimizer]


def models(make: Make) -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    """Two layers, each with an optimizer of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    return model, [make(layer.parameters(), lr=0.01) for layer in model]


def backward(scaler, model: nn.Module, step: int, bad: float | None) -> None:
    """A pass on the data of this step, with `bad` in one gradient, of either layer in turn."""
    model.zero_grad()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
    scaler.scale(model(x).square().mean()).backward()
    if bad is not None:
        model[step % 2].weight.grad[0, 0] = bad


def holding(*gradients: torch.Tensor | None) -> torch.optim.Optimizer:
    """SGD on parameters of ones that have these gradients."""
    parameters = [nn.Parameter(torch.ones(2)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.SGD(parameters, lr=1.0)


def first(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    return optimizer.param_groups[0]["params"][0]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("factor", [2.0**16, 1.0, 3.0, 2.0**126])
def test_every_step_is_that_of_torchs_grad_scaler(make, factor):
    theirs = GradScaler("cpu", init_scale=factor, growth_interval=3)
    ours = LossScaler(factor, growth_interval=3)
    (model, optimizers), (copy, copies) = models(make), models(make)
    skipped = 0
    for step in range(20):
        bad = {4: INF, 5: NAN, 12: -INF}.get(step)
        for scaler, net, steppers in ((ours, model, optimizers), (theirs, copy, copies)):
            backward(scaler, net, step, bad)
            if step % 2:
                scaler.unscale_(steppers[0])
            for each in steppers:
                scaler.step(each)
            scaler.update()
        assert ours.factor == theirs.get_scale()
        for mine, other in zip(model.parameters(), copy.parameters(), strict=True):
            assert torch.equal(mine, other)
            assert torch.equal(mine.grad, other.grad) or mine.grad.isnan().any()
        skipped += sum(
            not all(p.grad.isfinite().all() for p in each.param_groups[0]["params"])
            for each in optimizers
        )
    assert ours.skipped == skipped >= 3


def test_the_scale_grows_no_further_than_fp32_and_falls_by_half():
    ours = LossScaler(2.0**127, growth_interval=1)
    for gradient, expected in ((0.0, 2.0**127), (INF, 2.0**126), (0.0, 2.0**127)):
        ours.step(holding(torch.full((2,), gradient)))
        ours.update()
        assert ours.factor == expected


def test_the_scale_grows_only_after_as_many_good_steps_in_a_row():
    ours = LossScaler(1.0, growth_interval=3)
    factors = []
    for gradient in (0.0, 0.0, INF, 0.0, 0.0, 0.0, 0.0):
        ours.step(holding(torch.full((2,), gradient)))
        ours.update()
        factors.append(ours.factor)
    assert factors == [1, 1, 0.5, 0.5, 0.5, 1, 1]


def test_a_static_scale_stays_and_still_skips():
    ours = LossScaler(1024.0, dynamic=False, growth_interval=1)
    for gradient, left in ((1024.0, 0.0), (INF, 1.0)):
        optimizer = holding(torch.full((2,), gradient))
        ours.step(optimizer)
        ours.update()
        assert first(optimizer).tolist() == [left, left]
        assert ours.factor == 1024
    assert ours.skipped == 1


def test_a_gradient_that_fp16_flushes_to_zero_survives_scaled():
    gradient = torch.tensor([2e-8, -1e-8])
    scaler = LossScaler()
    assert round_to(gradient, FP16).tolist() == [0, 0]
    kept = round_to(scaler.scale(gradient), FP16) / scaler.factor
    assert kept.tolist() == pytest.approx(gradient.tolist(), rel=FP16.epsilon / 2)


def test_clipping_an_infinite_gradient_gives_nan_and_no_step_is_what_helps():
    optimizer = holding(torch.tensor([INF, 1.0]))
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    assert first(optimizer).grad.isnan().any()
    LossScaler().step(optimizer)
    assert first(optimizer).tolist() == [1, 1]


def test_gradients_are_clipped_right_only_after_they_are_unscaled():
    def moved(unscale: bool) -> float:
        scaler, optimizer = LossScaler(), holding(torch.tensor([0.3, 0.4]) * 2**16)
        if unscale:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        scaler.step(optimizer)
        return float((first(optimizer) - 1).detach().norm())

    assert moved(unscale=True) == pytest.approx(0.5)
    assert moved(unscale=False) == pytest.approx(2**-16, rel=0.01)


def test_unscaling_twice_is_refused_and_changes_nothing():
    scaler, optimizer = LossScaler(), holding(torch.full((2,), 2.0**16))
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"its gradients would be divided by 65536 twice\."):
        scaler.unscale_(optimizer)
    assert first(optimizer).grad.tolist() == [1, 1]
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step was called on this optimizer before"):
        scaler.step(optimizer)
    assert first(optimizer).tolist() == [0, 0]
    scaler.update()
    scaler.unscale_(optimizer)


def test_an_update_without_a_step_is_refused():
    with pytest.raises(RuntimeError, match="update was called, but neither step nor unscale_"):
        LossScaler().update()


def test_gradients_in_fp16_are_refused_untouched():
    parameter = nn.Parameter(torch.ones(2, dtype=torch.float16))
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(ValueError, match=r"A gradient is of torch.float16; it must be copied to"):
        LossScaler().unscale_(torch.optim.SGD([parameter], lr=1.0))
    assert parameter.grad.tolist() == [1, 1]


def test_a_step_before_any_backward_is_refused():
    with pytest.raises(ValueError, match="optimizer is one without gradients; it must be called"):
        LossScaler().step(holding(None, None))


def test_no_scale_helps_against_a_nan_of_the_forward_pass():
    scaler = LossScaler(2.0**-125)
    scaler.step(holding(torch.tensor([NAN, 0.0])))
    scaler.update()
    scaler.step(holding(torch.tensor([NAN, 0.0])))
    with pytest.raises(RuntimeError, match="however small the loss is made"):
        scaler.update()


def test_sparse_gradients_are_unscaled_too():
    scaler = LossScaler(8.0)
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    before = table.weight.detach().clone()
    scaler.scale(table(torch.tensor([1, 1])).sum()).backward()
    scaler.step(optimizer)
    assert torch.allclose(before - table.weight, torch.tensor([0.0, 2, 0, 0])[:, None].expand(4, 2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_scaled_loss_is_torchs_and_no_infinity(dtype):
    loss = torch.tensor(2.5, dtype=dtype, requires_grad=True)
    ours, theirs = LossScaler().scale(loss), GradScaler("cpu", init_scale=2.0**16).scale(loss)
    assert torch.equal(ours, theirs)
    assert ours.dtype == theirs.dtype
    ours.backward()
    assert loss.grad.isfinite() or dtype == torch.float16


def test_its_state_is_torchs_and_goes_on_where_it_was():
    ours, theirs = LossScaler(growth_interval=4), GradScaler("cpu")
    for gradient in (INF, 0.0, 0.0, 0.0):
        ours.step(holding(torch.full((2,), gradient)))
        ours.update()
    theirs.load_state_dict(ours.state_dict())
    assert theirs.state_dict() == ours.state_dict()
    again = LossScaler()
    again.load_state_dict(theirs.state_dict())
    again.step(holding(torch.zeros(2)))
    again.update()
    assert again.factor == 2.0**16


# --- on several ranks -----------------------------------------------------------------------------


class Plain:
    """SGD at a rate of 1; making torch's own takes a process two seconds, the first time."""

    def __init__(self, gradient: torch.Tensor | None) -> None:
        self.weight = nn.Parameter(torch.ones(2))
        self.weight.grad = gradient
        self.param_groups = [{"params": [self.weight]}]

    def step(self) -> None:
        if self.weight.grad is not None:
            self.weight.data -= self.weight.grad


def shards(comm: world.Communicator, given: world.Communicator | None = None) -> list[object]:
    """Four steps on shards of which one overflows, on one rank; the last rank's is empty."""
    scaler = LossScaler(4.0, growth_interval=1, comm=given)
    found: list[object] = []
    for bad in (None, 0, None, 1):
        gradient = torch.full((2,), INF if comm.rank == bad else scaler.factor)
        optimizer = Plain(None if comm.rank == comm.size - 1 else gradient)
        scaler.step(optimizer)
        scaler.update()
        found.append((scaler.factor, optimizer.weight.sum().item()))
    return [*found, scaler.skipped]


EXPECTED = [(8, 0), (4, 2), (8, 0), (4, 2), 2]


def expected(rank: int, ranks: int) -> list[object]:
    """The last rank's parameter has no gradient and stays; of two, it is where nothing overflows."""
    found = EXPECTED if ranks > 2 else [*EXPECTED[:3], (16, 0), 1]
    return found if rank < ranks - 1 else [(s, 2) for s, _ in found[:-1]] + found[-1:]


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("given", [False, True])
def test_an_overflow_on_one_rank_makes_all_ranks_skip(ranks, given):
    run = world.simulate(lambda comm: shards(comm, comm if given else None), ranks)
    assert run.results == [expected(rank, ranks) for rank in range(ranks)]


def test_real_processes_decide_together():
    run = world.launch(shards, 2, timeout=60)
    assert run.results == [expected(rank, 2) for rank in range(2)]


def test_all_ranks_without_gradients_are_refused():
    def program(comm: world.Communicator) -> None:
        LossScaler().step(holding(None))

    with pytest.raises(world.RankError, match="optimizer is one without gradients"):
        world.simulate(program, 2)


@pytest.mark.parametrize(
    ("name", "bad", "allowed"),
    [
        ("factor", 0.0, "a finite number above zero"),
        ("factor", INF, "a finite number above zero"),
        ("growth_factor", 1.0, "above 1"),
        ("backoff_factor", 1.0, "below 1"),
        ("backoff_factor", -0.5, "a finite number above zero"),
        ("growth_interval", 0, "a whole number of at least 1"),
        ("dynamic", "no", "True or False"),
    ],
)
def test_a_bad_argument_is_told_in_a_sentence(name, bad, allowed):
    with pytest.raises(ValueError, match=f"{name} is {bad!r}; it must be {allowed}"):
        LossScaler(**{name: bad})


def test_a_state_of_something_else_is_refused():
    with pytest.raises(
        ValueError, match=r"a state_dict\(\); it lacks backoff_factor, growth_factor,"
    ):
        LossScaler().load_state_dict({"scale": 1.0})
