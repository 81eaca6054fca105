"""The six steps as a run: torch's own optimizers and GradScaler to the bit; bytes; what is lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW

from dlsys.precision import BF16, FP16, FP32, Format, LossScaler, MixedPrecision, round_to, train

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = {AdamW: {"lr": 0.01}, SGD: {"lr": 0.1, "momentum": 0.9}}
OURS = Format(5, 3, name="E5M3")


class Net(nn.Module):
    """A tied weight, a frozen layer, and a parameter that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(3)
        self.first, self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.unused = nn.Parameter(torch.ones(3))
        self.last.weight = self.first.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=stream) / 2)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.last(self.frozen(self.first(x).tanh()).tanh())


def rows(seed: int) -> torch.Tensor:
    return torch.randn(16, 6, generator=torch.Generator().manual_seed(seed))


def loss(net: nn.Module, step: int) -> torch.Tensor:
    dtype = net.first.weight.dtype
    return (net(rows(step).to(dtype)).float() - rows(100)).square().mean()


def steps(net: nn.Module, numbers: range) -> Iterator[torch.Tensor]:
    return (loss(net, number) for number in numbers)


def weights(net: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def equal(one, other) -> bool:
    return all(map(torch.equal, one, other)) and len(one) == len(other)


@pytest.mark.parametrize("master", [True, False])
@pytest.mark.parametrize("cls", OPTIONS)
@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_in_fp32_it_is_the_optimizer_itself(cls, master, max_norm):
    net, plain = Net(), Net()
    mixed = MixedPrecision(net.parameters(), cls, FP32, master=master, **OPTIONS[cls])
    optimizer = cls(plain.parameters(), **OPTIONS[cls])
    losses = train(mixed, steps(net, range(5)), max_norm)
    for step in range(5):
        optimizer.zero_grad()
        now = loss(plain, step)
        now.backward()
        if max_norm:
            clip_grad_norm_(plain.parameters(), max_norm)
        optimizer.step()
        assert losses[step] == now.item()
    assert mixed.scaler is None
    assert equal(weights(net), weights(plain))


@pytest.mark.parametrize("cls", OPTIONS)
@pytest.mark.parametrize("factor", [2.0**10, 2.0**24])
def test_in_fp16_it_is_torchs_grad_scaler_round_half_tensors(cls, factor):
    net, half = Net(), Net()
    mixed = MixedPrecision(
        net.parameters(), cls, FP16, scaler=LossScaler(factor, growth_interval=3), **OPTIONS[cls]
    )
    trained = [p for p in half.parameters() if p.requires_grad]
    master = [nn.Parameter(p.detach().clone()) for p in trained]
    optimizer = cls(master, **OPTIONS[cls])
    scaler = torch.amp.GradScaler("cpu", init_scale=factor, growth_interval=3)
    half.half()
    for step in range(12):
        mixed.backward(loss(net, step))
        mixed.clip_grad_norm_(0.5)
        mixed.step()
        mixed.zero_grad()
        half.zero_grad()
        scaler.scale(loss(half, step)).backward()
        for own, p in zip(master, trained, strict=True):
            own.grad = None if p.grad is None else p.grad.float()
        scaler.unscale_(optimizer)
        clip_grad_norm_(master, 0.5)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            for own, p in zip(master, trained, strict=True):
                p.copy_(own)
        assert mixed.scaler.factor == scaler.get_scale()
        assert equal(weights(net), weights(half))
    assert equal(mixed.master, master)
    assert (mixed.scaler.skipped > 0) == (factor > 2**20)


@pytest.mark.parametrize("fmt", [BF16, FP16])
def test_without_master_weights_sgd_is_torchs_own_on_16_bit_weights(fmt):
    net, plain = Net(), Net()
    mixed = MixedPrecision(net.parameters(), SGD, fmt, False, scaler=LossScaler(1.0), lr=2**-6)
    plain.to(mixed.dtype)
    optimizer = SGD(plain.parameters(), lr=2**-6)
    train(mixed, steps(net, range(5)))
    for step in range(5):
        optimizer.zero_grad()
        loss(plain, step).backward()
        optimizer.step()
    assert equal(weights(net), weights(plain))
    assert not equal(weights(net), weights(Net().to(mixed.dtype)))


@pytest.mark.parametrize("fmt", [FP16, BF16, OURS])
def test_master_weights_are_never_rounded_and_weights_always_are(fmt):
    net, start = Net(), weights(Net())
    mixed = MixedPrecision(net.parameters(), AdamW, fmt, lr=0.01)
    begun = [p for p, made in zip(start, net.parameters(), strict=True) if made.requires_grad]
    assert equal(mixed.master, begun)
    train(mixed, steps(net, range(3)))
    for master, weight in zip(mixed.master, mixed.parameters, strict=True):
        assert torch.equal(weight.float(), round_to(master.detach(), fmt))
        assert (weight.float() != master).any()
    for frozen, before in zip(net.frozen.parameters(), start[3:5], strict=True):
        assert torch.equal(frozen.float(), round_to(before, fmt))


@pytest.mark.parametrize("mode", ["nearest", "toward zero", "stochastic"])
def test_weights_without_master_copies_are_the_update_rounded_by_the_mode(mode):
    net = Net()
    seed = torch.Generator().manual_seed(0)
    mixed = MixedPrecision(net.parameters(), SGD, OURS, False, mode, generator=seed, lr=0.1)
    before = [p.detach().clone() for p in mixed.parameters]
    mixed.backward(loss(net, 0))
    for parameter in mixed.parameters:
        if parameter.grad is not None:
            assert torch.equal(parameter.grad, round_to(parameter.grad, OURS))
    factor = mixed.scaler.factor
    mixed.step()
    again = torch.Generator().manual_seed(0)
    for weight, old in zip(mixed.parameters, before, strict=True):
        update = 0.0 if weight.grad is None else weight.grad / factor * 0.1
        assert torch.equal(weight, round_to(old - update, OURS, mode, again))
        assert torch.equal(old, round_to(old, OURS))


def test_a_parameter_takes_2_and_2_and_4_and_8_bytes():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    net[1].weight = net[0].weight  # one tensor in two places is held once
    n = 64 + 8 + 8
    mixed = MixedPrecision(net.parameters(), AdamW, BF16)
    held = mixed.held()
    assert (held.weights, held.gradients, held.master, held.moments) == (2 * n, 0, 4 * n, 0)
    mixed.backward(net(torch.ones(1, 8, dtype=torch.bfloat16)).sum())
    mixed.unscale_()
    assert mixed.held().unscaled == 4 * n
    mixed.step()
    held = mixed.held()
    assert (held.weights, held.gradients, held.master, held.moments) == (2 * n, 2 * n, 4 * n, 8 * n)
    assert (held.unscaled, held.total) == (0, 16 * n)
    assert held.steps == 3 * 4
    mixed.zero_grad()
    assert mixed.held().gradients == 0
    net[0].bias.requires_grad_(False)  # a frozen one takes its weights
    frozen = MixedPrecision(
        [p.data.float().requires_grad_(p.requires_grad) for p in net.parameters()], SGD, BF16
    )
    assert (frozen.held().weights, frozen.held().master) == (2 * n, 4 * (n - 8))
    alone = MixedPrecision(nn.Linear(8, 8).parameters(), SGD, BF16, master=False)
    assert (alone.held().weights, alone.held().total) == (144, 144)


@pytest.mark.parametrize("master", [True, False])
def test_a_run_that_is_saved_goes_on_to_the_bit(master):
    mode = "nearest" if master else "stochastic"

    def start(seed):
        net = Net()
        stream = torch.Generator().manual_seed(seed)
        scaler = LossScaler(4.0, growth_interval=2)
        return net, MixedPrecision(
            net.parameters(), AdamW, FP16, master, mode, scaler, stream, lr=0.01
        )

    net, mixed = start(0)
    train(mixed, steps(net, range(3)))
    other, resumed = start(1)
    if not master:
        other.load_state_dict(net.state_dict())
    resumed.load_state_dict(deepcopy(mixed.state_dict()))
    assert equal(weights(net), weights(other))
    for model, run in ((net, mixed), (other, resumed)):
        train(run, steps(model, range(3, 6)))
    assert equal(weights(net), weights(other))
    assert equal(mixed.master, resumed.master)
    assert mixed.scaler.factor == resumed.scaler.factor > 4


def test_gradients_from_before_are_dropped():
    net = nn.Linear(2, 2)
    net(torch.ones(1, 2)).sum().backward()
    mixed = MixedPrecision(net.parameters(), SGD, BF16, lr=0.1)
    mixed.backward(net(torch.ones(1, 2, dtype=torch.bfloat16)).sum())
    assert net.weight.grad.tolist() == [[1, 1], [1, 1]]
    assert net.weight.grad.dtype == torch.bfloat16


def test_a_state_without_a_part_is_refused():
    make = [MixedPrecision(Net().parameters(), SGD, fmt) for fmt in (FP16, BF16)]
    with pytest.raises(ValueError, match=r"state is .* a state_dict\(\) of optimizer, master"):
        make[1].load_state_dict(make[0].state_dict())


def test_groups_keep_their_options_and_drop_what_is_frozen():
    net = Net()
    groups = [
        {"params": net.first.parameters(), "lr": 0.5},
        {"params": [*net.frozen.parameters()]},
        {"params": net.last.bias, "weight_decay": 0.0},
    ]
    mixed = MixedPrecision(groups, AdamW, BF16, lr=0.1)
    kept = mixed.optimizer.param_groups
    assert [(g["lr"], g["weight_decay"], len(g["params"])) for g in kept] == [
        (0.5, 0.01, 2),
        (0.1, 0.0, 1),
    ]
    assert net.frozen.weight.dtype == torch.bfloat16
    names = MixedPrecision(Net().named_parameters(), AdamW, BF16)
    assert len(names.master) == 4


def test_gradients_of_micro_batches_add_up_before_they_are_unscaled_once():
    def moved(*parts: slice) -> torch.Tensor:
        net = nn.Linear(6, 1, bias=False)
        nn.init.ones_(net.weight)
        mixed = MixedPrecision(net.parameters(), SGD, FP16, scaler=LossScaler(64.0), lr=1.0)
        for part in parts:
            mixed.backward(net(rows(1)[part].half()).float().sum() / 16)
        mixed.step()
        return mixed.master[0].detach()

    torch.testing.assert_close(
        moved(slice(0, 8), slice(8, 16)), moved(slice(None)), rtol=0.002, atol=0.0
    )
    assert moved(slice(None)).tolist()[0] == pytest.approx((1 - rows(1).mean(0)).tolist(), abs=2e-3)


def test_clipping_looks_at_gradients_that_are_unscaled():
    net = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(net.weight)
    mixed = MixedPrecision(net.parameters(), SGD, FP16, scaler=LossScaler(1024.0), lr=1.0)
    mixed.backward(net(torch.tensor([0.3, 0.4], dtype=torch.float16)).sum())
    assert float(mixed.clip_grad_norm_(0.25)) == pytest.approx(0.5, rel=1e-3)
    mixed.step()
    assert mixed.master[0].tolist()[0] == pytest.approx([-0.15, -0.2], rel=1e-3)


def test_a_skipped_step_changes_nothing_but_the_factor():
    net = Net()
    mixed = MixedPrecision(net.parameters(), AdamW, FP16, scaler=LossScaler(2.0**40), lr=0.01)
    before, master = weights(net), [p.detach().clone() for p in mixed.master]
    mixed.backward(loss(net, 0))
    assert not math.isfinite(mixed.clip_grad_norm_(1.0))
    assert mixed.step() is False
    assert equal(before, weights(net))
    assert equal(master, mixed.master)
    assert (mixed.scaler.skipped, mixed.scaler.factor) == (1, 2.0**39)
    assert not mixed.optimizer.state


def test_what_cannot_be_is_refused_in_a_sentence():
    net = Net()
    mixed = MixedPrecision(net.parameters(), SGD, BF16, lr=0.1)
    mixed.backward(loss(net, 0))
    mixed.unscale_()
    with pytest.raises(RuntimeError, match=r"backward was called after unscale_"):
        mixed.backward(loss(net, 1))
    mixed.step()
    net.frozen.requires_grad_(True)
    mixed.backward(loss(net, 1))
    with pytest.raises(RuntimeError, match=r"a parameter has a gradient that was frozen"):
        mixed.step()
    with pytest.raises(ValueError, match=r"params is of torch.bfloat16; it must be of torch.flo"):
        MixedPrecision(net.parameters(), SGD, lr=0.1)
    with pytest.raises(ValueError, match="mode is 'stochastic'; it must be 'nearest' beside"):
        MixedPrecision(Net().parameters(), SGD, mode="stochastic", lr=0.1)
