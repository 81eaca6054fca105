"""Answers of another structure get a sentence about the structure, and no error of Python's."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dlsys.exercises import OtherStructure, WrongAnswer, same, seal, sealed
from dlsys.exercises.forms import by_rank, chosen, described, fits, formed, proved
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
from tests.exercises.contract import before_each_answer, rejection
from tests.exercises.notebooks import Cell, code_cells, load
from tests.exercises.wrong_answers import Wrong

GRADIENTS = "return [handle.wait() / count for handle in handles]"
MLP, LOSS = (
    "return y, grad_x, grad_up, grad_down",
    "return losses, powers / total[:, None] - is_target.float()",
)
TOPK = "return total / comm.size, kept"
SCALE = 'return found | {"scale": comm.all_reduce(found["scale"])}'

# By notebook and question: what came, its source, words of the sentence, what of the solution it replaces.
OTHERWISE: dict[str, dict[str, list[tuple[str, ...]]]] = {
    "memory_wall": {
        "state": [
            ("a number in a list", "state_bytes = [208e9]", "inside brackets: take them off"),
            ("text", 'state_bytes = "208e9"', "write it without quotes"),
            ("several", "state_bytes = (26e9, 26e9, 156e9)", "a list of 3 came: which of them"),
            ("a function", "state_bytes = lambda: 208e9", "is of type function"),
        ],
        "forgotten": [
            ("names alone", 'missing = ["gradients"]', "should be a dictionary with texts as keys"),
            ("pairs", 'missing = [("gradients", 4e10)]', "it is a list of 1"),
            ("text", 'missing = "gradients"', "it is the text 'gradients'"),
            ("texts for bytes", 'missing = {"gradients": "40e9"}', "['gradients'] is the text"),
        ],
        "free": [
            ("text", "return '848024576'", "write it without quotes"),
            ("a pair", "return 24 * 2**30, 848024576", "a list of 2 came"),
        ],
        "fit": [
            ("a list", 'design = [1, "selective"]', "a dictionary with the keys 'zero_stage'"),
            ("another key", 'design = {"zero": 1, "recompute": "none"}', "the keys ['zero'"),
            ("a text", 'design = {"zero_stage": "1", "recompute": "none"}', "take one of 0, 1, 2"),
        ],
        "cost": [
            ("dollars alone", "return 1415571.28", "A list of 2 is wanted"),
            ("by name", 'return {"days": 19.66, "dollars": 1415571.28}', "give its values alone"),
        ],
        "frozen": [
            ("a list", "predicted = [1, 2, 3]", "should be a dictionary with the keys 'weights'"),
            ("a key too few", 'predicted = {"weights": 1, "moments": 2}', "['weights', 'moments']"),
        ],
    },
    "collectives": {
        "seconds": [("text", 'sent_bytes = "24.5e9"', "write it without quotes")],
        "sent": [("a list", "return [1.0, 2.0]", "a list of 2 came: which of them")],
        "mean": [
            ("a dictionary", "return {0: x}", "a dictionary came"),
            ("a number", "return 3", "A list of 6 is wanted"),
            ("a list too much", "return [x]", "In its part [0]"),
        ],
        "shift": [
            ("a number", "return 3.0", "should be a tensor; it is the number 3.0", "return received"),
            ("a tuple", "return received, x", "it is a tuple of 2", "return received"),
            ("text", '"1, 2, 3, 0"', "A list of 4 is wanted", "[1, 2, 3, 0]"),
            ("a dictionary", "{0: 1, 1: 2, 2: 3, 3: 0}", "give its values alone", "[1, 2, 3, 0]"),
        ],
        "fault": [
            ("transfers without rounds", "fault_round, fault_src = 1, 1\nrepaired = repaired[0]", "[0][0] is the number 0"),
            ("a dictionary", "fault_round, fault_src = 1, 1\nrepaired = {1: repaired[1]}", "it is a dictionary"),
        ],
        "broadcast": [
            ("one round", "return [(0, dst, 0, 1) for dst in range(1, ranks)]", "a list of lists of tuples"),
            ("a number", "return 3", "it is the number 3"),
        ],
        "cluster": [
            ("text", 'one_card_is_enough_for = "ring"\ndesign = "ring"', "it is the text 'ring'"),
            ("a list for text", 'one_card_is_enough_for = ["ring"]', "take them off"),
        ],
    },
    "data_parallel": {
        "bytes": [("a list", "micro_batches = [4]", "take them off")],
        "cut": [
            ("one bucket", "return [5, 4, 3]", "[0] is the number 5"),
            ("numbers in a dictionary", "return {0: [5]}", "it is a dictionary with the keys [0]"),
            ("names", 'return [["5"], ["4"]]', "[0][0] is the text '5'"),
            ("another nesting", "return [cut]", "[0][0] is a list of 1", "return cut"),
        ],
        "mean": [
            ("a list", "return [float(one) for one in w]", "What rank 0 returns should be a tensor", "return w - 0.0625 * sums[:-1] / sums[-1]"),
            ("a pair", "return w, sums", "it is a tuple of 2", "return w - 0.0625 * sums[:-1] / sums[-1]"),
        ],
        "step": [
            ("last layer first", f"{GRADIENTS}[::-1]", "(layer 2, layer 1, layer 0) came", GRADIENTS),
            ("one number", "return 3", "a list of 3 (a tensor, a tensor, a tensor); it is the number 3", GRADIENTS),
            ("a dictionary", "return {i: h.wait() for i, h in enumerate(handles)}", "a dictionary", GRADIENTS),
            ("a layer too few", f"{GRADIENTS}[1:]", "it is a list of 2", GRADIENTS),
            ("handles", "return handles", "[0] is of type", GRADIENTS),
        ],
        "timeline": [
            ("text", '"b2 and b3"', "A list of 2 is wanted", "[2, 3]"),
            ("one of them alone", "waited = 3", "A list of 2 is wanted", "waited = [2, 3]"),
            ("a pair", "return free, ready", "a list of 2 came", "return free - ready"),
        ],
        "topk": [
            ("the mean alone", "return total / comm.size", "a tuple of 2 (a tensor, a tensor)", TOPK),
            ("a dictionary", 'return {"mean": total, "kept": kept}', "['mean', 'kept']", TOPK),
            ("swapped", "return kept, total / comm.size", "(residual, mean) came", TOPK),
            ("values alone", "return total / comm.size, values", "as long as a gradient", TOPK),
        ],
        "design": [
            ("a list", "noise_scale = 2048\ndesign = [32, 4, 25e6]", "the keys 'ranks', 'micro_batches'"),
            ("a list for text", 'noise_scale = 2048\ndesign["network"] = ["ethernet-100g"]', "is no choice"),
        ],
        "tax": [("the other way", 'amdahl = "18.6"', "write it without quotes")],
    },
    "tensor_parallel": {
        "bytes": [("a list", "all_reduce_bytes = [58720256.0]", "take them off")],
        "chain": [
            ("a list", 'after = [["none", "all_reduce"]]', "a dictionary with the keys 'column, row'"),
            ("one word", '"all_reduce"', "is the text 'all_reduce'", '["none", "all_reduce"]'),
            ("three words", '["none", "none", "all_reduce"]', "is a list of 3", '["none", "all_reduce"]'),
            ("another word", '["nothing", "all_reduce"]', "after[\"column, row\"][0] is 'nothing': take one of \"none\", \"all_gather\"", '["none", "all_reduce"]'),
        ],
        "mlp": [
            ("swapped", "return grad_x, y, grad_up, grad_down", "(grad_x, y, grad_up, grad_down) came", MLP),
            ("y alone", "return y", "it is an array or tensor of shape (3, 4)", MLP),
            ("pairs", "return (y, grad_x), (grad_up, grad_down)", "it is a tuple of 2", MLP),
            ("by name", 'return {"y": y}', "a dictionary with the keys ['y']", MLP),
        ],
        "loss": [
            ("swapped", "return powers / total[:, None] - is_target.float(), losses", "(gradient, losses) came", LOSS),
            ("the loss alone", "return losses", "it is an array or tensor of shape (12,)", LOSS),
        ],
        "fault": [
            ("a tuple", "return tuple(found.values())", "it is a tuple of 6", SCALE),
            ("scale alone", 'return comm.all_reduce(found["scale"])', "shape (4,)", SCALE),
            ("a list for text", 'wrong_gradient = ["scale"]', "take them off", 'wrong_gradient = "scale"'),
            ("a fraction in quotes", 'fraction = "1/4"', "write it without quotes", "fraction = 1 / 4"),
            ("a truth in quotes", '"False"', "write it without quotes", "False"),
        ],
        "heads": [
            ("a list", "return [[4, 5, 6, 7], [2, 3], [1]]", "A dictionary is wanted"),
            ("a number for a list", '"summed_over": rank,', "In its part ['summed_over']: A list of 1", '"summed_over": list(range(first, first + copies)),'),
        ],
        "kept": [("parts", "return between, inside, scores", "a list of 3 came", "return between / (t if sequence_parallel else 1) + inside + scores")],
        "design": [
            ("a tuple", 'design = (4, True, "selective")', "it is a tuple of 3"),
            ("text for a truth", 'design = {"tp": 4, "sequence_parallel": "yes", "recompute": "none"}', "take one of False, True"),
        ],
    },
    "pipeline_parallel": {
        "bubble": [("text", 'of_all_time = "20 %"', "write it without quotes")],
        "step": [("a list", "step_ms = [3800]", "take them off")],
        "picture": [
            ("a list for text", 'schedule = ["1f1b"]', "take them off", 'schedule = "1f1b"'),
            ("text for a tuple", 'waits_for = "F2"', "A list of 3 is wanted", 'waits_for = ("F", 2, 2)'),
        ],
        "order": [
            ("words", 'return [f"F{k}" for k in range(micro_batches)]', "[0] is the text 'F0'"),
            ("by kind", 'return {"F": [0], "B": [0]}', "it is a dictionary"),
            ("a number", "return 3", "it is the number 3"),
            ("numbers in quotes", 'return [("F", "0")]', "[0][1] is the text '0'"),
            ("of another stage", "return [(kind, stage + 1, k) for kind, k in order]", "its stage 4 is none of 0 to 3", "return order"),
        ],
        "fault": [
            ("text", '"2, 3, 1, 0"', "A list of 4 is wanted", "[2, 3, 1, 0]"),
            ("a dictionary", "return {0: total}", "What the program returns should be a tensor", "return total"),
            ("a pair", "return total, rows", "it is a tuple of 2", "return total"),
        ],
        "stages": [("a pair", "return total, xs", "", "return total")],
        "design": [
            ("a list", 'never_fits = "gpipe"\ndesign = ["1f1b", 4, 2]', "it is a list of 3"),
            ("a list for text", 'never_fits = ["gpipe"]', "take them off"),
        ],
        "tail": [("one number", "predicted_ms = 27", "A list of 3 is wanted", "predicted_ms = [27, 27, 21]")],
    },
}  # fmt: skip

CASES = [
    pytest.param(name, answer, Wrong(*case[:2], "", *case[3:]), case[2], id=f"{name}-{answer}-{case[0]}")
    for name, questions in OTHERWISE.items()
    for answer, cases in questions.items()
    for case in cases
]  # fmt: skip


@pytest.mark.parametrize(("name", "question", "answer", "words"), CASES)
def test_an_answer_of_another_structure_is_told_so(
    name: str, question: str, answer: Wrong, words: str
) -> None:
    cells = code_cells(load("solutions", name))
    ids = [cell.id for cell in cells]
    first, last = ids.index(question), ids.index(f"{question}-test")
    changed = Cell(question, answer.cell(cells[first].source), {})
    namespace = dict(before_each_answer(name)[question])
    message = rejection([changed, *cells[first + 1 : last + 1]], namespace)
    assert words in message, message
    assert re.match(r"WrongAnswer|OtherStructure", message), message
    assert not re.search(r"text is expected; a (list|dictionary) came", message)


@pytest.mark.parametrize("name", OTHERWISE)
def test_a_dozen_answers_of_another_structure_are_tried_on_each_notebook(name: str) -> None:
    assert sum(map(len, OTHERWISE[name].values())) >= 12


@pytest.mark.parametrize(("name", "question", "function"), [
    ("collectives", "mean", "ring_mean"),
    ("collectives", "shift", "shift"),
    ("data_parallel", "mean", "repaired"),
    ("data_parallel", "step", "step_gradients"),
    ("data_parallel", "topk", "topk_mean"),
    ("tensor_parallel", "mlp", "mlp"),
    ("tensor_parallel", "loss", "vocab_loss"),
    ("tensor_parallel", "fault", "repaired"),
    ("pipeline_parallel", "order", "one_f_one_b_order"),
    ("pipeline_parallel", "fault", "repaired"),
    ("pipeline_parallel", "stages", "train_stage"),
])  # fmt: skip
def test_a_number_for_a_program_is_told_that_a_function_is_wanted(
    name: str, question: str, function: str
) -> None:
    cells = code_cells(load("solutions", name))
    ids = [cell.id for cell in cells]
    first, last = ids.index(question), ids.index(f"{question}-test")
    changed = Cell(question, f"{cells[first].source}\n\n{function} = 3", {})
    namespace = dict(before_each_answer(name)[question])
    message = rejection([changed, *cells[first + 1 : last + 1]], namespace)
    assert "should be a function; it is the number 3" in message


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
