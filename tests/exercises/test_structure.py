"""Answers of another structure get a sentence about the structure, and no error of Python's."""

import re
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dlsys.exercises import OtherStructure, WrongAnswer, same, seal, sealed
from dlsys.exercises.forms import beside, by_rank, chosen, described, fits, formed, proved
from dlsys.exercises.structure import built_otherwise, rearranged
from dlsys.exercises.tensors import (
    beside_a_sum,
    by_name,
    cut,
    in_order,
    in_words,
    numbers,
    of_all,
)

# -- the sentences -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "expected", "words"),
    [
        (["ring"], "ring", "it came inside brackets: take them off"),
        (["ring", "tree"], "ring", "a list of 2 came: which of them is it?"),
        ({"a": 3}, 3, "a dictionary came: which of its values is it?"),
        ("ring", ["ring"], "A list of 1 is wanted, in square brackets; text came alone."),
        ({"a": 3}, [3], "a dictionary came: give its values alone, in order."),
        ([3], {"a": 3}, "A dictionary is wanted, with a name for each value; a list came."),
        ("3", 3, "a number is expected; text came: write it without quotes."),
        (3, "ring", "text is expected; a number came: write a word in quotes."),
        ([1, "2"], [1, 2], "In its part [1]: a number is expected; text came"),
        ({"a": [1]}, {"a": 1}, "In its part ['a']: One value is wanted"),
        (["ring"], sealed(seal("ring")), "take them off"),
        (3, sealed(seal([1, 2])), "A list of 2 is wanted"),
        ("20", sealed(seal(20)), "write it without quotes"),
    ],
)
def test_values_of_different_structure_have_a_sentence(
    came: Any, expected: Any, words: str
) -> None:
    assert words in str(built_otherwise(came, expected))
    with pytest.raises(WrongAnswer) as caught:
        same(came, expected, hint={None: "a hint on the values"})
    assert words in str(caught.value)
    assert "a hint on the values" not in str(caught.value)


@pytest.mark.parametrize(
    ("came", "expected"),
    [(3, 4), (3, 4.5), ("a", "b"), ([1], [2]), ([1], [1, 2]), ([1, None], [1, 2]), ({"a": 1}, {"b": 1})],
)  # fmt: skip
def test_values_of_one_structure_have_none_and_keep_their_hint(came: Any, expected: Any) -> None:
    assert built_otherwise(came, expected) is None
    with pytest.raises(WrongAnswer, match="a hint on the values"):
        same(came, expected, hint={None: "a hint on the values"})


def test_a_seal_without_a_form_says_nothing_of_structure() -> None:
    bare = sealed(seal(20).rpartition("$")[0])
    assert bare.matches(20)
    assert built_otherwise([20], bare) is None
    assert built_otherwise([20], sealed(seal(20)))


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ([[3], [1, 2]], "in reverse order"),
        ([1, 2, 3], "other brackets around them"),
        ([[2, 1], [3]], "in another order"),
        ([[1, 2], [4]], "None"),
        ([[1, 2], [3]], "None"),
    ],
)
def test_the_right_values_in_another_place_are_told_so(came: Any, words: str) -> None:
    assert words in str(rearranged(came, [[1, 2], [3]]))


def test_numbers_made_to_collide_are_not_counted() -> None:
    """Forty thousand of one hash would be compared each with all before it, for minutes."""
    began = time.process_time()
    assert rearranged([k * (2**61 - 1) for k in range(40_000)], [1, 2]) is None
    assert time.process_time() - began < 60


# -- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "form"),
    [
        (3, int),
        (3, float),
        (np.float64(3), float),
        (torch.tensor(3.0), float),
        (torch.ones(2, 3), [[float]]),
        ((1, 2), [int]),
        ([1, "a"], (int, str)),
        ([1, "a"], [int, str]),
        (torch.ones(2), [float, float]),
        ([np.int64(1), 2], [int, int]),
        ((np.float32(1), torch.tensor(2)), (float, int)),
        ({"a": np.int64(1), "b": [np.bool_(True)]}, {"a": int, "b": [bool]}),
        ({"a": 1}, {"a": int}),
        ({"b": 1}, {str: int}),
        (torch.nn.Parameter(torch.ones(2)), torch.Tensor),
        (len, callable),
        ([], [int]),
    ],
)
def test_what_has_the_form_passes(came: Any, form: Any) -> None:
    assert fits(came, form)
    formed(came, form)


def test_numbers_of_numpy_come_back_as_numbers_wherever_they_stand() -> None:
    came = formed({"a": [np.int64(1), 2], "b": (np.float64(3),)}, {"a": [int, int], "b": (float,)})
    assert repr(came) == "{'a': [1, 2], 'b': (3.0,)}"


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("came", "form", "words"),
    [
        (True, int, "should be a whole number; it is True."),
        (3.5, int, "it is the number 3.5"),
        ([1, 2, 3], (int, int), "a tuple of 2 (a whole number, a whole number); it is a list of 3."),
        ((1,), [int, int], "a list of 2 (a whole number, a whole number); it is a tuple of 1."),
        ([1, "2"], [int, int], "in it, [1] is the text '2'."),
        ([[1], 2], [[int]], "a list of lists of whole numbers; in it, [1] is the number 2."),
        ({"a": 1}, {"b": int}, "a dictionary with the keys 'b'; it is a dictionary with the keys ['a']."),
        ({3: 1}, {str: int}, "texts as keys; it is a dictionary with the keys [3]"),
        (torch.ones(2), (torch.Tensor,), "it is an array or tensor of shape (2,)"),
        (len, [int], "it is a function."),
        ({1}, [int], "it is of type set."),
        (None, [int], "None came: not answered yet"),
        ([..., ...], [int], "Not answered yet"),
        ([1, None], [int], "at [1]: None came"),
        (3, callable, "a function; it is the number 3"),
        (torch.ones(2, device="meta"), [float], "it is an array or tensor of shape (2,)"),
        (torch.ones(2).to_sparse(), [float], "it is an array or tensor of shape (2,)"),
        ({Unspeakable(): 1}, {"a": int}, "it is of type dict"),
    ],
)  # fmt: skip
def test_what_has_another_form_is_told_where(came: Any, form: Any, words: str) -> None:
    assert not fits(came, form)
    with pytest.raises(OtherStructure) as caught:
        formed(came, form, "It")
    assert words in str(caught.value)


def test_forms_are_described_as_one_would_say_them() -> None:
    assert described([[str]]) == "a list of lists of texts"
    assert described([[int, str]]) == "a list of lists of 2 (a whole number, text)"
    assert described([(str, torch.Tensor)]) == "a list of tuples of 2 (text, a tensor)"
    assert described([{"a": int}]) == "a list of dictionaries with the keys 'a'"


def test_a_rank_that_returns_something_else_is_named() -> None:
    with pytest.raises(OtherStructure, match="What rank 1 returns should be a tensor"):
        by_rank([torch.ones(1), 3], torch.Tensor)


def test_a_design_takes_its_choices_and_no_others() -> None:
    choices = {"tp": (1, 2), "divided": (False, True), "cut": ("rows",)}
    design = {"cut": "rows", "tp": 2.0, "divided": True}
    assert repr(chosen(design, choices)) == "{'tp': 2, 'divided': True, 'cut': 'rows'}"
    assert repr(chosen(design | {"tp": np.int64(2)}, choices)["tp"]) == "2"
    for wrong, words in (
        ({"tp": 3}, "tp = 3 is no choice that there is: take one of 1, 2."),
        ({"tp": True}, "tp = True is no choice"),
        ({"tp": torch.tensor([2, 2])}, "tp is a list of 2, which is no choice"),
        ({"tp": torch.ones(2, device="meta")}, "tp is an array or tensor of shape (2,), which"),
        ({"cut": np.array(["rows"])}, "cut is a list of 1, which is no choice"),
        ({"divided": 1}, "divided = 1 is no choice that there is: take one of False, True."),
        ({"more": 1}, "with the keys 'tp', 'divided', 'cut'"),
    ):
        with pytest.raises(OtherStructure, match=re.escape(words)):
            chosen(design | wrong, choices)


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        ({"a": 100, "b": 2.0}, "as measured"),
        ({"b": 2, "a": 100.9}, "as measured"),
        ({"a": 102, "b": 9}, "a: too much"),
        ({"a": 10**400, "b": 2}, "a: too much"),
        ({"a": 100, "b": 1.9}, "b: too little"),
        ({"a": float("nan"), "b": 2}, "a: too little"),
    ],
)
def test_a_prediction_is_beside_what_was_measured_or_its_first_other_number_is_named(
    predicted: dict[str, float], said: str
) -> None:
    assert beside(predicted, {"a": 100, "b": 2}, rtol=0.01) == said


@pytest.mark.parametrize("predicted", [{"a": 1}, {"a": "1", "b": 2}, [1, 2], {"a": ..., "b": 2}])
def test_a_prediction_without_a_number_for_each_name_is_of_another_structure(
    predicted: object,
) -> None:
    with pytest.raises(OtherStructure, match="The prediction"):
        beside(predicted, {"a": 1, "b": 2})


def test_a_check_is_proved_or_says_why_not() -> None:
    def fails() -> None:
        raise ValueError("rank 3 waits")

    assert proved(lambda: None) == "proved"
    assert proved(fails) == "rank 3 waits"


# -- tensors -------------------------------------------------------------------------------------


def test_numbers_are_whole_within_bounds_and_the_same_for_the_same_text() -> None:
    x = numbers("1/x", 40, 5, most=3)
    assert x.shape == (40, 5)
    assert set(x.flatten().tolist()) == set(range(-3, 4))
    assert torch.equal(x, numbers("1/x", 40, 5, most=3))
    assert not torch.equal(x, numbers("1/y", 40, 5, most=3))


def test_the_parts_of_all_ranks_are_the_tensor_and_no_view_of_it() -> None:
    x = torch.arange(24.0).reshape(4, 6)
    for dimension in (0, 1):
        parts = [cut(x, dimension, SimpleNamespace(size=2, rank=rank)) for rank in (0, 1)]
        assert torch.equal(torch.cat(parts, dimension), x)
        parts[0].zero_()
    assert torch.equal(x, torch.arange(24.0).reshape(4, 6))


def test_a_tensor_is_called_by_the_first_name_that_fits() -> None:
    right = torch.tensor([2.0, 4.0])
    known = {"right": right} | beside_a_sum(right, 4)
    for came, word in (
        (right + 1e-6, "right"),
        (right.double(), "right"),
        (right / 4, "the mean, not the sum"),
        (right * 4, "the sum, times the number of ranks"),
        (-right, "the negative"),
        (right[:1], "of another shape"),
        (right + 1, "wrong"),
        (right / 0, "inf or nan"),
        ([2.0, 4.0], "no tensor"),
        (torch.complex(right, right), "no tensor"),  # its real part alone is right
        (right.to("meta"), "no tensor"),
        (right.to_sparse(), "no tensor"),
    ):
        assert in_words(came, known) == word


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_one_shape_is_a_sentence_everywhere() -> None:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    assert in_words(nested, {"right": torch.ones(2)}) == "no tensor"
    with pytest.raises(OtherStructure, match="it is of type Tensor"):
        formed(nested, float)
    with pytest.raises(WrongAnswer, match="numbers cannot be read"):
        same(nested, [1.0])


def test_words_of_ranks_are_one_where_they_agree_and_say_who_differs_elsewhere() -> None:
    assert of_all(["right", "right"]) == "right"
    assert of_all(["right", "wrong", "right"]) == "ranks 0, 2: right; rank 1: wrong"
    assert of_all(["right", "wrong"], "layer") == "layer 0: right; layer 1: wrong"
    assert by_name([{"y": "right"}, {"y": "wrong"}]) == {"y": "rank 0: right; rank 1: wrong"}


def test_the_right_tensors_in_another_order_are_told_so_and_others_are_not() -> None:
    right = {"y": torch.ones(2), "grad": torch.zeros(3)}
    came = list(right.values())
    assert in_order(came, right, "It") is came
    wrong = [torch.zeros(3), torch.zeros(3)]
    assert in_order(wrong, right, "It") is wrong
    with pytest.raises(OtherStructure, match=r"\(grad, y\) came, and \(y, grad\) is asked for"):
        in_order(came[::-1], right, "It")
