"""The exercises on recomputation: their figures are those of the package, and what holds for all."""

import math
import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from dlsys.recomputation import (
    Chain,
    Graph,
    Layer,
    Operation,
    Plan,
    Segment,
    Value,
    checkpoint,
    closed_form,
    every,
    keep_all,
    keep_best,
    keeping_of,
    least_peak,
    measure,
    optimal,
    segments,
    uniform,
)
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


# -- the reports ---------------------------------------------------------------------------------

STEPS, WIDTH = 4, 16
DRAWN = torch.Generator().manual_seed(2)
X = torch.randn(32, WIDTH, generator=DRAWN)
Y = torch.tanh(X @ torch.randn(WIDTH, WIDTH, generator=DRAWN) / 2)


class Block(nn.Module):
    """A layer with a running mean and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, momentum=0.3)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = nn.functional.dropout(torch.tanh(self.up(self.norm(x))), 0.3, self.training)
        return x + self.down(wide)


class Faulty(torch.autograd.Function):
    """A checkpoint with one of the faults, or none."""

    @staticmethod
    def forward(ctx: Any, module: nn.Module, fault: str, x: torch.Tensor) -> torch.Tensor:
        ctx.module, ctx.fault, ctx.random = module, fault, torch.get_rng_state()
        ctx.save_for_backward(x)
        if fault == "graph":
            with torch.enable_grad():
                ctx.result = module(x.detach().requires_grad_())
            return ctx.result.detach()
        return module(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        norms = [m for m in ctx.module.modules() if isinstance(m, nn.BatchNorm1d)]
        now = torch.get_rng_state()
        if ctx.fault != "lost":
            torch.set_rng_state(ctx.random)
        for norm in norms:
            norm.momentum = 0.3 if ctx.fault == "mean" else 0.0
        with torch.enable_grad():
            y = ctx.module(x)
        for norm in norms:
            norm.momentum = 0.3
        if ctx.fault not in ("lost", "not put back"):
            torch.set_rng_state(now)
        y.backward(gradient)
        return None, None, None if ctx.fault == "cut" else x.grad


class Again(nn.Module):
    """A module behind such a checkpoint."""

    def __init__(self, module: nn.Module, fault: str) -> None:
        super().__init__()
        self.module, self.fault = module, fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Faulty.apply(self.module, self.fault, x) if self.training else self.module(x)


@dataclass(frozen=True)
class Report:
    """Losses before each step and in evaluation, the first gradient's length; bytes held when
    forward ends and at the peak; how often each block runs in a step."""

    losses: tuple[str, ...]
    evaluation: str
    length: str
    kept: int
    peak: int
    runs: tuple[int, ...]


@cache
def report(fault: str) -> Report:
    """What a run with this fault reports; "plain" has no checkpoint."""
    torch.manual_seed(1)
    blocks = [Block() for _ in range(4)]
    model: nn.Module = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    if fault == "one segment":
        model = Again(model, fault)
    elif fault == "nested":
        model = nn.Sequential(*(Again(Again(b, fault), fault) for b in blocks))
    elif fault != "plain":
        model = nn.Sequential(*(Again(block, fault) for block in blocks))
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        x = X.clone().requires_grad_()

        def forward_and_backward(x: torch.Tensor = x) -> None:
            loss = (model(x) - Y).square().mean()
            losses.append(f"{loss.item():.3f}")
            loss.backward()

        found = measure(forward_and_backward)
        if step == 0:
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            length = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        optimizer.step()
    model.eval()
    with torch.no_grad():
        evaluation = (model(X) - Y).square().mean().item()
    runs = tuple(found.forwards.get(block, 0) for block in blocks)
    sizes = found.kept_bytes // 1024, found.peak_bytes // 1024
    return Report(tuple(losses), f"{evaluation:.3f}", f"{length:.3f}", *sizes, runs)
