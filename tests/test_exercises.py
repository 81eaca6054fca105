"""Exercises: what `same` accepts, what a release holds, and that each wrong answer is told so."""

import ast
import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wrong_answers import Wrong
from wrong_answers.notebooks import (
    ROOT,
    Cell,
    code_cells,
    execute,
    load,
    new_namespace,
    slugs,
)

from dlsys.collectives import ring_all_reduce, tree_all_reduce
from dlsys.data_parallel import buckets, constant_fraction_speedup, noise_scale, overlap
from dlsys.exercises import WrongAnswer, cost_of, plain, same, seal, sealed
from dlsys.exercises.judge import approval, complaint, difference, likely_mistake
from dlsys.grading.checks import Check, checks_of, drawn, varied
from dlsys.hardware import DEVICES, LINKS, Link
from dlsys.memory_wall import activations, model_state
from dlsys.notebook.release import STUB, as_text, main
from dlsys.pipeline_parallel import gpipe, interleaved, one_f_one_b, zero_bubble
from dlsys.tensor_parallel import activation_bytes, all_reduce_bytes, layout, step_bytes
from dlsys.transformer import CATALOGUE

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


# -- same: what is equal -------------------------------------------------------------------------


@given(PLAIN)
def test_every_plain_value_equals_itself_and_no_text(value: Any) -> None:
    assert difference(plain(value), plain(value)) is None
    assert difference(plain([value]), "text")


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        (3, 3),
        (3.0, 3),
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
    ],
)
def test_an_answer_that_is_not_plain_is_refused_with_advice(came: Any, words: str) -> None:
    with pytest.raises(WrongAnswer) as caught:
        same(came, [1, 2])
    assert words in str(caught.value)


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


def test_a_grader_can_say_the_same_of_an_answer_as_the_notebook(capsys: Any) -> None:
    hint = {4.0: "one too many"}
    with pytest.raises(WrongAnswer) as caught:
        same([3, 4], [3, 5], hint=hint)
    wrong = difference([3, 4], [3, 5])
    assert str(caught.value) == complaint("[3, 4]", [3, 4], [3, 5], str(wrong), hint)
    same(1 + 2, 3, cost=cost_of({"bytes": 3}))
    assert capsys.readouterr().out == f"\x1b[32m✔\x1b[0m {approval('1 + 2', 3)}\n  cost: 3 B\n"


def test_numbers_beyond_all_ratios_are_wrong_and_no_error() -> None:
    assert likely_mistake(5e-324, 1e300) is None
    assert likely_mistake(1e300, 5e-324) is None
    assert likely_mistake(float("inf"), 1.0) is None


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


def test_a_seal_accepts_both_sides_of_a_rounding_boundary() -> None:
    answer = sealed(seal(2.5, digits=1))
    assert answer.matches(2.5 * (1 + 1e-12))
    assert answer.matches(2.5 * (1 - 1e-12))


def test_a_broken_seal_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"'208e9' is not a seal; make one with seal"):
        sealed("208e9")
    with pytest.raises(ValueError, match="0 digits"):
        seal(3, digits=0)
    with pytest.raises(ValueError, match="A dict cannot be sealed"):
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


# -- the notebooks -------------------------------------------------------------------------------


@pytest.mark.parametrize("slug", slugs())
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_notebooks_are_valid_with_unique_ids_that_are_nbgraders(folder: str, slug: str) -> None:
    notebook = load(folder, slug)
    nbformat.validate(notebook)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    for cell in notebook["cells"]:
        role = cell["metadata"].get("nbgrader", {"grade_id": cell["id"]})
        assert role["grade_id"] == cell["id"]


@pytest.mark.parametrize("slug", slugs())
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_notebooks_are_stored_in_the_one_form_that_a_release_writes(folder: str, slug: str) -> None:
    text = (ROOT / folder / slug / f"{slug}.ipynb").read_text(encoding="utf-8")
    assert as_text(json.loads(text)) == text


@pytest.mark.parametrize("slug", slugs())
def test_test_cells_hold_calls_of_same_with_literals_and_nothing_else(slug: str) -> None:
    for cell in code_cells(load("solutions", slug)):
        if cell.is_test:
            assert checks_of(cell.source)  # raises where there is anything else
        else:
            assert "same(" not in cell.source, f"{cell.id} tests outside of a test cell"


@pytest.mark.parametrize("slug", slugs())
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_checks_are_folded_so_that_their_hints_spoil_nothing(folder: str, slug: str) -> None:
    cells = [cell for cell in load(folder, slug)["cells"] if cell["cell_type"] == "code"]
    folded = [cell["id"] for cell in cells if cell["metadata"].get("jupyter")]
    assert folded == [cell["id"] for cell in cells if cell["id"].endswith("-test")]
    assert all(
        cell["metadata"]["jupyter"] == {"source_hidden": True}
        for cell in cells
        if cell["id"] in folded
    )


@pytest.mark.parametrize("slug", slugs())
def test_code_that_students_see_fits_its_column(slug: str) -> None:
    for cell in code_cells(load("solutions", slug)):
        long = [line for line in cell.source.splitlines() if len(line) > 76]
        assert cell.is_test or not long, f"{cell.id}: {long}"


@pytest.mark.parametrize("slug", slugs())
def test_a_check_is_called_by_what_the_student_wrote_and_by_no_name_of_its_own(slug: str) -> None:
    for cell in code_cells(load("solutions", slug)):
        names = [
            node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.NamedExpr)
        ]
        assert not (cell.is_test and names), f"{cell.id}: {ast.unparse(names[0])}"


@pytest.mark.parametrize("slug", slugs())
def test_the_cost_is_of_an_answer_that_has_passed_all_other_checks(slug: str) -> None:
    """A wrong answer may well be cheaper than the best known."""
    for cell in code_cells(load("solutions", slug)):
        shown = cell.source.partition("### BEGIN HIDDEN TESTS")[0]
        calls = [ast.unparse(call) for call in ast.parse(shown).body if cell.is_test]
        assert not any(" cost=" in call for call in calls[:-1]), cell.id


@pytest.mark.parametrize("slug", slugs())
def test_a_notebook_has_six_to_eight_questions_with_an_answer_cell_each(slug: str) -> None:
    cells = code_cells(load("solutions", slug))
    answers = [cell.id for cell in cells if cell.is_answer]
    assert [cell.id for cell in cells if cell.is_test] == [f"{name}-test" for name in answers]
    assert 6 <= len(answers) <= 8
    assert all(cell.points > 0 for cell in cells if cell.is_test)


@pytest.mark.parametrize("slug", slugs())
def test_the_solution_has_full_marks(slug: str) -> None:
    namespace = new_namespace()
    for cell in code_cells(load("solutions", slug)):
        printed = execute(cell, namespace)
        assert not cell.is_test or "✔" in printed


@pytest.mark.parametrize("slug", slugs())
def test_the_released_notebook_scores_zero_and_says_that_nothing_is_answered(slug: str) -> None:
    namespace = new_namespace()
    for cell in code_cells(load("exercises", slug)):
        if cell.is_test:
            with pytest.raises(WrongAnswer):
                execute(cell, namespace)
        elif cell.role:  # the student's own trial cells may fail before there is an answer
            execute(cell, namespace)


@pytest.mark.parametrize("slug", slugs())
def test_released_notebooks_hold_no_solution_hidden_test_or_output(slug: str) -> None:
    text = json.dumps(load("exercises", slug))
    assert "BEGIN SOLUTION" not in text
    assert "HIDDEN" not in text
    solutions = {cell.id: cell.source for cell in code_cells(load("solutions", slug))}
    for cell in code_cells(load("exercises", slug)):
        if cell.is_answer:
            outside, inside = _regions(solutions[cell.id])
            assert cell.source == "\n".join(outside), f"{cell.id}: not what surrounds the solution"
            assert inside
    assert not any(cell.get("outputs") for cell in load("exercises", slug)["cells"])


def _regions(source: str) -> tuple[list[str], list[str]]:
    """The lines outside of solutions, each solution replaced by the stub, and those inside."""
    outside, inside, within = [], [], False
    for line in source.split("\n"):
        if "### BEGIN SOLUTION" in line:
            within = True
            outside.append(line.replace("### BEGIN SOLUTION", STUB))
        elif "### END SOLUTION" in line:
            within = False
        else:
            (inside if within else outside).append(line)
    return outside, inside


def test_exercises_are_in_step_with_solutions_and_a_release_changes_nothing() -> None:
    before = {path: path.read_bytes() for path in (ROOT / "exercises").rglob("*") if path.is_file()}
    command = [sys.executable, "-m", "dlsys.notebook.release"]
    check = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "in step" in again.stdout
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

    assert main(["--root", str(tmp_path), "--run"]) == 0
    stored = json.loads(solution.read_text(encoding="utf-8"))["cells"][0]
    assert stored["outputs"][0]["text"] == ["3\n"]
    released = tmp_path / "exercises" / "one" / "one.ipynb"
    answer = json.loads(released.read_text(encoding="utf-8"))["cells"][0]
    assert answer["source"] == ["x = ...\n", STUB]
    assert answer["outputs"] == []
    assert main(["--root", str(tmp_path), "--check"]) == 0

    released.write_text("{}", encoding="utf-8")
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert "one.ipynb is out of step: run make release" in capsys.readouterr().out
    assert released.read_text(encoding="utf-8") == "{}"
    stranger = tmp_path / "exercises" / "two" / "two.ipynb"
    stranger.parent.mkdir()
    stranger.write_text("{}", encoding="utf-8")
    assert main(["--root", str(tmp_path)]) == 1
    assert "two.ipynb has no solution; remove it." in capsys.readouterr().err


# -- checks that vary ----------------------------------------------------------------------------


def hidden_checks(slug: str) -> list[tuple[str, Check]]:
    """The hidden checks of a solution, with the ids of their questions."""
    cells = [cell for cell in code_cells(load("solutions", slug)) if cell.is_test]
    return [(c.id, check) for c in cells for check in checks_of(c.source) if check.hidden]


@cache
def solved(slug: str) -> dict[str, Any]:
    namespace = new_namespace()
    for cell in code_cells(load("solutions", slug)):
        execute(cell, namespace)
    return namespace


def value_of(check: Check, slug: str) -> Any:
    return plain(eval(check.expression, solved(slug)))


@pytest.mark.parametrize("slug", slugs())
def test_a_question_that_asks_for_a_function_has_a_hidden_check_that_varies(slug: str) -> None:
    varying = {question for question, check in hidden_checks(slug) if check.vary}
    for cell in code_cells(load("exercises", slug)):
        defined = [type(one) for one in ast.parse(cell.source).body if cell.is_answer]
        assert ast.FunctionDef not in defined or f"{cell.id}-test" in varying, cell.id


@pytest.mark.parametrize("slug", slugs())
def test_the_solution_answers_every_instance_that_can_be_drawn(slug: str) -> None:
    """Each value of a domain with the others as written, and a hundred draws of all together."""
    for question, check in hidden_checks(slug):
        for key, values in (check.vary or {}).items():
            for value in values:
                one = varied(check, {key: value})
                assert one.expression != check.expression, f"{question}: {key!r} varies into itself"
                value_of(one, slug)
        draws = [drawn(check, Random(seed)) for seed in range(100 if check.vary else 0)]
        for one in {one.expression: one for one in draws}.values():  # most come several times
            value_of(one, slug)


@pytest.mark.parametrize("slug", slugs())
def test_a_memorised_answer_fails_whatever_is_drawn(slug: str) -> None:
    """In each question there is a check for which every draw expects another value than is written.

    Others may always expect the same ("proved"), of what the answer makes of other sizes.
    """
    telling: dict[str, bool] = {}
    for question, check in hidden_checks(slug):
        for key, values in (check.vary or {}).items():
            came = [value_of(varied(check, {key: value}), slug) for value in values]
            other = all(difference(each, check.expected, check.rtol) for each in came)
            telling[question] = telling.get(question, False) or other
    assert telling
    assert all(telling.values()), telling


@pytest.mark.parametrize("slug", slugs())
def test_no_draw_asks_what_the_notebook_shows(slug: str) -> None:
    shown = set()
    for cell in code_cells(load("exercises", slug)):
        checks = checks_of(cell.source) if cell.is_test else ()
        shown |= {ast.dump(ast.parse(check.expression)) for check in checks}
    for question, check in hidden_checks(slug):
        for seed in range(100 if check.vary else 0):
            one = drawn(check, Random(seed))
            assert ast.dump(ast.parse(one.expression)) not in shown, f"{question}: {one.expression}"


# -- answers in words ----------------------------------------------------------------------------


@pytest.mark.parametrize("slug", slugs())
def test_the_last_question_is_answered_in_words_and_its_rubric_stays_here(slug: str) -> None:
    *_, question, answer = load("solutions", slug)["cells"]
    *_, released = load("exercises", slug)["cells"]
    role = answer["metadata"]["nbgrader"]
    assert question["id"] == f"{answer['id']}-question"
    assert (role["grade"], role["solution"], role["locked"]) == (True, True, False)
    text = "".join(answer["source"])
    assert f"**Rubric**, {role['points']} points:" in text
    assert text.count("\n- 1 point: ") == role["points"]
    assert "".join(released["source"]) == "YOUR ANSWER HERE"
    assert "Rubric" not in json.dumps(load("exercises", slug))
    assert "The last question is answered in words" in json.dumps(load("exercises", slug))


def model_answer(slug: str) -> str:
    return " ".join("".join(load("solutions", slug)["cells"][-1]["source"]).split())


def test_the_figures_of_the_model_answer_on_halving_the_batch_are_right() -> None:
    spec, text = CATALOGUE["gpt2-xl"], model_answer("memory_wall")
    state = model_state(spec.parameters(), "mixed-adamw").total
    whole = {batch: state + activations(spec, batch) for batch in (32, 16, 2, 1)}
    for figure in (state, activations(spec, 32), *whole.values()):
        assert f"{figure / 1e9:.1f}" in text
    assert f"to {whole[16] / whole[32]:.0%}".replace("%", " %") in text
    assert f"to {whole[1] / whole[2]:.0%}".replace("%", " %") in text


def test_the_figures_of_the_model_answer_on_tree_and_ring_are_right() -> None:
    text, ethernet = model_answer("collectives"), LINKS["ethernet-100g"]
    for plan, milliseconds, seconds in (
        (tree_all_reduce(64), 0.24, 9.6),
        (ring_all_reduce(64), 2.52, 1.58),
    ):
        assert plan.price(1e3, ethernet).seconds == pytest.approx(milliseconds / 1e3, rel=0.01)
        assert plan.price(10e9, ethernet).seconds == pytest.approx(seconds, rel=0.01)
        assert f"{milliseconds} ms" in text
        assert f"{seconds} s" in text
    assert len(ring_all_reduce(64).rounds) == 126
    assert len(tree_all_reduce(64).rounds) == 12
    crossover = solved("collectives")["crossover_bytes"]
    assert crossover(64, ethernet) == pytest.approx(2.84e6, rel=0.001)
    assert crossover(128, ethernet) > crossover(64, ethernet)


def test_the_figures_of_the_model_answer_on_the_bubble_of_1f1b_are_right() -> None:
    text = model_answer("pipeline_parallel")
    before, after, more = (
        plan.price(1, 2) for plan in (gpipe(12, 36), one_f_one_b(12, 36), one_f_one_b(12, 108))
    )
    assert before.makespan == after.makespan == 141
    assert (after.busy[0], after.idle[0]) == (108, 33)
    assert before.bubble_fraction == after.bubble_fraction == pytest.approx(11 / 47)
    assert after.bubble_of_ideal == pytest.approx(11 / 36)
    assert (max(before.peak_in_flight), min(before.peak_in_flight)) == (36, 36)
    assert (max(after.peak_in_flight), min(after.peak_in_flight)) == (12, 1)
    assert max(more.peak_in_flight) == 12
    halves, split = interleaved(12, 36, 2), zero_bubble(12, 36)
    assert sum(halves.messages) / 2 == pytest.approx(sum(gpipe(12, 36).messages), rel=0.05)
    assert max(split.peak_in_flight) == 12
    assert min(split.peak_in_flight) > min(after.peak_in_flight)
    for shown in (after, more, halves.price(1, 2), split.price(1, 2)):
        assert f"{shown.bubble_fraction:.1%}".replace("%", " %") in text
    assert "141 units" in text


def test_the_timeline_of_the_exercises_is_that_of_the_simulated_plan() -> None:
    cells = {
        cell["id"]: "".join(cell["source"])
        for cell in load("solutions", "pipeline_parallel")["cells"]
    }
    drawn = re.findall(r"rank \d \|(.*)", cells["picture-question"])
    spans = one_f_one_b(4, 5).price([1, 1, 2, 1], [1, 1, 2, 1]).spans
    for line, row in zip(drawn, spans, strict=True):
        columns = ["."] * 24
        for (kind, _, k), start, end in row:
            columns[int(start) : int(end)] = [f"{kind}{k}", *["--"] * int(end - start - 1)]
        assert line.split() == columns
    assert (
        one_f_one_b(4, 5).price(1.25, 1.25).makespan == solved("pipeline_parallel")["balanced_ms"]
    )


def test_the_figures_of_the_model_answer_on_staying_in_a_node_are_right() -> None:
    text, answers = model_answer("tensor_parallel"), solved("tensor_parallel")
    message, parameters = all_reduce_bytes(2048, 8192), 12 * 96 * 8192**2
    nvlink, network = (
        384 * ring_all_reduce(8).price(message, LINKS[name]).seconds
        for name in ("nvlink4", "infiniband-ndr")
    )
    compute = 6 * parameters * 2048 / 8 / (0.5 * DEVICES["h100-sxm"].rate("bf16"))
    sent, gradients = step_bytes(96, 8, 2048, 8192), 2 * parameters / 8
    assert (answers["micro_batch_bytes"], answers["all_reduce_bytes"]) == (sent, sent / 384)
    assert sent < 2 * gradients < 2 * sent
    assert nvlink / (nvlink + compute) < 0.2
    assert network / (network + compute) == pytest.approx(2 / 3, rel=0.02)
    for figure in (
        f"{sent / 1e9:.1f} GB for tensor parallelism",
        f"{parameters / 1e9:.1f} billion",
        f"{parameters / 8e9:.2f} billion",
        f"its {gradients / 1e9:.1f} GB of gradients: {2 * gradients / 1e9:.1f} GB",
        f"{sent / 384 / 1e6:.1f} MB",
        f"{compute:.2f} s for this micro-batch",
        f"add {nvlink:.3f} s",
        f"add {network:.3f} s",
        f"{384 * 14 * LINKS['infiniband-ndr'].latency * 1e3:.1f} ms",
    ):
        assert figure in text, figure


def test_the_exercises_cut_heads_and_keep_activations_as_the_layout_does() -> None:
    answers = solved("tensor_parallel")
    for t in (2, 4, 8, 16):
        cut = layout(CATALOGUE["llama2-70b"], t)
        keys, size = cut["layers.*.attention.key.weight"], cut.spec.head_size
        for rank in range(t):
            held = answers["held"](rank, t, cut.spec.heads, cut.spec.kv_heads)
            first, stop = cut["layers.*.attention.query.weight"].bounds(rank)
            assert held["query"] == list(range(first // size, stop // size))
            first, stop = keys.bounds(rank)
            assert held["key_value"] == list(range(first // size, stop // size))
            same_keys = [r for r in range(t) if keys.bounds(r) == (first, stop)]
            assert held["summed_over"] == same_keys
            assert len(same_keys) == keys.summed
    gpt3 = CATALOGUE["gpt3-175b"]
    for t, divided in ((1, False), (8, False), (8, True)):
        kept = answers["kept_bytes"](3, gpt3.sequence, gpt3.hidden, gpt3.heads, t, divided)
        assert kept == activation_bytes(gpt3, 3, t, divided).total


def test_one_design_of_a_tensor_parallel_group_is_the_fastest_that_fits() -> None:
    answers = solved("tensor_parallel")
    fitting = [d for d in answers["every"] if answers["memory_bytes"](d) <= 75e9]
    seconds = sorted(map(answers["step_seconds"], fitting))
    assert answers["design"] == {"tp": 4, "sequence_parallel": True, "recompute": "selective"}
    assert seconds[0] == answers["step_seconds"](answers["design"])
    assert seconds[1] > 1.02 * seconds[0]


def test_the_figures_of_the_model_answer_on_eight_gpus_are_right() -> None:
    text, link, many = model_answer("data_parallel"), Link("no latency", 0.0, 1.0), 10_000
    assert "5.6 times with 30 %, and 4 times with 50 %" in text
    for r, best in ((0.3, 8.0), (0.5, 6.0)):
        assert constant_fraction_speedup(8, r) == pytest.approx({0.3: 5.6, 0.5: 4}[r])
        each = r / (1 - r) / (2 * 7 / 8) / many  # bytes of a bucket, for one second of compute
        step = overlap([each] * many, 2 / 3, 8, link, forward_seconds=1 / 3)
        assert 8 / step.seconds == pytest.approx(best, rel=1e-3)
    assert f"{0.3 / 0.7:.2f} of the time of compute" in text
    assert "1.33 times compute at the least, which makes 6.0 times at best" in text
    assert constant_fraction_speedup(8, 1 / (4 + 1)) == 6.4
    assert "to 20 % of the step, which makes 6.4 times" in text


def test_the_exercises_cut_buckets_and_hide_them_as_the_package_does() -> None:
    answers, random = solved("data_parallel"), Random(5)
    link = Link("no latency", 0.0, 1.0)
    for _ in range(20):
        sizes = [4 * random.randint(1, 9) for _ in range(12)]
        plan = buckets([(str(i), size) for i, size in enumerate(sizes)], 40)
        cut = [[int(name) for name in bucket.names] for bucket in plan.buckets]
        assert answers["cut_buckets"](sizes, 40, 40) == cut
        backward = [random.randint(1, 9) for _ in cut]
        seconds = [bucket.nbytes for bucket in plan.buckets]  # two ranks at 1 B/s send S
        step = overlap(plan, sum(backward), 2, link, shares=backward)
        assert answers["exposed"](backward, seconds) == pytest.approx(step.exposed_seconds)


def test_the_timeline_of_the_exercises_is_that_of_the_simulated_buckets() -> None:
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in load("solutions", "data_parallel")["cells"]
    }
    drawn = re.findall(r"(?:backward|network ) \|(.*)", cells["timeline-question"])
    step = overlap([4, 3, 4, 2], 12, 2, Link("no latency", 0.0, 1.0), shares=[2, 5, 2, 3])
    for line, spans in zip(drawn, (step.backward, step.network), strict=True):
        columns = [".."] * 16
        for bucket, start, end in spans:
            columns[int(start) : int(end)] = [f"b{bucket}", *["--"] * int(end - start - 1)]
        assert line.split() == columns
    assert step.hidden_fraction == pytest.approx(solved("data_parallel")["hidden_fraction"])


def test_one_design_of_a_data_parallel_run_is_the_cheapest_that_is_done_in_time() -> None:
    answers = solved("data_parallel")
    fitting = [d for d in answers["every"] if answers["hours"](d) <= 9]
    cheapest, next_best = sorted(map(answers["dollars"], fitting))[:2]
    assert cheapest == answers["dollars"](answers["design"])
    assert next_best > 1.05 * cheapest
    measured = noise_scale(8, 385.5, 512, 7.5).simple
    assert measured == answers["noise_scale"] == answers["TRADEOFF"].critical_batch


# -- the wrong answers ---------------------------------------------------------------------------


def bank(slug: str) -> dict[str, list[Wrong]]:
    return importlib.import_module(f"wrong_answers.{slug}").BANK


WRONG = [
    pytest.param(slug, answer, wrong, id=f"{slug}-{answer}-{wrong.misconception}")
    for slug in slugs()
    for answer, entries in bank(slug).items()
    for wrong in entries
]


@pytest.mark.parametrize("slug", slugs())
def test_every_question_has_three_wrong_answers_at_least(slug: str) -> None:
    answers = [cell.id for cell in code_cells(load("solutions", slug)) if cell.is_answer]
    assert list(bank(slug)) == answers
    assert all(len({w.misconception for w in entries}) >= 3 for entries in bank(slug).values())


@cache
def before_each_answer(slug: str) -> dict[str, dict[str, Any]]:
    """The names that exist when each answer cell of the solution is about to run."""
    namespace, found = new_namespace(), {}
    for cell in code_cells(load("solutions", slug)):
        if cell.is_answer:
            found[cell.id] = dict(namespace)
        execute(cell, namespace)
    return found


@pytest.mark.parametrize(("slug", "answer", "wrong"), WRONG)
def test_a_wrong_answer_is_rejected_with_a_fitting_hint(
    slug: str, answer: str, wrong: Wrong
) -> None:
    cells = code_cells(load("solutions", slug))
    namespace = dict(before_each_answer(slug)[answer])
    ids = [cell.id for cell in cells]
    first, last = ids.index(answer), ids.index(f"{answer}-test")
    changed = Cell(answer, wrong.cell(cells[first].source), {})
    message = _rejection([changed, *cells[first + 1 : last + 1]], namespace)
    assert wrong.hint in message, message


def _rejection(cells: list[Cell], namespace: dict[str, Any]) -> str:
    for cell in cells:
        try:
            execute(cell, namespace)
        except Exception as error:  # a wrong program may also end in an error of its own world
            return f"{type(error).__name__}: {error}"
    return "accepted"
