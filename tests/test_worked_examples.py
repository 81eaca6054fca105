"""Worked examples of the subject's courses and papers, each one call of the package, in one table.

A value that is often printed otherwise has the printed one beside it, as a comment.
"""

from collections.abc import Callable, Iterator
from decimal import Decimal

import pytest
import torch

from dlsys import (
    attention,
    collectives,
    data_parallel,
    memory_wall,
    pipeline_parallel,
    precision,
    recomputation,
    roofline,
    tensor_parallel,
    training_loop,
    zero,
)
from dlsys.hardware import DEVICES, LINKS, Device, Link
from dlsys.input_pipeline import InputPipeline, Stage, simulate
from dlsys.memory_wall import activations, devices_needed, model_state, training_seconds
from dlsys.transformer import CATALOGUE, TransformerSpec

DAY, YEAR = 86_400, 365.25 * 86_400
H100, A100 = DEVICES["h100-sxm"].rate("bf16"), DEVICES["a100-80"].rate("bf16")
RECIPES = "pure-16bit", "mixed-adamw"
SCHEDULES = pipeline_parallel.gpipe, pipeline_parallel.one_f_one_b
GPT2_XL = CATALOGUE["gpt2-xl"]
PUBLISHED_7B = TransformerSpec(layers=32, hidden=4096, heads=32, vocab=32_000, sequence=2048)


def ring(nbytes: float, ranks: int, bandwidth: float) -> float:
    return collectives.ring_all_reduce(ranks).price(nbytes, Link("ring", 0.0, bandwidth)).seconds


def in_flight(plan: pipeline_parallel.Plan) -> tuple[float, ...]:
    price = plan.price(1, 2)
    return price.makespan, *price.peak_in_flight


def layer_giga_flops() -> tuple[float, ...]:
    of = GPT2_XL.operations(32, layer=0)
    whole = sum(of.values())
    each = of["qkv"], of["scores"], of["ffn_up"] + of["ffn_down"], whole - of["output"], whole
    return tuple(flops / 1e9 for flops in each)


def parameters_of_gpt2() -> tuple[float, ...]:
    """In the layers' matrices, and with the embeddings; biases and norms are left out."""
    of_layer = [*GPT2_XL.attention_matrices(), *GPT2_XL.ffn_matrices(0)]
    matrices = 48 * sum(matrix.rows * matrix.columns for matrix in of_layer)
    parts = GPT2_XL.parameter_counts()
    return matrices, matrices + parts["token_embedding"] + parts["position_embedding"]


def split_175b(recipe: str) -> tuple[float, ...]:
    state = model_state(175e9 / (8 * 4), recipe, 2, 8)
    return state.weights, state.optimizer, state.gradients, state.total


def gpt2_totals() -> tuple[float, ...]:
    fp32, mixed = (model_state(1.5e9, recipe).total for recipe in ("fp32-adam", "mixed-adamw"))
    kept = fp32 + 65e9, mixed + 32.6e9, mixed + 8e9
    return fp32, mixed, *kept, 1 - kept[1] / kept[0]


def llama_bill() -> tuple[float, ...]:
    flops = 6 * 70e9 * 2e12
    one, many = (training_seconds(flops, H100, 0.5, devices=n) for n in (1, 1000))
    hours = memory_wall.gpu_hours(many, 1000)
    bill = memory_wall.rent_or_buy(hours, 3.0, 1000, 30_000.0)
    return flops, one, one / YEAR, many / DAY, bill.rent, bill.break_even_runs


def energy_of_7b() -> tuple[float, ...]:
    seconds = training_seconds(6 * 7e9 * 1e12, 150e12, devices=1024)
    used = memory_wall.energy(seconds, 1024, 400.0, hosts=128, host_watts=200.0, pue=1.0)
    return seconds / 3600, used.kwh, used.kwh / 900


def in_segments() -> tuple[float, ...]:
    chain = recomputation.uniform(48)
    sum_of_both = recomputation.closed_form(chain, 7)
    again = recomputation.segments(48, 7).price(chain).recomputed_layers
    return sum_of_both, 1 - sum_of_both / 48, again


def scores(itemsize: int = 4) -> tuple[float, ...]:
    written = attention.naive_forward_cost(4096, 4096, 64).kernels[0].written
    return itemsize * written, 16 * itemsize * written


def attention_traffic(tile: int) -> float:
    tiles = attention.tiling(4096, 4096, tile, tile)
    plain, tiled = attention.naive_forward_cost(4096, 4096, 64), attention.forward_cost(tiles, 64)
    return plain.elements / tiled.elements


def read_ahead() -> tuple[float, ...]:
    """Three batches that are read in 20, 10 and 20 s, and trained on in 15 each."""
    read, trained = [20.0, 10.0, 20.0], [15.0] * 3
    two = InputPipeline((Stage("read", 1.0, prefetch=2), Stage("train", 1.0)))
    one = InputPipeline((Stage("both", 1.0),))
    both = {"both": [a + b for a, b in zip(read, trained, strict=True)]}
    apart = {"read": read, "train": trained}
    return simulate(one, 3, seconds=both).seconds, simulate(two, 3, seconds=apart).seconds


def tokenise() -> tuple[float, ...]:
    tokens = 32 * 1024
    return tokens / 500e3, tokens / 8 / 500e3, tokens * 8, tokens * 8 / LINKS["pcie3"].bandwidth


def thousand_times(fmt: precision.Format) -> float:
    return float(precision.accumulate(torch.full((1000,), 1e-4), fmt)[-1])


def experts_against_tensors(each: int, experts: int, ranks: int) -> float:
    """Bytes of an all-to-all of `each` copies of every token over those of one all-reduce."""
    copies = collectives.pairwise_all_to_all(experts).price(each * 1e6, None)
    return (
        copies.bytes_per_rank / collectives.ring_all_reduce(ranks).price(1e6, None).bytes_per_rank
    )


def ridge(tera_flops: float, tera_bytes: float) -> float:
    device = Device("", {"bf16": tera_flops * 1e12}, 80e9, tera_bytes * 1e12)
    return device.ridge("bf16")


def fed(samples_per_second: float, needed: float) -> float:
    """The share of its time in which a device that could take `needed` samples a second works."""
    plan = InputPipeline((Stage("load", 1 / samples_per_second), Stage("step", 1 / needed)))
    return plan.price().utilization


# What is called, and what it must give, to the digits that stand here and to three at least. There
# is no 34: it divides times that somebody measured by each other, which no call of a price gives.
EXAMPLES: dict[str, tuple[Callable[[], object], object]] = {
    "1 ring of 16, 200 MB at 100 GB/s": (lambda: ring(200e6, 16, 100e9), 3.75e-3),
    "2 ring of 8, 14 GB at 600 GB/s": (lambda: ring(14e9, 8, 600e9), 40.83e-3),
    "3 ring of 8, 14 GB at 12.5 GB/s": (lambda: ring(14e9, 8, 12.5e9), 1.96),  # printed: 2.2
    "4 data parallel, 20 GB on 64": (lambda: data_parallel.step_bytes(20e9, 64), 39.375e9),
    "5 ZeRO-3, 20 GB on 64": (lambda: zero.price(3, 20e9, 64).bytes_per_rank, 59.0625e9),  # 1.9
    "6 tensor parallel, 96 layers of 8192 on 8": (
        lambda: tensor_parallel.step_bytes(96, 8, 2048, 8192),
        22.549e9,  # printed: 90.2, which is of 8,192 tokens
    ),
    "7 bubbles": (
        lambda: [pipeline_parallel.bubble_fraction(*pm) for pm in ((4, 4), (8, 32), (2, 8))],
        [0.428571, 0.179487, 0.111111],
    ),
    "8 micro-batches for a bubble below 5 %": (
        lambda: pipeline_parallel.min_microbatches(8, 0.05),
        134,  # printed: 133, which leave 5 % exactly
    ),
    "9 1F1B on 2 stages, 8 micro-batches": (
        lambda: pipeline_parallel.step_seconds(2, 8, 0.120, 0.220),
        3.060,  # printed: 1.98 and 2.06
    ),
    "10 in flight": (
        lambda: [in_flight(make(8, 32)) for make in SCHEDULES],
        [(117, *[32] * 8), (117, 8, 7, 6, 5, 4, 3, 2, 1)],
    ),
    "11 state of 13B": (
        lambda: [model_state(13e9, recipe).total for recipe in RECIPES],
        [156e9, 208e9],
    ),
    "12 13B under ZeRO-2 and 3 on 8": (
        lambda: [model_state(13e9, r, stage, 8).total for r in RECIPES for stage in (2, 3)],
        [42.25e9, 19.5e9, 48.75e9, 26.0e9],
    ),
    "13 bytes a parameter under ZeRO on 8": (
        lambda: [model_state(8e9, r, s, 8).total / 8e9 for r in RECIPES for s in (1, 2, 3)],
        [5.0, 3.25, 1.5, 5.5, 3.75, 2.0],
    ),
    "14 70B under ZeRO-3 on 8": (
        lambda: model_state(70e9, "pure-16bit", 3, 8).total,
        105e9,  # printed: 13
    ),
    "15 175B on 8 x 4 x 8 under ZeRO-2": (
        lambda: [*split_175b("pure-16bit"), split_175b("mixed-adamw")[-1]],
        [10.9375e9, 5.46875e9, 1.3671875e9, 17.7734e9, 20.51e9],
    ),
    "16 state of 70B": (lambda: model_state(70e9).total, 1.12e12),
    "17 fewest devices for 13B": (lambda: devices_needed(13e9, "mixed-adamw", 80e9), 3),
    "18, 19 GPT-2 XL with its published activations": (
        gpt2_totals,
        [24e9, 24e9, 89e9, 56.6e9, 32e9, 0.364],  # half is not saved
    ),
    "20 activations of GPT-2 XL": (
        lambda: (activations(GPT2_XL, 32).per_layer, activations(GPT2_XL, 32)),
        [5.9769e9, 286.89e9],  # printed: 40.7
    ),
    "21 activations of a 7B model": (
        lambda: (activations(PUBLISHED_7B, 1), activations(PUBLISHED_7B, 1, flash=True)),
        [30.60e9, 9.127e9],  # printed: 2
    ),
    "22 GPT-3 on one H100": (lambda: training_seconds(6 * 175e9 * 300e9, H100), 3.185e8),
    "23 days of one H100 for 7B": (
        lambda: training_seconds(6 * 7e9 * 2e12, H100, 0.5) / DAY,
        1966.07,
    ),
    "24 MFU of 35 % for 50": (
        lambda: (
            (lost := memory_wall.waste(0.35, 0.50, 10e6))
            and (lost.fraction, lost.dollars, lost.more_training)
        ),
        [0.30, 3e6, 0.4286],
    ),
    "25 bill of Llama 2 70B": (llama_bill, [8.4e23, 1.6987e9, 53.8, 19.66, 1.4156e6, 21.19]),
    "26 energy of a 7B run": (energy_of_7b, [75.95, 33_055.6, 36.7]),
    "27 a layer of GPT-2 XL": (layer_giga_flops, [503.3, 107.4, 1342.2, 2060.2, 2228.0]),
    "28 a step of GPT-2 XL": (
        lambda: [48 * 3 * layer / 1e3 for layer in layer_giga_flops()[-2:]],
        [296.67, 320.83],
    ),
    "28 the same with its head": (lambda: GPT2_XL.training_flops(32), 336.64e12),
    "29 ridge points": (
        lambda: [ridge(312, 2.039), ridge(312, 2.0), ridge(989, 3.35), ridge(125, 0.9)],
        [153.0, 156.0, 295.2, 138.9],
    ),
    "30 48 layers in 7 segments": (in_segments, [13.857, 0.7113, 41]),
    "31 scores of 4,096 tokens": (scores, [67.109e6, 1.0737e9]),
    "32 scores against q, k and v": (lambda: scores(1)[0] / (3 * 4096 * 64), 21.33),
    "33 flash attention's traffic": (lambda: attention_traffic(128), 3.94),  # printed: 64
    "35 reading ahead": (read_ahead, [95, 65]),  # printed: 90 and 55
    "36 tokenising": (tokenise, [65.5e-3, 8.19e-3, 256 * 1024, 0.0166e-3]),
    "37 a loader of 200 images a second": (
        lambda: [fed(200, needed) for needed in (1000, 2000)],
        [0.20, 0.10],
    ),
    "38 Adam's moments": (
        lambda: [model_state(n, "fp32-adam").optimizer for n in (100e6, 7e9)],
        [800e6, 56e9],
    ),
    "39 the first convolution of ResNet-50": (
        lambda: roofline.convolution(32, 3, 224, 64, 7, 2, 3, itemsize=4).written,
        102.76e6,  # printed: 3
    ),
    "40 linear rule": (lambda: training_loop.linear_rule(0.1, 4096, 512), 0.8),
    "41 accumulation": (
        lambda: [data_parallel.accumulation_steps(512, 16, ranks) for ranks in (8, 32, 1)],
        [4, 1, 32],  # 32 devices need none, and one device all 32
    ),
    "42 speed-up of 256 ranks": (
        lambda: [data_parallel.amdahl_speedup(256, r) for r in (0.05, 0.15, 0.40)],
        [18.62, 6.52, 2.49],
    ),
    "43 a thousand times 1e-4": (
        lambda: [thousand_times(f) for f in (precision.FP16, precision.BF16, precision.FP32)],
        [0.1058, 0.03125, 0.10000],  # printed the other way round
    ),
    "44 A100-days of GPT-3": (
        lambda: [training_seconds(3.14e23, A100, eta) / DAY for eta in (1.0, 0.4)],
        [11_648, 29_121],  # printed: 1,000
    ),
    "45 years of an H100 for 1e24": (
        lambda: [training_seconds(1e24, H100, eta) / YEAR for eta in (1.0, 0.5)],
        [32.0, 64.1],  # printed: 3,000
    ),
    "46 routing to experts against tensor parallelism": (
        lambda: [experts_against_tensors(*ket) for ket in ((1, 8, 8), (2, 8, 8), (8, 64, 8))],
        [0.5, 1.0, 4.5],
    ),
    "47 fewest devices at 12 bytes": (
        lambda: [devices_needed(n, "pure-16bit", 80e9) for n in (175e9, 70e9, 405e9)],
        [27, 11, 61],
    ),
    "48 waves of 32": (
        lambda: [roofline.wave_utilization(tiles, 32) for tiles in (33, 65)],
        [0.5156, 0.6771],
    ),
    "49 weights of ResNet-50": (
        lambda: model_state(25.6e6, "sgd").weights,
        102.4e6,
    ),  # printed: 200
    "50 parameters of GPT-2 XL": (parameters_of_gpt2, [1.4746e9, 1.5566e9]),
}


def digits(value: float) -> int:
    return max(3, len(Decimal(repr(value)).normalize().as_tuple().digits))


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name):
    run, expected = EXAMPLES[name]
    came, must = (list(flatten(each)) for each in (run(), expected))
    assert [float(f"{c:.{digits(m) - 1}e}") for c, m in zip(came, must, strict=True)] == must


def flatten(values: object) -> Iterator[float]:
    """Return the numbers of nested lists, or a number alone."""
    if not isinstance(values, (list, tuple)):
        return iter([values])
    return (number for each in values for number in flatten(each))
