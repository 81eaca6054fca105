"""What a step holds and runs, counted while it runs, is what plans are priced at."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as by_torch
from torch.utils.flop_counter import FlopCounterMode

from dlsys import world
from dlsys.memory_wall import measure_activations
from dlsys.meter import LiveStorages
from dlsys.model import GPT
from dlsys.recomputation import (
    Checkpointed,
    Measured,
    Plan,
    Recomputing,
    chain_of,
    checkpoint,
    every_layer,
    first_layers,
    keep_all,
    measure,
    segments,
    selective,
)
from dlsys.recomputation.price import BACKWARD, FORWARD, REBUILD
from dlsys.transformer import TransformerSpec

SIZES = {"layers": 5, "hidden": 16, "heads": 4, "vocab": 32, "sequence": 8}
GPT2 = {"norm": "layer", "positions": "learned"}
SPEC = TransformerSpec(**SIZES)
SUM_OF_WEIGHTS = 4
"""The loss keeps the number of its rows, one FP32 number that no formula counts."""


def step(model: nn.Module, spec: TransformerSpec, batch: int, device: str = "meta") -> Measured:
    tokens = torch.zeros(batch, spec.sequence, dtype=torch.long, device=device)
    return measure(lambda: model(tokens, tokens).backward())


def of_plan(plan: Plan, spec: TransformerSpec, batch: int = 2, **options: Any) -> Measured:
    """On the meta device, where norms keep FP32 statistics, as on a GPU."""
    model = GPT(spec, dtype=torch.bfloat16, device="meta", **options)
    return step(Recomputing(model, plan), spec, batch)


def between_ends(plan: Plan) -> Plan:
    return keep_all(1) + plan + keep_all(1)


# -- counted = priced ------------------------------------------------------------------------------


LARGE = {"layers": 2, "sequence": 64, "heads": 8, "vocab": 8}  # cores: rebuilt, they are the peak
LESS = {"layers": 3}
GRID = {
    "plain": (SPEC, 2),
    "untied": (TransformerSpec(**SIZES | {"tied": False, "layers": 3, "vocab": 50}), 1),
    "long": (TransformerSpec(**SIZES | LESS | {"sequence": 24, "heads": 2, "vocab": 10}), 3),
    "grouped": (TransformerSpec(**SIZES | LESS | {"kv_heads": 2, "hidden": 24}), 2),
    "gated": (TransformerSpec(**SIZES | GPT2 | LESS | {"gated": True, "ffn_hidden": 40}), 2),
    "one layer": (TransformerSpec(**SIZES | {"layers": 1, "heads": 1}), 5),
}
CORES = GRID | {
    f"{keys} keys, {batch} samples": (TransformerSpec(**SIZES | LARGE | {"kv_heads": keys}), batch)
    for keys in (1, 2, 8)
    for batch in (1, 2)
}


def plans(n: int) -> dict[str, Plan]:
    return {
        "keep_all": between_ends(keep_all(n)),
        "every_layer": between_ends(every_layer(n)),
        "segments": between_ends(segments(n, n // 2 + n % 2)),
        "first": between_ends(first_layers(n, n // 2)),
        "ends, too": segments(n + 2, min(n + 2, 3)),
    }


@pytest.mark.parametrize(
    ("spec", "batch", "dropout"),
    [(*each, 0.1 * (number % 2)) for number, each in enumerate([GRID["plain"], *GRID.values()])],
)
def test_bytes_and_flops_of_a_step_are_those_that_the_plan_is_priced_at(spec, batch, dropout):
    chain = chain_of(spec, batch, dropout=bool(dropout))
    for name, plan in plans(spec.layers).items():
        counted, priced = of_plan(plan, spec, batch, dropout=dropout), plan.price(chain)
        assert counted.kept_bytes - priced.kept_bytes in (0, SUM_OF_WEIGHTS), name
        assert counted.peak_bytes - priced.peak_bytes in (0, SUM_OF_WEIGHTS), name
        assert counted.left_bytes == 0
        assert counted.forward_flops == priced.forward
        assert counted.backward_flops == priced.backward
        assert counted.recomputed_flops == priced.recomputed, name


@pytest.mark.parametrize(
    ("spec", "batch", "dropout"),
    [(*each, 0.1 * (number % 2)) for number, each in enumerate(CORES.values())],
)
def test_a_selective_step_holds_what_it_is_priced_at(spec, batch, dropout):
    plan = between_ends(selective(spec.layers))
    chain = chain_of(spec, batch, dropout=bool(dropout))
    counted, priced = of_plan(plan, spec, batch, dropout=dropout), plan.price(chain)
    assert counted.kept_bytes == priced.kept_bytes + SUM_OF_WEIGHTS
    assert counted.peak_bytes - priced.peak_bytes in (0, SUM_OF_WEIGHTS)
    assert counted.recomputed_flops == priced.recomputed


@pytest.mark.parametrize("options", [{}, {"dropout": 0.1}, {"flash": True}], ids=str)
def test_what_forward_leaves_is_what_the_memory_wall_counts(options):
    model = GPT(SPEC, dtype=torch.bfloat16, **options)
    tokens = torch.zeros(2, 8, dtype=torch.long)
    counted = step(model, SPEC, 2, "cpu")
    assert counted.kept_bytes == measure_activations(model, tokens, tokens).everything
    assert counted.kept_bytes == counted.peak_bytes


# -- counted another way ---------------------------------------------------------------------------


def test_a_step_allocates_at_its_peak_what_it_does_with_torchs_checkpoint():
    found = []
    for each in (lambda f, *a: f(*a), checkpoint, partial(by_torch, use_reentrant=False)):
        model = GPT(SPEC, dropout=0.1)
        for layer in model.layers:
            layer.forward = partial(each, layer.forward)
        tokens = torch.zeros(2, 8, dtype=torch.long)
        with LiveStorages() as storages:
            model(tokens, tokens).backward()
        found.append(storages.alive.peak)
    plain, ours, yours = found
    assert abs(ours - yours) <= 64
    assert ours < plain


def test_flops_are_those_of_torchs_counter_and_recomputed_ones_are_apart():
    for wrap in (nn.Sequential, Checkpointed):
        model = GPT(SPEC)
        for number, layer in enumerate(model.layers):
            if wrap is Checkpointed:
                model.layers[number] = wrap(layer)
        tokens = torch.zeros(2, 8, dtype=torch.long)
        with FlopCounterMode(display=False) as counter:
            model(tokens, tokens).backward()
        counted = step(model, SPEC, 2, "cpu")
        parts = counted.forward_flops, counted.backward_flops, counted.recomputed_flops
        assert sum(parts) == counter.get_total_flops()
        assert parts[0] == SPEC.forward_flops(2)
        assert parts[1] == 2 * parts[0]
        assert bool(parts[2]) == (wrap is Checkpointed)


def test_modules_count_each_run_of_their_forward():
    model = GPT(SPEC)
    counted = step(Recomputing(model, segments(5, 2)), SPEC, 2, "cpu")
    assert [counted.forwards[layer] for layer in model.layers] == [2] * 5
    assert counted.forwards[model.head] == 1
    # The second run of a segment ends where its last tensor is saved: in its last layer's ffn.down.
    assert [counted.forwards[layer.ffn.down] for layer in model.layers] == [2] * 5
    assert model not in counted.forwards  # Recomputing calls its parts


def test_the_curve_rises_in_forward_and_in_each_second_run_and_ends_at_nothing():
    curve = of_plan(segments(7, 2), SPEC).curve
    actions = [instant.action for instant in curve]
    turns = [a for a, before in zip(actions, [None, *actions], strict=False) if a != before]
    assert turns == [FORWARD, REBUILD, BACKWARD, REBUILD, BACKWARD]
    assert curve[-1].nbytes == 0
    assert min(i.nbytes for i in curve) == 0
    assert [i.flops for i in curve] == sorted(i.flops for i in curve)


# -- what is counted -------------------------------------------------------------------------------


def test_a_storage_counts_once_and_parameters_buffers_and_whole_numbers_do_not():
    x = torch.randn(4, 6, requires_grad=True)
    norm = nn.BatchNorm1d(6)

    def both():
        y = x * 1
        (y.sin() + y[1:].cos().sum() + y.t().exp().sum()).sum().backward()

    # y for the sine and a part of it for the cosine; and the result of the exponential.
    assert measure(both).peak_bytes == 2 * x.nbytes
    table = nn.Embedding(5, 6)
    numbers = torch.tensor([1, 2])
    assert measure(lambda: table(numbers).sum().backward()).peak_bytes == 0
    saved = measure(lambda: norm(x * 1).sum().backward()).peak_bytes
    assert saved == x.nbytes + 2 * 6 * 4  # and the mean and deviation of this batch
    weight = nn.Parameter(torch.ones(6))
    assert measure(lambda: (weight * weight.view(2, 3).flatten()).sum().backward()).peak_bytes == 0


def test_a_tensor_that_was_made_again_and_is_not_asked_for_counts():
    x = torch.randn(8, requires_grad=True)

    def some():
        asked, other = checkpoint(lambda x: (x.exp(), x.tanh()), x)
        torch.autograd.grad(asked.sum(), x)
        return other

    # The argument, what the exponential made again, and what the tangent did.
    assert measure(some).peak_bytes == 3 * x.nbytes


def test_a_step_that_saves_nothing_or_fails_leaves_no_trace():
    assert measure(lambda: torch.zeros(0, requires_grad=True).exp().sum().backward()).curve == ()
    nothing = measure(lambda: None)
    assert (nothing.peak_bytes, nothing.left_bytes, nothing.kept_bytes) == (0, 0, 0)
    assert nothing.peak.action == FORWARD
    init = torch.autograd.graph.saved_tensors_hooks.__init__
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0)
    assert torch.autograd.graph.saved_tensors_hooks.__init__ is init
    assert not nn.modules.module._global_forward_pre_hooks
    with pytest.raises(ValueError, match="step is 3; it must be a function"):
        measure(3)


def test_what_is_left_at_the_end_is_what_somebody_still_has():
    kept = []
    x = torch.randn(8, requires_grad=True)

    def step():
        kept.append(x.exp())

    counted = measure(step)
    assert counted.left_bytes == x.nbytes
    assert kept


def test_ranks_measure_each_their_own_step():
    def program(comm):
        x = torch.randn(4 * (comm.rank + 1), requires_grad=True)
        mine = nn.Identity()

        def step():
            y = mine(x * 1).exp()
            comm.barrier()
            y = checkpoint(lambda y: y.sin().exp(), y)
            comm.barrier()
            y.sum().backward()

        counted = measure(step)
        assert counted.forwards == {mine: 1}
        return counted

    counted = world.simulate(program, 3).results
    for rank, each in enumerate(counted):
        nbytes = 16 * (rank + 1)
        assert (each.kept_bytes, each.peak_bytes, each.left_bytes) == (nbytes, 2 * nbytes, 0)
