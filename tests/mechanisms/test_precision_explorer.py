"""The explorer of formats and the pictures, held against formats, theory, and their own words."""

import math
from fractions import Fraction

import pytest
import torch

from dlsys.precision import (
    BF16,
    FP4_E2M1,
    FP8_E4M3,
    FP16,
    draw_errors,
    draw_losses,
    draw_number_line,
    expected_signal_to_noise,
    explore,
    round_to,
)
from dlsys.precision.explorer import BINS, Bin, Choice, Noise, Number, Rounding
from dlsys.precision.number_line import errors, numbers_between, sample


def of(kind, choice):
    return [row for row in choice.rows() if isinstance(row, kind)]


@pytest.mark.parametrize("fmt", [FP4_E2M1, FP8_E4M3], ids=str)
@pytest.mark.parametrize(("low", "high"), [(0, 8), (0.3, 5.1), (2, 1e9)])
def test_numbers_between_are_the_formats_own(fmt, low, high):
    assert numbers_between(fmt, low, high) == tuple(v for v in fmt.values() if low <= v <= high)


def test_too_many_numbers_are_none():
    assert numbers_between(FP16, 1, 1.25, 257) is not None
    assert numbers_between(FP16, 1, 1.25, 256) is None
    step = FP16.epsilon
    assert len(numbers_between(FP16, 1, 1 + 399 * step)) == 400
    assert numbers_between(FP16, 1, 1 + 400 * step) is None
    assert numbers_between(FP4_E2M1, 0, 0.5) == (0, 0.5)


@pytest.mark.parametrize(
    ("low", "high", "most", "sentence"),
    [
        (1, 1, 400, "high is 1; it must be above low, 1"),
    ],
)
def test_what_is_no_interval_is_refused_in_a_sentence(low, high, most, sentence):
    with pytest.raises(ValueError, match=sentence):
        numbers_between(FP16, low, high, most)


@pytest.mark.parametrize("distribution", ["normal", "laplace", "uniform"])
def test_a_sample_has_its_distributions_deviation(distribution):
    values = sample(distribution, 3.0, 2000)
    assert values == sorted(values)
    assert sum(values) == pytest.approx(0, abs=1e-6)
    assert math.sqrt(sum(x * x for x in values) / 2000) == pytest.approx(3, rel=0.01)


def test_errors_are_within_half_a_spacing_to_nearest_and_within_one_otherwise():
    values = sample("normal", 1.0, 2000)
    assert max(map(abs, errors(FP8_E4M3, values, "nearest"))) == pytest.approx(0.5, abs=0.01)
    cut = errors(FP8_E4M3, values, "toward zero")
    assert all(error * x <= 0 and abs(error) < 1 for error, x in zip(cut, values, strict=True))
    drawn = errors(FP8_E4M3, values, "stochastic")
    assert 0.9 < max(drawn) < 1
    assert -1 < min(drawn) < -0.9
    assert errors(FP4_E2M1, [100.0, -8.0], "nearest") == [-94 / 32, 2 / 4]  # saturated at 6


def test_the_noise_of_each_mode_is_what_theory_says():
    for choice in (Choice(), Choice(exponent=5, mantissa=5, deviation=0.1)):
        noise = {row.mode: row for row in of(Noise, choice)}
        expected = expected_signal_to_noise(choice.format, choice.numbers, choice.deviation)
        assert noise["nearest"].expected == expected
        assert noise["nearest"].measured == pytest.approx(expected, abs=0.2)
        # Mean squares of q/2 on either side: q^2/12; of a whole q: q^2/3; of a triangle: q^2/6.
        assert noise["toward zero"].measured == pytest.approx(expected - 6.02, abs=0.3)
        assert noise["stochastic"].measured == pytest.approx(expected - 3.01, abs=0.3)


def test_the_value_goes_where_the_format_rounds_it():
    choice = Choice(value=2.7)  # between 2.5 and 2.75
    roundings = {row.mode: row[1:] for row in of(Rounding, choice)}
    assert roundings["nearest"] == (2.75, 2.75, 1)
    assert roundings["toward zero"] == (2.5, 2.5, 1)
    assert roundings["stochastic"] == (2.5, 2.75, pytest.approx(0.8))
    numbers = [row.value for row in of(Number, choice)]
    assert {2.5, 2.75} < set(numbers) < set(FP8_E4M3.values())


def test_errors_are_counted_once_each_and_a_saturated_value_is_the_largest():
    choice = Choice(exponent=2, mantissa=1, special="none", value=300.0)
    for mode in ("nearest", "toward zero", "stochastic"):
        bins = [row for row in of(Bin, choice) if row.mode == mode]
        assert len(bins) == BINS
        assert sum(Fraction(round(row.share * 2000), 2000) for row in bins) == 1
    assert {row[1:] for row in of(Rounding, choice)} == {(6, 6, 1)}
    assert [row.value for row in of(Number, choice)] == [6.0]


def test_the_explorer_says_in_words_what_it_draws():
    choice = Choice(mode="stochastic")
    words = choice.summary()
    assert "E4M3, 8 bits, holds numbers up to 448" in words
    assert "2.7 becomes 2.75 in 80% of cases, otherwise 2.5 (stochastic)" in words
    (noise,) = (row for row in of(Noise, choice) if row.mode == "stochastic")
    assert f"{noise.measured:.1f} dB" in words
    assert explore(mode="stochastic").choice == choice
    assert "(computed: 31.5)" in Choice().summary()


def test_the_figure_draws_the_rows():
    choice = Choice(mode="stochastic")
    line, shares = choice.figure().axes
    (ticks,) = line.collections
    drawn = [segment[0][0] for segment in ticks.get_segments()]
    assert drawn == [row.value for row in of(Number, choice)]
    ends = {float(each.get_xdata()[0]) for each in line.lines if each.get_marker() == "o"}
    assert ends == {2.5, 2.75}
    for patch, mode in zip(shares.patches, ("nearest", "toward zero", "stochastic"), strict=True):
        bins = [row for row in of(Bin, choice) if row.mode == mode]
        assert list(patch.get_data().values) == [100 * row.share for row in bins]
        assert patch.get_label() == mode


def test_a_number_line_has_a_tick_for_each_number_and_a_band_for_too_many():
    (axes,) = draw_number_line([FP4_E2M1, FP8_E4M3, BF16], 0, 8).axes
    assert [len(each.get_segments()) for each in axes.collections] == [8, 81]
    assert len(axes.patches) == 1
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "FP4 E2M1",
        "FP8 E4M3",
        "BF16",
    ]
    assert axes.lines[0].get_xdata()[-1] == 6  # FP4 ends there


def test_the_picture_of_errors_counts_each_and_names_the_noise():
    x = torch.tensor([1.0, 1.2, 2.0, 3.1, 0.0, 0.1])
    (axes,) = draw_errors(x, {"FP4": round_to(x, FP4_E2M1)}, bins=5).axes
    (line,) = axes.lines
    # 0, +25 % (1.2 to 1.0 is -17 %), 0, -3 %; 0.1 became zero.
    assert list(line.get_ydata()) == pytest.approx([20, 20, 60, 0, 0])
    assert line.get_label().startswith("FP4: ")
    assert line.get_label().endswith(" dB")


def test_the_picture_of_losses_has_the_curves_and_what_is_above_the_first():
    left, right = draw_losses({"fp32": [3.0, 2.0, 1.0], "fp4": [3.5, 3.0, 2.0]}, window=2).axes
    assert [list(line.get_ydata()) for line in left.lines] == [[3, 2, 1], [3.5, 3, 2]]
    assert list(right.lines[1].get_ydata()) == [0.75, 1.0]
    assert list(right.lines[1].get_xdata()) == [0.5, 1.5]
    with pytest.raises(ValueError, match="curve 'b' is 1; it must be of 2 steps"):
        draw_losses({"a": [1.0, 2.0], "b": [1.0]})
