"""Everything public that can be called, found by inspection, with right arguments for each.

A new chapter joins by itself: its package's `__all__` says what is public. An argument is right by
what is called (ARGUMENTS), or by its name (NAMES); what is in neither has its default.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch

import dlsys
from dlsys import (
    attention,
    collectives,
    composing_axes,
    context_parallel,
    data_parallel,
    exercises,
    expert_parallel,
    hardware,
    input_pipeline,
    memory_wall,
    pipeline_parallel,
    precision,
    recomputation,
    resilience,
    roofline,
    scaling_laws,
    tensor_parallel,
    training_loop,
    world,
    zero,
)
from dlsys.mesh import Mesh
from dlsys.model import GPT
from dlsys.transformer import MixtureOfExperts, TransformerSpec
from dlsys.world.real import processes

LINK, CLUSTER, H100 = hardware.LINKS["nvlink4"], hardware.dgx_h100(2), hardware.DEVICES["h100-sxm"]
RING, GPIPE = collectives.ring_all_reduce(4), pipeline_parallel.gpipe(2, 4)
BUCKETS = data_parallel.buckets({"a": 8, "b": 16}, 8)
STEP = BUCKETS.price(4, LINK, 1.0)
TINY = TransformerSpec(layers=2, hidden=8, heads=2, vocab=16, sequence=4)
BYTES = TransformerSpec(layers=1, hidden=8, heads=2, vocab=256, sequence=4)
SPARSE = dataclasses.replace(TINY, moe=MixtureOfExperts(4, 2))
LAYOUT = tensor_parallel.layout(TINY, 2)
SHARES = context_parallel.layout(8, 2)
ROUNDS = context_parallel.price(SHARES, TINY, LINK, rate=1e12).forward
ENERGY = memory_wall.energy(3600.0, 8, 500.0, pue=1.1)
PLANS = composing_axes.plan(TINY, composing_axes.machine("h100"), 8)
UNITS = {"a": 8, "b": 16}
MODEL = GPT(TINY)
STEPS = zero.step_plan(3, UNITS, 4)
SHORT = scaling_laws.Run(1, 8, 128, 0.01, 128)
CHAIN, SEGMENTS = recomputation.uniform(4), recomputation.segments(4, 2)
ALONE = pipeline_parallel.gpipe(1, 2)
TOKENS = torch.zeros(2, 4, dtype=torch.long)
DOUBLE = recomputation.Graph(
    (recomputation.Operation("double", ("x",), (recomputation.Value("y", 8),)),),
    (recomputation.Value("x", 8),),
    ("y",),
)


RUN = world.simulate(lambda comm: comm.all_reduce(torch.ones(2)), 2)
STAGES = pipeline_parallel.split(GPT(TINY), ALONE, 0)


# torch imports half of itself at the first such sum, which is to be no call's own time.
_ = torch.ones(1, device="meta") + 1


def whole() -> tensor_parallel.TensorParallelGPT:
    return parts(world.current())["TensorParallelGPT"]


UNCUT = [GPT(TINY)]


def uncut() -> GPT:
    """A model that no split has taken apart: the last one, where it was not."""
    if not hasattr(UNCUT[0], "layers"):
        UNCUT[0] = GPT(TINY)
    return UNCUT[0]


def stepped_soon() -> torch.optim.Optimizer:
    """An optimizer whose parameter has a gradient."""
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.sum().backward()
    return torch.optim.SGD([parameter], lr=0.1)


def quiet(comm: world.Communicator, *args: object) -> None:
    """A rank program that does nothing."""


class Begun(Exception):  # noqa: N818  (it is no error)
    """Raised where processes would begin."""


def unlaunched(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` up to where it launches processes, which are dear: None from there on."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        with mock.patch.object(processes._Launch, "run", side_effect=Begun):
            try:
                return function(*args, **named)
            except Begun:
                return None

    return call


class Methods:
    """The methods of a class, each called where `on` has an object of it do what it is given."""

    def __init__(self, cls: type, on: Callable[[Callable[[Any], Any]], Any]) -> None:
        self.cls, self.on = cls, on

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.cls, name)

        @functools.wraps(method)
        def call(**arguments: Any) -> Any:
            return self.on(lambda it: taking_part(it, name, arguments))

        return call


def between_two(program: Callable[[world.Communicator], Any]) -> Any:
    """What a program returns in a simulated world of two, or the error of a rank as it was."""
    try:
        return world.simulate(program, 2).results
    except world.RankError as error:
        raise error.__cause__ or error from None


def alone(program: Callable[[world.Communicator], Any]) -> Any:
    """What a program returns in torch.distributed's default group, of this process alone."""
    return program(world.TorchCommunicator())


OTHER_SIDE = {"send": "recv", "isend": "recv", "recv": "send", "irecv": "send"}


def taking_part(it: Any, name: str, arguments: dict[str, Any]) -> Any:
    """The call of a method, its handle waited for; in rank 1 the other side of a message."""
    if name in OTHER_SIDE and it.rank == 1:
        return getattr(it, OTHER_SIDE[name])(torch.empty_like(arguments["tensor"]), 0)
    result = getattr(it, name)(**arguments)
    return result.wait() if hasattr(result, "wait") else result


def some_parameters() -> list[torch.Tensor]:
    return list(torch.nn.Linear(2, 2).parameters())


def sharded(comm: world.Communicator | None = None) -> zero.ShardedOptimizer:
    return zero.ShardedOptimizer(some_parameters(), torch.optim.SGD, comm)


@functools.lru_cache(1)
def parts(comm: world.Communicator) -> dict[str, Any]:
    """What is made of a communicator, once for each world."""
    return {
        "TensorParallelGPT": tensor_parallel.TensorParallelGPT(TINY, comm),
        "ColumnParallelLinear": tensor_parallel.ColumnParallelLinear(4, 4, comm=comm),
        "ContextParallel": context_parallel.ContextParallel(GPT(TINY), comm),
        "RowParallelLinear": tensor_parallel.RowParallelLinear(4, 4, comm=comm),
        "VocabParallelEmbedding": tensor_parallel.VocabParallelEmbedding(16, 4, comm=comm),
        "PipeDream": pipeline_parallel.PipeDream(
            ALONE, STAGES, lambda parameters: torch.optim.SGD(parameters, lr=0.1), comm
        ),
        "Pipeline": pipeline_parallel.Pipeline(ALONE, STAGES, comm),
        "FullyShardedDataParallel": zero.FullyShardedDataParallel(torch.nn.Linear(2, 2), comm),
        "ShardedOptimizer": sharded(comm),
    }


def of_part(cls: type) -> Methods:
    """The methods of a class whose objects need a communicator."""
    return Methods(cls, lambda program: program(parts(world.current())[cls.__name__]))


@functools.lru_cache(1)
def saved() -> str:
    """A checkpoint."""
    return str(resilience.save({"w": torch.ones(2)}, "saved", 0))


def saver(program: Callable[[resilience.AsyncSaver], Any]) -> Any:
    """What a program does with a saver, whose thread has ended before another one begins."""
    with resilience.AsyncSaver("saved beside", keep=2) as one:
        return program(one)


def training(comm: world.Communicator | None = None) -> resilience.Trainer:
    """A run of one weight."""
    model = torch.nn.Linear(1, 1)
    order = resilience.SampleOrder(4, 2)
    return resilience.Trainer(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        order,
        lambda model, rows: model(rows[:, None].float()).mean(),
        comm=comm,
    )


def fail() -> None:
    raise ValueError("It always does.")


class Later(NamedTuple):
    """An argument made anew for each call."""

    make: Callable[[], Any]


def mixed() -> precision.MixedPrecision:
    """One whose parameters have gradients."""
    made = precision.MixedPrecision(some_parameters(), torch.optim.SGD)
    made.backward(sum(p.float().square().sum() for p in made.parameters))
    return made


MIXED = mixed()
NAMES: dict[str, Any] = {
    "comm": Later(world.current),
    "achievable": 0.5,
    "achieved": 0.4,
    "backward": 2.0,
    "backward_seconds": 1.0,
    "batch": 8,
    "below": 0.05,
    "budget": 1e6,
    "bucket_bytes": 1e6,
    "bytes_per_second": 1e9,
    "cluster": CLUSTER,
    "clusters": [CLUSTER],
    "compute_seconds": 1.0,
    "data_parallel": 8,
    "device": H100,
    "device_memory": 80e9,
    "x": torch.ones(1, 4, 4),
    "devices": 8,
    "devices_per_node": 4,
    "flops": 1e20,
    "forward": 1.0,
    "gradient_bytes": 1e9,
    "gradients": 1e9,
    "hidden": 64,
    "hours": 100.0,
    "kind": "all_reduce",
    "layers": 4,
    "link_or_cluster": LINK,
    "m": 4,
    "micro_batch": 2,
    "n": 4,
    "nbytes": 1e6,
    "nodes": 2,
    "number": 1e9,
    "p": 2,
    "parameters": 7e9,
    "peak_flops": 1e15,
    "r": 0.5,
    "rank": 1,
    "ranks": 4,
    "rate": 1e14,
    "seconds": 1e6,
    "sequence": 64,
    "spec": TINY,
    "specs": [TINY],
    "tokens": 64,
    "tp": 2,
    "v": 2,
    "where": LINK,
}


# Of what is called: the arguments whose names do not say them.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "collectives.Plan": {"algorithm": "by hand", "ranks": 2, "chunks": 2, "rounds": [[]]},
    "collectives.Plan.bounds": {"length": 8},
    "collectives.Plan.s*": {"rank": 0},
    "collectives.candidates": {"ranks": 4},
    "collectives.best": {"ranks": 4},
    "collectives.crossovers": {"ranks": 4, "largest": 2.0**20},
    "collectives.draw_crossovers": {"ranks": 4, "sizes": (1e2, 1e4)},
    "data_parallel.BatchTradeoff": {"least_steps": 1e3, "least_samples": 1e6},
    "data_parallel.PowerSGD": {"rank": 1},
    "data_parallel.TopK": {"fraction": 0.1},
    "data_parallel.TopK.kept": {"elements": 100},
    "data_parallel.TopK.sent_bytes": {"elements": 100},
    "data_parallel.DataParallel": {"module": torch.nn.Linear(2, 2)},
    "data_parallel.LocalSGD": {"module": torch.nn.Linear(2, 2)},
    "data_parallel.buckets": {"sizes": {"a": 8, "b": 16}},
    "data_parallel.bucket_tradeoff": {"bucket_bytes": [1e30, 1e29]},
    "data_parallel.draw_bucket_tradeoff": {"steps": {8.0: STEP}},
    "data_parallel.draw_compression": {"curves": {"all": ([1.0, 2.0], [3.0, 2.0])}},
    "data_parallel.draw_scaling": {
        "curves": {"weak": data_parallel.weak_scaling([1, 2], 1.0, 1e9, LINK)}
    },
    "data_parallel.noise_scale": {
        "small_batch": 1,
        "small_square": 2.0,
        "large_batch": 8,
        "large_square": 1.0,
    },
    "composing_axes.*": {
        **{"search": PLANS, "plans": {"best": PLANS.best}},
        **{"spec": TINY, "mesh": Mesh(), "batch": 2, "tokens": 1e6, "neurons": 8192.0},
        **{"sent": {"tp": 1e9}, "meshes": {"one": Mesh()}, "cluster": CLUSTER},
        **{"sharding_bandwidth": 5e10, "tensor_bandwidth": 4.5e11},
    },
    "composing_axes.draw_step": {"run": world.simulate(lambda c: c.compute(1.0), 2)},
    "composing_axes.machine": {"name": "h100"},
    "composing_axes.plan": {"spec": TINY, "machine": composing_axes.machine("h100"), "batch": 8},
    "data_parallel.overlap": {"sizes": [8.0, 16.0]},
    "data_parallel.*_scaling": {"ranks": [1, 2, 4]},
    "exercises.amounts": {"cost": {"bytes": 8, "messages": 2}},
    "exercises.cost_line": {"cost": {"bytes": 8, "messages": 2}},
    "exercises.cost_of": {"run": {"bytes": 8}},
    "exercises.seal": {"value": 12},
    "exercises.sealed": {"token": "3$00$00$number"},
    "exercises.same": {"expression": 4, "expected": 4},
    "exercises.plain": {"value": [4.0]},
    "exercises.Sealed.*": {"value": 12.5},
    "mesh.Mesh.*": {"rank": 0, "axis": "tp", "cluster": CLUSTER},
    "expert_parallel.*": {
        **{"spec": SPARSE, "x": torch.ones(2, 8), "choices": [[[0, 1]], [[7]]], "experts": 8},
        **{"k": 2, "factor": 2, "bandwidth": 1e9, "dispatch": expert_parallel.drawn(4, 8, 2, 4)},
    },
    "expert_parallel.draw_hidden": {
        **{"attention": 1e-3, "dispatch": 1e-3, "experts": 1e-3, "combine": 1e-3}
    },
    "expert_parallel.draw_loads": {"loads": {"even": [4, 4]}},
    "expert_parallel.draw_sorted": {"chosen": [[0, 1], [2, 0]], "of": "rank"},
    "expert_parallel.MixtureGPT.*": {"tokens": TOKENS, "seed": 0},
    "expert_parallel.average_gradients": {"model": MODEL, "everyone": Later(world.current)},
    "hardware.Cluster": {"intra": LINK, "inter": LINK},
    "hardware.Cluster.link": {"src": 0, "dst": 9},
    "hardware.Device": {
        "name": "A device",
        "flops": {"bf16": 1e15},
        "memory": 8e10,
        "memory_bandwidth": 1e12,
    },
    "hardware.Device.r*": {"number_format": "bf16"},
    "hardware.Link": {"name": "A link", "latency": 1e-6, "bandwidth": 1e9},
    "memory_wall.Energy.*": {"dollars_per_kwh": 0.1, "kg_per_kwh": 0.4},
    "memory_wall.Recipe": {
        "weights": 2,
        "gradients": 2,
        "master": 4,
        "moments": 8,
        "why": "to learn",
    },
    "memory_wall.check_energy": {"claimed": ENERGY, "tdp": 700.0, "pue": 1.1},
    "memory_wall.draw_plans": {"plans": {"one": memory_wall.fits(TINY, H100)}},
    "memory_wall.draw_activations": {"sequences": [4, 8], "shares": [1, 8]},
    "memory_wall.energy": {"watts": 500.0, "pue": 1.1},
    "memory_wall.measure_*": {"model": MODEL, "tokens": TOKENS},
    "memory_wall.RentOrBuy.*": {"load": 0.5},
    "memory_wall.rent_or_buy": {"dollars_per_hour": 2.0, "dollars_per_device": 3e4},
    "memory_wall.utilization": {"seconds": 1e6},
    "model.GPT": {},
    "model.GPT.*": {"tokens": TOKENS, "seed": 0},
    "notebook.predict.answer": {"value": 4.0},
    "notebook.quiz.show": {"slug": "memory_wall"},
    "notebook.show.refusal": {"error": ValueError, "function": fail},
    "notebook.show.table": {"rows": [["a", 1]], "columns": ["name", "number"]},
    "notebook.vouch.says": {"words": "no number"},
    "notebook.vouch.sourced": {"by": "dao2022, figure 2"},
    "pipeline_parallel.Plan": {
        "name": "by hand",
        "stages": 1,
        "micro_batches": 1,
        "ranks": [[("F", 0, 0), ("B", 0, 0)]],
    },
    "pipeline_parallel.draw_comparison": {"plans": [ALONE]},
    "pipeline_parallel.exposed_seconds": {"price": ALONE.price(1, 2), "reduce": 1.0},
    "pipeline_parallel.message_bytes": {},
    "pipeline_parallel.numbered": {"script": [("F", 0), ("B", 0)]},
    "pipeline_parallel.partition": {"costs": [1.0, 2.0, 3.0]},
    "pipeline_parallel.stage_seconds": {"pieces": [range(2), range(2, 4)]},
    "pipeline_parallel.PipeDream.train": {"tokens": TOKENS, "targets": TOKENS},
    "pipeline_parallel.Pipeline.step": {"tokens": TOKENS, "targets": TOKENS},
    "pipeline_parallel.Stage.initialize": {"seed": 0},
    "precision.Block": {"format": precision.FP4_E2M1, "size": 32, "scale": precision.E8M0},
    "precision.Format": {"exponent": 4, "mantissa": 3},
    "precision.Format.*": {"pattern": 3, "x": 1.3},
    "precision.Integer.*": {"x": 1.3},
    "precision.LossScaler.*": {
        "loss": torch.ones(()),
        "optimizer": Later(stepped_soon),
        "state": precision.LossScaler().state_dict(),
    },
    "precision.PowerOfTwo.*": {"pattern": 3},
    "precision.decode": {"patterns": torch.tensor([1, 2])},
    "precision.*": {"fmt": precision.FP4_E2M1, "values": torch.ones(3)},
    "precision.Adam8bit": {"params": Later(some_parameters)},
    "precision.Adam8bit.load*": {"state_dict": torch.optim.SGD(some_parameters()).state_dict()},
    "precision.Autocast": {"fmt": precision.BF16},
    "precision.MixedPrecision": {
        "params": Later(some_parameters),
        "optimizer_cls": torch.optim.SGD,
    },
    "precision.MixedPrecision.*": {
        "loss": Later(lambda: torch.nn.Linear(2, 2).bias.square().sum()),
        "max_norm": 1.0,
        "state": Later(lambda: mixed().state_dict()),
    },
    "precision.moving_average": {"beta": 0.9},
    "precision.softmax": {"scores": torch.ones(1, 4)},
    "precision.stuck": {"weights": torch.ones(3), "updates": torch.ones(3)},
    "precision.train": {
        "mixed": Later(lambda: MIXED),
        "losses": Later(lambda: [MIXED.parameters[0].square().sum()]),
    },
    "precision.matmul": {
        "a": torch.ones(2, 4),
        "b": torch.ones(4, 3),
        "inputs": precision.FP16,
        "accumulator": precision.FP32,
    },
    "precision.signal_to_noise": {"rounded": torch.ones(1, 4, 4)},
    "precision.LoRALinear": {"linear": torch.nn.Linear(4, 4), "rank": 2},
    "precision.LinearRecipe": {"inputs": None, "weights": None, "gradients": None},
    "precision.Packed": {"block": precision.NVFP4},
    "precision.QuantizedLinear": {
        "linear": torch.nn.Linear(4, 4),
        "recipe": precision.LINEAR_RECIPES["mxfp8"],
    },
    "precision.quantize_linears": {
        "module": Later(lambda: torch.nn.Sequential(torch.nn.Linear(4, 4))),
        "recipe": precision.LINEAR_RECIPES["mxfp8"],
    },
    "precision.add_lora": {
        "module": Later(lambda: torch.nn.Sequential(torch.nn.Linear(4, 4))),
        "rank": 2,
    },
    "precision.lora_parameters": {"rows": 4, "columns": 8, "rank": 2},
    "precision.block_bytes": {"rows": 4, "columns": 8, "block": precision.NVFP4},
    "precision.draw_errors": {"rounded": {"as it is": torch.ones(1, 4, 4)}},
    "precision.draw_losses": {"curves": {"fp32": [2.0, 1.0]}, "window": 2},
    "precision.draw_number_line": {"formats": [precision.FP4_E2M1]},
    "precision.loss_curve*": {
        "recipe": precision.LINEAR_RECIPES["fp32"],
        "recipes": {"fp32": precision.LINEAR_RECIPES["fp32"]},
        "text": "a page " * 9,
        "steps": 1,
        "spec": BYTES,
    },
    "precision.train_on": {"model": Later(lambda: GPT(BYTES)), "text": "a page " * 9, "steps": 1},
    "recomputation.Graph": {"operations": DOUBLE.operations, "inputs": DOUBLE.inputs},
    "recomputation.KeepTensors": {},
    "recomputation.execute": {
        "graph": DOUBLE,
        "functions": {"double": lambda x: 2 * x},
        "inputs": {"x": torch.ones(2)},
    },
    "recomputation.keep_in_layer": {"block": MODEL.layers[0], "keep": ["ffn.input"]},
    "recomputation.keeping_of": {"graph": DOUBLE, "keep": ["y"]},
    "recomputation.*[a-z_]": {"graph": DOUBLE},
    "recomputation.*": {
        **{"plan": SEGMENTS, "chain": CHAIN, "k": 2, "layer": CHAIN.layers[0], "link": LINK}
    },
    "recomputation.Chain": {"layers": CHAIN.layers},
    "recomputation.Layer": {"name": "a", "input_bytes": 1, "saved_bytes": 2},
    "recomputation.Plan.[dp]*": {"chain": recomputation.uniform(1)},
    "recomputation.against_tensor_parallel": {"tensor_parallel": 2},
    "recomputation.draw_front": {"points": recomputation.front(CHAIN)},
    "recomputation.micro_batch_overhead": {"share": 0.3, "parts": 2},
    "recomputation.stage_layers": {"stages": 2, "micro_batches": 4},
    "recomputation.uniform": {"layer": CHAIN.layers[0]},
    "recomputation.width_to_offload": {"bandwidth": 1e9},
    "context_parallel.ContextParallel": {"module": Later(lambda: GPT(TINY))},
    "context_parallel.ContextParallel.forward": {"tokens": TOKENS},
    "context_parallel.layout": {"length": 8, "ranks": 2},
    "context_parallel.draw_hidden": {"spec": TINY, "rate": 1e12, "bandwidth": 1e9, "ranks": 2},
    "context_parallel.draw_lanes": {"ranks": 2},
    "context_parallel.draw_memory": {"ranks": 2},
    "context_parallel.draw_rounds": {"passes": {"a ring": ROUNDS}},
    "context_parallel.draw_scores": {"layouts": {"zigzag": SHARES}},
    "context_parallel.draw_swap": {"ranks": 2},
    "context_parallel.*": {
        "layout": SHARES,
        "spec": TINY,
        "where": LINK,
        "rate": 1e12,
        "bandwidth": 1e9,
    },
    "tensor_parallel.Collective.*": {},
    "tensor_parallel.Layout.recut": {"name": "norm.weight"},
    "tensor_parallel.Layout.times": {"parameter": LAYOUT.parameters[0]},
    "tensor_parallel.Parameter": {"name": "weight", "shape": (8, 8)},
    "tensor_parallel.seconds_in_pieces": {"link": LINK},
    "tensor_parallel.communication_over_compute": {"link": LINK},
    "tensor_parallel.draw_layer": {"plan": LAYOUT},
    "tensor_parallel.draw_share": {"degrees": [1, 2]},
    "tensor_parallel.draw_activations": {"degrees": [1, 2]},
    "transformer.LatentAttention": {
        "query_rank": 4,
        "key_value_rank": 4,
        "plain_size": 4,
        "rotary_size": 4,
        "value_size": 4,
    },
    "transformer.MixtureOfExperts": {"experts": 4, "experts_per_token": 2},
    "transformer.TransformerSpec": {"heads": 8, "vocab": 256},
    "transformer.TransformerSpec.from_config": {
        "config": {
            "model_type": "gpt2",
            "n_layer": 2,
            "n_embd": 8,
            "n_head": 2,
            "vocab_size": 16,
            "n_positions": 4,
        },
    },
    "transformer.TransformerSpec.*": {"layer": 1},
    "collectives.Plan.run": {"tensor": torch.ones(4)},
    "data_parallel.NoiseMeter.estimate": {},
    "data_parallel.draw_overlap": {"names": ["a step"]},
    "pipeline_parallel.Pipeline": {
        "plan": ALONE,
        "stages": STAGES,
    },
    "pipeline_parallel.PipeDream": {
        "plan": ALONE,
        "stages": STAGES,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    },
    "pipeline_parallel.best_micro_batch": {"sequences": 8, "fixed": 0.5},
    "pipeline_parallel.fixed_sequences": {"gain": 1.3, "larger": 16},
    "pipeline_parallel.interleaved": {"per_round": 4},
    "pipeline_parallel.transfer_share": {"layers": 2, "bandwidth": 25e9},
    "pipeline_parallel.transfers_waited_for": {"p": 2, "m": 4},
    "pipeline_parallel.staleness": {"plan": GPIPE},
    "pipeline_parallel.split": {"plan": GPIPE, "model": Later(uncut)},
    "tensor_parallel.full_state": {"model": Later(whole)},
    "tensor_parallel.gathered": {
        "model": Later(whole),
        "name": "norm.weight",
        "mine": torch.ones(8),
    },
    "tensor_parallel.load": {"model": Later(whole), "full_state": GPT(TINY).state_dict()},
    "tensor_parallel.*Linear": {"in_features": 4, "out_features": 4},
    "tensor_parallel.*matmul*": {"weight": torch.ones(4, 4)},
    "tensor_parallel.VocabParallelEmbedding": {"num_embeddings": 4, "embedding_dim": 4},
    "tensor_parallel.vocab_parallel_cross_entropy": {
        "logits": torch.ones(2, 4, 16),
        "targets": TOKENS,
    },
    "tensor_parallel.VocabParallelEmbedding.forward": {"tokens": TOKENS},
    "tensor_parallel.TensorParallelGPT.*": {"tokens": TOKENS, "seed": 0},
    "zero.Flat.pieces": {"rank": 1},
    "zero.FullyShardedDataParallel": {"module": Later(lambda: torch.nn.Linear(2, 2))},
    "zero.FullyShardedDataParallel.clip_grad_norm_": {"max_norm": 1.0},
    "zero.FullyShardedDataParallel.load_local_shards": {
        "states": {
            "weight": {"weight": zero.LocalShard(torch.ones(4), 0, (2, 2))},
            "bias": {"weight": zero.LocalShard(torch.ones(2), 0, (2,))},
        }
    },
    "zero.StepPlan.shard": {"unit": 0},
    "zero.Unit": {"name": "a", "elements": 8},
    "zero.flat": {"parameters": UNITS},
    "zero.*": {"plan": STEPS},
    "zero.draw_held": {"each": {"stage 3": zero.held(STEPS)}},
    "zero.mixed_bytes": {"t": 2},
    "zero.price": {"stage": 3},
    "zero.ShardedOptimizer": {"params": Later(some_parameters), "optimizer_cls": torch.optim.SGD},
    "zero.ShardedOptimizer.clip*": {"max_norm": 1.0},
    "zero.ShardedOptimizer.load_local_shards": {
        "states": {
            "0": {"weight": zero.LocalShard(torch.ones(4), 0, (2, 2))},
            "1": {"weight": zero.LocalShard(torch.ones(2), 0, (2,))},
        }
    },
    "zero.tokens_to_*": {"bandwidth": 1e9},
    "zero.step_plan": {"stage": 3, "units": UNITS},
    "resilience.AsyncSaver*": {"folder": "saved beside", "state": {"w": torch.ones(2)}, "step": 1},
    "resilience.Manifest.*": {"file": 0, "regions": [resilience.Region("w", (0,), (2,))]},
    "resilience.PerRank": {"value": 1},
    "resilience.Shard": {"tensor": torch.ones(2), "offsets": (0,), "shape": (4,)},
    "resilience.SampleOrder*": {
        "samples": 4,
        "state_dict": {"samples": 4, "seed": 0, "epoch": 1, "next": 2},
    },
    "resilience.Trainer": {
        "model": Later(lambda: torch.nn.Linear(1, 1)),
        "optimizer": Later(stepped_soon),
        "order": resilience.SampleOrder(4, 2),
        "loss": lambda model, rows: model(rows[:, None].float()).mean(),
    },
    "resilience.Trainer.*": {
        "steps": 2,
        "folder": "trained",
        "state": Later(lambda: training().state()),
    },
    "resilience.latest": {"folder": "saved"},
    "resilience.rotate": {"folder": "saved beside", "keep": 2},
    "resilience.restore": {"checkpoint": Later(lambda: saved())},
    "resilience.save*": {"state": {"w": torch.ones(2)}, "folder": "saved", "step": 1},
    "resilience.verify": {"folder": Later(lambda: saved())},
    "units.Catalogue": {"kind": "thing", "entries": {"a": 1}},
    "units.parse_bytes": {"text": "80 GB"},
    "units.parse_seconds": {"text": "3 ms"},
    "units.parse_flops": {"text": "3 TFLOP"},
}
WORLDS: dict[str, dict[str, Any]] = {
    "world.*Communicator.*": {"tensor": torch.ones(2, 3), "dst": 0, "src": 0, "color": 0},
    "world.Communicator.*send": {"dst": 1},
    "world.Communicator.*recv": {"src": 1},
    "world.Fit.predict": {"plan": RING},
    "world.Timeline.*": {"kind": "communication", "path": "trace.json"},
    "world.simulate": {"program": quiet, "ranks": 2},
    "world.launch": {"program": quiet, "ranks": 2},
    "world.measure_plan": {"plan": RING},
}
ARGUMENTS |= WORLDS
RERUNS: dict[str, dict[str, Any]] = {
    "recomputation.Checkpointed": {"module": torch.nn.Identity()},
    "recomputation.Plan.run": {"modules": [torch.nn.Identity()]},
    "recomputation.Recomputing": {"module": MODEL, "plan": recomputation.keep_all(2)},
    "recomputation.Recomputing.forward": {"tokens": TOKENS},
    "recomputation.keeping_results": {"keep": recomputation.LINEAR},
    "recomputation.checkpoint": {"function": lambda: None},
    "recomputation.measure": {"step": lambda: None},
}
ARGUMENTS |= RERUNS
SAVING = resilience.Cadence(1e3, 10.0)
FAILING = resilience.simulate_run(SAVING, 1e5, 1e4)
CADENCE: dict[str, dict[str, Any]] = {
    **{
        f"resilience.{name}": {
            "write_seconds": 60.0,
            "mtbf_seconds": 1e4,
            "stall": 10.0,
            "repair_seconds": 1e4,
            "failures_a_year": 0.2,
        }
        for name in ("*_interval", "*_share", "*_spares", "*_cadence", "*_pay*", "devices_*", "sh*")
    },
    "resilience.Cadence": {"interval": 100.0, "stall": 1.0},
    "resilience.Corruption": {"mtbf_seconds": 1e6, "found_seconds": 1e3},
    "resilience.Disk": {"every": 4, "stall": 10.0, "share": 0.1},
    "resilience.Maintenance": {"every_seconds": 1e6, "lasts_seconds": 1e3},
    "resilience.Part": {"name": "device", "count": 8, "failures_a_year": 0.2},
    "resilience.PublishedRun": {"name": "a run", "days": 2.0, "causes": {"x": 3}, "source": "us"},
    "resilience.PublishedRun.share": {"cause": "CPU"},
    "resilience.SimulatedRun.share": {"kind": "useful"},
    "resilience.Spares": {"count": 4, "repair_seconds": 1e4},
    "resilience.Stragglers": {"mtbf_seconds": 1e5, "slowdown": 1.5, "found_seconds": 1e3},
    "resilience.Weibull": {"mtbf_seconds": 1e4, "shape": 0.7},
    "resilience.asynchronous_pays": {"snapshot_seconds": 5.0, "write_seconds": 60.0},
    "resilience.compare_replicas": {"replicas": {"w": torch.ones(2)}},
    "resilience.corruption_pays": {"corruption_seconds": 1e6},
    "resilience.devices_at_waste": {"share": 0.1},
    "resilience.two_levels_pay": {"share": 0.1},
    "resilience.draw_devices": {
        "devices": [64, 128],
        "failures_a_year": 0.2,
        "write_seconds": [60.0],
    },
    "resilience.draw_intervals": {"write_seconds": 60.0, "mtbf_seconds": 1e4},
    "resilience.draw_month": {"run": FAILING},
    "resilience.failures_a_year": {"mttf_seconds": 1e8},
    "resilience.false_alarms": {"ranks": 64, "windows": 100, "threshold": 3.0},
    "resilience.m*": {"values": [1, 1, 2]},
    "resilience.mtbf": {"parts": [resilience.Part("device", 8, 0.2)]},
    "resilience.outliers": {"values": [1.0, 1.1, 1.2]},
    "resilience.search": {"cadences": [SAVING], "runs": 2},
    "resilience.shares": {"cadence": SAVING},
    "resilience.simulate_run": {"cadence": SAVING, "seconds": 1e5, "failures": 1e4},
    "resilience.state_bytes": {},
    "resilience.step_times": {"timeline": world.simulate(lambda c: c.compute(1.0), 3).timeline},
    "resilience.stragglers": {"times": [[1.0, 1.1, 1.2]] * 20},
    "resilience.waiting_share": {"spares": 4},
    "resilience.waited_for": {"waits": [[1.0, 0.0, 1.2]] * 20},
    "resilience.yearly_failures": {"parts": [resilience.Part("device", 8, 0.2)]},
}
ARGUMENTS |= CADENCE
LINE_OF_TOKENS = torch.arange(64)
LEARNING = torch.nn.Linear(2, 1)
A_STEP = training_loop.step_plan([4, 4])


def one_loss(rows: torch.Tensor) -> torch.Tensor:
    """A loss that has a gradient."""
    return LEARNING(rows).square().mean()


LOOP: dict[str, dict[str, Any]] = {
    "training_loop.*": {
        **{"params": Later(some_parameters), "optimizer": Later(stepped_soon), "plan": A_STEP},
        **{"rate": lambda step: 0.1, "tokens": LINE_OF_TOKENS, "length": 4, "text": "a page " * 9},
    },
    **{
        f"training_loop.{name}": {
            **{"step": 3, "steps": 10, "warm_up_steps": 2, "decay_steps": 3, "decay": 0.9},
            **{"every": 4, "rate": 0.1, "base_batch": 4},
        }
        for name in ("cosine", "exponential", "linear*", "s*_rule", "step_decay", "warm_up*")
    },
    "training_loop.Bigram.forward": {"tokens": TOKENS, "targets": TOKENS},
    "training_loop.AdamW": {"params": Later(some_parameters)},
    "training_loop.IronLaw": {"utilization": 0.4},
    "training_loop.IronLaw.after": {"technique": training_loop.Technique("faster", 1.0, 2.0)},
    "training_loop.Muon": {"params": Later(lambda: [torch.nn.Parameter(torch.ones(2, 3))])},
    "training_loop.Quadratic": {"curvatures": [1.0, 10.0]},
    "training_loop.StepPlan": {"tokens": A_STEP.tokens, "actions": A_STEP.actions},
    "training_loop.StepPlan.without": {"kind": "zero"},
    "training_loop.clip_or_refuse": {"parameters": Later(some_parameters), "max_norm": 1.0},
    "training_loop.corrupt": {"share": 0.1},
    "training_loop.count_flops": {"call": lambda: None},
    "training_loop.descend": {
        "quadratic": Later(lambda: training_loop.Quadratic([1.0, 10.0])),
        "make": lambda parameters: torch.optim.SGD(parameters, 0.01),
        "steps": 2,
    },
    "training_loop.draw_batches": {
        "batches": [1, 2],
        "steps": [5, 4],
        "fitted": training_loop.Extremes(3.0, 2.0),
    },
    "training_loop.draw_losses": {"curves": {"a run": [2.0, 1.0]}},
    "training_loop.draw_schedules": {"schedules": {"a run": [2.0, 1.0]}},
    "training_loop.evaluate": {"model": GPT(BYTES), "rows": torch.zeros(2, 5, dtype=torch.long)},
    "training_loop.evaluation_share": {"every": 10, "held_back": 4},
    "training_loop.fit_extremes": {"batches": [1, 2, 4], "steps": [10, 6, 4]},
    "training_loop.global_norm": {"tensors": [torch.ones(2)]},
    "training_loop.gradient_squares": {
        "loss_of": one_loss,
        "model": LEARNING,
        "micro_batches": [torch.ones(1, 2), torch.ones(1, 2)],
    },
    "training_loop.Technique": {"name": "faster"},
    "training_loop.model_state_bytes": {"optimizer": "adamw"},
    "training_loop.decay_groups": {"model": LEARNING, "weight_decay": 0.1},
    "training_loop.learn_text": {"steps": 2, "spec": BYTES, "text": "a page " * 9},
    "training_loop.orthogonal": {"x": torch.ones(2, 3)},
    "training_loop.run_step": {
        "loss_of": one_loss,
        "micro_batches": [torch.ones(1, 2), torch.ones(1, 2)],
    },
    "training_loop.s*e_bytes": {"optimizer": "adamw", "shapes": [(4, 8), (4,)]},
    "training_loop.step_plan": {"tokens": [4, 4]},
    "training_loop.steps_to": {"losses": [2.0, 1.0], "target": 1.5},
    "training_loop.train": {
        "model": GPT(BYTES),
        "batches": Later(lambda: training_loop.shuffled(LINE_OF_TOKENS, 2, 4)),
        "steps": 1,
    },
    "training_loop.update_bytes": {"optimizer": "adamw", "shapes": [(4, 8), (4,)]},
    "training_loop.update_share": {"tokens": 100.0, "as_tokens": 10.0},
    "training_loop.update_tokens": {"bytes_per_parameter": 28.0, "memory_bandwidth": 1e12},
    "training_loop.useful_micro_batches": {"critical_batch": 100.0},
}
ARGUMENTS |= LOOP
LOAD = input_pipeline.Stage("load", 0.1, sample_bytes=10.0)
FEEDING = input_pipeline.InputPipeline((LOAD, input_pipeline.Stage("step", 0.1)), 2)


def rows_themselves(rows: Any, rng: Any) -> Any:
    """What a loader fetches where it does not matter."""
    return rows


@functools.lru_cache(1)
def fed() -> input_pipeline.Timeline:
    """A timeline of two batches."""
    return input_pipeline.simulate(FEEDING, 2)


@functools.lru_cache(1)
def token_file() -> input_pipeline.TokenFile:
    """A file of a hundred tokens."""
    input_pipeline.write_tokens("tokens.bin", range(100), 100)
    return input_pipeline.TokenFile("tokens.bin", 4, 100)


INPUTS: dict[str, dict[str, Any]] = {
    "input_pipeline.*": {
        **{"samples": 100, "buffer": 8, "run": 4, "items": range(8), "stage": "load"},
        **{"pipeline": FEEDING, "text": "some text", "merges": 3},
    },
    "input_pipeline.*Loader": {"fetch": rows_themselves, "batches": [[0], [1]]},
    "input_pipeline.InputPipeline": {"stages": FEEDING.stages},
    "input_pipeline.InputPipeline.s*": {"name": "load"},
    "input_pipeline.Records": {"path": Later(lambda: recorded())},
    "input_pipeline.ShuffleBuffer": {"size": 4},
    "input_pipeline.ShuffleBuffer.load_state_dict": {
        "state_dict": input_pipeline.ShuffleBuffer(4).state_dict()
    },
    "input_pipeline.ResumableOrder.load_state_dict": {
        "state_dict": input_pipeline.ResumableOrder(100, 8).state_dict()
    },
    "input_pipeline.Stage": {"name": "load", "sample_seconds": 0.1},
    "input_pipeline.TokenFile": {
        "path": Later(lambda: token_file() and "tokens.bin"),
        "vocab": 100,
    },
    "input_pipeline.TokenFile.batch": {"rows": [0, 1]},
    "input_pipeline.Tokenizer": {"merges": [(97, 98)]},
    "input_pipeline.Tokenizer.*": {"tokens": [97, 98]},
    "input_pipeline.buffer_needed": {"run": 4, "batch": 8},
    "input_pipeline.*needed": {"load_seconds": 1.0, "latency_seconds": 1.0, "step_seconds": 0.5},
    "input_pipeline.displacements": {"order": [1, 0]},
    "input_pipeline.draw_depth": {"depths": [1], "variations": [0.0], "batches": 10},
    "input_pipeline.draw_timeline": {"timeline": Later(lambda: fed())},
    "input_pipeline.epoch_seconds": {"data_bytes": 1e9, "memory_bytes": 1e8},
    "input_pipeline.exponential_utilization": {"ratio": 1.0, "ahead": 4},
    "input_pipeline.fused": {"stages": FEEDING.stages, "name": "all"},
    "input_pipeline.lru_hits": {"share": 0.5},
    "input_pipeline.pa[cd]*": {"documents": [[1, 2]], "end_of_text": 9, "lengths": [3]},
    "input_pipeline.prefetch_needed": {"variation": 0.5, "margin": 1.5},
    "input_pipeline.read_records": {"path": Later(lambda: recorded())},
    "input_pipeline.read_shard": {"path": Later(lambda: sharded_files())},
    "input_pipeline.seeks": {"order": [0, 1]},
    "input_pipeline.shard_order": {"sizes": [4, 4]},
    "input_pipeline.storage_bandwidth": {"samples_per_second": 1e3, "sample_bytes": 1e3},
    "input_pipeline.write_records": {"path": "written", "records": [b"a"]},
    "input_pipeline.write_shards": {"folder": "shards", "samples": [{"a": b"a"}], "per_shard": 2},
    "input_pipeline.write_tokens": {"path": "written.bin", "tokens": [1], "vocab": 100},
}
ARGUMENTS |= INPUTS


@functools.lru_cache(1)
def recorded() -> str:
    """A file of records."""
    input_pipeline.write_records("records", [b"a", b"b"])
    return "records"


@functools.lru_cache(1)
def sharded_files() -> str:
    """A shard."""
    return str(input_pipeline.write_shards("a shard", [{"a": b"a"}], 1)[0])


WORK = roofline.matmul(4, 4, 4)
TRACE = roofline.Step((WORK,)).profile(H100)
MACHINE = roofline.Machine(1e11, {"copy": 1e10}, 1e-6)
ROOFS: dict[str, dict[str, Any]] = {
    "roofline.*": {
        "k": 4,
        "bandwidth": 1e9,
        "block": 2,
        "columns": 8,
        "drafted": 4,
        "elements": 64,
        "intensity": 10.0,
        "kernel": 2,
        "multiprocessors": 108,
        "number_format": "bf16",
        "operation": WORK,
        "operations": [WORK],
        "processor": roofline.PROCESSORS["a100-80"],
        "rows": 4,
        "tile": roofline.Tile(64, 64),
        "tiles": 109,
        "trace": TRACE,
        "machine": MACHINE,
    },
    "roofline.ExpTable*": {"bits": 4, "x": torch.ones(3)},
    "roofline.Machine": {"peak": 1e11, "streams": {"copy": 1e10}, "launch": 1e-6},
    "roofline.Operation": {"name": "a product", "flops": 128, "read": 64, "written": 32},
    "roofline.Price.share": {"bound": "compute"},
    "roofline.Processor": {
        "name": "A device",
        "multiprocessors": 8,
        "rate": 1e12,
        "cache_bandwidth": 1e12,
    },
    "roofline.PublishedRun": {
        "model": "gpt2-small",
        "device": "h100-sxm",
        "source": "us",
        "tokens_per_second": 1e6,
    },
    "roofline.SlowTraining": {},
    "roofline.Trace": {"events": TRACE.events},
    "roofline.Trace.*": {"category": "kernel", "path": "roofs.json"},
    "roofline.accepted_tokens": {"acceptance": 0.8},
    "roofline.as_one": {"program": lambda: torch.ones(2)},
    "roofline.autotune": {"candidates": [1, 2], "run": abs},
    "roofline.axis_ridge": {"axis": "data"},
    "roofline.best_seconds": {"run": lambda: None},
    "roofline.blocked_matmul": {"a": torch.ones(4, 4), "b": torch.ones(4, 4)},
    "roofline.by_utilization_alone": {"utilization": 0.9, "memory": 0.9},
    "roofline.choose_tile": {"tiles": roofline.TILES},
    "roofline.conv2d": {"x": torch.ones(1, 2, 4, 4), "weight": torch.ones(3, 2, 2, 2)},
    "roofline.convolution": {"channels": 3, "side": 8, "filters": 4},
    "roofline.count_operations": {"program": lambda: None},
    "roofline.draw_beside": {"measured": {8: 1.0}, "priced": {8: 0.5}, "name": "rows"},
    "roofline.count_step": {"spec": TINY, "batch": 1},
    "roofline.draw_measured": {
        "programs": {"sum": roofline.UnderRoof(WORK, 1, 1e-6, 1e-6, 1e-6)},
    },
    "roofline.draw_roofline": {"devices": [H100], "operations": {"product": WORK}},
    "roofline.draw_shares": {"diagnoses": {"all": roofline.diagnose(TRACE, H100)}},
    "roofline.draw_waterfall": {"stairs": [roofline.Stair("idle", 2.0, 1.0, True)]},
    "roofline.draw_waves": {"columns": [64, 65]},
    "roofline.energy_ridge": {"number_format": "fp16"},
    "roofline.exact_decode_batch": {"inputs": 4096, "outputs": 4096},
    "roofline.[hm]fu": {"model_flops": 1e20, "recomputed_flops": 1e19, "peak_flops": 1e15},
    "roofline.im2col": {"x": torch.ones(1, 2, 4, 4)},
    "roofline.inferred_bubble": {"rate": 430.0, "batches": 32, "slower": 400.0, "fewer": 16},
    "roofline.joules": {"number_format": "fp16"},
    "roofline.operand_cost": {"number_format": "fp16"},
    "roofline.padding_share": {"lengths": [3, 4]},
    "roofline.profile_step": {"step": roofline.Step((WORK,))},
    "roofline.profile_repairs": {"order": ["optimizer"], "batch": 1, "repeats": 1},
    "roofline.read_trace": {"source": TRACE.chrome()},
    "roofline.scores": {"head_size": 8},
    "roofline.under_roof": {"program": lambda: torch.ones(8) + 1},
    "roofline.waterfall": {"peak": 2.0, "levels": {"idle": 0.25}, "measured": ["idle"]},
}
ARGUMENTS |= ROOFS
TABLE = attention.tiling(8, 8, 4, 4, True)
ATTENDED = torch.ones(1, 2, 8, 4)
HALF = attention.summarize(torch.ones(2, 4), torch.ones(4, 3))
ATTENDING: dict[str, dict[str, Any]] = {
    "attention.*": {
        **{"queries": 8, "keys": 8, "head_size": 4, "memory": 4096, "length": 64, "tile": 0},
        **{"q": ATTENDED, "k": ATTENDED, "v": ATTENDED, "tiling": TABLE, "tiles": TABLE},
        **{"scores": torch.ones(2, 8), "values": torch.ones(8, 3), "summary": HALF},
        **{"rows": 4, "inner": 8, "columns": 8, "step": attention.Step(0, 0)},
    },
    "attention.FastMemory*": {
        **{"capacity": 64, "slow": torch.ones(1, 2, 4), "fast": torch.ones(1, 2, 4)},
    },
    "attention.check_fits": {"nbytes": 1e6},
    "attention.Tiling": {"query_tile": 4, "key_tile": 4},
    "attention.draw_curves": {"curves": {"tiled": {1.0: 2.0}}, "x": "rows", "y": "elements"},
    "attention.matmul_cost": {"tile": 4},
    "attention.merge": {"one": HALF, "other": HALF},
    "attention.online_attention": {"tile": 4},
    "attention.peak_bytes": {"step": lambda: torch.ones(2)},
    "attention.saved_bytes": {"function": lambda: torch.ones(2)},
    "attention.tiled_matmul": {
        **{"a": torch.ones(4, 8), "b": torch.ones(8, 4), "tile": 4},
        "memory": Later(attention.FastMemory),
    },
    **{
        f"attention.{name}_attention": {"memory": Later(attention.FastMemory)}
        for name in ("flash", "naive")
    },
}
ARGUMENTS |= ATTENDING
LAW = scaling_laws.PUBLISHED["hoffmann-2022"].law
RUNS = scaling_laws.isoflop_runs(LAW, [1e19, 1e20], 4)
SCALING: dict[str, dict[str, Any]] = {
    "scaling_laws.*": {
        **{"law": LAW, "N": 1e9, "D": 2e10, "flops": 1e22, "loss": 2.5, "unique": 1e10},
        **{"A": 400.0, "B": 400.0, "E": 1.7, "alpha": 0.34, "beta": 0.3},
        **{"dollars": 1e6, "dollars_per_hour": 2.0, "peak_flops": 1e15, "utilization": 0.4},
        **{"factor": 2.0, "served": 1e12, "budgets": [1e19, 1e20], "smallest": 1e6},
        **{"largest": 1e9, "x": [1.0, 2.0, 3.0], "y": [2.0, 1.0, 2.0], "k": 2.0},
        **{"shortest": 1e9, "longest": 1e10, "tokens": [1e9], "worths": [0.5]},
        **{"function": lambda x: (x - 2) ** 2, "low": 1.0, "high": 3.0, "values": [1.0, 2.0]},
    },
    "scaling_laws.Run": {"layers": 1, "tokens": 128, "learning_rate": 0.01, "unique": 128},
    "scaling_laws.Row": {
        **{"kind": "seed", "run": SHORT, "parameters": 20, "non_embedding": 10, "flops": 99},
    },
    "scaling_laws.Sweep*": {"tokens": 128, "rows": [], "held_out": 64, "sha256": "0"},
    "scaling_laws.Sweep.of": {"kind": "seed"},
    "scaling_laws.initialized": {"run": SHORT},
    "scaling_laws.train": {"run": SHORT},
    "scaling_laws.DataConstrainedLaw": {"unique": 1e10, "law": LAW},
    "scaling_laws.Frontier": {"coefficient": 0.1, "exponent": 0.5},
    "scaling_laws.KaplanLaw": {"N_c": 6e13, "D_c": 2e13, "alpha_N": 0.08, "alpha_D": 0.1},
    "scaling_laws.bootstrap": {**RUNS._asdict(), "resamples": 2},
    "scaling_laws.cost": RUNS._asdict(),
    "scaling_laws.curve_runs": {"sizes": [1e8, 1e9]},
    "scaling_laws.draw_constants": {"groups": {"one": [LAW]}},
    "scaling_laws.draw_isoflop": {"N": RUNS.N, "flops": RUNS.flops, "loss": RUNS.loss},
    "scaling_laws.draw_frontiers": {
        **{"laws": {"one": scaling_laws.PUBLISHED["hoffmann-2022"]}, "low": 1e20, "high": 1e24}
    },
    "scaling_laws.draw_predicted": {"groups": {"all": tuple(RUNS)}},
    "scaling_laws.draw_rates": {"panels": {"standard": {"16": {0.01: 2.0, 0.02: 1.9}}}},
    "scaling_laws.draw_wasted": {"laws": {"one": LAW}},
    "scaling_laws.envelope": {
        name: [*column]
        for runs in [scaling_laws.curve_runs(LAW, [1e8, 3e8, 1e9, 3e9], 1e9, 1e12, 8)]
        for name, column in (("N", runs.N), ("flops", runs.flops), ("loss", runs.loss))
    },
    "scaling_laws.fit": RUNS._asdict(),
    "scaling_laws.fit_quality": {"N": [1e9], "D": [2e10], "clean": [0.5], "loss": [2.7]},
    "scaling_laws.isoflop": {"N": RUNS.N, "flops": RUNS.flops, "loss": RUNS.loss},
}
ARGUMENTS |= SCALING
# What is called in another way than by its name.
INSTEAD: dict[str, Callable[..., Any]] = {
    f"world.{name}": unlaunched(getattr(world, name))
    for name in ("launch", "measure", "measure_plan")
}


def draw_a_step(**options: Any) -> Any:
    """`draw_overlap`, whose steps come one by one."""
    return data_parallel.draw_overlap(STEP, **options)


def search_a_day(**options: Any) -> Any:
    """`search`, which hands on what is simulated."""
    return resilience.search(seconds=1e5, failures=1e4, **options)


def recut(name: str) -> Any:
    """`Layout.recut`, whose `name` has no name."""
    return LAYOUT.recut(name)


def checkpointed(function: Callable[..., Any]) -> Any:
    """`checkpoint`, whose `function` has no name."""
    return recomputation.checkpoint(function)


INSTEAD["recomputation.checkpoint"] = checkpointed
INSTEAD["data_parallel.draw_overlap"] = functools.wraps(data_parallel.draw_overlap)(draw_a_step)
INSTEAD["resilience.search"] = functools.wraps(resilience.search)(search_a_day)
INSTEAD["tensor_parallel.Layout.recut"] = recut
# Whose methods are called.
METER = data_parallel.NoiseMeter()
METER.steps = 1
OBJECTS: dict[str, Any] = {
    "attention.Cost": attention.forward_cost(TABLE, 4),
    "attention.FastMemory": attention.FastMemory(),
    "attention.Schedule": TABLE.schedule(),
    "attention.Tiling": TABLE,
    "data_parallel.NoiseMeter": METER,
    "collectives.Plan": collectives.ring_all_reduce(1),
    "scaling_laws.Sweep": scaling_laws.tiny_sweep(),
    "data_parallel.BatchTradeoff": data_parallel.BatchTradeoff(1e3, 1e6),
    "data_parallel.BucketPlan": BUCKETS,
    "data_parallel.TopK": data_parallel.TopK(0.1),
    "expert_parallel.Dispatch": expert_parallel.drawn(4, 8, 2, 4),
    "expert_parallel.MixtureGPT": expert_parallel.MixtureGPT(SPARSE),
    "expert_parallel.MoE": expert_parallel.MoE(SPARSE),
    "exercises.Sealed": exercises.sealed(exercises.seal("a word")),
    "hardware.Cluster": CLUSTER,
    "hardware.Device": H100,
    "hardware.Link": LINK,
    "input_pipeline.InputPipeline": FEEDING,
    "input_pipeline.ResumableOrder": input_pipeline.ResumableOrder(100, 8),
    "input_pipeline.ShuffleBuffer": input_pipeline.ShuffleBuffer(4),
    "input_pipeline.Stage": LOAD,
    "input_pipeline.Timeline": fed(),
    "input_pipeline.TokenFile": Methods(
        input_pipeline.TokenFile, lambda program: program(token_file())
    ),
    "input_pipeline.Tokenizer": input_pipeline.Tokenizer(),
    "memory_wall.Energy": ENERGY,
    "memory_wall.RentOrBuy": memory_wall.rent_or_buy(3600.0, 2.0, 8, 3e4),
    "mesh.Mesh": Mesh(),
    "model.GPT": MODEL,
    "pipeline_parallel.Plan": GPIPE,
    "tensor_parallel.Collective": next(LAYOUT.collectives()),
    "context_parallel.Layout": SHARES,
    "tensor_parallel.Layout": LAYOUT,
    "tensor_parallel.Parameter": LAYOUT.parameters[0],
    "pipeline_parallel.Stage": STAGES[0],
    "precision.Adam8bit": precision.Adam8bit(some_parameters()),
    "precision.MixedPrecision": Methods(precision.MixedPrecision, lambda program: program(mixed())),
    "precision.DelayedScaling": precision.DelayedScaling(precision.FP8_E4M3),
    "precision.Format": precision.FP4_E2M1,
    "precision.Integer": precision.INT8,
    "precision.LossScaler": precision.LossScaler(),
    "precision.PowerOfTwo": precision.E8M0,
    "precision.LoRALinear": precision.LoRALinear(torch.nn.Linear(4, 4), rank=2),
    "precision.Packed": precision.Packed(torch.ones(4, 4), precision.NVFP4),
    "precision.QuantizedLinear": precision.QuantizedLinear(
        torch.nn.Linear(4, 4), precision.LINEAR_RECIPES["mxfp8"]
    ),
    "recomputation.Plan": recomputation.keep_all(1),
    "recomputation.Checkpointed": recomputation.Checkpointed(torch.nn.Identity()),
    "recomputation.Recomputing": recomputation.Recomputing(MODEL, recomputation.keep_all(2)),
    "resilience.AsyncSaver": Methods(resilience.AsyncSaver, saver),
    "resilience.SampleOrder": resilience.SampleOrder(4, 2),
    "resilience.Trainer": Methods(resilience.Trainer, lambda program: program(training())),
    "resilience.Manifest": resilience.Manifest(
        1,
        (resilience.TensorEntry("w", (2,), "F32"),),
        (resilience.FileEntry((resilience.Region("w", (0,), (2,)),)),),
    ),
    "resilience.PublishedRun": resilience.RUNS["llama3-405b"],
    "resilience.SimulatedRun": FAILING,
    "roofline.ExpTable": roofline.ExpTable(4),
    "roofline.Operation": WORK,
    "roofline.Price": roofline.price([WORK], H100),
    "roofline.PublishedRun": roofline.RUNS["palm-540b"],
    "roofline.Step": roofline.Step((WORK,)),
    "roofline.Timed": roofline.Timed(WORK, 1.0),
    "roofline.Trace": TRACE,
    "scaling_laws.ChinchillaLaw": LAW,
    "scaling_laws.DataConstrainedLaw": scaling_laws.DataConstrainedLaw(LAW, 1e10),
    "scaling_laws.Frontier": scaling_laws.Frontier(0.1, 0.5),
    "scaling_laws.KaplanLaw": scaling_laws.PUBLISHED["kaplan-2020"].law,
    "scaling_laws.Purchase": scaling_laws.purchase(LAW, 1e6, 2.0, 1e15, 0.4),
    "scaling_laws.QualityLaw": scaling_laws.QualityLaw(LAW, 2.0),
    "transformer.TransformerSpec": TINY,
    "pipeline_parallel.PipeDream": of_part(pipeline_parallel.PipeDream),
    "pipeline_parallel.Pipeline": of_part(pipeline_parallel.Pipeline),
    "context_parallel.ContextParallel": of_part(context_parallel.ContextParallel),
    "tensor_parallel.ColumnParallelLinear": of_part(tensor_parallel.ColumnParallelLinear),
    "tensor_parallel.RowParallelLinear": of_part(tensor_parallel.RowParallelLinear),
    "tensor_parallel.TensorParallelGPT": of_part(tensor_parallel.TensorParallelGPT),
    "tensor_parallel.VocabParallelEmbedding": of_part(tensor_parallel.VocabParallelEmbedding),
    "world.Communicator": Methods(world.Communicator, between_two),
    "world.TorchCommunicator": Methods(world.TorchCommunicator, alone),
    "zero.Flat": zero.flat(UNITS, 4),
    "zero.FullyShardedDataParallel": of_part(zero.FullyShardedDataParallel),
    "zero.ShardedOptimizer": of_part(zero.ShardedOptimizer),
    "zero.StepPlan": STEPS,
    "training_loop.Bigram": training_loop.Bigram(),
    "training_loop.IronLaw": training_loop.IronLaw(1e20, 1e15, 0.4),
    **{
        f"training_loop.{name}": getattr(training_loop, name)(some_parameters())
        for name in ("AdamW", "Adafactor", "GaLore", "RMSprop", "SGD")
    },
    "training_loop.Muon": training_loop.Muon([torch.nn.Parameter(torch.ones(2, 3))]),
    "training_loop.Schedule": training_loop.Schedule(stepped_soon(), lambda step: 0.1),
    "training_loop.StepPlan": A_STEP,
    "world.Fit": world.Fit(RING, LINK, ()),
    "world.Timeline": RUN.timeline,
    "world.Traffic": RUN.traffic,
}
OBJECTS |= {"recomputation.Plan": recomputation.keep_all(1)}
GIVEN = "functions of the package make it, out of what they have checked"
INSIDE = "a part of what the package is built of, called by itself alone"
# What is not called, and why; patterns of names.
NOT_CALLED = {
    **dict.fromkeys(
        ("checks.*", "annotated.*", "tensors.*"), "it checks the arguments of all others"
    ),
    **dict.fromkeys(
        (
            *("exploring.*", "figures.*", "lazy.*", "network.*", "plain_data.*"),
            *("svg.*", "zero.ShardedOptimizer.add_param_group"),
            *("zero.ShardedOptimizer.load_state_dict", "reducer.*"),
            *("files.*", "meter.*", "moving.*", "streams.*"),
            *("notebook.fold.*", "notebook.measuring.*", "notebook.release.*"),
            *("data_parallel.GradientBucket*", "data_parallel.all_reduce"),
            *("pipeline_parallel.DeferredWeights.*", "model.[!G]*", "*GPT.embed", "*GPT.initial"),
            *("*GPT.positions_of", "*GPT.read_out", "*GPT.rotation", "*GPT.stream_shape"),
            *("pipeline_parallel.Stage.forward", "pipeline_parallel.Stage.message"),
            *("training_loop.*.update", "attention.FlashAttention.*"),
            *("context_parallel.Layout.[!pcd]*", "context_parallel.Layout.positions"),
            *("context_parallel.Layout.computed", "mesh.Axes*", "mesh.Placement*"),
            *(
                "mesh.Mesh.[!cgp]*",
                "mesh.[cgr]*",
                "expert_parallel.MoE.read",
                "expert_parallel.MoE.route",
            ),
        ),
        INSIDE,
    ),
    **dict.fromkeys(
        (
            *("collectives.Price", "collectives.Transfer", "data_parallel.NoiseScale"),
            *("data_parallel.Scaling", "memory_wall.Activations"),
            *("memory_wall.Advice", "memory_wall.Energy", "memory_wall.Fit"),
            *("memory_wall.M*State", "memory_wall.RentOrBuy"),
            *("memory_wall.Saved", "memory_wall.Waste", "notebook.predict.Answer"),
            *("notebook.quiz.Quiz", "notebook.show.Table", "pipeline_parallel.Price"),
            *(
                "recomputation.Instant",
                "recomputation.Measured",
                "precision.MixedState",
                "precision.Quantized",
                "expert_parallel.Price",
                "tensor_parallel.Kept",
                "tensor_parallel.Price",
            ),
            *(
                "pipeline_parallel.Stage",
                "tensor_parallel.Collective",
                "transformer.Matrix",
                "exercises.Sealed",
            ),
            *("recomputation.Execution", "recomputation.Keeping", "recomputation.Lifetime*"),
            *("recomputation.Best", "recomputation.Law", "recomputation.Moment"),
            *("recomputation.OffloadPrice", "recomputation.Optimum", "recomputation.Price"),
            *("input_pipeline.Price", "input_pipeline.Sp*", "input_pipeline.Timeline"),
            *("resilience.Found", "resilience.Majority", "resilience.Shares", "resilience.Slow"),
            *("resilience.SimulatedRun", "resilience.Stretch"),
            *("roofline.Counted", "roofline.Diagnosis", "roofline.Placed", "roofline.Price"),
            *("roofline.Profile", "roofline.Stair", "roofline.Tiled", "roofline.UnderRoof"),
            *("attention.Cost", "attention.Kernel", "attention.Summary", "context_parallel.Price"),
            *("roofline.Event", "roofline.Tile"),
            *("roofline.Measurements", "roofline.Rung", "roofline.Timed"),
            *("scaling_laws.Allocation", "scaling_laws.Approach", "scaling_laws.Lifetime"),
            *("scaling_laws.Overtraining", "scaling_laws.Parabola", "scaling_laws.Published"),
            *("scaling_laws.Purchase", "scaling_laws.Runs", "scaling_laws.TableRow"),
            *("training_loop.Extremes", "training_loop.Record"),
            *("world.CallRecord", "world.Fit", "world.Message", "world.Run", "world.Span"),
            *("world.Timeline", "world.TorchCommunicator", "world.Traffic"),
            *(
                "resilience.Checkpoint",
                "resilience.FileEntry",
                "resilience.Manifest",
                "resilience.Read",
                "resilience.Region",
                "resilience.TensorEntry",
                "zero.Flat",
                "zero.Held",
                "zero.LocalShard",
                "zero.Piece",
                "zero.Price",
                "zero.Sharding",
            ),
        ),
        GIVEN,
    ),
    **dict.fromkeys(
        (f"world.TorchCommunicator.{name}" for name in ("*send", "*recv")),
        "Communicator's own, and there is nobody beside the one process of the tests",
    ),
    **dict.fromkeys(
        (
            *("data_parallel.Bucket", "data_parallel.BucketPlan", "tensor_parallel.Layout"),
            "expert_parallel.Dispatch",
            *("recomputation.Plan", "recomputation.Segment", "zero.Action", "zero.StepPlan"),
            *("attention.Schedule", "attention.Step", "context_parallel.Layout"),
        ),
        "its check() proves it right",
    ),
    **dict.fromkeys(
        ("pipeline_parallel.Plan.in_flight", "pipeline_parallel.Plan.needs"),
        "check and price call it for action after action, which the Plan has proved right",
    ),
    **dict.fromkeys(
        ("recomputation.Operation", "recomputation.Value"),
        "the Graph that holds it proves it right",
    ),
    "recomputation.Graph.total": INSIDE,
    **dict.fromkeys(
        ("context_parallel.a*", "context_parallel.merge", "context_parallel.*_attention"),
        "a page shows all of it, and ContextParallel calls it with what it has checked",
    ),
    "composing_axes.train": "what it builds, rank by rank, checks what it is given",
    "expert_parallel.exchange": "a page shows all of it, and MoE calls it with what it has counted",
    **dict.fromkeys(
        ("pipeline_parallel.Action", "training_loop.Action"),
        "the Plan that holds it proves it right",
    ),
}


PROBES = (-1, 0, 0.5, 1.5)
# Which of them a parameter refuses, by its name or all of it; where neither is here, a count refuses
# -1 and 0, and any other number -1. What is refused beside other numbers alone may be taken here.
REFUSED = {
    name: numbers
    for numbers, names in {
        (): """
end_of_text ignore_index key offset seed start target x input_pipeline.pad.padding
""",
        (-1,): """
bad batch_bytes dense_layers dimension drafted elements epoch file first flops_each leaving
expert_parallel.drawn.skew hadamard held_back hosts layer least_bytes master merges moments optimizer padding pattern rank read
root scale_block sent shared shuffle spares src stage step tag tile token_types unit warm_up_steps
weights worker written zero_stage collectives.Plan.bounds.length input_pipeline.permutation.samples
memory_wall.Recipe.gradients memory_wall.training_seconds.flops memory_wall.utilization.flops
precision.Adam8bit.least precision.DelayedScaling.margin precision.LinearRecipe.history
precision.MixedPrecision.clip_grad_norm_.max_norm precision.draw_number_line.low
precision.train.max_norm recomputation.Offload.prefetch recomputation.first_layers.n
recomputation.micro_batch_overhead.share resilience.Part.failures_a_year resilience.Spares.count
resilience.false_alarms.threshold resilience.simulate_run.seed resilience.state_bytes.parameters
roofline.ExpTable.bits roofline.Operation.flops roofline.Step.prefetch
roofline.by_utilization_alone.utilization scaling_laws.bootstrap.seed
tensor_parallel.seconds_in_pieces.compute_seconds training_loop.linear_rule.rate
training_loop.square_root_rule.rate training_loop.warm_up.steps
units.format_bandwidth.bytes_per_second world.Communicator.gather.dst world.Communicator.reduce.dst
world.TorchCommunicator.gather.dst world.TorchCommunicator.reduce.dst world.launch.seed
world.simulate.seed zero.held.gradients
zero.step_plan.prefetch
""",
        (-1, 0): """
A B D_c N_c R R_D R_N alpha alpha_D alpha_N bandwidth base_batch bucket_bytes bytes_each
bytes_per_second cache_bandwidth capacity_factor coefficient compute_seconds corruption_seconds critical_batch
data_bytes dataset_bytes days delta deviation dollars dollars_per_device dollars_per_hour factor
failures_a_year flops gradients high hours interval learning_rate least_samples least_steps limit
loss low mates max_norm memory_bandwidth mtbf_seconds mttf_seconds network_intensity roofline.waterfall.peak outlier
parameters peak_flops rate ratio shape skew small small_batch span step_seconds tdp threshold
timeout tokens_per_parameter tokens_per_second value weight attention.check_fits.nbytes
attention.matmul_cost.tile attention.online_attention.tile attention.tiled_matmul.tile
collectives.node_boundary.nbytes composing_axes.sharding_degree.devices
composing_axes.sharding_degree.neurons composing_axes.sharding_degree.tokens
composing_axes.tokens_to_hide.neurons sharding_bandwidth tensor_bandwidth
context_parallel.animate_ring.seconds
data_parallel.BatchTradeoff.samples.batch
data_parallel.BatchTradeoff.steps.batch data_parallel.PowerSGD.rank
data_parallel.NoiseMeter.estimate.batch data_parallel.bucket_tradeoff.gradient_bytes
expert_parallel.animate_dispatch.seconds
hardware.Device.memory memory_wall.check_energy.seconds memory_wall.devices_needed.device_memory
memory_wall.largest_model.device_memory memory_wall.should_scale.tokens
memory_wall.utilization.seconds precision.Adam8bit.eps precision.LoRALinear.rank
precision.add_lora.rank precision.lora_parameters.rank
recomputation.micro_batch_overhead.seconds recomputation.optimal.budget
resilience.Maintenance.every_seconds resilience.asynchronous_pays.write_seconds
resilience.best_cadence.stall resilience.best_share.stall resilience.devices_at_waste.write_seconds
resilience.draw_intervals.write_seconds resilience.simulate_run.failures
resilience.simulate_run.seconds roofline.Machine.peak roofline.PublishedRun.flops_per_second
roofline.all_reduce.elements roofline.draw_trace.seconds roofline.elementwise.elements
roofline.hfu.seconds roofline.inferred_bubble.slower roofline.mfu.seconds
scaling_laws.ChinchillaLaw.beta scaling_laws.ChinchillaLaw.tokens.N
scaling_laws.DataConstrainedLaw.tokens.N scaling_laws.Frontier.exponent scaling_laws.QualityLaw.k
scaling_laws.Run.unique scaling_laws.apparent_exponent.largest scaling_laws.curve_runs.longest
scaling_laws.tokens_worth.N training_loop.GaLore.rank training_loop.Technique.utilization
training_loop.linear_rule.batch training_loop.model_state_bytes.rank
training_loop.square_root_rule.batch training_loop.state_bytes.rank training_loop.update_bytes.rank
training_loop.update_share.tokens training_loop.useful_micro_batches.micro_batch
world.Communicator.irecv.src world.Communicator.recv.src zero.ShardedOptimizer.stage
zero.best_degree.tokens zero.mixed_bytes.tokens
""",
        (-1, 1.5): """
acceptance beta core core_bytes corrupted decay dropout level momentum noise r random share tail
""",
        (-1, 0, 0.5): """
D N counted gain growth_factor large_batch largest margin pue saved_bytes shortest slowdown smallest
unique widest input_pipeline.InputPipeline.sped_up.factor input_pipeline.speedups.factor
scaling_laws.lowest.high
""",
        (-1, 0, 1.5): """
achievable achieved backoff_factor below clean fraction utilization
memory_wall.RentOrBuy.break_even_days.load training_loop.hold_back.share
training_loop.learn_text.peak
""",
        (-1, 0.5, 1.5): """
core_tail
""",
    }.items()
    for name in names.split()
}
# Text that may be anything.
FREE = {
    "attention.draw_curves.x",
    "attention.draw_curves.y",
    "units.Catalogue.kind",
    "scaling_laws.Sweep.sha256",
    "training_loop.byte_tokens.text",
    "training_loop.draw_losses.up",
    "training_loop.learn_text.text",
    "input_pipeline.Tokenizer.encode.text",
    "input_pipeline.train_tokenizer.text",
    "exercises.plain.where",
    "folder",
    "resilience.AsyncSaver.save.state",
    "resilience.restore.like",
    "resilience.save.state",
    "resilience.save_manifest_first.state",
    "expression",
    "expected",
    "value",
    "hint",
    "unit",
    "name",
    "source",
    "why",
    "label",
    "algorithm",
    "axis",
    "color",
    "path",
    "title",
}
# What is given back as it came, finite or not.
PASSED_ON = {
    "input_pipeline.dealt.items",
    "input_pipeline.dealt_evenly.items",
    "exercises.plain.value",
    "resilience.PerRank.value",
    "precision.Format.round.x",
}
# Other words under which a sentence may speak of an argument.
WORDS: dict[str, tuple[str, ...]] = {
    "kind": ("collective",),
    "pue": ("PUE",),
    "micro_batch": ("micro-batches",),
    "p": ("stages",),
    "N": ("parameters",),
    "losses": ("loss",),
    "folder": ("it is no checkpoint", "is missing"),
    "checkpoint": ("is missing",),
    "tp": ("tensor-parallel degree",),
    "degrees": ("tensor-parallel degree",),
    "tensor_parallel": ("tensor-parallel degree",),
    "sizes": ("A bucket's size",),
    "shares": ("A share of backward",),
    "times": ("A time in seconds",),
    "experts_per_token": ("a token cannot visit",),
    "kv_heads": ("key-value heads",),
    "nics_per_node": ("network cards",),
    "dst": ("Rank",),
    "number_format": ("rate of",),
    "dtypes": ("dtype",),
    "recipes": ("recipe",),
    "sequences": ("sequence",),
    "slug": ("quiz",),
    "token": ("is not a seal",),
    "seconds": ("hours", "FLOP/s", "times as long"),
    "costs": ("The cost of piece",),
    "ranks": ("Rank 0 has",),
    "full_state": ("The state",),
    "flops": ("FLOP/s",),
    "peak_flops": ("peak",),
    "tdp": ("W that", "devices of"),
    "achieved": ("A utilization of",),
    "achievable": ("A utilization of",),
    "value": ("answer",),
    "rows": ("Row ",),
    "columns": ("columns",),
    "most_in_flight": ("are allowed",),
    "num_embeddings": ("words",),
    "plan": ("algorithm",),
    "src": ("rank",),
}
# What needs a communicator.
IN_A_WORLD = (
    "data_parallel.DataParallel",
    "data_parallel.LocalSGD",
    "expert_parallel.*",
    "context_parallel.ContextParallel*",
    "tensor_parallel.*Linear",
    "tensor_parallel.*Embedding",
    "tensor_parallel.TensorParallelGPT",
    "tensor_parallel.vocab*",
    "tensor_parallel.[cgrsfl]*",
    "tensor_parallel.*matmul*",
    "data_parallel.NoiseMeter.*",
    "collectives.Plan.run",
    "pipeline_parallel.Pip*",
    "precision.LossScaler",
    "resilience.compare_replicas",
    "tensor_parallel.*Linear.forward",
    "tensor_parallel.*Embedding.forward",
    "tensor_parallel.TensorParallelGPT.*",
    "zero.FullyShardedDataParallel*",
    "zero.ShardedOptimizer*",
)


@dataclass(frozen=True, eq=False)
class Public:
    """A public callable: its name from the package on, and what is called."""

    name: str
    call: Callable[..., Any]

    @cached_property
    def said(self) -> dict[str, Any]:
        """A right value for each parameter that has one, or what makes it; the rest is missing."""
        given = NAMES | {
            name: parameter.default
            for name, parameter in self.parameters.items()
            if parameter.default is not parameter.empty
        }
        for name, of_it in ARGUMENTS.items():
            given |= of_it if fnmatch(self.name, name) else {}
        return {name: given[name] for name in self.parameters if name in given}

    def arguments(self) -> dict[str, Any]:
        """Right values, for one call."""
        return {k: v.make() if isinstance(v, Later) else v for k, v in self.said.items()}

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """By name, without *args and **options."""
        every = inspect.signature(self.call).parameters
        loose = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        return {n: p for n, p in every.items() if p.kind not in loose and n != "self"}


@cache
def public() -> tuple[Public, ...]:
    """Every public function, class and method that takes anything, in the order of their names."""
    found = {each.name: each for name, value in _named(dlsys) for each in _calls(name, value)}
    return tuple(found[name] for name in sorted(found) if found[name].parameters)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is one of this name."""
    return any(fnmatch(name, pattern) for pattern in patterns)


def reason(name: str) -> str | None:
    """Why what has this name is not called; None where it is."""
    return next((why for pattern, why in NOT_CALLED.items() if fnmatch(name, pattern)), None)


def _named(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public names of a package: those that it lists, or those of all that lies in it."""
    here = module.__name__.removeprefix("dlsys.")
    if hasattr(module, "__all__"):
        yield from ((f"{here}.{name}", getattr(module, name)) for name in module.__all__)
    elif hasattr(module, "__path__"):
        for info in pkgutil.iter_modules(module.__path__, f"{module.__name__}."):
            if info.name not in ("dlsys.grading", "dlsys.notebook.book"):  # Sphinx, and commands
                yield from _named(importlib.import_module(info.name))
    else:
        mine = vars(module).items()
        yield from (
            (f"{here}.{name}", value)
            for name, value in mine
            if name[0] != "_" and getattr(value, "__module__", "") == module.__name__
        )


def _calls(name: str, value: Any) -> Iterator[Public]:
    if not inspect.isclass(value):
        if inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            yield Public(name, INSTEAD.get(name, value))
        return
    if issubclass(value, Exception):
        return
    if not inspect.isabstract(value):
        yield Public(name, value)
    for method in dir(value):
        raw = inspect.getattr_static(value, method)
        function = getattr(raw, "__func__", raw)
        if (
            method[0] == "_"
            or not inspect.isfunction(function)
            or not function.__module__.startswith("dlsys.")
        ):
            continue
        owner = OBJECTS.get(name)
        if owner is None and not isinstance(raw, classmethod | staticmethod):
            yield Public(f"{name}.{method}", function)
        else:
            found = getattr(value if owner is None else owner, method)
            yield Public(f"{name}.{method}", INSTEAD.get(f"{name}.{method}", found))
