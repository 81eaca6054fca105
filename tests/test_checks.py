"""Arguments checked: what is a number of another kind is that number, or is refused by its name."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from dlsys.annotated import checked
from dlsys.checks import at_least, count, finite, fraction, positive, some, whole
from dlsys.resilience import daly_interval
from dlsys.roofline import wave_utilization
from dlsys.scaling_laws import PUBLISHED
from dlsys.training_loop import linear

NO_NUMBERS = [
    *(None, True, np.True_, "3", b"3", [3], {}, {3}, int, object()),
    *(torch.tensor([3]), torch.ones(2), torch.ones(0), torch.tensor(True)),
    *(torch.ones((), device="meta"), torch.ones(2).to_sparse()),
    *(np.array([3]), np.ones(2), np.ones(0), np.array(True)),
    *(float("nan"), float("inf"), 10**400, 3 + 0j, Fraction(10**400)),
]
CHECKS = [
    lambda value: count("lanes", value),
    lambda value: whole("lanes", value),
    lambda value: at_least("lanes", value, 0),
    lambda value: finite("lanes", value),
    lambda value: positive("lanes", value),
    lambda value: fraction("lanes", value),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize(
    "check", CHECKS, ids=["count", "whole", "at_least", "finite", "positive", "fraction"]
)
def test_what_is_no_number_is_refused_by_the_name_of_its_parameter(check, value):
    with pytest.raises(ValueError, match=r"(?s)^lanes is .*; it must be a"):
        check(value)


WHOLE = [3, np.int8(3), np.uint16(3), np.int64(3), np.array(3), torch.tensor(3)]


@pytest.mark.parametrize("value", WHOLE, ids=lambda value: f"{type(value).__name__}")
@pytest.mark.parametrize("check", [count, whole])
def test_a_whole_number_of_any_kind_is_pythons_own_afterwards(check, value):
    assert type(check("lanes", value)) is int
    assert check("lanes", value) == 3


@pytest.mark.parametrize(
    "values", [[], {}, (), "", np.ones(0), torch.ones(0), np.array(3), torch.tensor(3), None, 0]
)
def test_what_is_empty_or_has_no_length_is_refused_by_name(values):
    with pytest.raises(ValueError, match=r"^lanes is .*; it must have at least one"):
        some("lanes", values)


@pytest.mark.parametrize("values", [[0], {1: 2}, np.zeros(2), torch.zeros(2), range(1), iter([0])])
def test_what_has_something_is_taken_whatever_it_is(values):
    some("lanes", values)


@checked
def taken(number: float, rows: list[float], maybe: int | None = None) -> list[object]:
    return [number, rows, maybe]


@pytest.mark.parametrize("make", [np.float16, np.float32, torch.tensor, np.array, Fraction])
def test_a_function_gets_pythons_own_number_for_one_of_another_kind(make):
    number, _, _ = taken(make(0.5), [1.0])
    assert (type(number), number) == (float, 0.5)
    assert type(taken(number=np.float32(0.5), rows=[])[0]) is float


@pytest.mark.parametrize("make", [np.array, torch.tensor, iter, tuple, set])
def test_a_function_gets_a_sequence_that_it_can_go_through_twice_for_one_of_another_kind(make):
    _, rows, _ = taken(1.0, make([1, 2]), np.int8(3))
    assert [*rows] == [*rows] == [1, 2]
    assert {type(row) for row in rows} == {int}


@pytest.mark.parametrize("rows", [np.array(3), torch.tensor(3), torch.ones(2, device="meta")])
def test_an_array_that_is_no_sequence_of_numbers_is_refused_by_name(rows):
    with pytest.raises(ValueError, match=r"^rows is .*; it must be a sequence"):
        taken(1.0, rows)


def test_numbers_of_few_bits_neither_round_nor_overflow_what_is_computed_with_them():
    assert daly_interval(60.0, np.float16(1e4)) == daly_interval(60.0, 1e4)
    assert linear(3, 10, np.float32(0.1)) == linear(3, 10, float(np.float32(0.1)))
    assert wave_utilization(109, np.int8(108)) == wave_utilization(109, 108)
    law = PUBLISHED["hoffmann-2022"].law
    assert law.loss(torch.tensor(1e9), 2e10) == law.loss(1e9, 2e10)
