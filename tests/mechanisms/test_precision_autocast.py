"""Autocast: torch.autocast's types and bits, and what becomes of sums without it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close

from dlsys.model import GPT
from dlsys.precision import (
    BF16,
    FP8_E4M3,
    FP16,
    FP32,
    Autocast,
    Format,
    MixedPrecision,
    moving_average,
    softmax,
    variance,
)
from dlsys.transformer import TransformerSpec

pytestmark = pytest.mark.usefixtures("one_thread")

SPEC = TransformerSpec(layers=1, hidden=16, heads=2, vocab=32, sequence=8)
TOKENS = torch.randint(32, (2, 8), generator=torch.Generator().manual_seed(0))


class Types(TorchFunctionMode):
    """The operations in order, each with the type of its result."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, torch.dtype]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, torch.Tensor) and result.is_floating_point() and name != "to":
            self.seen.append((name, result.dtype))
        return result


def run(policy, model: GPT | None = None, backward: bool = True):
    """Types of all operations, the loss, and gradients, of a pass under a policy."""
    model, types = model or GPT(SPEC), Types()
    with types, policy:
        loss = model(TOKENS, TOKENS)
    if backward:
        loss.backward()
    return types.seen, loss.detach(), [p.grad for p in model.parameters()]


def test_without_the_softmax_it_is_autocast_on_cpu_to_the_bit():
    ours, loss, gradients = run(Autocast(BF16, ("norm", "loss")))
    theirs, their_loss, their_gradients = run(torch.autocast("cpu", torch.bfloat16))
    assert ours == theirs
    assert torch.equal(loss, their_loss)
    assert all(map(torch.equal, gradients, their_gradients))
    assert {g.dtype for g in gradients} == {torch.float32}


def test_products_are_narrow_and_sums_wide_whatever_the_weights_are():
    for weights in (torch.float32, torch.bfloat16):
        seen, loss, _ = run(Autocast(BF16), GPT(SPEC, dtype=weights))
        types = {name: {dtype for other, dtype in seen if other == name} for name, _ in seen}
        for name in ("linear", "einsum", "gelu"):
            assert types[name] == {torch.bfloat16}, name
        for name in ("softmax", "layer_norm", "cross_entropy"):
            assert types[name] == {torch.float32}, name
        assert loss.dtype == torch.float32
    differing = {
        mine
        for mine, theirs in zip(
            run(Autocast(BF16))[0], run(torch.autocast("cpu", torch.bfloat16))[0], strict=True
        )
        if mine != theirs
    }
    assert differing == {("softmax", torch.float32)}


def test_in_fp32_nothing_changes():
    plain = GPT(SPEC)
    expected = plain(TOKENS, TOKENS)
    expected.backward()
    _, loss, gradients = run(Autocast(FP32))
    assert torch.equal(loss, expected)
    assert all(torch.equal(g, p.grad) for g, p in zip(gradients, plain.parameters(), strict=True))


def test_autocast_ends_where_its_block_ends_even_by_an_error():
    with pytest.raises(ZeroDivisionError), Autocast(BF16):
        raise ZeroDivisionError
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with Autocast(BF16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        assert (torch.ones(2, 2).double() @ torch.ones(2, 2).double()).dtype == torch.float64
        assert torch.ones(2, 2).half().softmax(0).dtype == torch.float32
        wide = torch.nn.functional.cross_entropy(torch.ones(1, 2).half(), torch.tensor([0]))
    assert wide.dtype == torch.float32


def test_they_train_beside_master_weights():
    model = GPT(SPEC)
    mixed = MixedPrecision(model.parameters(), torch.optim.AdamW, FP16, lr=0.01)
    losses = []
    for _ in range(8):
        with Autocast(FP16):
            loss = model(TOKENS, TOKENS)
        mixed.backward(loss)
        mixed.step()
        mixed.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.5


def test_a_format_that_torch_does_not_compute_in_is_refused():
    with pytest.raises(ValueError, match=r"fmt is .*; it must be FP32 or BF16 or FP16"):
        Autocast(FP8_E4M3)
    with pytest.raises(ValueError, match=r"fp32 is .*; it must be"):
        Autocast(BF16, ["sofmax"])  # type: ignore[list-item]


X = torch.randn(3, 40, generator=torch.Generator().manual_seed(1))


def test_in_fp32_each_is_torchs_own():
    assert_close(softmax(X, FP32).float(), X.softmax(-1))
    assert_close(softmax(X, FP32, subtract_max=False).float(), X.softmax(-1))
    assert_close(variance(X, FP32).float(), X.var(-1, correction=0))
    expected, values = torch.zeros(3), []
    for column in X.T:
        expected = torch.lerp(expected, column, 0.1)
        values.append(expected)
    assert_close(moving_average(X.T, 0.9, FP32).float(), torch.stack(values))


@pytest.mark.parametrize("row", range(3))
def test_every_step_is_rounded_as_the_format_rounds_one_number(row):
    r, values = Format(5, 3).round, X[row].tolist()

    def total(numbers):
        found = 0.0
        for number in numbers:
            found = r(found + number)
        return found

    given = [r(value) for value in values]
    powers = [r(math.exp(r(value - max(given)))) for value in given]
    mean = r(total(given) / 40)
    m, averages = r(1.5), []
    for value in given:
        m = r(r(0.3 * m) + r(0.7 * value))
        averages.append(m)
    x, fmt = X[row].double(), Format(5, 3)
    assert softmax(x, fmt).tolist() == [r(power / total(powers)) for power in powers]
    assert variance(x, fmt) == r(total(r(r(value - mean) ** 2) for value in given) / 40)
    assert moving_average(x, 0.3, fmt, start=1.5).tolist() == averages


@pytest.mark.parametrize(("fmt", "bits"), [(FP16, 10), (BF16, 7)])
def test_a_softmax_whose_sum_stagnates_gives_more_than_everything(fmt, bits):
    most = 2 ** (bits + 1)  # to which 1 can be added no more
    for keys in (most // 4, most * 5 // 4):
        shares = softmax(torch.zeros(keys), fmt)
        assert float(shares.sum()) == max(1, keys / most)
    assert float(torch.zeros(2 * most, dtype=torch.half).softmax(0).sum()) == 1


def test_exponentials_overflow_in_fp16_unless_the_maximum_is_subtracted():
    for score in (11.0, 11.125):
        naive = softmax(torch.tensor([score, 0.0]), FP16, subtract_max=False)
        assert bool(naive.isnan().any()) == (math.exp(score) > FP16.max)
    assert softmax(torch.tensor([1000.0, 1000.0]), FP16).tolist() == [0.5, 0.5]
    assert not softmax(torch.tensor([88.0, 0.0]), BF16, subtract_max=False).isnan().any()


def test_squares_overflow_in_fp16_and_vanish_in_it():
    for size, there in ((180.0, 180.0**2), (182.0, math.inf), (2e-4, 4e-8), (1e-4, 0.0)):
        found = float(variance(torch.tensor([size, -size]), FP16))
        assert found == pytest.approx(there, rel=0.5)
        assert float(variance(torch.tensor([size, -size]), BF16)) == pytest.approx(
            size**2, rel=0.01
        )
    wide = 8.1 * torch.tensor([1.0, -1.0]).repeat(512)
    assert variance(wide, FP16) == math.inf  # 1,024 numbers of a deviation above 8
    # torch's norm of FP16 numbers computes in FP32 inside: its statistics are FP32.
    x = torch.tensor([[300.0, -300.0]], dtype=torch.half)
    assert nn.functional.layer_norm(x, (2,)).tolist() == [[1, -1]]


def test_adams_second_moment_stands_still_in_bf16_and_vanishes_in_fp16():
    falling = moving_average(torch.zeros(200), 0.999, BF16, start=1.0)
    assert falling[-1] == 1
    assert float(moving_average(torch.zeros(200), 0.999, FP32, 1.0)[-1]) == pytest.approx(
        0.999**200, rel=1e-4
    )
    squares = torch.full((50,), 1e-4).square()
    assert moving_average(squares, 0.999, FP16)[-1] == 0
    assert float(moving_average(squares, 0.999, FP32)[-1]) == pytest.approx(
        1e-8 * (1 - 0.999**50), rel=1e-4
    )
