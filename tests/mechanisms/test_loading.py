"""What is loaded is looked at first: after a refusal every byte of what was there is as before."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from dlsys import world
from dlsys.input_pipeline import ResumableOrder, ShuffleBuffer
from dlsys.precision import Adam8bit, LossScaler, MixedPrecision
from dlsys.resilience import PerRank, SampleOrder, Trainer
from dlsys.resilience.random_states import RandomStates
from dlsys.tensor_parallel import TensorParallelGPT, load
from dlsys.transformer import TransformerSpec
from dlsys.zero import FullyShardedDataParallel, ShardedOptimizer


class Loader(NamedTuple):
    """Something with a state, how to load one, and a state of it that is good."""

    load: Callable[[Any], Any]
    state: Callable[[], Any]
    good: Any


def plain(value: Any) -> Any:
    """Any state as what can be compared byte by byte."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.detach().contiguous().numpy().tobytes()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, PerRank):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tensor"):
        return plain(value.tensor)
    return value


def changed(value: Any, *path: Any, to: Any) -> Any:
    """A copy in which what is at a path is something else."""
    value = copy.deepcopy(value)
    if not path:
        return to
    at = value.value if isinstance(value, PerRank) else value
    for key in path[:-1]:
        at = at[key]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return value


def trained(optimizer: Callable[[Any], Any], step: int = 2) -> Any:
    torch.manual_seed(step)
    model = nn.Linear(4, 3)
    one = optimizer(model.parameters())
    for _ in range(step):
        loss = model(torch.ones(2, 4, dtype=model.weight.dtype)).square().mean()
        one.backward(loss) if hasattr(one, "backward") else loss.backward()
        one.step()
        one.zero_grad()
    return model, one


def of_optimizer(make: Callable[[Any], Any]) -> Loader:
    (model, one), (_, other) = trained(make), trained(make, 3)
    state = lambda: (one.state_dict(), list(model.parameters()))  # noqa: E731
    return Loader(one.load_state_dict, state, copy.deepcopy(other.state_dict()))


def mixed() -> Loader:
    return of_optimizer(
        lambda p: MixedPrecision(p, torch.optim.Adam, generator=torch.Generator(), lr=0.1)
    )


def adam8bit() -> Loader:
    return of_optimizer(lambda p: Adam8bit(p, 0.1, least=4))


def scaler() -> Loader:
    one = LossScaler()
    return Loader(one.load_state_dict, one.state_dict, LossScaler(8.0).state_dict())


def order() -> Loader:
    one, other = SampleOrder(10, 2), SampleOrder(10, 2, 3)
    other.take()
    return Loader(one.load_state_dict, one.state_dict, other.state_dict())


def resumable() -> Loader:
    one, other = ResumableOrder(10, 2), ResumableOrder(10, 2, 3)
    next(other)
    return Loader(one.load_state_dict, one.state_dict, other.state_dict())


def buffer() -> Loader:
    one, other = ShuffleBuffer(4), ShuffleBuffer(4, 1)
    next(other.shuffle(iter(range(9))))
    return Loader(one.load_state_dict, one.state_dict, other.state_dict())


def states() -> Loader:
    one = RandomStates()
    good = copy.deepcopy(one.state_dict())
    torch.rand(3), random.random(), np.random.random(3)
    return Loader(one.load_state_dict, one.state_dict, good)


def tensor_parallel() -> Loader:
    comm = world.simulate(lambda comm: comm, 1).results[0]
    spec = TransformerSpec(layers=1, hidden=4, heads=2, vocab=6, sequence=3)
    model = TensorParallelGPT(spec, comm)
    good = {name: torch.ones_like(each) for name, each in model.state_dict().items()}
    return Loader(lambda state: load(model, state), model.state_dict, good)


def trainer() -> Loader:
    def made(seed: int) -> Trainer:
        torch.manual_seed(seed)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        loss = lambda model, rows: model(rows[:, None].float().expand(-1, 4)).mean()  # noqa: E731
        return Trainer(model, optimizer, SampleOrder(8, 2, seed), loss, schedule)

    one, other = made(0), made(1)
    one.train(2)
    other.train(3)
    good = copy.deepcopy(other.state())
    return Loader(one.load, one.state, good)


def sharded(comm: world.Communicator, fully: bool) -> Loader:
    model = nn.Linear(4, 3)
    if fully:
        model = FullyShardedDataParallel(model, comm)
        one = torch.optim.Adam(model.parameters(), 0.1)
        state = lambda: model.local_shards(one)  # noqa: E731
        take = lambda states: model.load_local_shards(states, one)  # noqa: E731
    else:
        one = ShardedOptimizer(list(model.named_parameters()), torch.optim.Adam, comm, lr=0.1)
        state, take = one.local_shards, one.load_local_shards
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
        one.step()
        one.zero_grad()
    good = copy.deepcopy(state())
    model(torch.ones(2, 4)).sum().backward()
    one.step()
    one.zero_grad()
    return Loader(take, state, good)


ONE = torch.ones(1)
REFUSED: list[tuple[Callable[[], Loader], tuple[Any, ...], Any]] = [
    (mixed, ("master", 1), torch.ones(())),
    (mixed, ("master", 0), torch.ones(1, 4)),
    (mixed, ("master", 1), torch.ones(3).long()),
    (mixed, ("master",), [torch.ones(3, 4)]),
    (mixed, ("master", 1), None),
    (mixed, ("scaler", "scale"), 0.0),
    (mixed, ("generator",), torch.ones(3)),
    (mixed, ("optimizer", "param_groups", 0, "params"), [0]),
    (mixed, ("optimizer", "state", 1, "exp_avg"), ONE),
    (mixed, ("more",), 1),
    (adam8bit, ("state", 1, "exp_avg"), ONE),
    (adam8bit, ("state", 0, "exp_avg_scale"), torch.ones(7)),
    (adam8bit, ("state", 0, "exp_avg"), torch.ones(3, 4)),
    (adam8bit, ("param_groups", 0, "params"), [0]),
    (scaler, ("_growth_tracker",), -1),
    (scaler, ("scale",), ...),
    (order, ("next",), 10),
    (order, ("epoch",), ...),
    (resumable, ("step",), 5),
    (resumable, ("epoch",), -1),
    (buffer, ("taken",), -1),
    (buffer, ("held",), [*range(9)]),
    (buffer, ("random",), (3, (1, 2), None)),
    (states, ("python",), (3, np.ones(3), None)),
    (states, ("numpy",), ("MT19937", np.ones(3), 0, 0, 0.0)),
    (states, ("torch",), torch.ones(3)),
    (states, ("torch",), ...),
    (tensor_parallel, ("final_norm.bias",), ...),
    (tensor_parallel, ("final_norm.bias",), ONE),
    (tensor_parallel, ("final_norm.bias",), torch.ones(4).long()),
    (trainer, ("model", "bias"), ...),
    (trainer, ("model", "bias"), torch.ones(())),
    (trainer, ("model", "bias"), torch.ones(1).long()),
    (trainer, ("model", "more"), ONE),
    (trainer, ("optimizer", "param_groups"), []),
    (trainer, ("optimizer", "state", 0, "exp_avg"), ONE),
    (trainer, ("order", "next"), 8),
    (trainer, ("random",), 3),
    (trainer, ("schedule",), 3),
    (trainer, ("schedule",), ...),
    (trainer, ("losses",), [1.0]),
    (trainer, ("losses",), torch.ones(2, 2)),
]


@pytest.mark.parametrize(
    ("made", "path", "to"), REFUSED, ids=lambda each: getattr(each, "__name__", None)
)
def test_after_a_refused_load_every_byte_is_as_before(made, path, to):
    one = made()
    before = plain(copy.deepcopy(one.state()))
    with pytest.raises((ValueError, TypeError, RuntimeError, KeyError)):
        one.load(changed(one.good, *path, to=to))
    assert plain(one.state()) == before
    one.load(one.good)
    assert plain(one.state()) != before


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("how", ["shape", "kind", "missing", "state", "interrupt"])
def test_after_refused_shards_every_byte_is_as_before(fully, how):
    def program(comm: world.Communicator) -> None:
        one = sharded(comm, fully)
        before = plain(copy.deepcopy(one.state()))
        states = copy.deepcopy(one.good)
        name = sorted(states)[-1]
        weight = states[name]["weight"]
        if how == "shape":
            object.__setattr__(weight, "tensor", torch.ones(1))
        elif how == "kind":
            object.__setattr__(weight, "tensor", weight.tensor.long())
        elif how == "missing":
            del states[name]
        elif how == "state":
            object.__setattr__(states[name]["exp_avg"], "tensor", torch.ones(1))
        else:
            states[name]["step"] = Broken()
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            one.load(states)
        assert plain(one.state()) == before
        one.load(one.good)
        assert plain(one.state()) != before

    world.simulate(program, 1)


class Broken:
    """What torch's optimizers cannot copy."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("no copy")
