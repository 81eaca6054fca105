"""What is paid for is what was asked for: of every question, by every wrong answer and by idle ones."""

import pytest

from dlsys.grading.assignment import names_in
from tests.exercises.notebooks import slugs
from tests.exercises.points import asked, earns, functions_of, idle_answers, passed
from tests.exercises.wrong_answers import bank


@pytest.mark.parametrize("chapter", slugs())
class TestPoints:
    def test_the_solution_passes_every_check_as_it_is_drawn(self, chapter: str) -> None:
        for answer in bank(chapter):
            assert len(passed(chapter, answer, str)) == len(asked(chapter, answer)), answer

    def test_an_answer_that_took_no_work_earns_nothing(self, chapter: str) -> None:
        paid = [
            f"{answer}: {name}"
            for answer in bank(chapter)
            for name, source in idle_answers(chapter, answer)
            if earns(chapter, answer, lambda _, source=source: source)
        ]
        assert not paid

    def test_each_check_of_a_function_fails_a_wrong_answer_of_the_bank(self, chapter: str) -> None:
        """One that all of them pass pays for what is wrong, or the bank lacks a mistake.

        A value that is compared as it is fails every other one.
        """
        silent = []
        for answer, several in bank(chapter).items():
            checks, functions = asked(chapter, answer), functions_of(chapter, answer)
            by_all = set.intersection(*(passed(chapter, answer, wrong.cell) for wrong in several))
            called = [i for i in by_all if names_in(checks[i].expression) & set(functions)]
            silent += [f"{answer}: {checks[i].expression}" for i in sorted(called)]
        assert not silent
