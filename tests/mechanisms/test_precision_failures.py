"""Runs that fail in a short format, and what mends each: master weights, loss scaling, skipped steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from dlsys.model import GPT
from dlsys.precision import (
    BF16,
    FP16,
    FP32,
    LossScaler,
    MixedPrecision,
    flushed,
    round_to,
    stuck,
    train,
)
from dlsys.transformer import TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = TransformerSpec(layers=1, hidden=32, heads=4, vocab=128, sequence=16)
LICENSE = (Path(__file__).parents[2] / "LICENSE").read_bytes()
ROWS = torch.tensor(list(LICENSE[: 640 * 17])).view(-1, 17).clamp(max=127)


def reading(model: GPT, steps: int, share: float = 1.0) -> Iterator[torch.Tensor]:
    """Losses on the next four rows of the text, each a `share` of a larger batch's."""
    for rows in ROWS.split(4)[:steps]:
        yield share * model(rows[:, :-1], rows[:, 1:])


def learned(fmt, share: float = 1.0, lr: float = 3e-3, **kw) -> float:
    """The mean of the last five losses of the small GPT."""
    model = GPT(SPEC)
    mixed = MixedPrecision(model.parameters(), torch.optim.AdamW, fmt, lr=lr, eps=1e-15, **kw)
    return sum(train(mixed, reading(model, 20, share))[-5:]) / 5 / share


def static(factor: float) -> LossScaler:
    return LossScaler(factor, dynamic=False)


# -- updates round away ---------------------------------------------------------------------------

NUMBERS = torch.Generator().manual_seed(0)
X, TRUTH = torch.randn(64, 16, generator=NUMBERS), torch.randn(1, 16, generator=NUMBERS)
START = TRUTH + 0.1 * torch.randn(1, 16, generator=NUMBERS)
Y = X @ TRUTH.T


@cache
def fit(fmt, **kw) -> tuple[float, float, torch.Tensor]:
    """First and last loss of a regression by gradient descent, and its weights."""
    net = nn.Linear(16, 1, bias=False)
    net.weight.data = START.clone()
    mixed = MixedPrecision(net.parameters(), torch.optim.SGD, fmt, lr=3e-3, **kw)
    losses = ((net(X.to(mixed.dtype)).float() - Y).square().mean() for _ in range(200))
    found = train(mixed, losses)
    return found[0], found[-1], net.weight.detach().float()


def test_master_weights_rescue_what_rounds_away():
    _, wide, _ = fit(FP32)
    for fmt, least in ((BF16, 5), (FP16, 1.5)):
        first, with_master, _ = fit(fmt)
        _, without, _ = fit(fmt, master=False)
        assert with_master == pytest.approx(wide, rel=0.05)
        assert without > least * wide, fmt
    assert without < first / 2  # FP16 has three bits more than BF16, and gets on for a while


def test_without_them_the_weights_that_stand_still_are_those_whose_first_update_does():
    first, last, weights = fit(BF16, master=False)
    update = -3e-3 * 2 * (START @ X.T - Y.T) @ X / 64
    assert stuck(START, update, BF16) == 13 / 16
    assert (weights == round_to(START, BF16)).sum() == 13
    assert last > 0.7 * first
    assert stuck(START, update, FP16) < stuck(START, update, BF16)
    assert stuck(START, update, FP32) == 0


def test_stochastic_rounding_rescues_bf16_weights_without_a_master_copy():
    _, wide, _ = fit(FP32)
    _, nearest, _ = fit(BF16, master=False)
    stream = torch.Generator().manual_seed(1)
    _, random, _ = fit(BF16, master=False, mode="stochastic", generator=stream)
    assert wide / 2 < random < 2 * wide < nearest / 4


def test_an_update_is_stuck_below_half_the_spacing():
    q = BF16.spacing(1.5)
    w = torch.full((4,), 1.5)
    assert stuck(w, torch.tensor([0.49, 0.51, -0.49, 0.0]) * q, BF16) == pytest.approx(2 / 3)
    down = torch.tensor([1.0, 1.0, 1.0])  # below a power of two numbers lie closer
    assert stuck(down, torch.tensor([0.49, -0.26, -0.24]) * BF16.epsilon, BF16) == pytest.approx(
        2 / 3
    )
    assert stuck(w, torch.zeros(4), BF16) == 0
    stream = torch.Generator().manual_seed(0)
    many = stuck(torch.ones(4000), torch.full((4000,), q / 4), BF16, "stochastic", stream)
    assert many == pytest.approx(0.75, abs=0.03)


# -- gradients flush to zero ----------------------------------------------------------------------


def gradients(fmt, share: float) -> torch.Tensor:
    """Of the first step of a GPT in `fmt`, unscaled by nothing."""
    model = GPT(SPEC)
    mixed = MixedPrecision(model.parameters(), torch.optim.SGD, fmt, scaler=static(1.0), lr=0.0)
    mixed.backward(next(reading(model, 1, share)))
    return torch.cat([p.grad.flatten().float() for p in mixed.parameters])


def test_more_is_flushed_within_backward_than_its_results_say():
    wide = gradients(FP32, 1.0)
    counted = [flushed(wide, FP16, 2.0**-k) for k in (0, 8, 16, 20)]
    assert counted == sorted(counted)
    assert counted[0] < 0.01 < 0.3 < counted[2] < 0.4 < 0.95 < counted[3]
    assert flushed(wide, BF16, 2.0**-20) == 0
    share = float((gradients(FP16, 2.0**-16) == 0).float().mean())
    assert share > 0.9 > 2 * counted[2]
    # Scaled, FP16 keeps them as FP32 does.
    assert float((gradients(FP16, 1.0) == 0).float().mean()) < 0.01


def test_static_scaling_keeps_what_flushes_without():
    share = 2.0**-20
    wide, untrained = learned(FP32, share=share), learned(FP32, share=share, lr=0.0)
    assert wide < untrained - 1
    assert learned(FP16, share=share, scaler=static(1 / share)) == pytest.approx(wide, abs=0.02)
    assert learned(BF16, share=share) == pytest.approx(wide, abs=0.02)
    assert learned(FP16, share=share, scaler=static(1.0)) > untrained - 0.1
    assert wide + 0.4 < learned(FP16, share=2.0**-16, scaler=static(1.0)) < untrained - 0.2


def test_numbers_are_flushed_below_half_the_smallest():
    x = torch.tensor([FP16.min_subnormal / 2, FP16.min_subnormal * 0.51, -1e-9, 0.0, 1.0])
    assert flushed(x, FP16) == 2 / 4  # a tie goes to the even one, which is zero
    assert flushed(x, FP16, 2.0**16) == 0
    assert flushed(torch.zeros(3), FP16) == 0


# -- overflow -------------------------------------------------------------------------------------


def test_a_factor_too_large_is_halved_step_by_step_until_training_goes_on():
    model = GPT(SPEC)
    scaler = LossScaler(2.0**24)
    mixed = MixedPrecision(model.parameters(), torch.optim.AdamW, FP16, scaler=scaler, lr=3e-3)
    before, steps, losses = [p.clone() for p in mixed.master], [], []
    for loss in reading(model, 25):
        mixed.backward(loss)
        steps.append(mixed.step())
        mixed.zero_grad()
        losses.append(float(loss.detach()))
        if not any(steps):
            assert all(map(torch.equal, before, mixed.master))
    skipped = steps.count(False)
    assert steps == [False] * skipped + [True] * (25 - skipped)
    assert skipped >= 4
    assert scaler.factor == 2.0 ** (24 - skipped)
    assert losses[-1] < losses[0] - 0.8


def test_a_step_that_is_not_skipped_leaves_nothing_but_nan():
    model = GPT(SPEC)
    MixedPrecision(model.parameters(), torch.optim.SGD, FP16, lr=0.0)  # steps 1 alone
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    (2.0**30 * next(reading(model, 1))).backward()
    clip_grad_norm_(model.parameters(), 1.0)  # inf / inf
    optimizer.step()
    assert any(bool(p.isnan().any()) for p in model.parameters())
    assert math.isnan(float(next(reading(model, 1)).detach()))


def test_the_default_factor_is_infinite_itself_where_the_loss_is_fp16():
    net = nn.Linear(2, 1)
    mixed = MixedPrecision(net.parameters(), torch.optim.SGD, FP16, lr=0.1)
    out = net(torch.full((4, 2), 0.01, dtype=torch.half))
    mixed.backward(out.mean() / 2)  # backward starts from 2^16 in FP16, which ends at 65,504
    assert mixed.step() is False
    mixed.zero_grad()
    mixed.scaler.factor = 2.0**16
    mixed.backward(net(torch.full((4, 2), 0.01, dtype=torch.half)).float().mean() / 2)
    assert mixed.step() is True


def test_clipping_before_unscaling_all_but_stops_the_step():
    def moved(unscale: bool) -> float:
        model = GPT(SPEC)
        mixed = MixedPrecision(
            model.parameters(), torch.optim.SGD, FP16, scaler=static(2.0**12), lr=1.0
        )
        before = [p.detach().clone() for p in mixed.master]
        mixed.backward(next(reading(model, 1)))
        if unscale:
            mixed.clip_grad_norm_(1.0)
        else:
            clip_grad_norm_(mixed.parameters, 1.0)
        mixed.step()
        return math.hypot(
            *(float((p - old).detach().norm()) for p, old in zip(mixed.master, before, strict=True))
        )

    right, wrong = moved(True), moved(False)
    assert right == pytest.approx(1.0, rel=0.01)
    assert wrong < right / 1000
