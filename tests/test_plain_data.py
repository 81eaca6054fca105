"""Plans that travel: exact from whoever is honest, and no other class from anybody."""

import importlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dlsys.collectives import Transfer, ring_all_reduce, tree_broadcast
from dlsys.collectives.plan import Plan as Collective
from dlsys.context_parallel import layout as share_out
from dlsys.data_parallel.plan import BucketPlan, buckets
from dlsys.memory_wall.plan import RECIPES, model_state
from dlsys.pipeline_parallel import Action, Plan, interleaved, zero_bubble
from dlsys.plain_data import Unfit, as_data, from_data, offered_as, plain_data
from dlsys.precision import FP8_E4M3, INT8, MXFP4, NVFP4
from dlsys.tensor_parallel import layout
from dlsys.transformer import CATALOGUE

PACKAGE = Path(__file__).parent.parent / "dlsys"
NAME = "dlsys.pipeline_parallel.plan.Plan"
GOOD = ["a name", 1, 1, [[["F", 0, 0], ["B", 0, 0]]]]


def offers() -> list[type]:
    """Every NamedTuple and dataclass that a mechanism's plan.py defines."""
    names = [f"dlsys.{path.parent.name}.plan" for path in sorted(PACKAGE.glob("*/plan.py"))]
    return [
        cls
        for name in names
        for cls in vars(importlib.import_module(name)).values()
        if isinstance(cls, type) and cls.__module__ == name
        if is_dataclass(cls) or hasattr(cls, "_fields")
    ]


def across(value: Any) -> Any:
    name = offered_as(type(value))
    assert name is not None
    return from_data(name, json.loads(json.dumps(as_data(value))))


@pytest.mark.parametrize(
    "value",
    [
        Action("F", 0, 3),
        interleaved(2, 4, 2),
        zero_bubble(3, 5),
        buckets({"weight": 4000, "bias": 40}, 1000),
        layout(CATALOGUE["llama3-8b"], 4, sequence_parallel=True),
        share_out(21, 4, "zigzag", (0, 5)),
        model_state(7e9),
        *(FP8_E4M3, INT8, MXFP4, NVFP4),
        *RECIPES.values(),
        *CATALOGUE.values(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plan_of_any_mechanism_arrives_as_it_is(value: Any) -> None:
    came = across(value)
    assert came == value
    assert type(came) is type(value)


@pytest.mark.parametrize("plan", [ring_all_reduce(5), tree_broadcast(6, 2)], ids=repr)
def test_a_collective_arrives_with_its_rounds_and_without_a_claim_on_its_price(plan: Any) -> None:
    came = across(plan)
    assert came.rounds == tuple(map(tuple, plan.rounds))
    assert (repr(came), came.symmetry) == (repr(plan), None)


@pytest.mark.parametrize("cls", offers(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_whatever_a_plan_is_made_of_is_offered_and_can_travel(cls: type) -> None:
    name = offered_as(cls)
    assert name is not None
    with pytest.raises(Unfit, match=f"{cls.__name__} is None; it must be the list of its"):
        from_data(name, None)  # its annotations have been read


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        ([0, 4], "chunks is [0, 4]; it must be 3 values"),
        ([0, 4, 0], "it must be a range with a step that is not 0"),
        ([0, 4, "1"], "chunks is '1'; it must be a whole number"),
    ],
)
def test_a_range_comes_in_by_three_whole_numbers(chunk: list[Any], words: str) -> None:
    with pytest.raises(Unfit, match=re.escape(words)):
        from_data("dlsys.context_parallel.plan.Layout", [[[chunk]], [0]])


def test_numbers_of_numpy_become_pythons() -> None:
    sent: Any = Transfer(np.int64(1), np.int8(2), 3, 4, np.True_)
    assert json.dumps(as_data(sent)) == "[1, 2, 3, 4, true]"
    assert json.dumps(as_data(sent._replace(reduce=1))) == "[1, 2, 3, 4, true]"


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "this.Zen",
        "dlsys.pipeline_parallel.plan.PlanError",
        "dlsys.pipeline_parallel.price.Price",
        "dlsys.pipeline_parallel.plan",
        "Plan",
        "",
        3,
        None,
        ["dlsys.pipeline_parallel.plan.Plan"],
    ],
)
def test_what_is_not_offered_is_neither_built_nor_imported(name: Any) -> None:
    loaded = set(sys.modules)
    with pytest.raises(Unfit, match="Nothing is offered as plain data under the name"):
        from_data(name, GOOD)
    assert set(sys.modules) == loaded


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (None, "Plan is None; it must be the list of its 4 fields."),
        ({}, "Plan is {}; it must be the list of its 4 fields."),
        (GOOD[:3], "it must be the list of its 4 fields."),
        ([*GOOD, 1], "it must be the list of its 4 fields."),
        ([1, *GOOD[1:]], "Plan.name is 1; it must be text."),
        (["x", True, 1, []], "Plan.stages is True; it must be a whole number."),
        (["x", 1, 1.0, []], "Plan.micro_batches is 1.0; it must be a whole number."),
        (["x", 1, 1, "FB"], "Plan.ranks is 'FB'; it must be a sequence."),
        (["x", 1, 1, [[["F", 0, "0"]]]], "Action.micro_batch is '0'; it must be a whole number."),
        (["x", 1, 1, [[["F", 0]]]], "Action is ['F', 0]; it must be the list of its 3 fields."),
        (["x", 1, 1, [[{"F": 0}]]], "Action is {'F': 0}; it must be the list of its 3 fields."),
    ],
)
def test_a_plan_with_a_field_of_another_type_is_refused_in_a_sentence(
    data: Any, sentence: str
) -> None:
    with pytest.raises(Unfit) as refused:
        from_data(NAME, data)
    assert str(refused.value).endswith(sentence)


def test_the_plan_itself_still_judges_what_has_the_right_types() -> None:
    assert from_data(NAME, GOOD) == Plan("a name", 1, 1, ((("F", 0, 0), ("B", 0, 0)),))
    with pytest.raises(ValueError, match="its stage 7 is none of 0 to 0"):
        from_data(NAME, ["a name", 1, 1, [[["F", 7, 0]]]])


def unchecked(value: Any, **fields: Any) -> Any:
    """A frozen value with fields that its class would refuse."""
    vars(value).update(fields)
    return value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Transfer._make((0, 1.5, 0, 1, False)), "Transfer.dst is 1.5; it must be a whole number."),
        (Transfer._make((0, 1, 0, 1, 2)), "Transfer.reduce is 2; it must be True or False."),
        (BucketPlan((), ("mine",), 1.0), "Bucket is 'mine'; it must be of type Bucket."),
        (
            unchecked(Collective("gather", "x", 1, 1, []), algorithm=None),
            "Plan.algorithm is None; it must be text.",
        ),
    ],
)
def test_a_value_that_holds_something_else_does_not_leave(value: Any, sentence: str) -> None:
    with pytest.raises(Unfit) as refused:
        as_data(value)
    assert str(refused.value) == sentence


class Foreign(NamedTuple):
    rank: int


@dataclass
class Changing:
    rank: int


def test_only_classes_of_the_package_that_cannot_change_are_offered() -> None:
    Changing.__module__ = "dlsys.resilience.plan"
    for cls in (Foreign, Changing, dict):
        with pytest.raises(TypeError, match=f"{cls.__name__} is not offered as plain data: only"):
            plain_data(cls)
        assert offered_as(cls) is None


def test_a_class_that_says_it_is_another_is_not_offered() -> None:
    lying: Callable[..., Any] = type("Plan", (Plan,), {"__module__": Plan.__module__})
    assert offered_as(lying) is None
