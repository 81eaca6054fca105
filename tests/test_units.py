import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys import checks, units

sizes = st.floats(1, 1e18, allow_nan=False)


def test_a_gibibyte_is_seven_percent_more_than_a_gigabyte():
    assert units.gibibytes(1) / units.gigabytes(1) == 1.073741824
    # A V100's 32 GB of memory are 32 GiB, which is 34.36 GB.
    assert units.format_bytes(units.gibibytes(32)) == "34.4 GB"
    assert units.format_bytes(units.gibibytes(32), binary=True) == "32 GiB"


def test_a_hundred_gigabits_per_second_are_twelve_and_a_half_gigabytes_per_second():
    assert units.gigabits_per_second(100) == 12.5e9
    assert units.parse_bytes("100 Gb/s") == 12.5e9
    assert units.parse_bytes("100 GB/s") == 100e9
    assert units.gigabits(8) == units.gigabytes(1)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1000, "1 kB"),
        (1.12e12, "1.12 TB"),
        (999.9e9, "1 TB"),
        (16e9, "16 GB"),
    ],
)
def test_bytes_are_shown_with_three_digits_in_the_largest_unit_that_fits(number, text):
    assert units.format_bytes(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 s"),
        (13e-6, "13 µs"),
        (3.75e-3, "3.75 ms"),
        (1.96, "1.96 s"),
        (119, "119 s"),
        (273_438, "3.16 days"),
        (3.185e8, "10.1 years"),
    ],
)
def test_seconds_are_shown_in_the_unit_a_reader_would_use(number, text):
    assert units.format_seconds(number) == text


def test_flops_beyond_every_prefix_are_shown_as_a_power_of_ten():
    assert units.format_flops(3.14e23) == "314 ZFLOP"
    assert units.format_flops(8.4e24) == "8.4e+24 FLOP"
    assert units.parse_flops("989 TFLOP/s") == 989e12


def test_bandwidth_is_shown_in_decimal_bytes_per_second():
    assert units.format_bandwidth(450e9) == "450 GB/s"


@given(sizes, st.booleans())
def test_what_is_shown_reads_back_to_three_digits(number, binary):
    assert math.isclose(units.parse_bytes(units.format_bytes(number, binary)), number, rel_tol=6e-3)


@given(st.floats(1e-9, 1e10))
def test_seconds_read_back_to_three_digits(number):
    assert math.isclose(units.parse_seconds(units.format_seconds(number)), number, rel_tol=6e-3)


@given(st.floats(1, 9e23))
def test_flops_read_back_to_three_digits(number):
    assert math.isclose(units.parse_flops(units.format_flops(number)), number, rel_tol=6e-3)


@pytest.mark.parametrize(
    "show",
    [
        units.gigabytes,
        units.gibibytes,
        units.gigabits_per_second,
        units.format_bytes,
        units.format_seconds,
        units.format_flops,
        units.format_bandwidth,
    ],
)
@pytest.mark.parametrize("number", [-1, math.nan, math.inf])
def test_negative_and_infinite_quantities_are_refused(show, number):
    with pytest.raises(ValueError, match="must be a finite number of at least 0"):
        show(number)


@pytest.mark.parametrize("text", ["80", "GB", "-3 GB", "1.2.3 GB", "", "80 GB extra"])
def test_text_that_is_no_quantity_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="80 GB"):
        units.parse_bytes(text)


def test_an_ambiguous_unit_is_refused_rather_than_guessed():
    with pytest.raises(ValueError, match="no unit 'gb'"):
        units.parse_bytes("80 gb")


@pytest.mark.parametrize("wrong", [0, -2, 1.5, True, "3"])
def test_a_count_is_a_whole_number_from_one(wrong):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        checks.count("ranks", wrong)


def test_an_unknown_name_in_a_catalogue_is_a_sentence_with_the_nearest():
    fruit = units.Catalogue("fruit", {"apple": 1, "pear": 2})
    with pytest.raises(KeyError) as caught:
        fruit["appel"]
    assert (
        str(caught.value) == "There is no fruit 'appel'; did you mean 'apple'? Known: apple, pear."
    )
    assert fruit.get("appel") is None
