"""What holds for every exercise notebook: a slug's test file takes these classes over.

A class of a file runs by itself, so that several can run side by side.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from math import isclose, isfinite
from random import Random
from typing import Any

import nbformat
import pytest

from dlsys.exercises import Sealed, WrongAnswer, plain
from dlsys.exercises.cost import beats, cost_of
from dlsys.exercises.judge import HINT_RTOL, difference
from dlsys.grading.checks import Check, checks_of, drawn, varied
from dlsys.notebook.fold import is_folded
from dlsys.notebook.release import STUB, as_text
from tests.exercises.notebooks import (
    ROOT,
    Cell,
    code_cells,
    execute,
    load,
    new_namespace,
    run_of,
    solved,
)
from tests.exercises.points import cells_of
from tests.exercises.wrong_answers import Wrong, bank, module, right_answers


class Form:
    """How a notebook is built, solved and released."""

    @pytest.mark.parametrize("folder", ["solutions", "exercises"])
    def test_notebooks_are_valid_with_unique_ids_that_are_nbgraders(
        self, folder: str, slug: str
    ) -> None:
        notebook = load(folder, slug)
        nbformat.validate(notebook)
        ids = [cell["id"] for cell in notebook["cells"]]
        assert len(ids) == len(set(ids))
        for cell in notebook["cells"]:
            role = cell["metadata"].get("nbgrader", {"grade_id": cell["id"]})
            assert role["grade_id"] == cell["id"]

    @pytest.mark.parametrize("folder", ["solutions", "exercises"])
    def test_notebooks_are_stored_in_the_one_form_that_a_release_writes(
        self, folder: str, slug: str
    ) -> None:
        text = (ROOT / folder / slug / f"{slug}.ipynb").read_text(encoding="utf-8")
        assert as_text(json.loads(text)) == text

    def test_test_cells_hold_calls_of_same_with_literals_and_nothing_else(self, slug: str) -> None:
        for cell in code_cells(load("solutions", slug)):
            if cell.is_test:
                assert checks_of(cell.source)  # raises where there is anything else
            else:
                assert "same(" not in cell.source, f"{cell.id} tests outside of a test cell"

    @pytest.mark.parametrize("folder", ["solutions", "exercises"])
    def test_checks_are_folded_so_that_their_hints_spoil_nothing(
        self, folder: str, slug: str
    ) -> None:
        for cell in load(folder, slug)["cells"]:
            is_helper = "helper" in cell["metadata"].get("tags", [])
            assert is_folded(cell) == (cell["id"].endswith("-test") or is_helper), cell["id"]

    def test_code_that_students_see_fits_its_column(self, slug: str) -> None:
        for cell in code_cells(load("solutions", slug)):
            long = [line for line in cell.source.splitlines() if len(line) > 76]
            assert cell.is_test or not long, f"{cell.id}: {long}"

    def test_a_check_is_called_by_what_the_student_wrote_and_by_no_name_of_its_own(
        self, slug: str
    ) -> None:
        for cell in code_cells(load("solutions", slug)):
            names = [
                node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.NamedExpr)
            ]
            assert not (cell.is_test and names), f"{cell.id}: {ast.unparse(names[0])}"

    def test_the_cost_is_of_an_answer_that_has_passed_all_other_checks(self, slug: str) -> None:
        """A wrong answer may well be cheaper than the best known."""
        for cell in code_cells(load("solutions", slug)):
            shown = cell.source.partition("### BEGIN HIDDEN TESTS")[0]
            calls = [ast.unparse(call) for call in ast.parse(shown).body if cell.is_test]
            assert not any(" cost=" in call for call in calls[:-1]), cell.id

    def test_a_notebook_has_six_to_eight_questions_with_an_answer_cell_each(
        self, slug: str
    ) -> None:
        cells = code_cells(load("solutions", slug))
        answers = [cell.id for cell in cells if cell.is_answer]
        assert [cell.id for cell in cells if cell.is_test] == [f"{name}-test" for name in answers]
        assert 6 <= len(answers) <= 8
        assert all(cell.points > 0 for cell in cells if cell.is_test)

    def test_the_solution_has_full_marks(self, slug: str) -> None:
        printed = run_of(slug).printed  # a check that fails ends the run with its error
        for cell in code_cells(load("solutions", slug)):
            assert not cell.is_test or "✔" in printed[cell.id]

    def test_after_a_restart_a_question_needs_the_imports_and_its_own_cells_alone(
        self, slug: str
    ) -> None:
        imports, *cells = code_cells(load("solutions", slug))
        of_question: list[Cell] = []
        for cell in cells:
            of_question.append(cell)
            if cell.is_test:
                namespace = new_namespace()
                for each in (imports, *of_question):
                    execute(each, namespace)
                of_question = []

    def test_the_released_notebook_scores_zero_and_says_that_nothing_is_answered(
        self, slug: str
    ) -> None:
        namespace = new_namespace()
        for cell in code_cells(load("exercises", slug)):
            if cell.is_test:
                with pytest.raises(WrongAnswer):
                    execute(cell, namespace)
            elif cell.role:  # the student's own trial cells may fail before there is an answer
                execute(cell, namespace)

    def test_released_notebooks_hold_no_solution_hidden_test_or_output(self, slug: str) -> None:
        text = json.dumps(load("exercises", slug))
        assert "BEGIN SOLUTION" not in text
        assert "HIDDEN" not in text
        solutions = {cell.id: cell.source for cell in code_cells(load("solutions", slug))}
        for cell in code_cells(load("exercises", slug)):
            if cell.is_answer:
                outside, inside = _regions(solutions[cell.id])
                assert cell.source == "\n".join(outside), (
                    f"{cell.id}: not what surrounds the solution"
                )
                assert inside
        assert not any(cell.get("outputs") for cell in load("exercises", slug)["cells"])

    def test_the_last_question_is_answered_in_words_and_its_rubric_stays_here(
        self, slug: str
    ) -> None:
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


class Draws:
    """What the grader may ask in the place of what the notebook shows."""

    def test_a_question_that_asks_for_a_function_has_a_hidden_check_that_varies(
        self, slug: str
    ) -> None:
        varying = {question for question, check in hidden_checks(slug) if check.vary}
        for cell in code_cells(load("exercises", slug)):
            defined = [type(one) for one in ast.parse(cell.source).body if cell.is_answer]
            assert ast.FunctionDef not in defined or f"{cell.id}-test" in varying, cell.id

    def test_the_solution_answers_every_instance_that_can_be_drawn(self, slug: str) -> None:
        """Each value of a domain with the others as written, and a hundred draws of all together."""
        for question, check, draws in hidden_draws(slug):
            for key, values in (check.vary or {}).items():
                for value in values:
                    one = varied(check, {key: value})
                    assert one.expression != check.expression, (
                        f"{question}: {key!r} varies into itself"
                    )
                    value_of(one, slug)
            for one in {one.expression: one for one in draws}.values():  # most come several times
                value_of(one, slug)

    def test_a_memorised_answer_fails_whatever_is_drawn(self, slug: str) -> None:
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

    def test_no_draw_asks_what_the_notebook_shows(self, slug: str) -> None:
        shown = set()
        for cell in code_cells(load("exercises", slug)):
            checks = checks_of(cell.source) if cell.is_test else ()
            shown |= {ast.dump(ast.parse(check.expression)) for check in checks}
        for question, _, draws in hidden_draws(slug):
            for one in draws:
                assert ast.dump(ast.parse(one.expression)) not in shown, (
                    f"{question}: {one.expression}"
                )


class WrongAnswers:
    """Each plausible mistake is rejected, with a hint that fits."""

    def test_every_question_has_three_wrong_answers_at_least(self, slug: str) -> None:
        answers = [cell.id for cell in code_cells(load("solutions", slug)) if cell.is_answer]
        assert list(bank(slug)) == answers
        assert all(len({w.misconception for w in entries}) >= 3 for entries in bank(slug).values())

    def test_a_wrong_answer_is_rejected_with_a_fitting_hint(
        self, slug: str, answer: str, wrong: Wrong
    ) -> None:
        message = _said_of(slug, answer, wrong.cell)
        assert wrong.hint in message, message

    def test_every_hint_is_said_of_the_wrong_value_that_it_is_for(self, slug: str) -> None:
        for answer, check, hints in foreseen(slug):
            right, before = value_of(check, slug), list[tuple[Any, str]]()
            rtol = HINT_RTOL if isinstance(check.expected, Sealed) else check.rtol
            for wrong, value, text in hints:
                said = f"{answer}, {check.expression}: {value!r}, {text}"
                near = check.rtol < HINT_RTOL  # a hint may be for what is right, and rounded
                if isinstance(wrong, Sealed):
                    assert wrong.equals(value, HINT_RTOL) or wrong.rounds_to(value), said
                assert near or difference(value, right, rtol, check.atol), said
                first = [t for v, t in before if not difference(value, v, HINT_RTOL)]
                assert first in ([], [text]), f"{said} {first[0]} is said"
                before.append((value, text))

    def test_a_wrong_value_rounded_to_two_digits_is_still_refused(self, slug: str) -> None:
        accepted = list(round_alike(slug))
        assert not accepted, "choose other numbers, or ask for a whole number exactly"

    def test_a_right_answer_that_is_not_the_solutions_is_accepted(self, slug: str) -> None:
        for answer, several in right_answers(slug).items():
            for right in several:
                assert _said_of(slug, answer, right.cell) == "accepted", right.misconception

    def test_what_is_best_known_is_reached_by_an_answer_and_beaten_by_none(self, slug: str) -> None:
        for answer, check in questions_with_a_best(slug):
            best = check.best or {}
            costs = [cost_with(slug, answer, check, each) for each in all_right(slug, answer)]
            assert not [cost for cost in costs if beats(cost, best)], answer
            compared = [{name: cost[name] for name in best} for cost in costs]
            assert pytest.approx(best, rel=1e-3) in compared, f"{answer}: {compared}"


class Structure:
    """An answer of another structure gets a sentence about the structure, and no error of Python's."""

    def test_an_answer_of_another_structure_is_told_so(
        self, slug: str, answer: str, otherwise: Wrong, words: str
    ) -> None:
        message = _said_of(slug, answer, otherwise.cell)
        assert words in message, message
        assert re.match(r"WrongAnswer|OtherStructure", message), message
        assert not re.search(r"text is expected; a (list|dictionary) came", message)

    def test_a_dozen_answers_of_another_structure_are_tried(self, slug: str) -> None:
        assert sum(map(len, module(slug).OTHERWISE.values())) >= 12

    def test_a_number_for_a_program_is_told_that_a_function_is_wanted(self, slug: str) -> None:
        for answer, program in module(slug).PROGRAMS.items():
            message = _said_of(slug, answer, lambda source, name=program: f"{source}\n\n{name} = 3")
            assert "should be a function; it is the number 3" in message


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


@cache
def hidden_checks(slug: str) -> list[tuple[str, Check]]:
    """The hidden checks of a solution, with the ids of their questions."""
    cells = [cell for cell in code_cells(load("solutions", slug)) if cell.is_test]
    return [(c.id, check) for c in cells for check in checks_of(c.source) if check.hidden]


@cache
def hidden_draws(slug: str) -> list[tuple[str, Check, list[Check]]]:
    """The same, with a hundred draws of each check that varies."""
    return [
        (question, check, [drawn(check, Random(seed)) for seed in range(100 if check.vary else 0)])
        for question, check in hidden_checks(slug)
    ]


def foreseen(slug: str) -> Iterator[tuple[str, Check, list[tuple[Any, Any, str]]]]:
    """Each check whose hints are for certain wrong values: of each its key, the value, and the text.

    A sealed key hides its value, so the bank has it: `SEALED`, by question and expression, or `...`
    where nobody knows it.
    """
    sealed = getattr(module(slug), "SEALED", {}).items()
    given = {(a, name): iter(values) for a, each in sealed for name, values in each.items()}
    for cell in code_cells(load("solutions", slug)):
        answer = cell.id.removesuffix("-test")
        for check in checks_of(cell.source) if cell.is_test else ():
            if check.hint and not isinstance(check.hint, str):
                pairs = check.hint.items() if isinstance(check.hint, dict) else check.hint
                values = given.get((answer, check.expression), iter(()))
                hints = [
                    (wrong, next(values) if isinstance(wrong, Sealed) else plain(wrong), text)
                    for wrong, text in pairs
                    if wrong is not None
                ]
                yield answer, check, [hint for hint in hints if hint[1] is not ...]
    assert not [(*name, value) for name, values in given.items() for value in values]


def round_alike(slug: str) -> Iterator[tuple[str, float]]:
    """The wrong numbers that hints are for, and that are accepted once they are rounded.

    A whole number may be what a wrong one rounds to: then it is the rounding that the hint asks for.
    """
    for _, check, hints in foreseen(slug):
        right = value_of(check, slug)
        for _, value, _ in hints if type(right) is float else ():
            if type(value) in (int, float) and isfinite(value):
                short = type(value)(float(f"{value:.1e}"))
                near = isclose(short, right, rel_tol=0.1)  # seals take time to compare
                if near and short != value and not difference(short, check.expected, check.rtol):
                    yield check.expression, value


def questions_with_a_best(slug: str) -> list[tuple[str, Check]]:
    """The ids of the answers whose cost is shown beside the best known, with the check that does."""
    cells = [cell for cell in code_cells(load("solutions", slug)) if cell.is_test]
    checks = [(cell.id.removesuffix("-test"), c) for cell in cells for c in checks_of(cell.source)]
    return [(answer, check) for answer, check in checks if check.best]


def all_right(slug: str, answer: str) -> list[Callable[[str], str]]:
    """What makes right answers of a solution's source: the solution itself, and those of the bank."""
    return [str, *(right.cell for right in right_answers(slug).get(answer, []))]


def cost_with(
    slug: str, answer: str, check: Check, changed: Callable[[str], str]
) -> dict[str, float]:
    """What an answer costs, where this stands in the place of the solution."""
    namespace = dict(run_of(slug).before[answer])
    for cell in cells_of(slug, answer, changed)[:-1]:  # without its test
        execute(cell, namespace)
    return cost_of(eval(check.cost or "", namespace))


def value_of(check: Check, slug: str) -> Any:
    return _value(check.expression, slug)


@cache
def _value(expression: str, slug: str) -> Any:
    """What the solution makes of an expression: the same however many tests draw it."""
    return plain(eval(expression, solved(slug)))


def _rejection(cells: list[Cell], namespace: dict[str, Any]) -> str:
    """What a student is told by the first cell that fails."""
    for cell in cells:
        try:
            execute(cell, namespace)
        except Exception as error:  # a wrong program may also end in an error of its own world
            return f"{type(error).__name__}: {error}"
    return "accepted"


def _said_of(slug: str, answer: str, changed: Callable[[str], str]) -> str:
    """What the checks of a question say, where this stands in the place of its solution."""
    return _rejection(cells_of(slug, answer, changed), dict(run_of(slug).before[answer]))
