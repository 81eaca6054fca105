"""The exercises on memory wall: their figures are those of the package, and what holds for all."""

from typing import Any, ClassVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from dlsys.memory_wall import activations, model_state
from dlsys.transformer import CATALOGUE
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


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


class Keeps(torch.autograd.Function):
    """Keeps one tensor for its backward pass, and notes how many of these are alive."""

    made: ClassVar[list[StorageWeakRef]] = []
    most = 0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        kept = x.clone()
        ctx.save_for_backward(kept)
        Keeps.made.append(StorageWeakRef(kept.untyped_storage()))
        Keeps.most = max(Keeps.most, sum(not each.expired() for each in Keeps.made))
        return x.sum()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * torch.ones_like(ctx.saved_tensors[0])


def most_alive(line: str) -> int:
    Keeps.made, Keeps.most = [], 0
    weight = torch.ones(3, requires_grad=True)
    names = {"model": lambda tokens, targets: Keeps.apply(weight), "total": 0}
    names |= {"losses": [], "scores": [], "tokens": None, "held_out": None}
    for _ in range(4):
        exec(f"loss = model(tokens, tokens); {line}", names)
    return Keeps.most


def test_what_outlives_its_backward_pass_does_so_without_the_notebooks_hooks() -> None:
    loops = solved("memory_wall")["LOOPS"]
    counted = {loop: most_alive(line) for loop, line in loops.items()}
    assert counted == solved("memory_wall")["predicted_alive"]
