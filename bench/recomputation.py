"""Seconds of a training step that recomputes, ours beside torch's own checkpoint, and bytes held.

    python bench/recomputation.py     about two minutes on a quiet machine

One process on one thread takes steps in turn, each side's the other's right after: of a GPT of 12
million parameters with dropout, whose layers, or attention cores, are checkpoints or keep their
linear layers' results; and of a chain of layers so small that a checkpoint's own work is most of
it. A ratio below 1 means that ours is faster: of the least of the turns, and the median of the
ratios turn by turn. Bytes are what is held for backward at the peak. Gradients are held against
each other bit by bit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as their_checkpoint
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from dlsys.model import GPT
from dlsys.recomputation import LINEAR, Offload, checkpoint, keeping_results, measure
from dlsys.transformer import TransformerSpec

WARM, TURNS = 2, 15
SPEC = TransformerSpec(layers=9, hidden=320, heads=5, vocab=2048, sequence=128)
Checkpoint = Callable[..., Any]
Step = Callable[[], list[Tensor]]

theirs = partial(their_checkpoint, use_reentrant=False)
their_policy = partial(create_selective_checkpoint_contexts, [op.default for op in LINEAR])


def plainly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def gpt(each: Checkpoint, cores: bool = False) -> Step:
    """A step whose layers, or cores, are called by `each`."""
    model = GPT(SPEC, dropout=0.1)
    for layer in model.layers:
        module = layer.attention.core if cores else layer
        module.forward = partial(each, module.forward)
    words = torch.randint(SPEC.vocab, (4, SPEC.sequence + 1), generator=torch.Generator())
    tokens, targets = words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def step() -> list[Tensor]:
        torch.manual_seed(0)
        model.zero_grad()
        model(tokens, targets).backward()
        return [parameter.grad for parameter in model.parameters()]

    return step


def chain(each: Checkpoint, layers: int = 64) -> Step:
    """A step of small layers, each called by `each`."""
    torch.manual_seed(0)
    modules = [nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(layers)]
    x = torch.randn(16, 32, requires_grad=True)

    def step() -> list[Tensor]:
        y = x
        for module in modules:
            y = each(module, y)
        return list(torch.autograd.grad(y.sum(), [x, modules[0][0].weight]))

    return step


def moved(hooks: Callable[[], Any]) -> Step:
    """A plain step, what it keeps moved to the host."""
    step = gpt(plainly)

    def moving() -> list[Tensor]:
        with hooks():
            return step()

    return moving


PARTS: dict[str, tuple[Step, Step]] = {
    "layers": (gpt(checkpoint), gpt(theirs)),
    "cores": (gpt(checkpoint, cores=True), gpt(theirs, cores=True)),
    "results kept": (gpt(keeping_results(LINEAR)), gpt(partial(theirs, context_fn=their_policy))),
    "small layers": (chain(checkpoint), chain(theirs)),
    "offload": (moved(Offload), moved(torch.autograd.graph.save_on_cpu)),
    "layers / plain": (gpt(checkpoint), gpt(plainly)),
    "cores / plain": (gpt(checkpoint, cores=True), gpt(plainly)),
}


def seconds(step: Step) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def show(name: str) -> None:
    """Run both sides of a part in turns, and print them with ours as a share of the other's."""
    sides = PARTS[name]
    for ours, other in zip(*(side() for side in sides), strict=True):
        assert torch.equal(ours, other), name
    turns = []
    for turn in range(WARM + TURNS):
        order = (0, 1) if turn % 2 else (1, 0)
        taken = {place: seconds(sides[place]) for place in order}
        turns.append((taken[0], taken[1]))
    kept = torch.tensor(turns[WARM:])
    least, median = kept.amin(0), (kept[:, 0] / kept[:, 1]).median()
    held = [measure(side).peak_bytes / 2**20 for side in sides]
    print(
        f"{name:15} {least[0] * 1e3:7.1f} and {least[1] * 1e3:7.1f} ms: "
        f"{least[0] / least[1]:.3f} (median {median:.3f}); "
        f"{held[0]:6.2f} and {held[1]:6.2f} MiB held at the peak"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{SPEC.parameters() / 1e6:.1f} million parameters; load averages {loads}")
    for part in PARTS:
        show(part)
