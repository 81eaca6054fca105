"""Recomputation beside the axes of parallelism: equal to one device, and what it sends again."""

from __future__ import annotations

import functools
import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dlsys import world
from dlsys.data_parallel import DataParallel
from dlsys.model import GPT, Block
from dlsys.pipeline_parallel import Pipeline, one_f_one_b, split
from dlsys.recomputation import (
    Checkpointed,
    Plan,
    Recomputing,
    chain_of,
    every_layer,
    keep_all,
    measure,
    segments,
    selective,
)
from dlsys.recomputation.price import REBUILD
from dlsys.tensor_parallel import TensorParallelGPT, gathered
from dlsys.transformer import TransformerSpec
from dlsys.zero import FullyShardedDataParallel

LAYERS = 4
SPEC = TransformerSpec(layers=LAYERS, hidden=16, heads=4, vocab=32, sequence=8, tied=False)
MICRO_BATCHES = 4


def batch(rank: int = 0, ranks: int = 1) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    words = torch.randint(SPEC.vocab, (8, SPEC.sequence + 1), generator=random)
    mine = words.chunk(ranks)[rank]
    return mine[:, :-1].contiguous(), mine[:, 1:].contiguous()


@functools.cache
def one_device() -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a step on all of the batch, and its gradients."""
    model = GPT(SPEC)
    loss = model(*batch())
    loss.backward()
    return loss.detach(), {name: each.grad for name, each in model.named_parameters()}


def assert_as_on_one_device(found: dict[str, Tensor]) -> None:
    for name, gradient in found.items():
        # float32 sums in another order: over ranks, or over micro-batches
        expected = one_device()[1][name.replace("module.", "")]
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def around(module: nn.Module, path: str = r"layers\.\d+") -> nn.Module:
    """The module with checkpoints around those in it whose paths match."""
    for name, each in [*module.named_modules()]:
        if re.fullmatch(path, name):
            module.set_submodule(name, Checkpointed(each))
    return module


def calls(run: world.Run) -> Counter[str]:
    """Collective calls of rank 0, by kind."""
    return Counter(call.kind for call in run.traffic.calls if call.rank == 0)


# -- tensor and sequence parallelism ---------------------------------------------------------------


@functools.cache
def on_tensor_axis(plan: Plan, sequence_parallel: bool, dropout: float = 0.0) -> world.Run:
    """This rank's gradients under a plan, and nothing else sent."""

    def program(comm):
        model = TensorParallelGPT(SPEC, comm, sequence_parallel, dropout=dropout)
        torch.manual_seed(comm.rank)
        Recomputing(model, plan)(*batch()).backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}

    return world.simulate(program, 2)


@pytest.mark.parametrize(("sequence_parallel", "dropout"), [(False, 0.2), (True, 0.0), (True, 0.2)])
def test_ranks_of_a_tensor_axis_get_the_bits_of_their_plain_step(sequence_parallel, dropout):
    plain = on_tensor_axis(keep_all(LAYERS), sequence_parallel, dropout).results
    for plan in (every_layer(LAYERS), segments(LAYERS, 2), selective(LAYERS)):
        found = on_tensor_axis(plan, sequence_parallel, dropout).results
        for mine, other in zip(found, plain, strict=True):
            assert all(torch.equal(mine[name], other[name]) for name in other)


def test_a_tensor_axis_that_recomputes_gets_the_gradients_of_one_device():
    def program(comm):
        model = TensorParallelGPT(SPEC, comm, sequence_parallel=True)
        Recomputing(model, segments(LAYERS, 2))(*batch()).backward()
        return {n: gathered(model, n, p.grad) for n, p in model.named_parameters()}

    assert_as_on_one_device(world.simulate(program, 2).results[0])


def again(plan: Plan, sequence_parallel: bool, dropout: float = 0.0) -> Counter[str]:
    """What rank 0 calls beyond a plain step."""
    found = calls(on_tensor_axis(plan, sequence_parallel, dropout))
    return found - calls(on_tensor_axis(keep_all(LAYERS), sequence_parallel, dropout))


def test_a_layer_run_again_sums_again_all_but_what_early_stop_leaves_out():
    # Of a layer's two sums the second is its last operation, whose result nothing saves.
    assert again(every_layer(LAYERS), False) == {"all_reduce": LAYERS}
    # In a segment of two layers the first layer's is read by the second.
    assert again(segments(LAYERS, 2), False) == {"all_reduce": 2 * (2 * 2 - 1)}
    # With sequence parallelism a sum is a reduce-scatter, and each branch gathers what it reads.
    expected = {"all_gather": 2 * LAYERS, "reduce_scatter": LAYERS}
    assert again(every_layer(LAYERS), True) == expected


def test_dropout_behind_the_last_sum_has_it_run_again_too():
    # Three masks a layer, two of which all ranks share: their seeds are broadcast again.
    expected = {"all_reduce": 2 * LAYERS, "broadcast": 2 * LAYERS}
    assert again(every_layer(LAYERS), False, 0.2) == expected


def test_selective_recomputation_sends_nothing_again():
    for sequence_parallel in (False, True):
        assert not again(selective(LAYERS), sequence_parallel)


def test_a_layer_run_again_sends_as_many_bytes_as_its_forward_less_its_last_sum():
    plain = on_tensor_axis(keep_all(LAYERS), False).traffic.by_kind()["all_reduce"]
    more = on_tensor_axis(every_layer(LAYERS), False).traffic.by_kind()["all_reduce"] - plain
    stream = 8 * SPEC.sequence * SPEC.hidden * 4
    # A ring of 2 sends a tensor of the stream from each rank, 2 (t - 1) / t of it.
    assert more == LAYERS * 2 * stream


@pytest.mark.parametrize("keys", [2, 8])  # of one key a rank makes no copies
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_rank_of_a_tensor_axis_holds_what_its_chain_is_priced_at(sequence_parallel, keys):
    sizes = {"layers": 1, "heads": 8, "head_size": 2, "sequence": 64, "vocab": 8}
    spec, plan = replace(SPEC, kv_heads=keys, **sizes), keep_all(1) + selective(1) + keep_all(1)

    def program(comm):
        options = {"dtype": torch.bfloat16, "device": "meta"}
        model = Recomputing(TensorParallelGPT(spec, comm, sequence_parallel, **options), plan)
        tokens = torch.zeros(3, 64, dtype=torch.long, device="meta")
        return measure(lambda: model(tokens, tokens).backward()).peak_bytes

    priced = plan.price(chain_of(spec, 3, 2, sequence_parallel, dropout=False))
    assert priced.peak.action == REBUILD
    # The embedding keeps a byte a word, whether it is among the rank's.
    expected = priced.peak_bytes + 3 * 64
    assert world.simulate(program, 2).results == [expected, expected]


# -- ZeRO-3 ----------------------------------------------------------------------------------------


UNITS = {
    "checkpoint around the unit": (around, Block),
    "unit around the checkpoint": (around, Checkpointed),
    "segments of two units": (lambda model: Recomputing(model, segments(LAYERS, 2)), Block),
    "cores": (lambda model: Recomputing(model, selective(LAYERS)), Block),
}


@pytest.mark.parametrize(("wrap", "unit"), UNITS.values(), ids=UNITS)
def test_sharded_layers_that_run_again_get_the_gradients_of_one_device(wrap, unit):
    def program(comm, wrap, unit):
        model = FullyShardedDataParallel(wrap(GPT(SPEC)), comm, units=[unit])
        model(*batch(comm.rank, comm.size)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.grad)
        return calls_of(comm), model.full_parameters()

    def calls_of(comm):
        return Counter(c.kind for c in comm.traffic.calls if c.rank == comm.rank)

    plain = world.simulate(program, 2, args=(lambda model: model, Block)).results[0][0]
    found, parameters = world.simulate(program, 2, args=(wrap, unit)).results[0]
    assert_as_on_one_device(parameters)
    # Backward gathers each unit once, to run it again or not.
    assert found == plain


# -- pipelines -------------------------------------------------------------------------------------


def on_pipeline(recompute: bool) -> list:
    def program(comm):
        schedule = one_f_one_b(comm.size, MICRO_BATCHES)
        model = around(GPT(SPEC)) if recompute else GPT(SPEC)
        stages = split(model, schedule, comm.rank)
        pipeline = Pipeline(schedule, stages, comm)
        counted = measure(lambda: pipeline.step(*batch()))
        (stage,) = stages.values()
        return counted, {name: p.grad for name, p in stage.named_parameters()}

    return world.simulate(program, 2).results


def test_stages_that_run_again_get_the_same_bits_and_hold_inputs_of_what_is_in_flight():
    plain, found = on_pipeline(False), on_pipeline(True)
    for (all_kept, expected), (counted, mine) in zip(plain, found, strict=True):
        names = {name.replace("module.", ""): gradient for name, gradient in mine.items()}
        assert all(torch.equal(names[name], expected[name]) for name in expected)
        assert_as_on_one_device(names)
        assert counted.recomputed_flops > 0 == all_kept.recomputed_flops
        assert counted.forward_flops == all_kept.forward_flops
        assert counted.peak_bytes < all_kept.peak_bytes
    # The first of two stages has two micro-batches in flight: their layers' inputs, and one layer
    # made again.
    assert one_f_one_b(2, MICRO_BATCHES).price(1.0, 2.0).peak_in_flight[0] == 2
    x = torch.zeros(8 // MICRO_BATCHES, SPEC.sequence, SPEC.hidden, requires_grad=True)
    layer = GPT(SPEC).layers[0]
    whole = measure(lambda: layer(x).sum().backward()).peak_bytes
    layers = sum(name.endswith("ffn.up.weight") for name in found[0][1])
    assert found[0][0].peak_bytes == 2 * layers * x.nbytes + whole - x.nbytes


# -- all of them in one run ------------------------------------------------------------------------


AROUND = {
    "nothing": lambda module: module,
    "layers": around,
    "cores": functools.partial(around, path=r".*\.core"),
}


def cube(comm, again: str, sequence_parallel: bool, shards: bool):
    """On 2 x 2 x 2 ranks: the loss, this stage's whole gradients, and what a step sent from here.

    A rank of the data axis takes half of the batch, with whole weights or by ZeRO's stage 3.
    """
    data = comm.split(comm.rank % 4, axis="data")
    pipeline = comm.split((comm.rank // 4, comm.rank % 2), axis="pipeline")
    tensor = comm.split(comm.rank // 2, axis="tensor")
    model = TensorParallelGPT(SPEC, tensor, sequence_parallel, device="meta")
    schedule = one_f_one_b(2, MICRO_BATCHES)
    stages = split(model, schedule, pipeline.rank, device="cpu")
    ((number, stage),) = stages.items()
    AROUND[again](stage)
    checkpoints = sum(isinstance(each, Checkpointed) for each in stage.modules())
    assert checkpoints == (0 if again == "nothing" else LAYERS // 2)
    if shards:
        wrapped = FullyShardedDataParallel(stage, data, units=[Block])
        stages = {number: wrapped}
    else:
        wrapped = DataParallel(stage, data)
    before = sent(comm)
    with nullcontext() if shards else wrapped.no_sync():
        loss = Pipeline(schedule, stages, pipeline).step(*batch(data.rank, 2))
    if not shards:  # stage 3 has reduced each micro-batch
        wrapped.average()
    nbytes = sent(comm) - before
    with torch.no_grad():
        for parameter in stage.parameters():
            parameter.copy_(parameter.grad)
    whole = wrapped.full_parameters() if shards else dict(stage.named_parameters())
    named = {name.replace("module.", ""): gradient for name, gradient in whole.items()}
    gradients = {name: gathered(model, name, gradient) for name, gradient in named.items()}
    return None if loss is None else data.all_reduce(loss, "mean"), gradients, nbytes


def sent(comm) -> Counter[tuple[str, str]]:
    """Bytes that this rank has sent so far, by axis and kind."""
    found: Counter[tuple[str, str]] = Counter()
    for message in comm.traffic.messages:
        if message.src == comm.rank:
            found[message.axis, message.kind] += message.nbytes
    return found


@pytest.mark.parametrize(("sequence_parallel", "shards"), [(False, False), (True, True)])
def test_on_three_axes_at_once_gradients_stay_and_the_tensor_axis_alone_sends_more(
    sequence_parallel, shards
):
    def on_cube(again):
        return world.simulate(cube, 8, args=(again, sequence_parallel, shards)).results

    # Of each layer of a stage, in all micro-batches of half of the batch, one sum is sent again: by
    # a ring of two, from each rank as much as the stream has. Early stop leaves out the other.
    sums = LAYERS // 2 * 4 * SPEC.sequence * SPEC.hidden * 4
    more = {"cores": {}, "layers": {("tensor", "all_reduce"): sums}}
    if sequence_parallel:  # halves of the stream: two are gathered again, and one is scattered
        more["layers"] = {("tensor", "all_gather"): sums, ("tensor", "reduce_scatter"): sums // 2}
    plain = on_cube("nothing")
    for again, expected in more.items():
        found = on_cube(again)
        for (loss, gradients, nbytes), (*_, without) in zip(found, plain, strict=True):
            assert nbytes == without + Counter(expected)
            assert {axis for axis, _ in nbytes} == {"data", "pipeline", "tensor"}
            assert_as_on_one_device(gradients)
            if loss is not None:
                torch.testing.assert_close(loss, one_device()[0])
        assert set().union(*(gradients for _, gradients, _ in found)) == set(one_device()[1])
        assert [loss is None for loss, *_ in found] == [True, True, False, False] * 2
