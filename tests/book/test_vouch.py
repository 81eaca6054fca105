"""The forms by which a page says where a number comes from that nothing computes."""

import pytest

from dlsys.notebook.vouch import given, sourced


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
