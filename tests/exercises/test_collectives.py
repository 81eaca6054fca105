"""The exercises on collectives: their figures are those of the package, and what holds for all."""

import pytest

from dlsys.collectives import ring_all_reduce, tree_all_reduce
from dlsys.hardware import LINKS
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


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
