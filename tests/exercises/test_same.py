"""What `same` accepts and what it says of the rest; seals; and what a release does."""

import functools
import gc
import json
import re
from collections import Counter, OrderedDict
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import nbformat
import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlsys.exercises import Sealed, WrongAnswer, cost_of, plain, same, seal, sealed
from dlsys.exercises.judge import approval, complaint, difference, likely_mistake
from dlsys.notebook.release import STUB, main
from tests.exercises.notebooks import ROOT, code_cells, load, slugs

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


# -- same: what is equal -------------------------------------------------------------------------


class Axis(StrEnum):
    TENSOR = "tp"


class Stage(IntEnum):
    THREE = 3

    def __int__(self) -> int:
        raise AssertionError("a method of the answer's was called")


@given(PLAIN)
def test_every_plain_value_equals_itself_and_no_text(value: Any) -> None:
    assert difference(plain(value), plain(value)) is None
    assert difference(plain([value]), "text")


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        (3, 3),
        (3.0, 3),
        (Fraction(1, 4), 0.25),
        (Fraction(6, 2), 3),
        ([Decimal("2.50"), Decimal(3)], [2.5, 3]),
        (Decimal("nan"), float("nan")),
        (range(2, 8, 2), [2, 4, 6]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.items(), [("a", 1)]),
        (Counter("aab"), {"a": 2, "b": 1}),
        (MappingProxyType({"a": OrderedDict(b=1)}), {"a": {"b": 1}}),
        ([Axis.TENSOR, Stage.THREE, complex(2, 0)], ["tp", 3, 2.0]),
        ((1, 2), [1, 2]),
        (np.int64(3), 3),
        (np.arange(3), [0, 1, 2]),
        (torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16), [[1.0], [2.0]]),
        (torch.nn.Parameter(torch.zeros(2)), [0.0, 0.0]),
        (torch.tensor(7), 7),
        (float("nan"), float("nan")),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (np.ones(2), torch.ones(2)),
    ],
)
def test_answers_that_say_the_same_are_right(came: Any, expected: Any, capsys: Any) -> None:
    same(came, expected)
    assert capsys.readouterr().out.startswith("\x1b[32m✔\x1b[0m came")


@pytest.mark.parametrize(
    ("came", "expected", "words"),
    [
        (4, 3, "expected:  3"),
        (10**18 + 1, 10**18, "1,000,000,000,000,000,000"),
        (True, 1, "a number is expected; True or False came"),
        ("3", 3, "a number is expected; text came"),
        ([1, 2], [1, 2, 3], "3 values are expected; 2 came"),
        ([[1, 2], [3, 5]], [[1, 2], [3, 4]], "At [1][1]: 4 is expected; 5 came"),
        ({"a": 1}, {"b": 1}, "the keys are ['a']; ['b'] are expected"),
        (torch.ones(2, dtype=torch.int64), torch.ones(2), "floating ones are expected"),
        (torch.ones(2, 1), torch.ones(2), "the shape is (2, 1); (2,) is expected"),
        (1.0 + 1e-6, 1.0, "expected:  1.0"),
        (10**400, 1.0, "expected:  1.0"),
        pytest.param(1 << 20_000, 3, "a number too long to show", id="huge"),
        pytest.param([1 << 20_000], [3], "a number too long to show", id="huge-in-a-list"),
        (2.0**30, 1e9, "GiB and GB are mixed up"),
        (8e9, 1e9, "Bits and bytes"),
        (1e6, 1e9, "A unit prefix is off"),
        (-2, 2, "The sign is wrong"),
        (..., 3, "Not answered yet"),
        (None, 3, "None came: not answered yet, or a function ends without `return`"),
        ([None, None], [1, 2], "came: None came: not answered yet"),
        ([1, ...], [1, 2], "Not answered yet"),
        ([1, None], [1, 2], "At [1]: a number is expected; None came"),
        ({"a": None}, None, "where:     None is expected; a dictionary came"),
    ],
)
def test_a_wrong_answer_is_told_what_is_wrong(came: Any, expected: Any, words: str) -> None:
    with pytest.raises(WrongAnswer, match="came") as caught:
        same(came, expected)
    assert words in str(caught.value)


class AlwaysEqual:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class LyingInt(int):
    __eq__ = AlwaysEqual.__eq__
    __hash__ = AlwaysEqual.__hash__


class LyingArray(np.ndarray):
    def tolist(self) -> Any:
        return [1, 2]


DEEP_KEY: dict[Any, int] = {functools.reduce(lambda key, _: (key,), range(5_000), 1): 1}


@pytest.mark.parametrize(
    ("came", "words"),
    [
        (AlwaysEqual(), "of type AlwaysEqual, which cannot be compared. Give numbers"),
        (LyingInt(3), "plain int with int(...)"),
        (np.zeros(2).view(LyingArray), "of type LyingArray"),
        ([1, AlwaysEqual()], "the answer[1] is of type AlwaysEqual"),
        ({AlwaysEqual(): 1}, "has a key of type AlwaysEqual"),
        (1j, "of type complex"),
        ({1, 2}, "list with sorted(...)"),
        ((i for i in range(3)), "list with list(...)"),
        (torch.empty(3, device="meta"), "meta tensor"),
        (np.array([AlwaysEqual()]), "array of object"),
        (torch.empty(2, dtype=torch.uint1), "numbers cannot be read"),
        (DEEP_KEY, "a key that is nested more than 20 levels"),
        ([0] * 100_001, "holds 100,001 values; at most 100,000 are compared"),
        ([[0]] * 50_001, "holds 100,003 values; at most 100,000 are compared"),
        ([np.zeros((400, 126)), {1: np.zeros(50_000)}], "holds 100,402 values; at most 100,000"),
    ],
)
def test_an_answer_that_is_not_plain_is_refused_with_advice(came: Any, words: str) -> None:
    with pytest.raises(WrongAnswer) as caught:
        same(came, [1, 2])
    assert words in str(caught.value)


def test_an_answer_of_many_values_is_compared_and_with_a_seal_refused_at_once() -> None:
    many = list(range(99_999))
    same(many, many[:])
    pair = seal([1.0, 2.0])
    assert not sealed(pair).matches(many)
    assert sealed(seal(many[:1000])).matches(many[:1000])
    with pytest.raises(ValueError, match="list of 1,001 cannot be sealed; at most 1000 can"):
        seal(many[:1001])
    pairs = [[k, k] for k in range(400)]
    assert not sealed(pair).matches(pairs)
    with pytest.raises(ValueError, match="lists in it counted"):
        seal(pairs)


def test_an_answer_of_many_values_is_not_compared_with_each_mistake_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = [[1.234567] * 99 for _ in range(1000)]
    hints = [(sealed(seal([1.0, k])), "known") for k in range(10)]
    monkeypatch.setattr(Sealed, "equals", None)  # cannot be called
    assert likely_mistake(many, sealed(seal([1.0, 2.0])), [*hints, (None, "other")]) != "known"


def test_a_list_that_holds_itself_is_a_sentence_and_no_endless_recursion() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(WrongAnswer, match="nested more than 20 levels"):
        same(endless, [1])


def test_the_message_names_the_expression_even_over_several_lines() -> None:
    with pytest.raises(WrongAnswer, match=r"^sum\( \[1, 2\] \) is not right"):
        same(
            sum(
                [1, 2]
            ),
            4,
        )  # fmt: skip


def test_hints_recognise_the_wrong_value_and_fall_back() -> None:
    hint = {156e9: "no master copy", None: "count again"}
    assert likely_mistake(1.5601e11, 208e9, hint) == "no master copy"
    assert likely_mistake(5, 208e9, hint) == "count again"
    assert likely_mistake([1, 2], [1, 3], [([1, 2], "off by one")]) == "off by one"
    assert likely_mistake(5, 208e9, "in every case") == "in every case"
    assert likely_mistake(5, 208e9) is None


def test_the_cost_is_shown_beside_the_best_known(capsys: Any) -> None:
    cost = {"bytes": 2e9, "messages": 1400, "seconds": 0.002}
    same(3, 3, cost=cost, best=cost | {"messages": 14})
    line = capsys.readouterr().out.split("\n")[1]
    assert line == "  cost: 2 GB, 1,400 messages, 2 ms   best known: 2 GB, 14 messages, 2 ms"


@pytest.mark.parametrize(
    ("changed", "is_better"),
    [
        ({"messages": 24, "seconds": 3.6e-6}, True),
        ({"seconds": 7.1e-6}, True),
        ({}, False),
        ({"seconds": 7.1999e-6}, False),  # what is written down is rounded
        ({"messages": 24, "bytes": 145}, False),  # less of one for more of another
    ],
)
def test_an_answer_that_beats_the_best_known_is_congratulated(
    changed: dict[str, float], is_better: bool, capsys: Any
) -> None:
    best = {"bytes": 144, "messages": 48, "seconds": 7.2e-6}
    same(3, 3, cost=best | changed, best=best)
    assert ("well done" in capsys.readouterr().out) == is_better
    same(3, 3, cost={"dollars": 1}, best=best)  # not the same amounts
    assert "well done" not in capsys.readouterr().out


def test_a_grader_can_say_the_same_of_an_answer_as_the_notebook(capsys: Any) -> None:
    hint = {4.0: "one too many"}
    with pytest.raises(WrongAnswer) as caught:
        same([3, 4], [3, 5], hint=hint)
    wrong = difference([3, 4], [3, 5])
    assert str(caught.value) == complaint("[3, 4]", [3, 4], [3, 5], str(wrong), hint)
    same(1 + 2, 3, cost=cost_of({"bytes": 3}))
    assert capsys.readouterr().out == f"\x1b[32m✔\x1b[0m {approval('1 + 2', 3)}\n  cost: 3 B\n"


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (2 / 3, "0.666667"),
        ([2 / 3, [123456.7]], "[0.666667, [123457.0]]"),
        ({"a": 2 / 3, "b": 12_345_678}, "{'a': 0.666667, 'b': 12345678}"),
        (12_345_678, "12,345,678"),
        (torch.tensor([0.1, 0.5]), "[0.1, 0.5]"),
    ],
)
def test_a_right_answer_is_told_without_the_last_digits_that_processors_differ_in(
    came: Any, told: str
) -> None:
    assert approval("x", plain(came)) == f"x = {told}"


def test_of_what_may_differ_more_fewer_digits_are_told_and_the_last_ones_decide_nothing() -> None:
    assert approval("x", 12_345.678, rtol=1e-3) == "x = 12350"
    pairs = [0.58375712345, 0.01674078], [0.5837571234567890, 0.0167407812345678]
    assert {approval("x", pair, rtol=5e-3) for pair in pairs} == {"x = [0.5838, 0.01674]"}


def test_numbers_beyond_all_ratios_are_wrong_and_no_error() -> None:
    assert likely_mistake(5e-324, 1e300) is None
    assert likely_mistake(1e300, 5e-324) is None
    assert likely_mistake(float("inf"), 1.0) is None


def test_a_key_too_long_to_write_is_wrong_and_no_error() -> None:
    with pytest.raises(WrongAnswer, match="a dictionary came"):
        same({10**5000: 1}, 3)


def test_numbers_wider_than_pythons_are_rounded_to_them() -> None:
    third = np.longdouble(1) / 3
    assert (plain(third), type(plain(third))) == (1 / 3, float)
    assert type(plain(np.array([third])).values[0]) is float


def test_a_notebook_does_not_vary_its_checks(capsys: Any) -> None:
    same(3, 3, vary={3: [4]})
    assert "✔" in capsys.readouterr().out


# -- seals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [208e9, 3, -0.0, 1.9999, "reduce-scatter", True, [1.5, 2.5], None]
)
def test_a_seal_matches_its_value_and_shows_nothing_of_it(value: Any) -> None:
    token = seal(value)
    assert sealed(token).matches(value)
    assert str(value) not in token.split("$")[1:]
    assert token != seal(value)  # another salt: equal answers do not look equal


def test_a_seal_accepts_the_rounded_answer_and_no_other() -> None:
    answer = sealed(seal(1966.07, digits=3))
    assert answer.matches(1970)
    assert answer.matches(1966.1)
    assert not answer.matches(1980)
    assert not answer.matches(19.7)
    assert not answer.matches("1970")
    assert not answer.matches({"a": 1})
    assert not answer.matches(10**400)


@pytest.mark.parametrize(
    ("value", "short", "others"),
    [
        (49 / 600, [0.082, 0.0817], [0.08, 0.081, 0.083, 0.0818]),
        (9 / 13, [0.69, 0.692], [0.7, 0.68, 0.691]),
        (0.9309, [0.93], [0.9, 0.92, 0.94]),
        (8 / 3, [2.7], [3, 2.6, 2.8]),
        (2048, [2000, 2e3], [2200, 1900]),
        (20.5, [20, 21], [19, 22]),  # where both are as near
        (9.6, [9.6], [10, 9.5]),
        (9.96, [10, 9.96], [9.9, 9.95, 11]),
        (0.0997, [0.1], [0.099, 0.11]),
        (10.4, [10], [9.9, 9.95, 11]),
        (-2148e6, [-2.1e9, -2.2e9], [2.1e9, -2.3e9]),  # sealed as -2.15e9
        (0.0, [0], [0.1]),
    ],
)
def test_a_number_sealed_without_a_precision_may_be_answered_with_two_digits(
    value: float, short: list[float], others: list[float]
) -> None:
    answer = sealed(seal(value))
    assert [each for each in (*short, *others) if answer.matches(each)] == short


def test_the_hint_of_the_very_number_comes_before_that_of_one_that_rounds_to_it() -> None:
    near, same_digits = sealed(seal(0.624)), sealed(seal(0.62))
    hint = {near: "rounds to it", same_digits: "is it", None: "another"}
    assert likely_mistake(0.62, 0.9, hint) == "is it"
    assert likely_mistake(0.62, 0.9, {near: "rounds to it", None: "another"}) == "rounds to it"
    assert likely_mistake(0.63, 0.9, hint) == "another"


def test_a_wrong_value_sealed_beside_the_right_one_has_its_salt_and_no_other() -> None:
    right = seal(8.1e9)
    wrong = seal(16.2e9, beside=right)
    assert sealed(wrong).salt == sealed(right).salt != sealed(seal(16.2e9)).salt
    assert sealed(wrong).matches(16.2e9)
    assert not sealed(wrong).matches(8.1e9)
    with pytest.raises(ValueError, match=r"beside: '8\.1e9' is not a seal"):
        seal(16.2e9, beside="8.1e9")


def test_a_count_a_stated_precision_and_a_hint_take_no_rounded_number() -> None:
    assert not sealed(seal(286, is_count=True)).matches(290)
    assert sealed(seal(286, is_count=True)).matches(286.0)
    for counted in (286, 1024, 28_191, 608_000):
        exact = sealed(seal(counted, is_count=True))
        assert exact.matches(counted)
        assert not any(exact.matches(counted + off) for off in (-1, 1))
    with pytest.raises(ValueError, match=r"value is 28\.5; it must be a whole number"):
        seal(28.5, is_count=True)
    assert not sealed(seal(0.93094, digits=4)).matches(0.931)
    hint = sealed(seal(28e9 / 300e9).rpartition("$")[0])  # a wrong value that a hint knows
    assert not hint.matches(0.093)


def test_a_seal_accepts_both_sides_of_a_rounding_boundary() -> None:
    answer = sealed(seal(2.5, digits=1))
    assert answer.matches(2.5 * (1 + 1e-12))
    assert answer.matches(2.5 * (1 - 1e-12))


def test_long_answers_have_their_seal_and_are_not_kept() -> None:
    text = "long " * 100_000
    assert sealed(seal(text)).matches(text)
    gc.collect()
    before = psutil.Process().memory_info().rss
    token = sealed(seal("short"))
    for i in range(60):
        assert not token.matches(f"{i}" + "x" * 2_000_000)
    assert psutil.Process().memory_info().rss - before < 60_000_000


@pytest.mark.parametrize(
    ("came", "expected", "rtol", "words"),
    [
        (0.33, 1 / 3, 1e-9, "2 digits: give 10 digits"),
        (-0.333, -1 / 3, 1e-4, "3 digits: give 5 digits"),
        (8.5e8, 848024576, 1e-9, "2 digits: give every digit"),
        (2000000, 1999999.5, 1e-9, None),  # one digit may be chance
        (2100000, 2148000.5, 1e-9, "2 digits: give 10 digits"),
        (0.34, 1 / 3, 1e-9, None),
        (0.3, 1 / 3, 1e-9, None),
        (150, 148, 1e-9, None),  # a wrong count
        (0.33, "1/3", 1e-9, None),
        ("0.33", 1 / 3, 1e-9, None),
        (0.33, float("nan"), 1e-9, None),
        (float("inf"), 1 / 3, 1e-9, None),
        (10**400, 1 / 3, 1e-9, None),
        (0.931, sealed(seal(0.93094, digits=4)), 1e-9, "3 digits: give 4 digits"),
        (2050, sealed(seal(2048, digits=4)), 1e-9, "3 digits: give 4 digits"),
        (-2.15e9, sealed(seal(-2148e6, digits=4)), 1e-9, "3 digits: give 4 digits"),
        (290, sealed(seal(286, is_count=True)), 1e-9, None),
        (0.92, sealed(seal(0.9309)), 1e-9, None),
        (0.93, sealed(seal(0.93094, digits=4)), 1e-9, None),  # two digits are too many to try
        (0.93, sealed(seal("0.93")), 1e-9, None),
        (0.93, sealed(seal([0.9309])), 1e-9, None),
    ],
)
def test_a_number_that_is_right_and_too_short_is_told_so(
    came: Any, expected: Any, rtol: float, words: str | None
) -> None:
    said = f"Right, but rounded to {words}."
    for hint in ("a hint", {5.0: "five", None: "a hint"}):
        mistake = likely_mistake(came, expected, hint, rtol)
        assert mistake == said if words else "rounded" not in str(mistake)
    if words:
        assert said in complaint("x", came, expected, "", rtol=rtol)
        assert likely_mistake(came, expected, {came: "known"}, rtol) == "known"


def test_a_number_that_is_too_short_is_refused_by_same_with_its_tolerance() -> None:
    with pytest.raises(WrongAnswer, match=r"Right, but rounded to 2 digits: give 5 digits\."):
        same(0.33, 1 / 3, rtol=1e-4)


@pytest.mark.parametrize(
    ("came", "value", "digits"),
    [
        (5, 3.14159, True),
        ("tree", "ring", False),
        (True, False, False),
        (["a", "b"], ["a", "c"], False),
        ([1.5, "b"], [1.5, "c"], True),
        ([1, "b"], [1, "c"], False),
        (torch.ones(2), [1.0, 2.0], True),
    ],
)
def test_digits_are_spoken_of_where_there_are_numbers(came: Any, value: Any, digits: bool) -> None:
    said = complaint("x", plain(came), sealed(seal(value)), "")
    assert "expected:  not shown" in said
    assert ("numbers are compared to 3 digits" in said) == digits


def test_of_a_count_no_digits_are_spoken() -> None:
    said = complaint("x", 290, sealed(seal(286, is_count=True)), "")
    assert "expected:  not shown; a whole number\n" in f"{said}\n"


def test_a_broken_seal_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"'208e9' is not a seal; make one with seal"):
        sealed("208e9")
    with pytest.raises(ValueError, match="digits is 0; it must be a whole number of at least 1"):
        seal(3, digits=0)
    with pytest.raises(ValueError, match=r"value is \{\}, which cannot be sealed: seal numbers"):
        seal({})


def test_no_two_questions_share_a_seal_which_would_give_one_away_by_a_hint_of_the_other() -> None:
    tokens = [
        (token, slug, cell.id)
        for slug in slugs()
        for cell in code_cells(load("solutions", slug))
        for token in re.findall(r"\d+\$[0-9a-f]+\$[0-9a-f]+", cell.source)
    ]
    assert tokens
    assert not {place for place in tokens if sum(place[0] == other for other, *_ in tokens) > 1}


# -- a release -----------------------------------------------------------------------------------


def test_exercises_are_in_step_with_solutions_and_a_look_changes_nothing(capsys: Any) -> None:
    before = {path: path.read_bytes() for path in (ROOT / "exercises").rglob("*") if path.is_file()}
    assert main(["--root", str(ROOT), "--check"]) == 0, capsys.readouterr()
    assert f"{len(slugs())} exercise notebooks are in step" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in (ROOT / "exercises").rglob("*") if path.is_file()}
    assert after == before
    assert not list(ROOT.glob("*.db"))


def test_a_release_runs_writes_checks_and_names_what_is_out_of_step(
    tmp_path: Path, capsys: Any
) -> None:
    assert main(["--root", str(tmp_path)]) == 1
    assert "There is no notebook in" in capsys.readouterr().err

    role = {"schema_version": 3, "grade": False, "locked": False, "solution": True, "task": False}
    source = "x = ...\n### BEGIN SOLUTION\nx = 3\nprint(x)\n### END SOLUTION"
    cell = nbformat.v4.new_code_cell(source, id="one")
    cell.metadata["nbgrader"] = role | {"grade_id": "one"}
    solution = tmp_path / "solutions" / "one" / "one.ipynb"
    solution.parent.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), solution)

    text = nbformat.v4.new_markdown_cell("## 1. A sum \n\nSolve it.", id="two")
    twice = [cell, text, nbformat.v4.new_markdown_cell("## 1. A sum\n", id="three")]
    nbformat.write(nbformat.v4.new_notebook(cells=twice), solution)
    for more in ([], ["--check"]):
        assert main(["--root", str(tmp_path), *more]) == 1
        assert "one.ipynb has the heading '## 1. A sum' twice;" in capsys.readouterr().err
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), solution)

    assert main(["--root", str(tmp_path), "--run"]) == 0
    stored = json.loads(solution.read_text(encoding="utf-8"))["cells"][0]
    assert stored["outputs"][0]["text"] == ["3\n"]
    released = tmp_path / "exercises" / "one" / "one.ipynb"
    answer = json.loads(released.read_text(encoding="utf-8"))["cells"][0]
    assert answer["source"] == ["x = ...\n", STUB]
    assert answer["outputs"] == []
    assert main(["--root", str(tmp_path), "--check"]) == 0
    stored_at = released.stat().st_mtime_ns
    assert main(["--root", str(tmp_path)]) == 0
    assert released.stat().st_mtime_ns == stored_at

    released.write_text("{}", encoding="utf-8")
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert "one.ipynb is out of step: run make release" in capsys.readouterr().out
    assert released.read_text(encoding="utf-8") == "{}"
    stranger = tmp_path / "exercises" / "two" / "two.ipynb"
    stranger.parent.mkdir()
    stranger.write_text("{}", encoding="utf-8")
    assert main(["--root", str(tmp_path)]) == 1
    assert "two.ipynb has no solution; remove it." in capsys.readouterr().err
