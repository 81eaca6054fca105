"""One run of the sweep: a tiny model, trained on this book's text.

    model = initialized(run)      # the model that a run begins with
    loss = train(run)             # nats a token on the held-out text, after the last step

A run lowers its learning rate to zero over its own length, so that each is the end of a run and
none the middle of a longer one (Hoffmann et al. 2022, section 3.1). On one thread a run gives the
same loss each time, but for what another machine's order of additions changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor, nn

from dlsys.annotated import checked
from dlsys.model import GPT
from dlsys.scaling_laws.sweep import (
    BASE_WIDTH,
    BATCH,
    BLOCK,
    HELD_OUT,
    SEQUENCE,
    STEP,
    VOCAB,
    Run,
    token_ids,
)

WARM_UP, BETAS, LONGEST_GRADIENT = 0.1, (0.9, 0.95), 1.0
"""The part of the steps in which the learning rate rises; Adam's betas; the norm to clip at."""


@checked
def train(run: Run) -> float:
    """The loss that a run ends with, in nats a token on the held-out text."""
    model, steps = initialized(run), run.tokens // STEP
    adam = torch.optim.Adam(learning_rates(model, run), betas=BETAS, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: rate(step, steps))
    for rows in batches(run):
        adam.zero_grad()
        model(rows[:, :-1], rows[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), LONGEST_GRADIENT)
        adam.step()
        schedule.step()
    return held_out_loss(model)


def rate(step: int, steps: int) -> float:
    """The learning rate's share of its peak: straight up, then straight down to zero."""
    up = max(1, round(WARM_UP * steps))
    return min((step + 1) / up, (steps - step) / max(1, steps - up))


@torch.no_grad()
def held_out_loss(model: GPT) -> float:
    """The mean loss in nats a token over all of the held-out text."""
    rows = windows()[1]
    losses = [model(some[:, :-1], some[:, 1:]) * len(some) for some in rows.split(64)]
    return float(torch.stack(losses).sum()) / len(rows)


@checked
@torch.no_grad()
def initialized(run: Run) -> GPT:
    """The model that a run begins with: the book's GPT, with the spread that each matrix needs.

    Normal numbers of deviation 1 in the embedding and 1 / sqrt(inputs) in the layers, less by
    sqrt(2 layers) where a branch joins the residual stream; 0.02 in the head, in muP 0.02 / m.
    """
    model = GPT(run.spec, flash=True, seed=run.seed)
    for name, matrix in model.named_parameters():
        if name == "embedding.weight":
            matrix.mul_(1 / 0.02)
        elif name == "head.weight":
            matrix.div_(wider(run))
        elif matrix.dim() == 2:
            matrix.mul_(1 / (0.02 * math.sqrt(matrix.shape[1])))
    return model


def learning_rates(model: GPT, run: Run) -> list[dict[str, object]]:
    """Adam's groups: one learning rate for all, or in muP 1 / m of it for the layers and the head.

    Yang et al. 2022, table 3 (appendix B), which for Adam trains as their table 8 does. Heads
    have the same size in every model, so that their 1 / d is the usual 1 / sqrt(d), up to a number.
    """
    slow = [p for n, p in model.named_parameters() if p.dim() == 2 and n != "embedding.weight"]
    fast = [p for n, p in model.named_parameters() if p.dim() == 1 or n == "embedding.weight"]
    return [
        {"params": slow, "lr": run.learning_rate / wider(run)},
        {"params": fast, "lr": run.learning_rate},
    ]


def wider(run: Run) -> float:
    """m: how many times as wide as the base model, in muP; 1 in the standard parametrization."""
    return run.hidden / BASE_WIDTH if run.parametrization == "mup" else 1.0


def batches(run: Run) -> Iterator[Tensor]:
    """All that a run reads, (b, SEQUENCE + 1) at a time: whole epochs in orders of their own."""
    stream = torch.Generator().manual_seed(run.seed)
    rows, steps = windows()[0], run.tokens // STEP
    number = run.unique // SEQUENCE
    if number > len(rows):
        raise ValueError(
            f"{run.unique:,} unique tokens are more than the {len(rows) * SEQUENCE:,} of the text."
        )
    rows = corrupted(rows[torch.randperm(len(rows), generator=stream)[:number]], run, stream)
    epochs = [torch.randperm(number, generator=stream) for _ in range(math.ceil(run.epochs))]
    return iter(rows[torch.cat(epochs)[: steps * BATCH]].split(BATCH))


def corrupted(rows: Tensor, run: Run, stream: torch.Generator) -> Tensor:
    """A copy in which a share of the tokens is random ones; each window stays as it is."""
    random = torch.randint(VOCAB, rows.shape, generator=stream)
    return torch.where(torch.rand(rows.shape, generator=stream) < run.corrupted, random, rows)


@cache
def windows() -> tuple[Tensor, Tensor]:
    """What is trained on and what is held out, (n, SEQUENCE + 1) each, side by side in the text."""
    blocks = torch.tensor(token_ids()).split(BLOCK)
    held = blocks[HELD_OUT - 1 :: HELD_OUT]
    rest = [block for number, block in enumerate(blocks, 1) if number % HELD_OUT]
    return _side_by_side(torch.cat(rest)), _side_by_side(torch.cat(held))


def _side_by_side(tokens: Tensor) -> Tensor:
    return tokens.unfold(0, SEQUENCE + 1, SEQUENCE).contiguous()
