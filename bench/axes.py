"""Seconds of a training step, ours beside torch's own engine, in the same four real processes;
of a mixture's layer on simulated ranks, beside one device; and of pricing large pipelines.

    python bench/axes.py              all of it, about three minutes
    python bench/axes.py data         one part: context, experts, data, tensor, pipeline or events

A model, its weights and its batch are the same on both sides, whose steps alternate. A figure is
the median over steps of the slowest rank's seconds; a ratio below 1 means that ours is faster.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed import pipelining
from torch.distributed.tensor import Replicate, Shard, init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from dlsys import pipeline_parallel as pp
from dlsys import world
from dlsys.context_parallel import Layout, layout, ring_attention
from dlsys.data_parallel import DataParallel
from dlsys.data_parallel.ddp import plan_of
from dlsys.expert_parallel.dispatch import dispatched
from dlsys.expert_parallel.mixture import Experts, all_of, dense, grouped
from dlsys.model import GPT
from dlsys.tensor_parallel import TensorParallelGPT
from dlsys.transformer import TransformerSpec

RANKS, REPEATS = 4, 12
SPEC = TransformerSpec(layers=8, hidden=256, heads=8, vocab=1024, sequence=64, tied=False)
Step = Callable[[], object]


def alternate(comm: world.Communicator, ways: Mapping[str, Step]) -> dict[str, list[float]]:
    """The seconds of each way's steps on this rank; the first two steps warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(REPEATS + 2):
        turn = list(ways.items())
        for name, step in turn if repeat % 2 else reversed(turn):
            comm.barrier()
            begin = time.perf_counter()
            step()
            if repeat >= 2:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def show(title: str, program: Callable[..., object], *args: object) -> None:
    """Run a program that returns `alternate`'s lists, ours and torch's, and print both."""
    run = world.launch(program, RANKS, args=args, check=False, timeout=300)
    names = list(run.results[0])
    medians = [
        statistics.median(map(max, zip(*(mine[name] for mine in run.results), strict=True)))
        for name in names
    ]
    figures = "   ".join(f"{n} {s * 1e3:7.1f} ms" for n, s in zip(names, medians, strict=True))
    print(f"{title:28} {figures}   ratio {medians[0] / medians[1]:.2f}", flush=True)


def batch(seed: int, samples: int = 8) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    words = torch.randint(SPEC.vocab, (samples, SPEC.sequence + 1), generator=random)
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


# -- context parallelism -------------------------------------------------------------------------


def ring_steps(comm: world.Communicator, tokens: int) -> list[float]:
    """Seconds of this rank's processor for its part of a ring, both passes, and for all of it.

    The whole is the same program on one rank, in zigzag's chunks, so that both skip as much.
    """
    shares, alone = layout(tokens, comm.size), comm.split(comm.rank)
    chunks = sorted((c for each in shares.chunks for c in each), key=lambda chunk: chunk.start)
    ways = ((comm, shares), (alone, Layout((tuple(chunks),))))
    seconds: list[list[float]] = [[], []]
    for _ in range(REPEATS // 2):
        for (group, share), spent in zip(ways, seconds, strict=True):
            shape = (1, share.tokens(group.rank), 8, 64)
            q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
            comm.barrier()
            begin = time.process_time()
            ring_attention(group, share, q, k, v).sum().backward()
            spent.append(time.process_time() - begin)
    return [min(spent) for spent in seconds]


def context() -> None:
    for tokens in (1024, 4096):
        run = world.launch(ring_steps, RANKS, args=(tokens,), check=False, timeout=300)
        parts, wholes = zip(*run.results, strict=True)
        busy, whole = sum(parts), statistics.median(wholes)
        print(
            f"ring attention, {tokens:5,} tokens  {RANKS} processes {busy * 1e3:7.1f} ms busy   "
            f"one {whole * 1e3:7.1f} ms   ratio {busy / whole:.2f}",
            flush=True,
        )


# -- expert parallelism --------------------------------------------------------------------------

TOKENS, EXPERTS, K, HIDDEN, WIDTH = 4096, 64, 2, 128, 256


def routed(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, k experts of each at random, and weights."""
    x = torch.randn(tokens, HIDDEN, requires_grad=True)
    return x, torch.rand(tokens, EXPERTS).topk(K).indices, torch.rand(tokens, K)


def experts_of(number: int) -> Experts:
    held = Experts(number, HIDDEN, WIDTH, gated=False, bias=False)
    for p in held.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return held


def dispatch_steps(comm: world.Communicator, compute: bool) -> list[tuple[float, float]]:
    """When, in the processor's seconds, steps of both passes begin and end on this rank.

    Without compute they are the exchanges alone.
    """
    mine, given = experts_of(EXPERTS // comm.size), routed(TOKENS // comm.size)
    spent = []
    for _ in range(REPEATS):
        comm.barrier()
        begin = time.process_time()
        read = mine if compute else lambda rows, counts: rows
        dispatched(comm, *given, read, EXPERTS).sum().backward()
        spent.append((begin, time.process_time()))
    return spent


def experts() -> None:
    """Eight ranks that take turns in this process, beside the same experts on one device."""

    def simulated(compute: bool) -> float:
        run = world.simulate(dispatch_steps, 8, args=(compute,))
        steps = zip(*run.results, strict=True)
        return min(max(end for _, end in s) - min(begin for begin, _ in s) for s in steps)

    def alone(step: Callable[[], Tensor], repeats: int = REPEATS) -> float:
        spent = []
        for _ in range(repeats):
            begin = time.process_time()
            step().sum().backward()
            spent.append(time.process_time() - begin)
        return min(spent)

    every, (x, chosen, weights) = experts_of(EXPERTS), routed(TOKENS)
    split, exchanges = simulated(True), simulated(False)
    one = alone(lambda: grouped(x, chosen, weights, every, EXPERTS))
    all_read = alone(lambda: dense(x, chosen, weights, all_of(every, x)), 2)
    print(
        f"experts, {TOKENS:,} tokens         8 simulated ranks {split * 1e3:7.1f} ms busy "
        f"(exchanges {exchanges * 1e3:.1f})   grouped {one * 1e3:7.1f} ms   "
        f"ratio {split / one:.2f}   dense {all_read * 1e3:7.1f} ms",
        flush=True,
    )


# -- data parallelism ----------------------------------------------------------------------------


def data_steps(comm: world.Communicator, mebibytes: float) -> dict[str, list[float]]:
    """Both send a bucket once it has so many MiB."""
    tokens, targets = batch(comm.rank, 2)
    ours = DataParallel(GPT(SPEC), comm, bucket_bytes=mebibytes * 2**20)
    theirs = DistributedDataParallel(
        GPT(SPEC), bucket_cap_mb=mebibytes, gradient_as_bucket_view=True
    )

    def stepper(model: nn.Module) -> Step:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            model(tokens, targets).backward()
            optimizer.step()

        return step

    return alternate(comm, {"ours": stepper(ours), "DDP": stepper(theirs)})


def data() -> None:
    """With large buckets, and with small ones, where their number counts."""
    for mebibytes in (25, 4, 1):
        number = len(plan_of(dict(GPT(SPEC).named_parameters()), mebibytes * 2**20).buckets)
        show(f"data, {number} buckets", data_steps, mebibytes)


# -- tensor parallelism --------------------------------------------------------------------------


def with_dtensor(sequence_parallel: bool) -> nn.Module:
    """The GPT as DTensor's recipe cuts it; norms on whole tokens, or on sequence shards."""
    model = GPT(SPEC)
    mesh = init_device_mesh("cpu", (RANKS,))
    between = Shard(1) if sequence_parallel else Replicate()
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    if sequence_parallel:
        plan |= {"dropout": SequenceParallel(use_local_output=True), "norm": SequenceParallel()}
    for i in range(SPEC.layers):
        for name in ("attention.query", "attention.key", "attention.value", "ffn.up"):
            plan[f"layers.{i}.{name}"] = ColwiseParallel(input_layouts=between)
        for name in ("attention.output", "ffn.down"):
            plan[f"layers.{i}.{name}"] = RowwiseParallel(output_layouts=between)
        if sequence_parallel:
            plan |= {f"layers.{i}.norm{k}": SequenceParallel(use_local_output=True) for k in (1, 2)}
    return parallelize_module(model, mesh, plan)


def tensor_steps(comm: world.Communicator) -> dict[str, list[float]]:
    tokens, targets = batch(0)
    ours, theirs = TensorParallelGPT(SPEC, comm), with_dtensor(False)

    def our_step() -> None:
        ours.zero_grad()
        ours(tokens, targets).backward()

    def their_step() -> None:
        theirs.zero_grad()
        with loss_parallel():
            logits = theirs(tokens)
            F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()

    return alternate(comm, {"ours": our_step, "DTensor": their_step})


def tensor() -> None:
    show("tensor", tensor_steps)


# -- pipeline parallelism ------------------------------------------------------------------------


class Bare(nn.Module):
    """A stage as torch's engine calls it: with what the stage before has sent, alone."""

    def __init__(self, stage: pp.Stage, tokens: Tensor) -> None:
        super().__init__()
        self.stage, self.shape = stage, tokens

    def forward(self, x: Tensor) -> Tensor:
        return self.stage(x) if self.stage.embeds else self.stage(self.shape, x)


PIPELINES = {
    "gpipe": (pp.gpipe, pipelining.ScheduleGPipe, ()),
    "1F1B": (pp.one_f_one_b, pipelining.Schedule1F1B, ()),
    "interleaved": (pp.interleaved, pipelining.ScheduleInterleaved1F1B, (2,)),
    "breadth first": (pp.breadth_first, pipelining.ScheduleLoopedBFS, (2,)),
    "zero bubble H1": (pp.zero_bubble, pipelining.ScheduleInterleavedZeroBubble, ()),
    "zero bubble V": (pp.zero_bubble_v, pipelining.ScheduleZBVZeroBubble, ()),
}


def pipeline_steps(comm: world.Communicator, name: str) -> dict[str, list[float]]:
    build, engine, more = PIPELINES[name]
    m = 8
    plan, (tokens, targets) = build(RANKS, m, *more), batch(0, 2 * m)
    ours = pp.Pipeline(plan, pp.split(GPT(SPEC), plan, comm.rank), comm)
    stages = pp.split(GPT(SPEC), plan, comm.rank)

    def their_stage(number: int) -> pipelining.PipelineStage:
        bare = Bare(stages[number], tokens[:2])
        return pipelining.PipelineStage(bare, number, plan.stages, torch.device("cpu"))

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    single = issubclass(engine, pipelining.schedules.PipelineScheduleSingle)
    theirs = [their_stage(number) for number in stages]
    schedule = engine(theirs[0] if single else theirs, m, loss_fn=loss)
    last = plan.stages - 1

    def our_step() -> None:
        for parameter in ours.parameters():
            parameter.grad = None
        ours.step(tokens, targets)

    def their_step() -> None:
        for stage in stages.values():
            stage.zero_grad()
        given = (tokens,) if 0 in stages else ()
        schedule.step(*given, **({"target": targets} if last in stages else {}))

    return alternate(comm, {"ours": our_step, "torch": their_step})


def pipeline() -> None:
    for name in PIPELINES:
        show(f"pipeline, {name}", pipeline_steps, name)


# -- prices --------------------------------------------------------------------------------------


def events() -> None:
    for build, more in ((pp.one_f_one_b, ()), (pp.interleaved, (4,)), (pp.zero_bubble, ())):
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            plan = build(64, 512, *more)
            built = time.perf_counter()
            plan.check()
            checked = time.perf_counter()
            plan.price(1.0, 2.0, 0.1)
            times.append((built - begin, checked - built, time.perf_counter() - checked))
        build_s, check_s, price_s = map(statistics.median, zip(*times, strict=True))
        print(
            f"{plan.name:28} 64 ranks, 512 micro-batches: built {build_s:.2f} s, "
            f"checked {check_s:.2f} s, priced {price_s:.2f} s"
        )


PARTS = {f.__name__: f for f in (context, experts, data, tensor, pipeline, events)}

if __name__ == "__main__":
    torch.manual_seed(0)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
