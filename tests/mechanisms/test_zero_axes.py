"""Sharding on the data axis beside tensor and pipeline parallelism: equal to one device."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from dlsys import world, zero
from dlsys.model import GPT, Block
from dlsys.pipeline_parallel import Pipeline, Stage, message_bytes, one_f_one_b, split
from dlsys.tensor_parallel import TensorParallelGPT, gathered, layout
from dlsys.transformer import TransformerSpec
from dlsys.world import Communicator
from dlsys.zero import FullyShardedDataParallel, ShardedOptimizer, step_plan
from dlsys.zero.plan import GATHER, REDUCE

SPEC = TransformerSpec(
    layers=3, hidden=12, heads=4, vocab=33, sequence=8, kv_heads=1, ffn_hidden=22, tied=False
)
"""Two tensor-parallel ranks have copies of key and value; no part divides evenly by two shards."""
ROWS, MICRO_BATCHES, STEPS, MOST = 8, 2, 3, 0.5
ADAMW = {"lr": 1e-2, "eps": 1e-4}
LAYOUT = layout(SPEC, 2, sequence_parallel=True)


def batch() -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(0)
    tokens = torch.randint(SPEC.vocab, (ROWS, SPEC.sequence + 1), generator=stream)
    return tokens[:, :-1], tokens[:, 1:]


@functools.cache
def one_device() -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
    """Losses and norms of steps, and the parameters after them."""

    def program(comm):  # in a world, for the same arithmetic: one thread
        model, losses, norms = GPT(SPEC), [], []
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(*batch())
            loss.backward()
            norms.append(clip_grad_norm_(model.parameters(), MOST))
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses), norms, {n: p.detach() for n, p in model.named_parameters()}

    return world.simulate(program, 1).results[0]


# -- three axes ----------------------------------------------------------------------------------


@dataclass
class Axes:
    """The communicators of this rank: of everybody, and along each axis."""

    all: Communicator
    data: Communicator
    pipeline: Communicator
    tensor: Communicator

    @classmethod
    def of(cls, comm: Communicator, p: int, t: int) -> Axes:
        return cls(
            comm,
            comm.split(comm.rank % (p * t), axis="data"),
            comm.split((comm.rank // (p * t), comm.rank % t), axis="pipeline"),
            comm.split(comm.rank // t, axis="tensor"),
        )


@dataclass
class Sharded:
    """A rank's stage of the pipeline, sharded: what a training loop calls, and what it runs by."""

    module: nn.Module
    optimizers: list[torch.optim.Optimizer]
    clip: Callable[[float], Tensor]
    whole: Callable[[], dict[str, Tensor]]
    plans: Callable[[], list[zero.StepPlan]]


def copies(name: str) -> int:
    """How many tensor-parallel ranks have each number of a parameter."""
    cut = LAYOUT[name]
    return cut.ranks // (1 if cut.dimension is None else cut.pieces)


def share_of(norm: Tensor, most: float) -> Tensor:
    """What clipping multiplies gradients by, as torch does."""
    return (most / (norm + 1e-6)).clamp(max=1.0)


def by_optimizer(stage: int, module: nn.Module, axes: Axes) -> Sharded:
    """Stages 1 and 2. A norm over all axes counts each number once; an optimizer says the norm of
    all it has, so what is copied along the tensor axis has an optimizer of its own."""
    kinds: dict[int, list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in module.named_parameters():
        kinds.setdefault(copies(name) if axes.tensor.size > 1 else 1, []).append((name, parameter))
    made = {
        number: ShardedOptimizer(named, torch.optim.AdamW, axes.data, stage=stage, **ADAMW)
        for number, named in kinds.items()
    }

    def clip(most: float) -> Tensor:
        norms = {number: each.clip_grad_norm_(inf) for number, each in made.items()}
        squares = sum(norm**2 / number for number, norm in norms.items())
        norm = axes.all.all_reduce(squares / axes.data.size).sqrt()
        for number, each in made.items():
            each.clip_grad_norm_(share_of(norm, most) * (norms[number] + 1e-6))
        return norm

    return Sharded(
        module,
        list(made.values()),
        clip,
        lambda: {name: p.detach() for name, p in module.named_parameters()},
        lambda: [
            plan(stage, {b.names[0]: b.layout.elements for b in o.buckets}) for o in made.values()
        ],
    )


def by_units(stage: int, module: nn.Module, axes: Axes) -> Sharded:
    """Stage 3. Gradients are shards, whose sum of squares any rank can take by itself."""
    model = FullyShardedDataParallel(module, axes.data, units=[Block, Stage])
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)

    def clip(most: float) -> Tensor:
        number = copies if axes.tensor.size > 1 else lambda name: 1
        squares = [p.grad.square().sum() / number(n) for n, p in module.named_parameters()]
        norm = axes.all.all_reduce(torch.stack(squares).sum()).sqrt()
        for parameter in model.parameters():
            parameter.grad *= share_of(norm, most)
        return norm

    return Sharded(
        model, [optimizer], clip, model.full_parameters, lambda: [plan(stage, model.units)]
    )


def plan(stage, units):
    return step_plan(stage, units, 2, MICRO_BATCHES, "last" if stage == 1 else "each")


def train(comm, stage, p, t):
    """Losses and norms of this rank's steps, whole parameters of its pipeline stage, and bytes."""
    axes = Axes.of(comm, p, t)
    model = TensorParallelGPT(SPEC, axes.tensor, sequence_parallel=t > 1, device="meta")
    schedule = one_f_one_b(p, MICRO_BATCHES)
    ((number, module),) = split(model, schedule, axes.pipeline.rank, device="cpu").items()
    sharded = (by_units if stage == 3 else by_optimizer)(stage, module, axes)
    pipeline = Pipeline(schedule, {number: sharded.module}, axes.pipeline)
    mine = [tensor.chunk(axes.data.size)[axes.data.rank] for tensor in batch()]
    losses, norms, before = [], [], sent(comm)
    for _ in range(STEPS):
        for optimizer in sharded.optimizers:
            optimizer.zero_grad()
        losses.append(pipeline.step(*mine))
        norms.append(sharded.clip(MOST))
        for optimizer in sharded.optimizers:
            optimizer.step()
    nbytes, plans = sent(comm) - before, sharded.plans()
    whole = {name: gathered(model, name, value) for name, value in sharded.whole().items()}
    is_last = losses[0] is not None
    mean = axes.data.all_reduce(torch.stack(losses), "mean") if is_last else None
    return mean, norms, whole, nbytes, plans


def sent(comm):
    """Bytes that this rank has sent so far, by axis and kind."""
    found = Counter()
    for message in comm.traffic.messages:
        if message.src == comm.rank:
            found[message.axis, message.kind] += message.nbytes
    return found


def assert_same_training(results, p, t):
    losses, norms, parameters = one_device()
    for rank, (mean, found_norms, whole, *_) in enumerate(results):
        last = rank // t % p == p - 1
        assert (mean is not None) == last
        # float32 sums in another order; a relative error of 1e-7 each, some of them cancelling.
        if last:
            torch.testing.assert_close(mean, losses, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found_norms, norms, rtol=1e-4, atol=1e-6)
        expected = {name: parameters[name] for name in whole}
        torch.testing.assert_close(whole, expected, rtol=1e-4, atol=3e-5)
    assert set().union(*(whole for _, _, whole, *_ in results)) == set(parameters)


@functools.cache
def on_8_ranks(stage):
    return world.simulate(lambda comm: train(comm, stage, 2, 2), 8)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_8_ranks_on_three_axes_train_as_one_device_does(stage):
    assert_same_training(on_8_ranks(stage).results, 2, 2)
    assert max(share_of(norm, MOST) for norm in one_device()[1]) < 1  # it does clip


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_each_axis_sends_what_its_own_plan_says(stage):
    results = on_8_ranks(stage).results
    by_axis = Counter()
    # Each optimizer's norm is asked for twice a step: an FP64 number to the other rank of its axis.
    norms = 0 if stage == 3 else 2 * 8 * len(results[0][4])
    for rank, (*_, nbytes, plans) in enumerate(results):
        # Along the data axis each rank sends what ZeRO's plan of its own stage has it send.
        for kind, actions in (("all_gather", (GATHER,)), ("reduce_scatter", (REDUCE,))):
            only = [replace(p, actions=[a for a in p.actions if a.kind in actions]) for p in plans]
            planned = sum(zero.sent(p, itemsize=4) for p in only)
            assert nbytes["data", kind] == STEPS * (planned + norms * (kind == "all_gather"))
        # What is between stages is cut by tensor parallelism into parts of the sequence.
        number = one_f_one_b(2, MICRO_BATCHES).messages[rank // 2 % 2]
        each = message_bytes(ROWS // 2 // MICRO_BATCHES, SPEC.sequence // 2, SPEC.hidden, 4)
        assert nbytes["pipeline", "send"] == STEPS * number * each
        for (axis, _), size in nbytes.items():
            by_axis[axis] += size
        assert {axis for axis, _ in nbytes} == {"data", "pipeline", "tensor", ""}
    # The stages of a pipeline together have the whole model's tensor parallelism, on 4 lines of 2.
    price = LAYOUT.price(ROWS // 2 // MICRO_BATCHES, itemsize=4, micro_batches=MICRO_BATCHES)
    assert by_axis["tensor"] == STEPS * 4 * price.bytes_per_rank
    # Beside them there is one number for everybody's norm.
    assert by_axis[""] == STEPS * 2 * 7 * 4


def test_real_processes_shard_on_the_data_axis_beside_tensor_parallelism():
    assert_same_training(world.launch(train, 4, args=(3, 1, 2)).results, 1, 2)


# -- a matrix that first and last stage share ----------------------------------------------------

TIED = replace(SPEC, tied=True)


def tied_training(comm, stage, units):
    """Losses, and the embedding as both stages that have it come to see it."""
    axes = Axes.of(comm, 2, 1)
    schedule = one_f_one_b(2, MICRO_BATCHES)
    ((number, module),) = split(GPT(TIED), schedule, axes.pipeline.rank).items()
    if stage == 3:
        module = FullyShardedDataParallel(module, axes.data, units=units)
        optimizer = torch.optim.AdamW(module.parameters(), **ADAMW)
    else:
        made = {"comm": axes.data, "stage": stage}
        optimizer = ShardedOptimizer(module.parameters(), torch.optim.AdamW, **made, **ADAMW)
    pipeline = Pipeline(schedule, {number: module}, axes.pipeline)
    mine = [tensor.chunk(2)[axes.data.rank] for tensor in batch()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        pipeline.step(*mine)
        optimizer.step()
    return module.tied.detach()


# Both copies' gradients are added up whole, and stage 2 has none: with a pipeline, stage 1.
@pytest.mark.parametrize("stage", [1, 3])
def test_a_matrix_that_two_stages_share_stays_one(stage):
    def alone(comm):
        model = GPT(TIED)
        optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(*batch()).backward()
            optimizer.step()
        return model.embedding.weight.detach()

    expected = world.simulate(alone, 1).results[0]
    found = world.simulate(lambda comm: tied_training(comm, stage, [Block]), 4).results
    for each in found:
        torch.testing.assert_close(each, expected, rtol=1e-4, atol=3e-5)
        assert torch.equal(each, found[0])


def test_a_pipeline_refuses_to_add_up_shards_of_a_shared_matrix():
    with pytest.raises(world.RankError, match="leave it out of the units"):
        world.simulate(lambda comm: tied_training(comm, 3, [Block, Stage]), 4)
