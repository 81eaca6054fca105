"""Running pipeline plans: against one device, against their price, and against torch's engine."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from dlsys import world
from dlsys.data_parallel import DataParallel
from dlsys.hardware import Device, Link
from dlsys.model import GPT
from dlsys.pipeline_parallel import (
    Action,
    DeferredWeights,
    PipeDream,
    Pipeline,
    Plan,
    PlanError,
    breadth_first,
    bubble_fraction,
    dual_pipe_v,
    eager_1f1b,
    gpipe,
    interleaved,
    one_f_one_b,
    partition,
    piece_flops,
    piece_parameters,
    pipedream,
    split,
    stage_seconds,
    staleness,
    zero_bubble,
    zero_bubble_h2,
    zero_bubble_v,
)
from dlsys.pipeline_parallel.explorer import Choice
from dlsys.tensor_parallel import TensorParallelGPT, weights
from dlsys.transformer import CATALOGUE, TransformerSpec

SCHEDULES = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "eager 1f1b": eager_1f1b,
    "interleaved": functools.partial(interleaved, v=2),
    "long rounds": lambda p, m: interleaved(p, m, 2, m if m >= p else None),
    "breadth-first": functools.partial(breadth_first, v=2),
    "zero bubble": zero_bubble,
    "zero bubble H2": zero_bubble_h2,
    "zero bubble V": zero_bubble_v,
    "DualPipe V": dual_pipe_v,
}
LLAMA = TransformerSpec(
    6, hidden=16, heads=4, vocab=32, sequence=8, ffn_hidden=40, kv_heads=2, gated=True, tied=False
)
# Without biases: the exact gradient of a key's bias is 0, and AdamW would blow up its rounding.
TIED = TransformerSpec(layers=6, hidden=16, heads=4, vocab=32, sequence=8, bias=False)
BATCH = 12


def batch(spec, size=BATCH):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(spec.vocab, (size, spec.sequence), generator=generator)
    return tokens, tokens.roll(-1, 1)


def micro_batches(p):
    return {3: 6}.get(p, 4)  # of 12 sequences


def trained(module, loss_of_step, steps):
    """Losses of AdamW steps, the last gradients, and the parameters after them."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(loss_of_step())
        optimizer.step()
    return losses, {name: (p.grad, p.detach()) for name, p in module.named_parameters()}


@functools.cache
def one_device(spec, parts=1, steps=2, size=BATCH):
    """The same of the unsplit model, its batch in `parts` that accumulate gradients."""

    def program(comm):  # in a world, for the same arithmetic: one thread
        model, pairs = (
            GPT(spec),
            list(zip(*(x.chunk(parts) for x in batch(spec, size)), strict=True)),
        )

        def loss_of_step():
            losses = [model(*pair) / parts for pair in pairs]
            for loss in losses:
                loss.backward()
            return sum(loss.detach() for loss in losses)

        return trained(model, loss_of_step, steps)

    return world.simulate(program, 1).results[0]


def pipelined(comm, plan, spec, steps=2, pieces=None, size=BATCH):
    model = GPT(spec, device="meta")
    pipeline = Pipeline(plan, split(model, plan, comm.rank, pieces, device="cpu"), comm)
    losses, found = trained(pipeline, lambda: pipeline.step(*batch(spec, size)), steps)
    return losses, found, pipeline.peak_in_flight


def gathered(plan, results):
    """Losses and parameters of all ranks; what two ranks hold must be the same bits."""
    whole = {}
    for _, found, *_ in results:
        for name, values in found.items():
            if name in whole:
                assert all(map(torch.equal, whole[name], values)), f"copies of {name} differ"
            whole[name] = values
    last = plan.placement[-1]
    assert all(
        losses == [None] * len(losses) for r, (losses, *_) in enumerate(results) if r != last
    )
    return results[last][0], whole


def assert_equal_one_device(plan, spec, results, steps=2):
    losses, found = gathered(plan, results)
    expected_losses, expected = one_device(spec, steps=steps)
    # The loss is computed in float32, and a mean of means rounds otherwise than one mean; AdamW
    # divides by gradients of 1e-4, which carries their last bits into the parameters.
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=0)
    assert found.keys() == expected.keys()
    for name, (gradient, parameter) in expected.items():
        torch.testing.assert_close(found[name][0], gradient, rtol=1e-4, atol=1e-6, msg=name)
        torch.testing.assert_close(found[name][1], parameter, rtol=0, atol=2e-5, msg=name)


# --- one device -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "p"),
    [
        *itertools.product(SCHEDULES, [4]),
        *itertools.product(["1f1b", "interleaved", "zero bubble", "zero bubble V"], [3]),
        # Two neighbours that are one, and one rank: what sends most, and what goes back and forth.
        *itertools.product(["interleaved", "zero bubble V"], [1, 2]),
    ],
)
def test_every_schedule_trains_as_one_device_does(schedule, p):
    plan = SCHEDULES[schedule](p, micro_batches(p))
    run = world.simulate(pipelined, p, args=(plan, LLAMA))
    assert_equal_one_device(plan, LLAMA, run.results)
    assert tuple(peak for *_, peak in run.results) == plan.peak_in_flight


@pytest.mark.parametrize("p", [2, 3])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zero bubble V"])
def test_both_copies_of_a_tied_embedding_stay_the_same_bits(schedule, p):
    plan = SCHEDULES[schedule](p, micro_batches(p))
    results = world.simulate(pipelined, p, args=(plan, TIED)).results
    holders = [rank for rank, (_, found, _) in enumerate(results) if "embedding.weight" in found]
    assert holders == sorted({plan.placement[0], plan.placement[-1]})  # the V has both on rank 0
    assert_equal_one_device(plan, TIED, results)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero bubble"])
def test_a_pipeline_is_gradient_accumulation_to_the_last_bit(schedule):
    plan = SCHEDULES[schedule](3, 4)
    losses, found = gathered(plan, world.simulate(pipelined, 3, args=(plan, LLAMA)).results)
    expected_losses, expected = one_device(LLAMA, parts=4)
    assert losses == expected_losses
    for name, values in expected.items():
        assert all(map(torch.equal, found[name], values)), name


def test_losses_that_are_not_divided_give_gradients_m_times_too_large():
    model = GPT(LLAMA)
    for pair in zip(*(x.chunk(3) for x in batch(LLAMA)), strict=True):
        model(*pair).backward()
    (_, expected) = one_device(LLAMA, steps=1)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, 3 * expected[name][0])


def test_the_squares_of_the_norms_of_stages_add_up_to_that_of_the_whole_and_are_unlike():
    plan = SCHEDULES["1f1b"](3, 4)
    parts = [found for _, found, _ in world.simulate(pipelined, 3, args=(plan, LLAMA, 1)).results]
    norms = torch.stack(
        [torch.stack([grad.norm() for grad, _ in part.values()]).norm() for part in parts]
    )
    (_, expected) = one_device(LLAMA, steps=1)
    whole = torch.stack([grad.norm() for grad, _ in expected.values()]).norm()
    torch.testing.assert_close(norms.norm(), whole)
    assert max(norms) > 1.2 * min(norms)  # each would be scaled by another factor


def test_means_of_micro_batches_with_unequal_tokens_are_not_the_mean_of_the_batch():
    tokens, targets = batch(LLAMA)
    targets = targets.clone()
    targets[:2, 2:] = -100  # padding, which the loss leaves out
    model = GPT(LLAMA)
    means = [model(*pair).item() for pair in zip(tokens.chunk(6), targets.chunk(6), strict=True)]
    assert abs(sum(means) / 6 - model(tokens, targets).item()) > 1e-4


@pytest.mark.parametrize(("p", "m", "v"), [(4, 10, 2), (4, 3, 2), (2, 7, 3)])
def test_an_uneven_interleaved_pipeline_is_gradient_accumulation_too(p, m, v):
    plan = interleaved(p, m, v)
    results = world.simulate(pipelined, p, args=(plan, LLAMA, 1, None, m)).results
    losses, found = gathered(plan, results)
    expected_losses, expected = one_device(LLAMA, parts=m, steps=1, size=m)
    assert losses == expected_losses
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert all(map(torch.equal, found[name], values)), name
    assert tuple(peak for *_, peak in results) == plan.peak_in_flight


def test_stages_may_hold_any_number_of_layers():
    plan, pieces = one_f_one_b(3, 4), (range(1), range(1, 7), range(7, 8))
    assert_equal_one_device(
        plan, LLAMA, world.simulate(pipelined, 3, args=(plan, LLAMA, 2, pieces)).results
    )


def test_gradients_accumulate_over_steps_also_of_tied_copies():
    def program(comm, steps):
        plan = one_f_one_b(2, 4)
        pipeline = Pipeline(plan, split(GPT(TIED), plan, comm.rank), comm)
        for _ in range(steps):
            pipeline.step(*batch(TIED))
        return {name: p.grad for name, p in pipeline.named_parameters()}

    once, twice = (world.simulate(program, 2, args=(steps,)).results for steps in (1, 2))
    for before, after in zip(once, twice, strict=True):
        for name, gradient in before.items():
            torch.testing.assert_close(after[name], 2 * gradient, rtol=1e-5, atol=1e-8, msg=name)


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_gradients_only_the_forward_passes_run_and_give_the_loss(schedule, ahead):
    plan = SCHEDULES[schedule](2, 4)

    def program(comm):
        model = GPT(TIED, device="meta")
        pipeline = Pipeline(plan, split(model, plan, comm.rank, device="cpu"), comm, ahead)
        with torch.no_grad():
            loss = pipeline.step(*batch(TIED))
        assert all(p.grad is None for p in pipeline.parameters())
        return loss, pipeline.peak_in_flight

    run = world.simulate(program, 2)
    losses = [loss for loss, _ in run.results]
    (whole, *_), _ = one_device(TIED)
    torch.testing.assert_close(losses[plan.placement[-1]], whole)
    assert [peak for _, peak in run.results] == [0, 0]
    assert len(run.traffic.messages) == sum(plan.messages) / 2


def test_a_tied_matrix_that_is_one_no_longer_is_refused():
    def program(comm):
        plan = one_f_one_b(2, 2)
        stages = split(GPT(TIED, device="meta"), plan, comm.rank)
        for stage in stages.values():
            stage.to_empty(device="cpu")
        Pipeline(plan, stages, comm).step(*batch(TIED))

    with pytest.raises(RuntimeError, match="head and embedding must be one parameter"):
        world.simulate(program, 2)


@pytest.mark.parametrize("schedule", ["1f1b", "zero bubble V"])
def test_frozen_layers_get_no_gradient_and_others_the_same(schedule):
    def freeze(name):
        return not name.startswith(("embedding", "layers.0", "layers.1", "layers.4"))

    def program(comm):
        plan = SCHEDULES[schedule](2, 4)
        pipeline = Pipeline(plan, split(GPT(LLAMA), plan, comm.rank), comm)
        for name, parameter in pipeline.named_parameters():
            parameter.requires_grad_(freeze(name))
        pipeline.step(*batch(LLAMA))
        return {name: p.grad for name, p in pipeline.named_parameters()}

    _, expected = one_device(LLAMA, steps=1)
    found = {k: v for part in world.simulate(program, 2).results for k, v in part.items()}
    for name, (gradient, _) in expected.items():
        if freeze(name):
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
        else:
            assert found[name] is None, name


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_stages_of_a_tensor_parallel_model_train_as_one_device_does(sequence_parallel):
    def program(comm):
        pp = comm.split(comm.rank % 2, axis="pp")  # 2 pipeline ranks of 2 tensor-parallel ranks
        tp = comm.split(comm.rank // 2, axis="tp")
        plan = zero_bubble(2, 4)
        model = TensorParallelGPT(LLAMA, tp, sequence_parallel, device="meta")
        pipeline = Pipeline(plan, split(model, plan, pp.rank, device="cpu"), pp)
        losses, found = trained(pipeline, lambda: pipeline.step(*batch(LLAMA)), 1)
        assert all(p.grad is not None for p in pipeline.parameters())
        return losses, {k: v for k, v in found.items() if "norm" in k}  # which every rank has whole

    run = world.simulate(program, 4)
    expected_losses, expected = one_device(LLAMA, steps=1)
    for rank in (2, 3):
        torch.testing.assert_close(run.results[rank][0], expected_losses, rtol=1e-5, atol=0)
    for name, (gradient, _) in expected.items():
        for _, found in run.results:
            if name in found:
                torch.testing.assert_close(found[name][0], gradient, rtol=1e-4, atol=1e-6)
    sent = [m.nbytes for m in run.traffic.messages if m.axis == "pp"]
    rows = LLAMA.sequence // (2 if sequence_parallel else 1)
    assert sent == [BATCH // 4 * rows * LLAMA.hidden * 4] * (2 * 2 * 4)


@pytest.mark.parametrize("schedule", ["1f1b", "zero bubble V"])
def test_8_ranks_on_three_axes_train_as_one_device_does(schedule):
    plan = SCHEDULES[schedule](2, 2)

    def program(comm):
        tp = comm.split(comm.rank // 2, axis="tp")
        pp = comm.split((comm.rank // 4, comm.rank % 2), axis="pp")
        dp = comm.split(comm.rank % 4, axis="dp")
        model = TensorParallelGPT(LLAMA, tp, sequence_parallel=True, device="meta")
        stages = split(model, plan, pp.rank, device="cpu")
        pipeline = Pipeline(plan, stages, pp)
        replica = DataParallel(nn.ModuleList(stages.values()), dp)
        mine = [x.chunk(2)[dp.rank] for x in batch(LLAMA)]

        def loss_of_step():
            with replica.no_sync():
                loss = pipeline.step(*mine)
            replica.average()
            return loss if loss is None else dp.all_reduce(loss, "mean")

        losses, found = trained(pipeline, loss_of_step, 2)
        return losses, {
            name: tuple(weights.gathered(model, name, x) for x in pair)
            for name, pair in found.items()
        }

    run = world.simulate(program, 8)
    for first in (0, 1, 4, 5):  # the pipelines: ranks (0, 2), (1, 3), (4, 6) and (5, 7)
        assert_equal_one_device(plan, LLAMA, run.results[first : first + 4 : 2])
    # Gradients cross once a step, though each comes from 2 micro-batches, or from W after W.
    middle = 2 if plan.placement[-1] == 0 else 0  # a rank that sums no losses
    assert run.traffic.count("all_reduce", axis="dp", rank=middle) == 2


# --- torch's engine -------------------------------------------------------------------------------


class ForTorch(nn.Module):
    """A Stage as torch.distributed.pipelining calls its stages: with what came before alone."""

    def __init__(self, stage):
        super().__init__()
        self.stage = stage

    def forward(self, x):
        return self.stage(x) if self.stage.embeds else self.stage(x[..., 0], x)


def by_torch(comm, plan, name):
    """One step by torch's schedule of this name, with the stages of our plan."""
    from torch.distributed import pipelining

    def loss(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    stages = split(GPT(LLAMA), plan, comm.rank)
    theirs = [
        pipelining.PipelineStage(ForTorch(stage), number, plan.stages, torch.device("cpu"))
        for number, stage in stages.items()
    ]
    schedule = getattr(pipelining, name)(theirs if plan.v > 1 else theirs[0], plan.m, loss)
    tokens, targets = batch(LLAMA)
    losses = []
    last = plan.placement[-1] == comm.rank
    schedule.step(
        *([tokens] if comm.rank == 0 else []),
        **({"target": targets, "losses": losses} if last else {}),
    )
    named = [pair for stage in stages.values() for pair in stage.named_parameters()]
    mean = torch.stack(losses).mean().detach() if last else None
    return mean, {name: p.grad for name, p in named}


def beside_torch(comm):
    pairs = [
        ("ScheduleGPipe", gpipe(2, 4)),
        ("Schedule1F1B", one_f_one_b(2, 4)),
        ("ScheduleInterleaved1F1B", interleaved(2, 4, 2)),
        ("ScheduleInterleaved1F1B", interleaved(2, 3, 2)),
    ]
    same = {}
    for name, plan in pairs:
        loss, gradients = by_torch(comm, plan, name)
        (our_loss,), found, _ = pipelined(comm, plan, LLAMA, steps=1)
        # Torch divides gradients by m where we divide losses: a third is rounded, a quarter is not.
        same_as = torch.equal if plan.m == 4 else functools.partial(torch.allclose, atol=1e-7)
        same[name, plan.m] = (our_loss is loss is None or same_as(our_loss, loss)) and all(
            same_as(found[name][0], gradient) for name, gradient in gradients.items()
        )
    return same, *(pipelined(comm, plan, TIED) for plan in (one_f_one_b(2, 4), zero_bubble_v(2, 4)))


def test_real_processes_give_the_bits_of_torchs_engine_and_train_as_one_device_does():
    results = world.launch(beside_torch, 2, timeout=200).results
    for same, *_ in results:
        assert len(same) == 4
        assert all(same.values()), same
    for index, plan in enumerate((one_f_one_b(2, 4), zero_bubble_v(2, 4)), 1):
        assert_equal_one_device(plan, TIED, [result[index] for result in results])


# --- what ran is what was priced ------------------------------------------------------------------


class Spend(torch.autograd.Function):
    """Passes x on, and spends seconds of backward."""

    @staticmethod
    def forward(ctx, x, comm, seconds):
        ctx.comm, ctx.seconds = comm, seconds
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.compute(ctx.seconds, "B")
        return gradient, None, None


class Timed(nn.Module):
    """A stage of one weight that takes so many seconds forward, backward and for the weight."""

    def __init__(self, comm, forward, backward, weight_backward):
        super().__init__()
        self.comm, self.seconds = comm, (forward, backward)
        self.weight = nn.Parameter(torch.ones(1, 1))
        # It runs when the weight's gradient is there, in whichever action makes that.
        self.weight.register_post_accumulate_grad_hook(lambda _: comm.compute(weight_backward, "W"))

    def forward(self, tokens, x=None, targets=None):
        forward, backward = self.seconds
        self.comm.compute(forward, "F")
        x = Spend.apply(F.linear(tokens if x is None else x, self.weight), self.comm, backward)
        return x if targets is None else x.sum()

    def message(self, tokens):
        return torch.empty_like(tokens)


def timed(comm, plan, seconds, ahead):
    stages = {s: Timed(comm, *seconds[s]) for s, r in enumerate(plan.placement) if r == comm.rank}
    pipeline = Pipeline(plan, stages, comm, ahead)
    ones = torch.ones(plan.m, 1)
    pipeline.step(ones, ones)
    return pipeline.peak_in_flight


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_takes_the_seconds_of_its_price(schedule, p):
    # A receive is posted `ahead` receives early, which hides transfers of that many actions.
    for (m, unequal), (transfer, ahead) in itertools.product(
        ((p, False), (2 * p, True)), ((0, 0), (0.5, 1), (2, 2))
    ):
        plan = SCHEDULES[schedule](p, m)
        seconds = [
            (1 + s % 3, 2 + 2 * s % 3, 1 + (s + 1) % 2) if unequal else (1, 1, 1)
            for s in range(plan.stages)
        ]
        # Messages are of 4 bytes: half a transfer is latency, half is the port's to send it.
        link = Link("", transfer / 2, 4 / (transfer / 2)) if transfer else None
        run = world.simulate(timed, p, link=link, args=(plan, seconds, ahead))
        forward, backward, weights = zip(*seconds, strict=True)
        price = plan.price(forward, backward, transfer, weights)
        assert run.seconds == pytest.approx(price.makespan, rel=1e-12), (m, unequal, transfer)
        assert tuple(run.results) == price.peak_in_flight


@pytest.mark.parametrize(
    ("schedule", "on_a_rank"),
    [("GPipe", 1), ("1F1B", 1), ("interleaved", 4), ("zero bubble H1", 1), ("DualPipe V", 2)],
)
def test_the_explorers_rows_are_what_running_ranks_did_and_when(schedule, on_a_rank):
    choice = Choice(schedule, 4, 8, 4, forward=0.5, backward=1.0, weights=1.5, transfer=0.2, slow=2)
    plan, rows = choice.plan(), choice.rows()
    # Rank 2 of 4 is the slow one; a stage takes its part of the rank's share.
    slow = [(2 if rank == 2 else 1) / on_a_rank for rank in plan.placement]
    seconds = [(0.5 * part, 1.0 * part, 1.5 * part) for part in slow]
    link = Link("latency alone", 0.2, 1e30)
    run = world.simulate(timed, 4, link=link, args=(plan, seconds, 2 * plan.stages * plan.m))
    split = any(row.kind == "W" for row in rows)
    for rank in range(4):
        mine = [row for row in rows if row.rank == rank]
        ran = [(s.name, s.start, s.end) for s in run.timeline.of(rank, "compute")]
        if not split:  # an action "B" has both parts
            parts = [(s, e) for name, s, e in ran if name != "F"]
            both = [("B", s, e) for (s, _), (_, e) in zip(parts[::2], parts[1::2], strict=True)]
            ran = sorted([each for each in ran if each[0] == "F"] + both, key=lambda each: each[1])
        assert [row.kind for row in mine] == [name for name, _, _ in ran]
        assert [(row.start, row.end) for row in mine] == [
            pytest.approx((start, end)) for _, start, end in ran
        ]
        assert max(row.held for row in mine) == run.results[rank]
    assert max(row.end for row in rows) == pytest.approx(run.seconds)
    (said,) = re.findall(r"A step takes ([\d.]+) s, ([\d.]+)% of it idle", choice.summary())
    busy = sum(run.timeline.seconds(rank, "compute") for rank in range(4)) / (4 * run.seconds)
    assert [float(each) for each in said] == pytest.approx(
        [run.seconds, 100 * (1 - busy)], rel=1e-3, abs=0.05
    )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_step_takes_1_219_times_its_ideal_where_17_9_percent_of_it_are_idle(schedule):
    """Published: a bubble of 17.9 % in one place and of 21.9 % in another, neither said of what."""
    run = world.simulate(timed, 8, args=(SCHEDULES[schedule](8, 32), [(1, 1, 1)] * 8, 1))
    ideal = 32 * 3
    assert run.seconds / ideal == pytest.approx(1.219, abs=5e-4)
    idle = [1 - run.timeline.seconds(rank, "compute") / run.seconds for rank in range(8)]
    assert idle == pytest.approx([0.1795] * 8, abs=5e-5)
    assert bubble_fraction(8, 32) == pytest.approx(idle[0])


def kept_by_messages(comm, plan, seconds, send, receive, update):
    """The step of ranks that a message keeps from all else, and that work on when it is done.

    A message takes `send` of its link, for which the sender waits, and `receive` of its receiver.
    """
    isend, irecv = comm.isend, comm.irecv

    def blocking(tensor, dst, tag=0):
        handle = isend(tensor, dst, tag)
        handle.wait()
        return handle

    class Received:
        def __init__(self, *call):
            self.handle = irecv(*call)

        def wait(self):
            tensor = self.handle.wait()
            comm.compute(receive)
            return tensor

    comm.isend, comm.irecv = blocking, Received
    timed(comm, plan, seconds, ahead=2 * plan.stages * plan.m)  # every receive is posted at once
    comm.compute(sum(update[s] for s, r in enumerate(plan.placement) if r == comm.rank))


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_of_blocking_sends_and_an_update_takes_the_seconds_of_its_price(schedule, p):
    for m, send, receive in ((p, 0.5, 0.25), (2 * p + 1, 0.75, 0), (3, 0, 1.5)):
        plan = SCHEDULES[schedule](p, m)
        seconds = [(1 + s % 3, 2 + 2 * s % 3, 1 + (s + 1) % 2) for s in range(plan.stages)]
        update = [s % 4 * 0.5 for s in range(plan.stages)]
        link = Link("latency alone", send, 1e30)
        args = (plan, seconds, send, receive, update)
        run = world.simulate(kept_by_messages, p, link=link, args=args)
        forward, backward, weights = zip(*seconds, strict=True)
        price = plan.price(forward, backward, 0, weights, send=send, receive=receive, update=update)
        assert run.seconds == pytest.approx(price.makespan, rel=1e-12), (m, send, receive)


@settings(max_examples=40, deadline=None)
@given(random=st.randoms(use_true_random=False), split_backward=st.booleans())
def test_any_plan_that_passes_its_check_runs_to_the_end(random, split_backward):
    p, number, m = random.randint(1, 3), random.randint(1, 4), random.randint(1, 3)
    placement = [random.randrange(p) for _ in range(number)]
    kinds = "FBW" if split_backward else "FB"
    left = [Action(*a) for a in itertools.product(kinds, range(number), range(m))]
    orders = [[] for _ in range(p)]
    empty = Plan("empty", number, m, orders)
    while left:  # in any order in which one device could run them
        action = random.choice([a for a in left if not set(left) & set(empty.needs(a))])
        left.remove(action)
        orders[placement[action.stage]].append(action)
    plan, ahead = Plan("random", number, m, orders), random.randint(0, 3)
    seconds = [tuple(random.randint(0, 3) + 1 for _ in range(3)) for _ in range(number)]
    run = world.simulate(timed, p, args=(plan, seconds, ahead))
    forward, backward, weights = zip(*seconds, strict=True)
    price = plan.price(forward, backward, 0, weights)
    assert (run.seconds, tuple(run.results)) == (price.makespan, price.peak_in_flight)
    world.simulate(timed, p, link=Link("slow", 5, 1), args=(plan, seconds, ahead))


def test_a_receive_posted_only_when_it_is_needed_does_not_overlap():
    plan, seconds = gpipe(2, 4), [(1, 1, 1)] * 2
    link = Link("latency alone", 0.5, 1e30)
    late, early = (
        world.simulate(timed, 2, link=link, args=(plan, seconds, ahead)).seconds for ahead in (0, 1)
    )
    assert early == plan.price([1, 1], [2, 2], 0.5).makespan < late


@pytest.mark.parametrize(
    ("schedule", "spec"),
    # Tied matrices concern the end of a step alone: their copies are on two ranks, or on one.
    [*itertools.product(SCHEDULES, [LLAMA]), ("1f1b", TIED), ("zero bubble V", TIED)],
    ids=lambda value: value if isinstance(value, str) else "tied" if value.tied else "llama",
)
def test_a_gpt_takes_the_seconds_that_its_flops_say(schedule, spec):
    plan, rate, latency = SCHEDULES[schedule](2, 4), 1e9, 1e-5
    pieces = partition(piece_flops(spec), plan.stages)
    cost = plan.price(**stage_seconds(spec, pieces, rate, batch=BATCH // 4), transfer=latency)
    device = Device("products alone", {"fp32": rate}, 1e9, 1e30)

    def program(comm):
        pipeline = Pipeline(plan, split(GPT(spec), plan, comm.rank, pieces), comm)
        pipeline.step(*batch(spec))

    run = world.simulate(program, 2, link=Link("latency", latency, 1e30), device=device)
    # Both copies of a tied matrix are exchanged after the step, one message each way at once.
    both = latency * (spec.tied and plan.placement[0] != plan.placement[-1])
    assert run.seconds == pytest.approx(cost.makespan + both, rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_boundary_between_ranks_is_crossed_once_per_micro_batch_and_direction(schedule):
    plan = SCHEDULES[schedule](3, 6)
    run = world.simulate(pipelined, 3, args=(plan, LLAMA, 1))
    each = BATCH // 6 * LLAMA.sequence * LLAMA.hidden * 4
    assert {message.nbytes for message in run.traffic.messages} == {each}
    assert tuple(sent // each for sent in run.traffic.sent) == plan.messages
    assert not run.traffic.calls  # and nothing else is said
    crossed = dict.fromkeys(run.traffic.by_pair(), 0)
    for src, dst in itertools.pairwise(plan.placement):
        if src != dst:
            crossed[src, dst] += 6 * each
            crossed[dst, src] += 6 * each
    assert crossed == run.traffic.by_pair()


def test_the_copies_of_a_tied_matrix_exchange_their_gradients_once_in_a_step():
    plan, each = one_f_one_b(3, 6), BATCH // 6 * TIED.sequence * TIED.hidden * 4
    matrix = TIED.vocab * TIED.hidden * 4
    for steps in (1, 2):
        sent = world.simulate(pipelined, 3, args=(plan, TIED, steps)).traffic.sent
        assert sent == [
            steps * (n * each + ends * matrix)
            for n, ends in zip(plan.messages, (1, 0, 1), strict=True)
        ]


def peak_of_rank_0(plan):
    spec = TransformerSpec(layers=2, hidden=16, heads=4, vocab=32, sequence=8)
    tokens = torch.zeros(4 * plan.m, spec.sequence, dtype=torch.long)

    def program(comm):
        Pipeline(plan, split(GPT(spec), plan, comm.rank), comm).step(tokens, tokens)

    # The tokens are the caller's, and as many as there are micro-batches.
    return world.simulate(program, plan.p, track_memory=True).peak_memory[0] - tokens.nbytes


def test_gpipe_keeps_m_micro_batches_and_1f1b_no_more_than_p():
    few, more, most = (peak_of_rank_0(gpipe(2, m)) for m in (8, 12, 16))
    assert most - more == more - few > 0  # so much for 4 micro-batches more
    each = (more - few) // 4
    # Here nothing of a micro-batch is left once its gradient has come back.
    assert peak_of_rank_0(one_f_one_b(2, 8)) == peak_of_rank_0(one_f_one_b(2, 16))
    # At its peak 1F1B runs a backward pass, which needs a part of another micro-batch's memory.
    assert 5 * each < few - peak_of_rank_0(one_f_one_b(2, 8)) < 6 * each


def test_a_batch_in_smaller_parts_takes_less_memory_under_1f1b_and_not_under_gpipe():
    def peak(plan):
        def program(comm):
            Pipeline(plan, split(GPT(LLAMA), plan, comm.rank), comm).step(*batch(LLAMA))

        return max(world.simulate(program, 3, track_memory=True).peak_memory)

    assert peak(gpipe(3, 6)) > 0.95 * peak(gpipe(3, 3))
    assert 0.5 < peak(one_f_one_b(3, 6)) / peak(one_f_one_b(3, 3)) < 0.7


def test_zero_bubble_keeps_the_pairs_of_a_linear_layer_until_its_weight_backward():
    late = [Action("F", 0, 0), Action("B", 0, 0), Action("F", 0, 1), Action("B", 0, 1)]
    weights = [Action("W", 0, 0), Action("W", 0, 1)]
    at_once = Plan("at once", 1, 2, [[*late[:2], weights[0], *late[2:], weights[1]]])
    at_the_end = Plan("at the end", 1, 2, [[*late, *weights]])
    both = Plan("no split", 1, 2, [late])
    unsplit, early, kept = map(peak_of_rank_0, (both, at_once, at_the_end))
    assert unsplit < early < kept


# --- the split backward pass ----------------------------------------------------------------------


def linears():
    torch.manual_seed(0)
    shared = nn.Linear(6, 6)
    frozen = nn.Linear(6, 6, bias=False)
    frozen.weight.requires_grad_(False)
    return nn.Sequential(
        nn.Linear(4, 6), nn.GELU(), shared, nn.LayerNorm(6), shared, frozen, nn.Linear(6, 3, False)
    )


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5, 4)])
def test_the_two_parts_of_a_backward_pass_give_the_gradients_of_the_whole(shape):
    ordinary = linears()
    parts = copy.deepcopy(ordinary)
    x = torch.randn(shape)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    ordinary(inputs[0]).square().sum().backward()
    with DeferredWeights() as deferred:
        loss = parts(inputs[1]).square().sum()
    loss.backward()
    assert torch.equal(inputs[0].grad, inputs[1].grad)
    assert [name for name, p in parts.named_parameters() if p.grad is not None] == [
        "3.weight",
        "3.bias",
    ]
    deferred.backward()
    for (name, one), two in zip(ordinary.named_parameters(), parts.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None), name
        if one.grad is not None:
            # The shared layer's two uses are added in one order or the other: a + b is b + a.
            assert torch.equal(one.grad, two.grad), name


def test_what_was_put_off_is_made_once_and_let_go():
    layer = nn.Linear(3, 2)
    with DeferredWeights() as deferred:
        loss = layer(torch.ones(1, 3)).sum()
    loss.backward()
    deferred.backward()
    deferred.backward()
    assert torch.equal(layer.weight.grad, torch.ones(2, 3))
    layer(torch.ones(1, 3)).sum().backward()  # and the layer itself is as it was
    assert torch.equal(layer.weight.grad, 2 * torch.ones(2, 3))


def test_without_gradients_nothing_is_put_off():
    layer = nn.Linear(3, 2)
    with DeferredWeights() as deferred, torch.no_grad():
        assert not layer(torch.ones(1, 3)).requires_grad
    deferred.backward()
    assert layer.weight.grad is None


# --- partition ------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(costs=st.lists(st.integers(0, 20), min_size=1, max_size=8), data=st.data())
def test_no_other_cut_has_a_smaller_largest_part(costs, data):
    p = data.draw(st.integers(1, len(costs)))

    def sums(cuts):
        return sorted((sum(costs[a:b]) for a, b in itertools.pairwise(cuts)), reverse=True)

    inner = itertools.combinations(range(1, len(costs)), p - 1)
    best = min(sums((0, *cuts, len(costs))) for cuts in inner)
    parts = partition(costs, p)
    assert [piece for part in parts for piece in part] == list(range(len(costs)))
    assert all(parts)
    assert sums([part.start for part in parts] + [len(costs)]) == best


def test_24_layers_give_each_of_4_stages_6():
    assert [len(part) for part in partition([1] * 24, 4)] == [6, 6, 6, 6]
    assert partition([1] * 5, 3) == (range(1), range(1, 3), range(3, 5))  # the first holds the most


def test_the_head_of_a_small_model_weighs_as_much_as_layers():
    spec = CATALOGUE["gpt2-small"]
    embedding, layer, *_, head = piece_flops(spec)
    assert embedding == 0
    assert 4 < head / layer < 5
    assert [len(part) for part in partition(piece_flops(spec), 4)] == [5, 4, 4, 1]
    assert sum(piece_flops(spec)) == spec.forward_flops(1)


@pytest.mark.parametrize("name", ["gpt2-xl", "llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_the_pieces_of_a_model_are_all_its_parameters_and_a_tied_head_again(name):
    spec = CATALOGUE[name]
    again = spec.vocab * spec.hidden if spec.tied else 0
    assert sum(piece_parameters(spec)) == spec.parameters() + again


# --- stages and what does not fit -----------------------------------------------------------------


class Made(TorchDispatchMode):
    """Counts the bytes of all tensors made that are not on the meta device."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not result.is_meta and not func.is_view:
            self.nbytes += 0 if func._schema.is_mutable else result.nbytes
        return result


def test_a_stage_has_the_names_and_values_of_the_whole_and_memory_for_its_part_alone():
    whole, plan = dict(GPT(TIED, seed=3).named_parameters()), one_f_one_b(4, 4)
    names = set()
    for rank in range(4):
        with Made() as made:
            stages = split(GPT(TIED, device="meta"), plan, rank, device="cpu", seed=3)
        parameters = dict(stages[rank].named_parameters())
        for name, parameter in parameters.items():
            assert torch.equal(parameter, whole[name]), name
        mine = sum(p.nbytes for p in parameters.values())
        # Once empty, and once the random numbers, before they are copied there.
        assert mine <= made.nbytes <= 2 * mine < sum(p.nbytes for p in whole.values())
        names |= parameters.keys()
    assert names == whole.keys()


def test_layers_of_a_175_billion_model_run_without_memory():
    spec = dataclasses.replace(CATALOGUE["gpt3-175b"], layers=4)
    plan = one_f_one_b(2, 2)

    def program(comm):
        model = GPT(spec, flash=True, device="meta", dtype=torch.bfloat16)
        pipeline = Pipeline(plan, split(model, plan, comm.rank), comm)
        tokens = torch.zeros(2, spec.sequence, dtype=torch.long, device="meta")
        pipeline.step(tokens, tokens)

    messages = world.simulate(program, 2).traffic.messages
    each = spec.sequence * spec.hidden * 2
    assert [m.nbytes for m in messages if m.nbytes == each] == [each] * sum(plan.messages)
    # and the gradient of the tied matrix, there and back
    assert {m.nbytes for m in messages} - {each} == {spec.vocab * spec.hidden * 2}


def alone(plan=None, stages=None, tokens=4, targets=True):
    """One rank that runs a pipeline by itself."""

    def program(comm):
        nonlocal plan, stages
        plan = plan or one_f_one_b(1, 4)
        stages = stages or split(GPT(LLAMA), plan, comm.rank)
        x, y = batch(LLAMA, tokens)
        return Pipeline(plan, stages, comm).step(x, y if targets else None)

    return world.simulate(program, 1)


def twice():
    model = GPT(LLAMA)
    for _ in range(2):
        split(model, gpipe(1, 1), 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: alone(gpipe(2, 4), {0: None}), ValueError, "GPipe.* for 2 ranks.* has 1"),
        (lambda: alone(stages={1: None}), ValueError, r"got stages \[1\]; 1F1B gives it \[0\]"),
        (lambda: alone(tokens=10), ValueError, "10 sequences .* 4 micro-batches.* 8 and 12"),
        (lambda: alone(tokens=3), ValueError, "3 sequences .* 4 micro-batches.*: 4"),
        (lambda: alone(targets=False), ValueError, "last stage, which needs targets"),
        (
            lambda: alone(Plan("half", 1, 1, [[Action("F", 0, 0)]]), {0: None}),
            PlanError,
            "never runs B0",
        ),
        (lambda: partition([1, 2], 3), ValueError, "2 pieces are too few for 3 stages.*: 2"),
        (lambda: partition([1, -2], 1), ValueError, "cost of piece 1 is -2"),
        (lambda: split(GPT(LLAMA), gpipe(9, 1), 0), ValueError, "8 pieces .* 9 stages.*: 8"),
        (lambda: split(GPT(LLAMA), gpipe(2, 1), 2), ValueError, "no rank 2.*0 to 1"),
        (twice, ValueError, "taken apart"),
        (
            lambda: split(GPT(LLAMA), gpipe(2, 1), 0, [range(8)]),
            ValueError,
            "pieces has 1 parts; GPipe has 2 stages",
        ),
        (
            lambda: split(GPT(LLAMA), gpipe(2, 1), 0, [range(3), range(4, 8)]),
            ValueError,
            "layers 1 to 6 and the head .7. once and in order",
        ),
        (
            lambda: split(GPT(LLAMA), gpipe(2, 1), 1)[1](*batch(LLAMA)[:1]),
            ValueError,
            "needs x, from the stage before",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(call, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        call()


@pytest.mark.parametrize("start", [world.simulate, world.launch])
def test_a_rank_that_leaves_early_is_reported(start):
    spec, plan = dataclasses.replace(LLAMA, layers=1), one_f_one_b(3, 2)

    def program(comm):
        if comm.rank != 1:
            tokens = torch.zeros(2, spec.sequence, dtype=torch.long)
            Pipeline(plan, split(GPT(spec), plan, comm.rank), comm).step(tokens, tokens)

    with pytest.raises(world.DeadlockError, match="rank 1 has finished"):
        start(program, 3)


def test_ranks_whose_plans_differ_are_reported():
    def program(comm):
        pipelined(comm, gpipe(2, 4 if comm.rank else 6), LLAMA)

    with pytest.raises(world.WorldError, match="rank 1"):
        world.simulate(program, 2)


# --- without an end of the step: PipeDream --------------------------------------------------------


def endless(comm, plan, spec, rate, momentum):
    optimizer = functools.partial(torch.optim.SGD, lr=rate, momentum=momentum)
    stages = split(GPT(spec), plan, comm.rank)
    train = PipeDream(plan, stages, optimizer, comm)
    losses = train.train(*batch(spec, 2 * plan.m))
    return losses, dict(train.pipeline.named_parameters()), train.peak_copies


def delayed(comm, plan, spec, rate, momentum, missed):
    """One device that keeps every version of its weights, and reads each stage's at its delay."""
    model, parts = GPT(spec), partition(piece_flops(spec), plan.stages)
    stage_of = {}
    for rank in range(plan.p):
        for number, stage in split(GPT(spec), plan, rank, parts).items():
            stage_of |= {name: number for name, _ in stage.named_parameters()}
    versions, speed = [dict(model.named_parameters())], dict.fromkeys(stage_of, 0.0)
    losses = []
    for k, (x, y) in enumerate(
        zip(*(t.chunk(plan.m) for t in batch(spec, 2 * plan.m)), strict=True)
    ):
        stale = {
            name: versions[k - missed[number][k]][name].detach().clone().requires_grad_()
            for name, number in stage_of.items()
        }
        loss = torch.func.functional_call(model, stale, (x, y))
        loss.backward()
        losses.append(loss.item())
        speed = {name: momentum * speed[name] + stale[name].grad for name in stage_of}
        versions.append(
            {name: versions[-1][name].detach() - rate * speed[name] for name in stage_of}
        )
    return losses, versions[-1]


@pytest.mark.parametrize(
    "plan",
    [
        pipedream(1, 5),
        pipedream(4, 12),
        zero_bubble(3, 7),
        zero_bubble_v(2, 7),
        interleaved(2, 6, 2),
    ],
    ids=lambda plan: f"{plan.name}, {plan.p} ranks",
)
def test_pipedream_trains_as_one_device_that_misses_the_updates_which_staleness_counts(plan):
    settings = (0.2, 0.5)
    runs = world.simulate(endless, plan.p, args=(plan, LLAMA, *settings)).results
    expected = world.simulate(delayed, 1, args=(plan, LLAMA, *settings, staleness(plan))).results[0]
    torch.testing.assert_close(runs[plan.placement[-1]][0], expected[0], rtol=1e-5, atol=0)
    found = {name: p.detach() for _, parameters, _ in runs for name, p in parameters.items()}
    assert found.keys() == expected[1].keys()
    for name, parameter in expected[1].items():
        torch.testing.assert_close(found[name], parameter, rtol=0, atol=1e-5, msg=name)
    assert tuple(copies for *_, copies in runs) == plan.peak_in_flight


def test_a_stage_misses_as_many_updates_as_there_are_stages_behind_it():
    assert staleness(pipedream(4, 6)) == tuple(
        tuple(min(k, 3 - stage) for k in range(6)) for stage in range(4)
    )
    assert staleness(gpipe(2, 3)) == ((0, 1, 2), (0, 1, 2))
    assert staleness(zero_bubble(1, 3)) == ((0, 0, 0),)


def test_pipedream_is_idle_only_at_the_ends_of_a_run():
    plan = pipedream(4, 300)
    assert plan.ranks == one_f_one_b(4, 300).ranks
    assert plan.price(1, 2).bubble_fraction == pytest.approx(3 / 303)


def test_without_copies_of_its_weights_a_backward_pass_is_refused_by_torch():
    """What weight stashing is for: an update in between takes away what backward has to read."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, second = (model(torch.ones(2, 4)).sum() for _ in range(2))
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.backward()


def test_pipedream_refuses_a_matrix_of_which_two_ranks_would_have_different_copies():
    plan = pipedream(2, 4)
    with pytest.raises(ValueError, match="build the model with tied=False"):
        world.simulate(endless, 2, args=(plan, TIED, 0.1, 0.0))


def test_buffers_of_a_model_on_the_meta_device_get_zeros():
    model = GPT(TIED, device="meta")
    model.norm.register_buffer("seen", torch.zeros(3, dtype=torch.int64, device="meta"))
    stages = split(model, gpipe(1, 1), 0, device="cpu")
    assert torch.equal(stages[0].get_buffer("norm.seen"), torch.zeros(3, dtype=torch.int64))
