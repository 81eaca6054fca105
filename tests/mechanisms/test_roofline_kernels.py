"""Kernels by hand have torch's results, and what they move is what their formulas say."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from dlsys.roofline import (
    REPAIRS,
    ExpTable,
    Machine,
    SlowTraining,
    autotune,
    best_seconds,
    blocked_elements,
    blocked_matmul,
    conv2d,
    convolution,
    count_operations,
    gelu,
    gelu_tanh,
    im2col,
    measure,
    profile_repairs,
    under_roof,
)


def whole(*shape, seed=0):
    stream = torch.Generator().manual_seed(seed)
    return torch.randint(-9, 10, shape, generator=stream).double()


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("shape", [(7, 5, 9), (8, 8, 8), (1, 6, 1)])
def test_a_product_in_blocks_is_the_product_and_moves_what_the_formula_says(shape, block):
    m, k, n = shape
    a, b = whole(m, k), whole(k, n, seed=1)
    product, moved = blocked_matmul(a, b, block)
    assert torch.equal(product, a @ b)
    assert moved == blocked_elements(m, k, n, block)


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"b is of shape .* it must be \(k, n\) for a of shape"):
        blocked_matmul(whole(2, 3), whole(2, 3), 2)


def test_autotuning_finds_the_quickest_by_its_clock_and_leaves_the_first_turn_out():
    now, costs, calls = [0.0], {1: 5.0, 2: 3.0, 4: 4.0}, []

    def run(block):
        first = block not in calls
        calls.append(block)
        now[0] += 100.0 if first and block == 2 else costs[block]

    found = autotune(list(costs), run, repeats=2, clock=lambda: now[0])
    assert found == {2: 3.0, 4: 4.0, 1: 5.0}
    assert list(found) == [2, 4, 1]
    assert calls == [1, 2, 4] * 3


def test_on_this_machine_tiny_blocks_are_no_best_ones():
    a = torch.ones(128, 128)
    assert next(iter(autotune([4, 64], lambda block: blocked_matmul(a, a, block)))) == 64


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 0), (1, 2), (2, 3)])
def test_a_convolution_as_a_product_is_torchs(stride, padding):
    x, weight = whole(2, 3, 9, 8), whole(4, 3, 3, 3, seed=1)
    assert torch.equal(
        conv2d(x, weight, stride, padding), F.conv2d(x, weight, None, stride, padding)
    )
    columns = im2col(x, 3, stride, padding)
    assert torch.equal(columns, F.unfold(x, 3, padding=padding, stride=stride))


def test_a_kernel_goes_on_by_one_place_and_pads_nothing_unless_it_is_told_to():
    x, weight = whole(2, 3, 9, 8), whole(4, 3, 2, 2, seed=1)
    assert torch.equal(conv2d(x, weight), F.conv2d(x, weight))
    assert torch.equal(im2col(x, 2), F.unfold(x, 2))
    assert im2col(x, 2, padding=9).shape == (2, 12, 26 * 25)
    with pytest.raises(ValueError, match="padding is 10; it must be at most 9"):
        im2col(x, 2, padding=10)


@pytest.mark.parametrize("shape", [(3, 9, 8), (2, 0, 9, 8)])
def test_what_is_no_batch_of_images_is_refused(shape):
    with pytest.raises(ValueError, match=r"^x is of shape .*; it must be \(b, c, h, w\) num"):
        im2col(whole(*shape), 2)


@pytest.mark.parametrize(
    ("x", "weight"),
    [((1, 3, 4, 4), (2, 3, 3, 2)), ((1, 3, 4, 4), (3, 3, 3)), ((3, 4, 4), (2, 4, 3, 3))],
)
def test_a_kernel_that_is_not_square_or_of_another_dimension_is_refused(x, weight):
    with pytest.raises(ValueError, match=r"weight is of shape .* whose c it has"):
        conv2d(whole(*x), whole(*weight))


def test_columns_are_written_and_read_which_a_convolution_in_one_kernel_spares():
    x, weight = torch.ones(2, 16, 32, 32), torch.ones(16, 16, 3, 3)
    direct = count_operations(lambda: F.conv2d(x, weight, padding=1)).total
    product = count_operations(lambda: conv2d(x, weight, padding=1)).total
    assert direct.nbytes == convolution(2, 16, 32, 16, 3, padding=1, itemsize=4).nbytes
    assert product.flops == direct.flops
    columns = 9 * x.nbytes
    assert product.nbytes > direct.nbytes + 2 * columns - x.nbytes


def test_a_kernel_of_other_channels_is_refused():
    with pytest.raises(ValueError, match=r"weight is of shape .* whose c it has"):
        conv2d(whole(1, 3, 4, 4), whole(2, 2, 3, 3))


def test_gelu_is_torchs_and_its_tanh_form_is_within_a_thousandth():
    x = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    assert torch.allclose(gelu(x), F.gelu(x), rtol=0, atol=1e-14)
    assert torch.allclose(gelu_tanh(x), F.gelu(x, approximate="tanh"), rtol=0, atol=1e-14)
    error = (gelu_tanh(x) - gelu(x)).abs().max()
    assert 1e-4 < error < 1e-3
    assert torch.equal(gelu(x), gelu(x))  # nothing about it is random


def test_relu_makes_zeros_of_half_of_what_is_centered_and_gelu_of_nothing():
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    assert 0.49 < (F.relu(x) == 0).double().mean() < 0.51
    assert (gelu(x) == 0).sum() == 0


@pytest.mark.parametrize("bits", [0, 1, 4, 8, 12])
def test_a_table_of_exponentials_is_as_near_as_its_bound(bits):
    table = ExpTable(bits)
    x = torch.linspace(-30, 30, 200_001, dtype=torch.float64)
    error = ((table.exp(x).double() - x.exp()).abs() / x.exp()).max().item()
    assert len(table.entries) == 2**bits
    assert 0.98 * table.bound - 1e-7 < error < table.bound + 2e-7
    assert table.bound == pytest.approx(math.log(2) / 2 ** (bits + 1), rel=0.2)


def test_a_table_is_asked_for_nothing_that_a_float_cannot_hold():
    with pytest.raises(ValueError, match=r"x is .* it must be from -80 to 80 everywhere"):
        ExpTable(4).exp(torch.tensor([100.0]))


# -- the machine at hand -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def machine():
    return measure(megabytes=16, side=256)


def test_a_machine_is_measured_by_its_best_stream(machine):
    assert machine.bandwidth == max(machine.streams.values())
    assert set(machine.streams) == {"copy", "add", "triad"}
    assert min(machine.peak, machine.launch, *machine.streams.values()) > 0


def test_a_product_is_under_its_roof_and_an_addition_is_bound_by_bandwidth():
    a, machine = torch.ones(256, 256), Machine(1e12, {"copy": 1e10}, 1e-6)  # no matter what is here
    product, addition = (under_roof(f, machine) for f in (lambda: a @ a, lambda: a + 1))
    assert product.operation.flops == 2 * 256**3
    assert product.operations == addition.operations == 1
    assert product.roof_seconds >= 2 * 256**3 / machine.peak
    assert addition.roof_seconds == addition.operation.nbytes / machine.bandwidth
    assert product.share == product.roof_seconds / product.seconds
    assert addition.launches == machine.launch


def test_the_quickest_of_some_calls_is_kept_after_one_that_does_not_count():
    calls = []
    assert best_seconds(lambda: calls.append(1), 4) > 0
    assert len(calls) == 5


def test_a_machine_is_no_machine_without_a_rate():
    with pytest.raises(
        ValueError, match="streams\\['copy'\\] is 0; it must be a finite number above"
    ):
        Machine(1e9, {"copy": 0}, 0.0)


# -- a step that is slow on purpose --------------------------------------------------------------


@pytest.fixture(scope="module")
def profiles():
    return profile_repairs(batch=4, repeats=1)


def test_every_repair_leaves_the_loss_what_it_was(profiles):
    losses = [profile.loss for profile in profiles]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-5)


def test_two_steps_train_the_same_weights_whatever_is_repaired():
    runs = [SlowTraining(), SlowTraining(tuple(REPAIRS)), SlowTraining(("batch",))]
    for run in runs:
        run.step()
        run.step()
    first, *others = (dict(run.model.double().named_parameters()) for run in runs)
    for other in others:
        for name, value in first.items():
            assert torch.allclose(value, other[name], atol=2e-4), name


def test_each_repair_takes_away_what_it_says(profiles):
    after = {profile.repaired[-1] if profile.repaired else "": profile for profile in profiles}
    slow, text, batch, logging, narrow, fused = (after[name] for name in ("", *REPAIRS))
    assert slow.letters > 10_000
    assert text.letters == 0
    number = {name: len(profile.counted.operations) for name, profile in after.items()}
    assert number["batch"] < 0.5 * number["input"]
    flops = [profile.counted.product_flops for profile in (batch, logging)]
    assert 3 * flops[0] == 4 * flops[1]
    nbytes = [profile.counted.total.nbytes for profile in (logging, narrow)]
    assert 0.49 < nbytes[1] / nbytes[0] < 0.51
    assert number["optimizer"] < 0.5 * number["format"]
    assert narrow.counted.product_flops == fused.counted.product_flops


def test_names_of_no_repair_are_refused():
    with pytest.raises(ValueError, match=r"repaired is .*'magic'.*; it must be names among input,"):
        SlowTraining(("magic",))
    with pytest.raises(ValueError, match=r"order is .*; it must be names among .*, each once"):
        profile_repairs(["input", "input"])
