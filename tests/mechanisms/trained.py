"""A small run that draws all the random numbers there are, to be interrupted: for tests and `soak.py`."""

import random
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from dlsys.data_parallel import DataParallel
from dlsys.model import GPT
from dlsys.resilience import PerRank, SampleOrder, Shard, Trainer
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator

SPEC = TransformerSpec(layers=1, hidden=8, heads=2, vocab=16, sequence=8)
SAMPLES, BATCH = 31, 12  # an epoch is no whole number of batches


def text() -> Tensor:
    """What is learned: rows (SAMPLES, sequence + 2) of tokens, each a counter with gaps."""
    begin, pace = torch.arange(SAMPLES)[:, None], 1 + torch.arange(SAMPLES)[:, None] % 3
    return (begin + pace * torch.arange(SPEC.sequence + 2)) % SPEC.vocab


def loss(rows: Tensor, model: torch.nn.Module, samples: Tensor) -> Tensor:
    """The loss of a window that Python's random numbers place, with a token that NumPy's replace."""
    first = random.randrange(2)
    window = rows[samples, first : first + SPEC.sequence + 1].clone()
    window[:, np.random.randint(SPEC.sequence)] = 0
    return model(window[:, :-1], window[:, 1:])


def plain_loss(rows: Tensor, model: torch.nn.Module, samples: Tensor) -> Tensor:
    """A loss in which nothing is drawn, the same however samples are dealt out."""
    return model(rows[samples, :-2], rows[samples, 1:-1])


def trainer(comm: Communicator | None, dropout: float = 0.1, drawn: bool = True) -> Trainer:
    """The run's beginning on each rank, whose random numbers have seeds of their own."""
    rank = 0 if comm is None else comm.rank
    random.seed(rank)
    np.random.seed(rank)
    torch.manual_seed(rank)
    model = GPT(SPEC, dropout=dropout)
    model = model if comm is None else DataParallel(model, comm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
        ],
        [3],
    )
    order = SampleOrder(SAMPLES, BATCH, seed=1)
    used = partial(loss if drawn else plain_loss, text())
    return Trainer(model, optimizer, order, used, schedule, comm)


def difference(one: object, other: object, where: str = "state") -> str | None:
    """Where two states differ by a bit first; None where they do not."""
    if isinstance(one, PerRank) and isinstance(other, PerRank):
        one, other = one.value, other.value
    if isinstance(one, Shard) and isinstance(other, Shard):
        one, other = one.tensor, other.tensor
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        one, other = one.tolist(), other.tolist()
    if type(one) is not type(other):
        return f"{where}: {type(one).__name__} and {type(other).__name__}"
    if isinstance(one, Tensor):
        return None if one.dtype == other.dtype and torch.equal(one, other) else where
    if isinstance(one, Mapping):
        if list(one) != list(other):
            return f"{where}: {list(one)} and {list(other)}"
        pairs = [(f"{where}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, Sequence) and not isinstance(one, str):
        if len(one) != len(other):
            return f"{where}: {len(one)} and {len(other)}"
        pairs = [(f"{where}[{n}]", *each) for n, each in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else f"{where}: {one!r} and {other!r}"
    return next((found for at, a, b in pairs if (found := difference(a, b, at))), None)


def first_difference(losses: Sequence[float], others: Sequence[float]) -> int | None:
    """The first step, counted from 1, whose losses differ."""
    pairs = zip(losses, others, strict=True)
    return next((step for step, (a, b) in enumerate(pairs, 1) if a != b), None)
