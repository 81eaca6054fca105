"""The exercises on memory wall: their figures are those of the package, and what holds for all."""

from dlsys.memory_wall import activations, model_state
from dlsys.transformer import CATALOGUE
from tests.exercises import contract
from tests.exercises.notebooks import model_answer


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_halving_the_batch_are_right() -> None:
    spec, text = CATALOGUE["gpt2-xl"], model_answer("memory_wall")
    state = model_state(spec.parameters(), "mixed-adamw").total
    whole = {batch: state + activations(spec, batch) for batch in (32, 16, 2, 1)}
    for figure in (state, activations(spec, 32), *whole.values()):
        assert f"{figure / 1e9:.1f}" in text
    assert f"to {whole[16] / whole[32]:.0%}".replace("%", " %") in text
    assert f"to {whole[1] / whole[2]:.0%}".replace("%", " %") in text
