"""Scales and sums: blocks as their specifications say, noise as theory says, sums that stand still."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.precision import (
    BF16,
    E8M0,
    FP4_E2M1,
    FP6_E2M3,
    FP6_E3M2,
    FP8_E4M3,
    FP8_E5M2,
    FP16,
    FP32,
    INT8,
    MXFP4,
    MXFP6_E2M3,
    MXFP6_E3M2,
    MXFP8_E4M3,
    MXFP8_E5M2,
    NVFP4,
    Block,
    DelayedScaling,
    Format,
    accumulate,
    expected_signal_to_noise,
    matmul,
    quantize,
    round_to,
    signal_to_noise,
)

NAN, INF = math.nan, math.inf
MXINT8 = Block(INT8, 32, E8M0)
MX = (MXFP8_E4M3, MXFP8_E5M2, MXFP6_E3M2, MXFP6_E2M3, MXFP4, MXINT8)
each_mx = pytest.mark.parametrize("block", MX, ids=str)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- blocks ---------------------------------------------------------------------------------------


def by_the_specification(values: list[float], block: Block) -> tuple[float, list[float]]:
    """Scale and elements of one block: OCP MX v1.0, section 6.3."""
    largest = max(map(abs, values))
    exponent = math.floor(math.log2(largest)) if largest else -127
    scale = 2.0 ** min(max(exponent - block.format.largest_exponent, -127), 127)
    if block.format == INT8:
        return scale, [INT8.round(v / scale) for v in values]
    return scale, [block.format.round(v / scale, saturate=True) for v in values]


@each_mx
@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=70))
def test_an_mx_block_has_the_scale_and_the_elements_of_the_specification(block, values):
    found = quantize(torch.tensor(values), block)
    parts = [values[i : i + 32] for i in range(0, len(values), 32)]
    expected = [by_the_specification(part, block) for part in parts]
    assert found.scales.tolist() == [scale for scale, _ in expected]
    assert found.elements.tolist() == [v for _, part in expected for v in part]
    restored = [scale * v for scale, part in expected for v in part]
    assert found.dequantize().tolist() == pytest.approx(restored, rel=1e-6, abs=1e-44)


def test_a_value_takes_its_part_of_the_scale_in_bits():
    assert [b.bits for b in (*MX, NVFP4)] == [8.25, 8.25, 6.25, 6.25, 4.25, 8.25, 4.5]
    x = normal(4, 64)
    assert quantize(x, MXFP4).nbytes == 4 * 64 * 4.25 / 8
    assert quantize(x, NVFP4).nbytes == 4 * 64 * 4.5 / 8 + 4
    assert quantize(x, FP8_E4M3).nbytes == 4 * 64 + 4


def test_a_block_without_a_name_says_what_it_is():
    words = [str(Block(FP8_E4M3, 128, FP32, rows=rows)) for rows in (1, 2, 128)]
    assert words == [
        f"FP8 E4M3 in blocks of {shape} with FP32 scales"
        for shape in ("128", "2 x 128", "128 x 128")
    ]
    assert str(NVFP4) == "NVFP4"


def test_the_largest_element_of_an_mx_block_may_saturate_and_not_where_scales_go_up():
    x = torch.tensor([[500.0, 1.0], [448.0, 1.0], [449.0, 1.0]])
    floor = Block(FP8_E4M3, 2, E8M0)
    up = replace(floor, scale_up=True)
    assert quantize(x, floor).dequantize()[:, 0].tolist() == [448, 448, 448]
    assert quantize(x, up).scales.flatten().tolist() == [2, 1, 2]
    assert quantize(x, up).dequantize()[:, 0].tolist() == [512, 448, 448]
    many = normal(1000, 32).exp()
    for block in MX:
        top = quantize(many, replace(block, scale_up=True))
        largest = many.amax(1, keepdim=True)
        assert bool((largest / top.scales <= block.format.max).all())
        assert bool((largest / top.scales > block.format.max / 2).all())


def test_nvfp4_scales_are_e4m3_numbers_that_one_fp32_number_brings_into_range():
    # Computed as arXiv 2509.25149 does, its appendix on quantisation, in NumPy and ml_dtypes.
    x = normal(8, 64) * torch.logspace(-3, 3, 8)[:, None]
    blocks = x.numpy().reshape(-1, 16)
    tensor_scale = np.float32(np.abs(blocks).max() / (6 * 448))
    scales = (np.abs(blocks).max(1) / tensor_scale / np.float32(6)).astype(ml_dtypes.float8_e4m3fn)
    by = scales.astype(np.float32)[:, None] * tensor_scale
    safe = np.where(by == 0, 1, by)
    elements = np.where(by == 0, 0, blocks / safe).astype(ml_dtypes.float4_e2m1fn)
    found = quantize(x, NVFP4)
    assert float(found.tensor_scale) == tensor_scale
    np.testing.assert_array_equal(found.scales.flatten(), scales.astype(np.float32))
    np.testing.assert_array_equal(found.elements.reshape(-1, 16), elements.astype(np.float32))
    np.testing.assert_array_equal(
        found.dequantize().reshape(-1, 16), elements.astype(np.float32) * by
    )


def test_blocks_lie_along_the_last_dimension_and_the_last_may_be_short():
    x = normal(3, 5, 70)
    found = quantize(x, MXFP8_E4M3)
    assert found.scales.shape == (3, 5, 3)
    assert found.elements.shape == found.dequantize().shape == x.shape
    one = quantize(x[1, 2, 64:], MXFP8_E4M3)
    assert torch.equal(found.dequantize()[1, 2, 64:], one.dequantize())
    assert quantize(x[:, :, :0], MXFP4).dequantize().shape == (3, 5, 0)


@pytest.mark.parametrize("fmt", [*MX, NVFP4, FP8_E4M3, INT8], ids=str)
def test_zeros_stay_zeros_and_what_is_no_number_spoils_its_block_alone(fmt):
    assert torch.equal(quantize(torch.zeros(64), fmt).dequantize(), torch.zeros(64))
    x = torch.ones(64)
    for bad in (NAN, INF, -INF):
        x[5] = bad
        spoiled = quantize(x, fmt).dequantize().isnan()
        assert spoiled[:16].all()
        if fmt in MX:  # NVFP4 and one scale for all have a number of the whole tensor in each
            assert not spoiled[32:].any()


def test_one_large_number_costs_a_tensor_its_small_ones_and_a_block_only_its_own():
    x = normal(4096)
    x[7] = 10_000.0 * 448
    others = torch.arange(4096) >= 32
    per_tensor, per_block = (quantize(x, f).dequantize() for f in (FP8_E4M3, MXFP8_E4M3))
    assert signal_to_noise(x[others], per_tensor[others]) < 0.2
    assert signal_to_noise(x[others], per_block[others]) > 30


def test_one_scale_brings_the_largest_number_to_the_largest_of_the_format():
    x = normal(1000) * 1e-4
    for fmt in (FP8_E4M3, FP8_E5M2, FP4_E2M1, INT8):
        found = quantize(x, fmt)
        assert float(found.elements.abs().max()) == fmt.max
        assert float(found.scales) == pytest.approx(float(x.abs().max()) / fmt.max, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_type_is_quantized_as_its_fp32_copy(dtype):
    x = normal(64).to(dtype)
    for fmt in (MXFP4, NVFP4, FP8_E4M3):
        assert torch.equal(quantize(x, fmt).dequantize(), quantize(x.float(), fmt).dequantize())


def test_what_lies_beyond_fp32_saturates_at_the_largest_scale():
    found = quantize(torch.tensor([1e300], dtype=torch.float64), MXFP4)
    assert (found.scales.item(), found.elements.item()) == (2.0**127, 6)


def test_an_empty_tensor_is_quantized_to_nothing():
    for fmt in (FP8_E4M3, MXFP4, NVFP4):
        assert quantize(torch.ones(2, 0), fmt).dequantize().shape == (2, 0)
    assert DelayedScaling(FP8_E4M3).quantize(torch.ones(0)).elements.shape == (0,)


def test_rounding_in_blocks_draws_from_the_generator_it_is_given():
    x = normal(8, 64)
    for fmt in (FP8_E4M3, MXFP4):
        found = [
            quantize(x, fmt, "stochastic", torch.Generator().manual_seed(s)).elements
            for s in (1, 1, 2)
        ]
        assert torch.equal(found[0], found[1])
        assert not torch.equal(found[0], found[2])
        scaling = DelayedScaling(FP8_E4M3)
        delayed = scaling.quantize(x, "stochastic", torch.Generator().manual_seed(1)).elements
        assert not torch.equal(delayed, round_to(x, FP8_E4M3))


def test_stochastic_elements_are_right_on_average():
    x = torch.full((20_000, 16), 0.29)
    x[:, 0] = 1.0
    found = quantize(x, MXFP4, "stochastic", torch.Generator().manual_seed(0)).dequantize()
    assert float(found[:, 1:].mean()) == pytest.approx(0.29, abs=1e-3)
    assert float(quantize(x, MXFP4).dequantize()[:, 1:].mean()) == 0.25


def test_a_delayed_scale_is_the_largest_of_the_steps_before_and_forgets():
    scaling = DelayedScaling(FP8_E4M3, history=2)
    largest = [448.0, 896.0, 448.0, 448.0, 44.8]
    scales = []
    for value in largest:
        scales.append(scaling.scale)
        scaling.quantize(torch.tensor([value, 1.0]))
    assert scales == [1, 1, 2, 2, 1]
    assert scaling.scale == 1
    assert DelayedScaling(FP8_E4M3, margin=1).quantize(torch.ones(1)).scales == 1
    wider = DelayedScaling(FP8_E4M3, margin=1)
    wider.quantize(torch.tensor([448.0]))
    assert wider.scale == 2


def test_what_has_grown_since_the_last_step_saturates_under_a_delayed_scale():
    scaling = DelayedScaling(FP8_E4M3)
    x = torch.tensor([1.0, 0.5])
    scaling.quantize(x)
    assert scaling.quantize(3 * x).dequantize().tolist() == pytest.approx([1, 1])
    assert scaling.quantize(3 * x).dequantize().tolist() == pytest.approx([3, 1.5])


def test_a_step_with_infinity_does_not_spoil_the_scales_after_it():
    scaling = DelayedScaling(FP8_E4M3)
    for value in (2.0, INF, NAN):
        scaling.quantize(torch.tensor([value]))
    assert scaling.scale == 2 / 448


# --- noise ----------------------------------------------------------------------------------------

SOURCES = {  # of places from -1 to 1, numbers of deviation 1 that lie as a distribution says
    "normal": lambda place: 2**0.5 * torch.erfinv(place),
    "uniform": lambda place: 3**0.5 * place,
    "laplace": lambda place: -place.sign() * torch.log1p(-place.abs()) / 2**0.5,
}


@pytest.mark.parametrize("distribution", SOURCES)
@pytest.mark.parametrize(
    "fmt", [BF16, FP16, FP8_E4M3, FP8_E5M2, FP6_E3M2, FP6_E2M3, FP4_E2M1, INT8], ids=str
)
def test_the_noise_of_rounding_is_what_theory_says(fmt, distribution):
    size = 30_000
    x = SOURCES[distribution]((torch.arange(size).double() + 0.5) / size * 2 - 1)
    # A bound cuts through a step: with so few steps, that shows.
    tolerance = 0.7 if (fmt, distribution) == (FP4_E2M1, "uniform") else 0.15
    for deviation in (max(1.0, fmt.max / 16), fmt.max / 2, fmt.max, 4 * fmt.max):
        measured = signal_to_noise(x * deviation, round_to(x * deviation, fmt, saturate=True))
        expected = expected_signal_to_noise(fmt, distribution, deviation)
        assert measured == pytest.approx(expected, abs=tolerance)


def test_a_bit_of_mantissa_is_six_decibels():
    ratios = [expected_signal_to_noise(Format(8, m)) for m in range(2, 20)]
    assert all(6.01 < b - a < 6.03 for a, b in pairwise(ratios))


def test_noise_is_in_proportion_to_the_signal_until_a_format_ends():
    ratios = [expected_signal_to_noise(FP16, deviation=2.0**e) for e in (-8, -4, 0, 4, 8)]
    assert max(ratios) - min(ratios) < 0.01
    assert expected_signal_to_noise(FP16, deviation=2.0**-24) < 11  # of 73.7
    assert expected_signal_to_noise(FP16, deviation=2.0**-40) == 0  # all of it rounds to zero
    assert expected_signal_to_noise(INT8) == expected_signal_to_noise(INT8, "normal", 1.0)


def test_small_blocks_with_fine_scales_have_the_least_noise_of_4_bits():
    x = normal(256, 1024)
    ratios = [signal_to_noise(x, quantize(x, f).dequantize()) for f in (FP4_E2M1, MXFP4, NVFP4)]
    assert ratios == sorted(ratios)
    assert ratios == pytest.approx([17.7, 18.8, 20.4], abs=0.1)


# --- sums -----------------------------------------------------------------------------------------


def test_a_thousand_times_1e4_is_a_tenth_in_fp32_only():
    # "BF16 has the advantage": 1e-4 is a normal number of FP16, and BF16's short mantissa stands still.
    values = torch.full((1000,), 1e-4)
    sums = {f: accumulate(values, f) for f in (FP16, BF16, FP32)}
    assert float(sums[FP16][-1]) == pytest.approx(0.10584, abs=1e-5)
    assert float(sums[BF16][-1]) == 0.03125
    assert float(sums[FP32][-1]) == pytest.approx(0.1000011, abs=5e-8)
    assert BF16.spacing(0.03125) / 2 > 1e-4
    assert bool((sums[BF16][400:] == 0.03125).all())


@pytest.mark.parametrize(("fmt", "dtype"), [(FP16, torch.float16), (BF16, torch.bfloat16)], ids=str)
def test_partial_sums_are_those_of_a_loop_in_torch(fmt, dtype):
    values = normal(300, 3)
    total, expected = torch.zeros(3, dtype=dtype), []
    for value in values.to(dtype):
        total = total + value
        expected.append(total)
    assert torch.equal(accumulate(values, fmt), torch.stack(expected).double())


def test_stochastic_rounding_rescues_a_sum_in_bf16():
    values = torch.full((1000, 100), 1e-4)
    sums = accumulate(values, BF16, 0.0, "stochastic", torch.Generator().manual_seed(0))[-1]
    assert float(sums.mean()) == pytest.approx(0.1, abs=0.002)


def test_an_update_below_half_a_spacing_leaves_a_16_bit_weight_as_it_was():
    # Learning rate 2.5e-4 times a gradient of 0.1; FP16's spacing above 1 is 2^-10.
    updates = torch.full((100,), 2.5e-5)
    assert FP16.round(1 + 2.5e-5) == 1
    assert float(accumulate(updates, FP16, start=1.0)[-1]) == 1
    assert float(accumulate(updates, FP32, start=1.0)[-1]) == pytest.approx(1.0025, abs=1e-5)
    assert float(accumulate(torch.zeros(1), FP16, start=1 + 2**-12)[0]) == 1
    assert float(accumulate(torch.full((1,), 2.0**-11), FP16, start=1 + 2**-12)[0]) == 1
    assert FP16.round(1 + 2**-11) == 1
    assert FP16.round(1 + 2**-11 + 1e-9) == 1 + 2**-10


def test_a_tensor_core_that_accumulates_in_fp16_loses_what_fp32_keeps():
    a, b = normal(16, 2048), normal(2048, 16, seed=1)
    exact = round_to(a, FP16).double() @ round_to(b, FP16).double()
    ratios = [signal_to_noise(exact, matmul(a, b, FP16, f)) for f in (FP16, Format(8, 13), FP32)]
    assert ratios == sorted(ratios)
    assert ratios[0] < 55 < 65 < ratios[1] < 75 < 110 < ratios[2]


def test_a_tensor_cores_sum_is_rounded_once_a_group():
    ones, small = torch.tensor([[2048.0, 1, 1, 1, 1, 1]]), torch.ones(6, 1)
    results = [float(matmul(ones, small, FP16, FP16, group)) for group in (1, 3, 4, 6)]
    # Above 2048 FP16's numbers lie 2 apart: 1 alone is a tie, which goes to the even 2048.
    assert results == [2048, 2052, 2054, 2052]
    assert float(matmul(ones, small, FP16, FP32)) == 2053


def test_products_are_exact_and_inputs_rounded():
    a, b = torch.tensor([[1 + 2**-10, 1 + 2**-12]]), torch.tensor([[1 + 2**-10], [0.0]])
    assert float(matmul(a, b, FP16, FP32)) == (1 + 2**-10) ** 2
    assert float(matmul(a, b, FP16, FP16)) == 1 + 2**-9
    assert float(matmul(a.flip(1), b.flip(0) * 0 + 1, FP16, FP32)) == 2 + 2**-10


def test_equal_tensors_have_no_noise():
    x = normal(10)
    assert signal_to_noise(x, x) == INF
    assert signal_to_noise(x, 0 * x) == 0
    assert signal_to_noise(0 * x, x) == -INF
    assert signal_to_noise(x, 0.9 * x) == pytest.approx(20, abs=1e-3)


# --- bad arguments --------------------------------------------------------------------------------

X = torch.ones(4)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: quantize(torch.ones(()), MXFP4), r"x is of shape \(\) and torch.float32; it must"),
        (lambda: quantize(torch.ones(4, dtype=torch.int8), INT8), "x is of torch.int8; it must be"),
        (lambda: quantize(X, "MXFP4"), "fmt is 'MXFP4'; it must be a Format such as FP8_E4M3,"),
        (lambda: accumulate(torch.ones(()), FP16), r"values is of shape \(\) and torch.float32"),
        (lambda: matmul(X, X, FP16, FP16), r"a is of shape \(4,\) and torch.float32; it must be a"),
        (lambda: matmul(X[None], X[None], FP16, FP16), "it must be of 4 rows, as a has columns"),
        (lambda: signal_to_noise(X, X[:2]), r"rounded is of shape \(2,\) and torch.float32; it"),
        (lambda: expected_signal_to_noise(FP16, "cauchy"), "distribution is 'cauchy'; it must be"),
        (
            lambda: expected_signal_to_noise(FP16, deviation=0),
            "deviation is 0; it must be a finite",
        ),
    ],
)
def test_a_bad_argument_is_told_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
