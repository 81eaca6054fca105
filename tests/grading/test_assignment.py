"""Assignments: what is read from exercise notebooks, and how checks vary."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys.exercises import Sealed, same, seal
from dlsys.grading.assignment import (
    ANSWER,
    FREE,
    TEST,
    TRUSTED,
    WITH_OPTIMIZERS,
    WRITTEN,
    load,
    preload,
    slugs,
)
from dlsys.grading.checks import checks_of, drawn, varied
from tests.exercises.notebooks import ROOT
from tests.grading.small_course import make

# -- reading -------------------------------------------------------------------------------------


def test_every_exercise_notebook_can_be_graded() -> None:
    assert {"collectives", "memory_wall"} <= set(slugs(ROOT))
    for slug in slugs(ROOT):
        assignment = load(ROOT, slug)
        assert assignment.title.startswith("Exercises: ")
        assert len(assignment.written) == 1
        assert all(question.names and question.checks for question in assignment.questions)
        assert assignment.points == sum(
            cell["metadata"].get("nbgrader", {}).get("points", 0)
            for cell in json.loads((ROOT / "solutions" / slug / f"{slug}.ipynb").read_text())[
                "cells"
            ]
        )


def test_a_question_is_read_as_it_stands_in_the_notebook() -> None:
    assignment = load(ROOT, "collectives")
    kinds = {cell.id: cell.kind for cell in assignment.cells}
    assert kinds["imports"] == kinds["mean-numbers"] == TRUSTED
    assert (kinds["mean"], kinds["mean-test"], kinds["uneven-try"]) == (ANSWER, TEST, FREE)
    assert kinds["choice"] == WRITTEN
    seconds, sent = assignment.questions[:2]
    assert seconds.title == "1. One node, and several"
    assert seconds.names == (
        *("seconds", "two_nodes", "three_nodes", "sixteen_nodes"),
        "bus_bandwidth",
    )
    assert seconds.checks[0].expression == "seconds"
    assert isinstance(seconds.checks[0].expected, Sealed)
    assert any(isinstance(wrong, Sealed) for wrong in seconds.checks[0].hint)
    assert sent.checks[0].expression == "from_rank_0(large_broadcast, 4, 8).results"
    assert "YOUR ANSWER HERE" in sent.blank
    assert "comm.scatter(x)" in sent.solution
    mean = assignment.questions[2]
    assert mean.checks[4].cost == "on_numbers(ring_mean, 4, 8)"
    assert assignment.questions[3].checks[4].best == {"bytes": 57344, "seconds": 8.366577778e-07}
    assert [check.hidden for check in mean.checks] == [False] * 5 + [True] * 3


def test_a_written_question_has_its_rubric_from_the_solutions_alone() -> None:
    (written,) = load(ROOT, "memory_wall").written
    assert written.points == 3
    assert "**Rubric**, 3 points" in written.rubric
    assert written.blank == "YOUR ANSWER HERE"


@pytest.mark.parametrize("slug", slugs(ROOT))
def test_a_students_copy_holds_no_solution_and_no_hidden_check(slug: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "exercises" / slug, tmp_path / "exercises" / slug)
    theirs, ours = load(tmp_path, slug, solutions=False), load(ROOT, slug)
    assert not any(question.solution for question in theirs.questions)
    assert not any(check.hidden for question in theirs.questions for check in question.checks)
    assert not any(written.rubric for written in theirs.written)
    assert theirs.cells == ours.cells
    assert theirs.points == ours.points


@pytest.mark.parametrize("slug", slugs(ROOT))
def test_who_answers_in_exercises_itself_changes_nothing(slug: str, tmp_path: Path) -> None:
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder / slug, tmp_path / folder / slug)
    notebook = tmp_path / "exercises" / slug / f"{slug}.ipynb"
    answered = json.loads(notebook.read_text())
    for cell in answered["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = ["x = 3\n", "y = 4"]
    notebook.write_text(json.dumps(answered))
    assert load(tmp_path, slug) == load(ROOT, slug)
    theirs = load(tmp_path, slug, solutions=False)
    assert {question.blank for question in (*theirs.questions, *theirs.written)} == {""}
    for cell in answered["cells"]:
        cell["metadata"].get("nbgrader", {}).update(checksum="another release's")
    notebook.write_text(json.dumps(answered))
    with pytest.raises(ValueError, match="neither blank nor in step with its solution; run python"):
        load(tmp_path, slug)


def test_the_modules_that_trusted_cells_import_are_known_without_importing_them() -> None:
    found = preload([load(ROOT, "memory_wall")])
    assert {"torch", "dlsys.memory_wall", "dlsys.model", "dlsys.exercises"} <= set(found)
    assert "dlsys.world" in preload([load(ROOT, "collectives")])  # from dlsys import world
    assert "torch.optim" not in found
    assert WITH_OPTIMIZERS in found
    assert WITH_OPTIMIZERS in preload([load(ROOT, "collectives")])  # which a rank cannot import
    assert WITH_OPTIMIZERS not in preload([load(ROOT, "scaling_laws")])


def test_released_files_go_with_the_assignment_and_the_digest_is_of_all_of_it(
    tmp_path: Path,
) -> None:
    one = {"x": ("x = ...", "x = 3", "same(x, 3)", "")}
    before = make(tmp_path, "import math", one)
    assert dict(before.files) == {}
    assert load(tmp_path, "small").digest == before.digest
    digests = {before.digest, load(tmp_path, "small", solutions=False).digest}
    (tmp_path / "exercises" / "small" / "data").mkdir()
    (tmp_path / "exercises" / "small" / "data" / "a.csv").write_text("1,2\n")
    (tmp_path / "exercises" / "small" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "exercises" / "small" / ".ipynb_checkpoints" / "b").write_text("")
    after = load(tmp_path, "small")
    assert dict(after.files) == {"data/a.csv": b"1,2\n"}
    digests.add(after.digest)
    solution = tmp_path / "solutions" / "small" / "small.ipynb"
    solution.write_text(solution.read_text().replace("x = 3", "x = 1 + 2"))
    digests.add(load(tmp_path, "small").digest)
    assert len(digests) == 4


def test_names_are_all_that_the_blank_cell_binds(tmp_path: Path) -> None:
    blank = "a, (b, *c) = ..., (..., ...)\nd: int = ...\n\n\ndef e(x):\n    y = 1\n\n\nclass F:\n    g = 1"
    assignment = make(tmp_path, "import math", {"x": (blank, blank, "same(a, 3)", "")})
    assert assignment.questions[0].names == ("a", "b", "c", "d", "e", "F")


ONE = {"x": ("x = ...", "x = 3", "same(x, 3)", "")}


@pytest.mark.parametrize(
    ("trusted", "questions", "words"),
    [
        ("import math", {"x": ("x = ...", "x = 3", "same(x, 3)\nprint(x)", "")}, "hold only same"),
        ("import math", {"x": ("x = ...", "x = 3", "y = x", "")}, "line 1 holds 'y = x'"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, 1 + 2)", "")}, "'1 + 2' is no literal"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, 3, tol=1)", "")}, "by name rtol, atol"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, {1, 2})", "")}, "sorted"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, sealed('3'))", "")}, "is not a seal"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, {**y})", "")}, "is no literal"),
        ("import math", {"x": ("x = ...", "x = 3", "same(x, 3", "")}, "x-test, line 1 is no Python"),
        ("import math", {"x": ("x = =", "x = 3", "same(x, 3)", "")}, "'x' is no plain Python"),
        ("x = 1", ONE, "'imports' binds x, as an answer cell does"),
        ("import x", ONE, "'imports' binds x, as an answer cell does"),
        (
            "import math",
            {"x": ("import numpy as np\nx = ...", "import numpy as np\nx = 3", "same(np.mean(x), 3)", "")},
            "'x-test' uses np, which the blank answer cell 'x' imports",
        ),
        (
            "import math",
            {"x": ("from a import b\nx = ...", "from a import b\nx = 3", "same(x, 3)", "same(b(x), 3)")},
            "'x-test' uses b, which the blank answer cell 'x' imports",
        ),
        (
            "def helper(x):\n    return [np.mean(x)]",
            {"x": ("import numpy as np\nx = ...", "import numpy as np\nx = 3", "same(helper(x), 3)", "")},
            "'imports' uses np, which the blank answer cell 'x' imports",
        ),
        (
            "import math",
            {"x": ("x = ...", "x = 3", "same(x, 3)", "same(x, 3, vary={3: [4]})")},
            "replaces 3, which is no literal of 'x'",
        ),
        (
            "import math",
            {"x": ("def f(n):\n    pass", "", "same(f(5), 3)", "same(f(5), 3, vary={5.0: [4]})")},
            "5 is not 5.0",
        ),
        (
            "import math",
            {"x": ("def f(n):\n    pass", "", "same(f(5), 3, vary={5: [4]})", "")},
            "vary is for hidden checks",
        ),
        (
            "import math",
            {"x": ("def f(n):\n    pass", "", "same(f(5), 3)", "same(f(5), 3, vary={5: []})")},
            "no list of values for 5",
        ),
        (
            "import math",
            {"x": ("def f(n):\n    pass", "", "same(f(1), 3)", "same(f(1), 3, vary={1: [4], True: [5]})")},
            "are equal; keep one",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_graded_is_said_in_a_sentence(
    trusted: str, questions: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="small: ") as caught:
        make(tmp_path, trusted, questions)
    assert words in str(caught.value)


def edited(root: Path, folder: str, edit: Callable[[list[dict[str, Any]]], object]) -> None:
    path = root / folder / "small" / "small.ipynb"
    notebook = json.loads(path.read_text())
    edit(notebook["cells"])
    path.write_text(json.dumps(notebook))


def cell(cells: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in cells if one["id"] == name)


def points(value: Any) -> Callable[[list[dict[str, Any]]], object]:
    return lambda cells: cell(cells, "x-test")["metadata"]["nbgrader"].update(points=value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda cells: cells.pop(), "have different cells; run python -m dlsys.notebook.release"),
        (lambda cells: cells.reverse(), "have different cells"),
        (lambda cells: cell(cells, "x").update(id="imports"), "the same id"),
        (lambda cells: cell(cells, "x-test").update(source="same(x, 4)"), "out of step with its sol"),
        (points(0), "points 0; give it more than 0"),
        (points("2"), "points '2'"),
    ],
)  # fmt: skip
def test_a_release_that_is_out_of_step_is_refused(
    edit: Callable[[list[dict[str, Any]]], object], words: str, tmp_path: Path
) -> None:
    make(tmp_path, "import math", ONE)
    edited(tmp_path, "exercises", edit)
    with pytest.raises(ValueError, match="small: ") as caught:
        load(tmp_path, "small")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda cells: cells.remove(cell(cells, "x-question")), "there is no cell x-question"),
        (lambda cells: cells.remove(cell(cells, "x-test")), "'x' has no test cell x-test"),
        (lambda cells: cell(cells, "x-test").update(id="y-test"), "not called as an answer cell"),
        (lambda cells: cell(cells, "x-question").update(source="Do it."), "begin with a heading"),
        (
            lambda cells: cell(cells, "x")["metadata"]["nbgrader"].update(grade=True),
            "code to grade by hand",
        ),
    ],
)
def test_an_incomplete_notebook_is_refused(
    edit: Callable[[list[dict[str, Any]]], object], words: str, tmp_path: Path
) -> None:
    make(tmp_path, "import math", ONE)
    for folder in ("exercises", "solutions"):
        edited(tmp_path, folder, edit)
    with pytest.raises(ValueError, match="small: ") as caught:
        load(tmp_path, "small")
    assert words in str(caught.value)


def test_a_written_question_without_a_rubric_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "import math", ONE)
    role = {"grade": True, "solution": True, "points": 3, "grade_id": "why"}
    words = [
        {"cell_type": "markdown", "id": "why-question", "metadata": {}, "source": "## Why?"},
        {"cell_type": "markdown", "id": "why", "metadata": {"nbgrader": role}, "source": "Here."},
    ]
    for folder in ("exercises", "solutions"):
        edited(tmp_path, folder, lambda cells: cells.extend(words))
    with pytest.raises(ValueError, match="why has no rubric"):
        load(tmp_path, "small")
    edited(tmp_path, "solutions", lambda cells: cells[-1].update(source="One point for a reason."))
    (written,) = load(tmp_path, "small").written
    assert (written.title, written.points) == ("Why?", 3)
    assert written.rubric == "One point for a reason."


def test_an_unknown_assignment_is_told_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no assignment 'zeros' in .*known: .*, memory_wall, "):
        load(ROOT, "zeros")
    with pytest.raises(ValueError, match="known: none"):
        load(tmp_path, "zeros")
    folder = tmp_path / "exercises" / "one"
    folder.mkdir(parents=True)
    (folder / "one.ipynb").write_text("{")
    with pytest.raises(ValueError, match=r"one.ipynb is no notebook of nbformat 4.5"):
        load(tmp_path, "one")
    (folder / "one.ipynb").write_text('{"cells": []}')
    with pytest.raises(ValueError, match=r"there is no .*solutions/one/one.ipynb"):
        load(tmp_path, "one")


# -- checks --------------------------------------------------------------------------------------


def test_an_expression_keeps_its_text_in_one_line() -> None:
    source = 'same(f(1,\n       "a  b"), 3)\nsame((g(1)\n      + 2), 3)\nsame(f(1,  # one\n  2), 3)'
    found = [check.expression for check in checks_of(source)]
    assert found == ["f(1, 'a  b')", "g(1) + 2", "f(1, 2)"]


def test_expected_values_are_plain_and_seals_stay_shut() -> None:
    token = seal(3)
    (check,) = checks_of(
        f"same(x, (1, [2, -3.5]), hint=[(sealed({token!r}), 'three'), (None, 'n')])"
    )
    assert check.expected == [1, [2, -3.5]]
    assert check.hint[0][0].matches(3)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("weight=0", "weight is 0; it must be a finite number above zero."),
        ("weight=-1", "weight is -1; it must be"),
        ("weight=1e999", "weight is inf; it must be"),
        ("weight=True", "weight is True; it must be"),
        ("weight='2'", "weight is '2'; it must be"),
        ("weight=None", "weight is None; it must be"),
        ("needed=1", "needed is 1; it must be True or False."),
        ("needed='no'", "needed is 'no'; it must be"),
        ("needed=None", "needed is None; it must be"),
        ("rtol=-0.1", "rtol is -0.1; it must be a finite number of at least 0."),
        ("atol='0.1'", "atol is '0.1'; it must be"),
        ("hint=5", "hint is 5; it must be text"),
        ("best=[8]", "best is [8]; it must be a dictionary"),
        ("vary=[8]", "vary is [8]; it must be a dictionary"),
    ],
)
def test_a_grader_refuses_an_option_by_the_sentence_of_a_notebook(option: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        eval(f"same(4, 4, {option})", {"same": same})
    with pytest.raises(ValueError, match=re.escape(words)) as loaded:
        checks_of(f"same(4, 4, {option})")
    assert str(loaded.value) == f"line 1: {told.value}"


def check_of(expression: str, vary: str, **others: str) -> Any:
    more = "".join(f", {name}={value}" for name, value in others.items())
    source = (
        f"### BEGIN HIDDEN TESTS\nsame({expression}, 3, vary={vary}{more})\n### END HIDDEN TESTS"
    )
    return checks_of(source)[0]


@pytest.mark.parametrize(
    ("expression", "vary", "becomes"),
    [
        ("f(5, 5.0, '5', n=5)", "{5: [7]}", "f(7, 5.0, '5', n=7)"),
        ("f(5, 5.0, '5', n=5)", "{5.0: [7.5]}", "f(5, 7.5, '5', n=5)"),
        ("f(1, True)", "{True: [False]}", "f(1, False)"),
        ("f(LINKS['a'], 'b')", "{'a': ['c']}", "f(LINKS['c'], 'b')"),
        ("f(-5, 5)", "{-5: [-7]}", "f(-7, 5)"),
        ("f(-5, 5)", "{5: [6]}", "f(-5, 6)"),
        ("f(1e6)[3] - 3", "{1e6: [2e9], 3: [4]}", "f(2000000000.0)[4] - 4"),
        ("f(1_000)", "{1000: [20]}", "f(20)"),
        ("f(3, f'{3}')", "{3: [4]}", "f(4, f'{3}')"),
        ("[f(n) for n in (1, 3)]", "{3: [(4, 5)]}", "[f(n) for n in (1, (4, 5))]"),
    ],
)
def test_a_literal_is_replaced_where_type_and_value_are_the_same(
    expression: str, vary: str, becomes: str
) -> None:
    assert drawn(check_of(expression, vary), Random(0)).expression == becomes


def test_the_same_draw_is_in_the_expression_and_its_cost() -> None:
    check = check_of(
        "f(5) + g(5)", "{5: list_of_sizes}".replace("list_of_sizes", str([*range(9)])), cost="f(5)"
    )
    one = drawn(check, Random(1))
    digit = one.cost[2]
    assert one.expression == f"f({digit}) + g({digit})"


def test_a_draw_is_the_same_for_the_same_seed_and_reaches_the_whole_domain() -> None:
    check = check_of("f(5)", "{5: [1, 2, 3]}")
    assert drawn(check, Random("7/a")) == drawn(check, Random("7/a"))
    assert len({drawn(check, Random(seed)).expression for seed in range(50)}) == 3


def test_a_drawn_check_keeps_the_hints_that_are_for_any_wrong_value() -> None:
    for hint, kept in (
        ("'always'", "always"),
        ("{4: 'off by one', None: 'else'}", "else"),
        ("[([4], 'off by one'), (None, 'else')]", "else"),
        ("{4: 'off by one'}", None),
    ):
        check = check_of("f(5)", "{5: [6]}", hint=hint, best="{'bytes': 3}")
        one = drawn(check, Random(0))
        assert (one.hint, one.best, one.vary) == (kept, None, None)


def test_a_check_without_vary_is_not_touched() -> None:
    (check,) = checks_of("same(f( 5 ), 3)")
    assert drawn(check, Random(0)) is check


LITERALS = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
LITERALS |= st.floats(allow_nan=False, allow_infinity=False)


@given(LITERALS, LITERALS)
def test_any_literal_can_take_the_place_of_any_other(before: Any, after: Any) -> None:
    check = check_of(f"f([{before!r}, x])", f"{{{before!r}: [{after!r}]}}")
    one = varied(check, {before: after})
    came = eval(one.expression, {"f": lambda given: given[0], "x": 0})
    assert type(came) is type(after)
    assert repr(came) == repr(after)


# -- measuring -----------------------------------------------------------------------------------

WATCHING = """from torch.utils.flop_counter import FlopCounterMode


class Count(FlopCounterMode):
    pass


def counted(f, n):
    with Count() as count:
        f(n)
    return count.get_total_flops()


def of(f, n):
    return counted(f, n) // 2
"""
OPEN = "def f(n):\n    '''A product.'''\n    # YOUR ANSWER HERE"
REPORTER = f"{OPEN}\n\n\ndef step(n):\n    return counted(f, n)"


@pytest.mark.parametrize(
    ("blank", "check", "words"),
    [
        (OPEN, "same(of(f, 3), 0)", "hands f to of, which watches .* by FlopCounterMode"),
        (OPEN, "same(1, 1, cost={'FLOPs': counted(f=f, n=3)})", "hands f to counted"),
        (REPORTER, "same(step(3), 0)", "gives step in full, and it uses counted"),
    ],
)
def test_a_check_that_cannot_see_what_it_measures_is_refused(
    tmp_path: Path, blank: str, check: str, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        make(tmp_path, WATCHING, {"f": (blank, "def f(n): ...", check, "")})
    with pytest.raises(ValueError, match=words):
        make(tmp_path / "hidden", WATCHING, {"f": (blank, "def f(n): ...", "same(f(1), 1)", check)})


@pytest.mark.parametrize(
    ("blank", "check"),
    [
        ("f = 3", "same(of(len, f), 3)"),  # a number is measured with what is the author's
        (OPEN, "same(f(3), 0)"),
        (f"{OPEN}\n\n\ndef twice(n):\n    return 2 * f(n)", "same(twice(3), 0)"),
    ],
)
def test_what_the_locked_cells_measure_of_their_own_is_not_refused(
    tmp_path: Path, blank: str, check: str
) -> None:
    assert make(tmp_path, WATCHING, {"f": (blank, "f = 3", check, "")})
