"""The exercises on scaling laws: their figures are those of the package, and what holds for all."""

from tests.exercises import contract


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...
