"""Number formats and rounding: bit for bit what ml_dtypes and torch have, and no double rounding."""

from __future__ import annotations

import bisect
import math
from fractions import Fraction
from functools import cache
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
    TF32,
    Format,
    Integer,
    decode,
    encode,
    round_to,
)

NAN, INF = math.nan, math.inf
DTYPES = {
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP8_E5M2: ml_dtypes.float8_e5m2,
    FP8_E4M3: ml_dtypes.float8_e4m3fn,
    FP6_E3M2: ml_dtypes.float6_e3m2fn,
    FP6_E2M3: ml_dtypes.float6_e2m3fn,
    FP4_E2M1: ml_dtypes.float4_e2m1fn,
    Format(4, 3): ml_dtypes.float8_e4m3,
    Format(3, 4): ml_dtypes.float8_e3m4,
}
TORCH = {
    BF16: torch.bfloat16,
    FP16: torch.float16,
    FP8_E5M2: torch.float8_e5m2,
    FP8_E4M3: torch.float8_e4m3fn,
}
MODES = ("nearest", "toward zero", "stochastic")
each_format = pytest.mark.parametrize("fmt", DTYPES, ids=str)


def bits(x: torch.Tensor) -> torch.Tensor:
    """The bits of FP32 numbers, with one NaN for all."""
    x = x.float()
    return torch.where(x.isnan(), NAN, x).view(torch.int32)


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Equal to the last bit, the sign of zero among them, and NaN where the other is."""
    return torch.equal(bits(x), bits(y))


def by_ml_dtypes(x: torch.Tensor, fmt: Format) -> torch.Tensor:
    """Rounded by ml_dtypes; NaN, which it makes a number where there is none, stays."""
    with np.errstate(all="ignore"):
        rounded = x.float().numpy().astype(DTYPES[fmt]).astype(np.float32)
    return torch.where(x.isnan(), NAN, torch.from_numpy(rounded))


def every_pattern(fmt: Format) -> torch.Tensor:
    return torch.arange(2**fmt.bits)


@cache
def at_least_zero(fmt: Format) -> tuple[float, ...]:
    """All numbers of the format from zero up, in order."""
    found = decode(every_pattern(fmt)[: 2 ** (fmt.bits - 1)], fmt)
    return tuple(found[found.isfinite()].tolist())


def every_16_bit_number() -> torch.Tensor:
    words = torch.arange(-(2**15), 2**15).to(torch.int16)
    return torch.cat([words.view(torch.float16).float(), words.view(torch.bfloat16).float()])


# --- formats --------------------------------------------------------------------------------------


@each_format
def test_every_pattern_is_the_number_that_ml_dtypes_has_for_it(fmt):
    word = np.uint8 if fmt.bits <= 8 else np.uint16
    theirs = np.arange(2**fmt.bits).astype(word).view(DTYPES[fmt]).astype(np.float32)
    assert same(decode(every_pattern(fmt), fmt), torch.from_numpy(theirs))


def some_patterns(fmt: Format) -> list[int]:
    """All of 8 bits. Of 16, some of each exponent and all round its ends: 0, 1, infinity."""
    sign, one = 2 ** (fmt.bits - 1), 2**fmt.mantissa
    ends = [e + d for e in (0, one, fmt.encode(1.0), sign - one) for d in range(-70, 70)]
    spread = range(0, 2**fmt.bits, 1 if fmt.bits <= 8 else 37)
    return sorted({*spread, *(s + end for s in (0, sign) for end in ends if 0 <= end < sign)})


@each_format
def test_one_number_and_a_tensor_have_the_same_bits(fmt):
    ours = decode(every_pattern(fmt), fmt)
    numbers = ~ours.isnan()
    assert torch.equal(encode(ours[numbers], fmt).long(), every_pattern(fmt)[numbers])
    few = some_patterns(fmt)
    alone = [fmt.decode(pattern) for pattern in few]
    assert same(ours[few], torch.tensor(alone))
    kept = [pattern for pattern in few if numbers[pattern]]
    assert [fmt.encode(x) for x in alone if x == x] == kept


def test_bits_come_in_a_byte_where_they_fit():
    x = torch.ones(2)
    dtypes = {f: encode(x, f).dtype for f in (FP4_E2M1, FP8_E4M3, FP16, FP32)}
    assert dtypes == {
        FP4_E2M1: torch.uint8,
        FP8_E4M3: torch.uint8,
        FP16: torch.int64,
        FP32: torch.int64,
    }
    assert torch.equal(decode(encode(x, FP8_E4M3), FP8_E4M3), x)


@pytest.mark.parametrize("fmt", [FP32, TF32], ids=str)
def test_longer_formats_have_fp32s_bits(fmt):
    words = torch.randint(-(2**31), 2**31, (20_000,)) >> (32 - fmt.bits)
    words = torch.cat([words % 2**fmt.bits, torch.tensor([0, 1, 2 ** (fmt.bits - 1)])])
    theirs = (words << (32 - fmt.bits)).to(torch.int32).view(torch.float32)
    assert same(decode(words, fmt), theirs)
    numbers = ~theirs.isnan()
    assert torch.equal(encode(theirs[numbers], fmt), words[numbers])
    few = [x for x in theirs[-500:].tolist() if x == x]
    assert [fmt.encode(x) for x in few] == words[-500:][numbers[-500:]].tolist()


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E5M2, FP8_E4M3, FP32], ids=str)
def test_nan_has_the_bits_that_ml_dtypes_gives_it(fmt):
    theirs = np.array([NAN, -NAN], np.float32).astype(DTYPES.get(fmt, np.float32))
    words = theirs.view(f"u{theirs.itemsize}").tolist()
    assert encode(torch.tensor([NAN, -NAN]), fmt).tolist() == words
    assert [fmt.encode(NAN), fmt.encode(-NAN)] == words


@each_format
def test_ranges_are_those_that_ml_dtypes_states(fmt):
    theirs = ml_dtypes.finfo(DTYPES[fmt])
    assert fmt.bits == theirs.bits
    assert fmt.max == float(theirs.max)
    assert fmt.min_normal == float(theirs.smallest_normal)
    assert fmt.min_subnormal == float(theirs.smallest_subnormal)
    assert fmt.epsilon == float(theirs.eps)


def test_all_values_of_fp4_are_eight_and_their_negatives():
    assert FP4_E2M1.values() == (-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert len(FP8_E4M3.values()) == 256 - 2 - 1  # two NaNs; zero once
    assert len(FP8_E5M2.values()) == 256 - 8 - 1  # two infinities, six NaNs
    for fmt in (FP8_E4M3, FP8_E5M2, Format(4, 5), Format(2, 6, False, False)):
        assert fmt.values()[-len(at_least_zero(fmt)) :] == at_least_zero(fmt)
    with pytest.raises(ValueError, match="values of FP32 are 4,294,967,296; list at most 16 bits"):
        FP32.values()
    assert len(FP16.values()) == 2**16 - 2**11 - 1
    with pytest.raises(ValueError, match="values of E8M8 are 131,072"):
        Format(8, 8).values()


def test_bf16_has_no_subnormals_as_small_as_fp32s():
    # A table in circulation: smallest number "1e-45, like FP32". The smallest normal ones are equal.
    assert f"{BF16.min_subnormal:.1e}" == "9.2e-41"
    assert f"{FP32.min_subnormal:.1e}" == "1.4e-45"
    assert BF16.min_normal == FP32.min_normal == 2.0**-126
    assert BF16.min_subnormal == 2.0**-133


def test_bf16_carries_less_than_three_digits():
    assert [round(f.digits, 1) for f in (FP32, TF32, FP16, BF16)] == [7.2, 3.3, 3.3, 2.4]


def test_fp16_underflows_at_6e8_and_leaves_full_precision_at_6e5():
    assert f"{FP16.min_normal:.1e} {FP16.min_subnormal:.0e} {FP16.max:.0f}" == "6.1e-05 6e-08 65504"
    assert FP16.round(3e-5) > 0
    assert FP16.round(2.9e-8) == 0


def test_fp8_has_two_ranges():
    assert (FP8_E4M3.max, FP8_E5M2.max, Format(4, 3).max) == (448, 57344, 240)
    assert (FP6_E3M2.max, FP6_E2M3.max) == (28, 7.5)


def test_spacing_doubles_with_each_power_of_two():
    assert [BF16.spacing(x) for x in (1.0, 1.99, 2.0, -256.0)] == [2**-7, 2**-7, 2**-6, 2.0]
    assert FP16.spacing(0) == FP16.spacing(1e-9) == FP16.min_subnormal


def test_e8m0_is_powers_of_two_and_nan():
    theirs = np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    np.testing.assert_array_equal([E8M0.decode(i) for i in range(256)], theirs)
    assert str(E8M0) == "E8M0"


def test_formats_are_equal_by_their_numbers():
    assert Format(5, 10) == FP16
    assert str(Format(5, 10)) == "E5M10"
    assert Format(4, 3) != FP8_E4M3


# --- rounding -------------------------------------------------------------------------------------


@cache
def ties_of(fmt: Format) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every number halfway between two, in FP64; the one below, the one above, and the even one.

    The last lies between the largest number and what would be the next.
    """
    last = fmt.max + fmt.spacing(fmt.max)
    beyond = fmt.round(INF)
    pairs = list(pairwise([*at_least_zero(fmt), last]))
    even = [a if i % 2 == 0 else b for i, (a, b) in enumerate(pairs)]
    a, b, even = (torch.tensor(v, dtype=torch.float64) for v in (*zip(*pairs, strict=True), even))
    middle = (a + b) / 2
    return middle, *(torch.where(v > fmt.max, beyond, v) for v in (a, b, even))


@each_format
def test_a_tie_goes_to_even_and_its_neighbours_in_fp64_to_the_nearer_number(fmt):
    # In FP32 both neighbours would be the tie: rounded twice, they would go wrong.
    middle, below, above, even = ties_of(fmt)
    for sign in (1, -1):
        for x, expected in (
            (middle, even),
            (middle.nextafter(torch.tensor(0.0).double()), below),
            (middle.nextafter(torch.tensor(INF).double()), above),
        ):
            assert same(round_to(sign * x, fmt), sign * expected)
            few = (sign * x)[-300:]
            assert same(torch.tensor([fmt.round(v) for v in few.tolist()]), sign * expected[-300:])


@each_format
def test_a_tie_in_fp32_and_its_neighbours_go_where_ml_dtypes_has_them(fmt):
    middle = ties_of(fmt)[0].float()
    for x in (middle, *(middle.nextafter(torch.tensor(end)) for end in (-INF, INF))):
        x = torch.cat([x, -x])
        assert same(round_to(x, fmt), by_ml_dtypes(x, fmt))


@each_format
def test_every_16_bit_number_is_rounded_as_by_ml_dtypes(fmt):
    x = every_16_bit_number()
    assert same(round_to(x, fmt), by_ml_dtypes(x, fmt))


@pytest.mark.parametrize("fmt", TORCH, ids=str)
def test_every_16_bit_number_is_rounded_as_by_torch(fmt):
    x = every_16_bit_number()
    if fmt == FP8_E4M3:  # beyond the largest number torch's versions disagree
        x = x[(x.abs() < 464) | x.isnan()]
    assert same(round_to(x, fmt), x.to(TORCH[fmt]).float())


@each_format
def test_any_fp32_number_is_rounded_as_by_ml_dtypes(fmt):
    random = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**31), 2**31, (200_000,), generator=random).to(torch.int32)
    near = (torch.randn(100_000, generator=random).exp2() * 4).copysign_(words[:100_000])
    for x in (words.view(torch.float32), near):
        assert same(round_to(x, fmt), by_ml_dtypes(x, fmt))


def test_fp64_is_rounded_to_fp32_as_the_processor_does():
    random = torch.Generator().manual_seed(1)
    x = torch.randn(100_000, generator=random, dtype=torch.float64)
    x = torch.cat([x, x * 2.0**-140, x * 1e38, x * 1e300])
    assert same(round_to(x, FP32), x.float())
    assert torch.equal(round_to(x.float(), FP32), x.float())


@st.composite
def formats(draw: st.DrawFn) -> Format:
    infinities = draw(st.booleans())
    nan = infinities or draw(st.booleans())
    exponent = draw(st.integers(2, 8 if infinities else 7))
    return Format(exponent, draw(st.integers(int(nan), 10 - exponent)), infinities, nan)


def by_looking(x: float, fmt: Format, mode: str, random: float) -> float:
    """What |x| becomes, found among all numbers of the format and the one that would be next."""
    values = [*at_least_zero(fmt)]
    values.append(2 * values[-1] - values[-2])
    place = bisect.bisect_right(values, x) - 1
    if place == len(values) - 1:
        return fmt.max if mode == "toward zero" else INF
    low, high = map(Fraction, values[place : place + 2])
    up = (Fraction(x) - low) / (high - low)
    further = up > Fraction(1, 2) or (up == Fraction(1, 2) and place % 2 == 1)
    if {"nearest": further, "toward zero": False, "stochastic": random < up}[mode]:
        return float(high) if float(high) < values[-1] else INF
    return float(low)


floats = st.one_of(
    st.floats(allow_nan=False),
    st.floats(-600, 600),
    st.floats(-1, 1),
    st.floats(width=32, allow_nan=False),
    st.floats(width=16, allow_nan=False),
)


@settings(max_examples=300, deadline=None)
@given(formats(), floats, st.sampled_from(MODES), st.floats(0, 1, exclude_max=True), st.booleans())
def test_one_number_becomes_what_a_search_among_all_numbers_finds(fmt, x, mode, random, saturate):
    expected = INF if math.isinf(x) else by_looking(abs(x), fmt, mode, random)
    if expected == INF:
        expected = fmt.max if saturate or not fmt.nan else INF if fmt.infinities else NAN
    result = fmt.round(x, mode, random, saturate)
    assert same(torch.tensor(result), torch.tensor(math.copysign(expected, x)))


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        formats(),
        st.sampled_from([BF16, FP16, TF32, FP32, Format(7, 23), Format(7, 21), Format(2, 21)]),
    ),
    st.lists(st.floats(), min_size=1, max_size=8),
    st.sampled_from(MODES),
    st.booleans(),
    st.sampled_from([torch.float64, torch.float32]),
)
def test_a_tensor_becomes_what_each_of_its_numbers_does(fmt, values, mode, saturate, dtype):
    x = torch.tensor(values, dtype=torch.float64).to(dtype)
    narrow = fmt.exponent < 8 and fmt.mantissa < 22 and dtype == torch.float32
    computed = torch.float32 if narrow else torch.float64
    random = torch.rand(len(x), generator=torch.Generator().manual_seed(3), dtype=computed)
    alone = [
        fmt.round(v, mode, u, saturate) for v, u in zip(x.tolist(), random.tolist(), strict=True)
    ]
    together = round_to(x, fmt, mode, torch.Generator().manual_seed(3), saturate)
    assert together.dtype == dtype
    assert same(together, torch.tensor(alone, dtype=torch.float64))
    if fmt.nan or not x.isnan().any():
        with_bits = encode(x, fmt, "nearest", saturate=saturate)
        assert with_bits.tolist() == [fmt.encode(v, saturate=saturate) for v in x.tolist()]


@each_format
def test_what_a_format_has_stays_as_it_is_in_every_mode(fmt):
    x = decode(every_pattern(fmt), fmt)
    for mode in MODES:
        for dtype in (torch.float32, torch.float64):
            assert same(round_to(x.to(dtype), fmt, mode), x)


def test_stochastic_rounding_is_right_on_average():
    random = torch.Generator().manual_seed(0)
    for value, fmt in ((0.3, FP4_E2M1), (-5.2, FP4_E2M1), (1 + 2**-10, BF16), (1e-3, FP8_E4M3)):
        x = torch.full((200_000,), value, dtype=torch.float64)
        rounded = round_to(x, fmt, "stochastic", random)
        found = rounded.unique()
        q = fmt.spacing(value)
        assert len(found) == 2
        assert float(found[1] - found[0]) == q
        # Six standard deviations of the mean of numbers that are at most q/2 from theirs.
        assert abs(float(rounded.mean()) - value) < 6 * (q / 2) / 200_000**0.5


def test_stochastic_rounding_draws_from_the_generator_it_is_given():
    x = torch.rand(1000)
    seeded = [round_to(x, BF16, "stochastic", torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(seeded[0], seeded[1])
    assert not torch.equal(seeded[0], seeded[2])


def test_beyond_the_largest_number_lies_infinity_or_nan_or_itself():
    x = torch.tensor([1e30, -1e30, INF, -INF])
    assert encode(x, FP8_E4M3).tolist() == [0x7F, 0xFF, 0x7F, 0xFF]
    assert round_to(x, FP16).tolist() == [INF, -INF, INF, -INF]
    assert round_to(x, FP8_E4M3).isnan().all()
    assert round_to(x, FP4_E2M1).tolist() == [6, -6, 6, -6]
    assert round_to(x, Format(3, 0, False, False)).tolist() == [16, -16, 16, -16]
    assert round_to(x, FP8_E4M3, saturate=True).tolist() == [448, -448, 448, -448]
    assert round_to(x, FP16, "toward zero").tolist() == [65504, -65504, INF, -INF]
    assert [FP16.round(v, "toward zero") for v in x.tolist()] == [65504, -65504, INF, -INF]
    assert [FP8_E4M3.round(v, saturate=True) for v in x.tolist()] == [448, -448, 448, -448]
    assert [FP8_E4M3.encode(v) for v in x.tolist()] == [0x7F, 0xFF, 0x7F, 0xFF]
    assert [FP8_E4M3.encode(v, saturate=True) for v in (1e30, -1e30)] == [0x7E, 0xFE]
    assert round_to(torch.tensor([464.0, 464.1]), FP8_E4M3).tolist()[0] == 448
    assert round_to(torch.tensor([464.1]), FP8_E4M3).isnan()


def test_nan_stays_nan_even_where_a_format_has_none():
    for fmt in (*DTYPES, INT8):
        for saturate in (False, True):
            assert round_to(torch.tensor([NAN]), fmt, saturate=saturate).isnan()


def test_one_number_goes_up_where_its_random_number_is_below_its_fraction():
    # 1.75 lies 3.5 steps of a half above zero.
    for random, expected in ((0.0, 2.0), (0.4, 2.0), (0.5, 1.5), (0.9, 1.5)):
        assert FP4_E2M1.round(1.75, "stochastic", random) == expected
        assert FP4_E2M1.decode(FP4_E2M1.encode(1.75, "stochastic", random)) == expected
        assert INT8.round(3.5, "stochastic", random) == 2 * expected
    assert FP4_E2M1.round(1.75, "toward zero") == 1.5


def test_int8_is_whole_numbers_to_127():
    x = torch.tensor([0.5, 1.5, -2.5, 300, -300, -0.2])
    assert same(round_to(x, INT8), torch.tensor([0.0, 2, -2, 127, -127, -0.0]))
    assert [INT8.round(v) for v in x.tolist()] == [0, 2, -2, 127, -127, 0]
    assert round_to(x, INT8, "toward zero").tolist() == [0, 1, -2, 127, -127, 0]
    assert [Integer(np.int64(bits)).max for bits in (2, 4, 16)] == [1, 7, 32767]
    assert type(Integer(np.int64(4)).bits) is int


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_tensor_of_any_type_keeps_type_and_shape(dtype):
    x = torch.randn(6, 4, dtype=dtype).t()
    rounded = round_to(x, FP8_E5M2)
    assert (rounded.dtype, rounded.shape) == (dtype, x.shape)
    assert torch.equal(rounded, x.to(torch.float8_e5m2).to(dtype))
    assert round_to(x[:0], FP8_E5M2).shape == (0, 6)
    assert round_to(x[0, 0], FP8_E5M2) == rounded[0, 0]


def test_a_long_tensor_is_rounded_to_its_end():
    x = torch.randn(2**17 + 3)
    assert torch.equal(round_to(x, FP16), x.half().float())


def test_rounding_leaves_its_argument_alone_and_hands_on_no_gradient():
    x = torch.randn(8, requires_grad=True)
    before = x.detach().clone()
    assert not round_to(x, FP8_E4M3).requires_grad
    assert torch.equal(x, before)


# --- bad arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Format(9, 3), "exponent is 9; it must be at most 8"),
        (lambda: Format(8, 3, infinities=False), "exponent is 8; it must be at most 7"),
        (lambda: Format(5, 24), "mantissa is 24; it must be at most 23"),
        (lambda: Format(5, 2, nan=False), "nan is False; it must be True in a format that has inf"),
        (lambda: FP4_E2M1.encode(NAN), "x is NaN, and FP4 E2M1 has no bits for it"),
        (lambda: encode(torch.tensor([NAN]), FP4_E2M1), "FP4 E2M1 has no bits for NaN"),
        (
            lambda: FP16.round(1.0, "up"),
            "mode is 'up'; it must be 'nearest', 'toward zero' or 'stochastic'",
        ),
        (lambda: FP16.round(1.0, "stochastic"), "random is None; it must be a number from 0 to 1,"),
        (lambda: FP16.round(1.0, "stochastic", 1.0), "random is 1.0; it must be"),
        (lambda: FP16.round("1"), "x is '1'; it must be a number"),
        (lambda: FP16.round(10**400), "it must be a number that a float can hold"),
        (lambda: FP16.round(10**400), "x is 1000"),
        (lambda: FP16.round(1.0, "stochastic", "0.5"), "random is '0.5'; it must be a number"),
        (lambda: FP4_E2M1.infinity_pattern, "FP4 E2M1 has no infinities"),
        (lambda: Integer(17), "bits is 17; it must be at most 16"),
        (lambda: E8M0.decode(256), "pattern is 256; it must be at most 255"),
        (lambda: FP16.decode(2**16), "pattern is 65536; it must be at most 65,535"),
        (lambda: round_to(torch.ones(2), "FP16"), "fmt is 'FP16'; it must be a Format such as"),
        (lambda: round_to(torch.ones(2, dtype=torch.int32), FP16), "x is of torch.int32; it must"),
        (lambda: round_to(torch.ones(2).half(), BF16), "x is of torch.float16; it must be of a"),
        (lambda: round_to(torch.ones(2).half(), Format(5, 10, False)), "every number of E5M10"),
        (lambda: round_to(torch.ones(2).bfloat16(), FP16), "holds every number of FP16"),
        (lambda: round_to(torch.ones(2).bfloat16(), Integer(10)), "holds every number of INT10"),
        (lambda: decode(torch.tensor([3, 256]), FP8_E4M3), "patterns is from 3 to 256; it must be"),
        (lambda: decode(torch.ones(2), FP8_E4M3), "it must be whole numbers"),
    ],
)
def test_a_bad_argument_is_told_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(")):
        call()
