"""The forms by which a page says where a number comes from that nothing computes."""

import re

import pytest

from dlsys.notebook.vouch import given, says, sourced


def test_numbers_pass_in_silence(capsys):
    given(64, 0.3, 14e9)
    sourced(4.4, 40.3, by="dao2022, figure 2")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("number", ["64", None, True, float("nan"), (64, 8)])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(ValueError, match=r"A number that stands in the text is .*finite number"):
        given(64, number)
    with pytest.raises(ValueError, match=r"A number that stands in the text is .*finite number"):
        sourced(number, by="dao2022")


@pytest.mark.parametrize("by", ["", "  ", "4.4", None, 2022])
def test_a_source_is_named_in_words(by):
    with pytest.raises(ValueError, match=r"^by is "):
        sourced(64, by=by)


def test_a_text_says_what_is_computed_to_the_digits_that_it_gives():
    says("sends 24.5 GB", 24.54e9)
    says("takes 436 ms, 54.5 on NVLink", 0.4362, 54.46)
    says("1,024 ranks, or 40 %", 1024, 0.396)
    says("in 0.6 and 2.7 µs", 0.6e-6, 2.66e-6)


@pytest.mark.parametrize(
    ("words", "values", "wrong"),
    [
        ("sends 24.5 GB", [24.56e9], "'sends 24.5 GB' says 24.5, and it is 2.456e+10."),
        ("24.5 of 98", [24.5], "24.5, 98; there must be a value for each, and 1 were given."),
        ("twice as long", [2], "none; there must be a value for each, and 1 were given."),
        ("40 %", [0.406], "says 40, and it is 0.406"),
    ],
)
def test_a_text_that_says_otherwise_is_found(words, values, wrong):
    with pytest.raises(ValueError, match=re.escape(wrong)):
        says(words, *values)
