"""Every number has a least value, which is taken, and what is below is refused by its name."""

from __future__ import annotations

import re

import pytest
import torch

from dlsys.hardware import DEVICES, LINKS
from dlsys.roofline import (
    PROCESSORS,
    Event,
    Operation,
    Processor,
    PublishedRun,
    Tile,
    Trace,
    all_reduce,
    attainable,
    axis_ridge,
    by_utilization_alone,
    choose_tile,
    conv2d,
    convolution,
    decode_batch,
    diagnose,
    elementwise,
    embedding,
    hfu,
    im2col,
    layer_norm,
    layer_operations,
    matmul,
    mfu,
    price,
    scores,
    softmax,
    tiled,
    together,
    waterfall,
    waves,
)
from dlsys.roofline.plan import output_side
from dlsys.transformer import CATALOGUE, TransformerSpec

H100 = DEVICES["h100-sxm"]
SPEC = TransformerSpec(1, 4, 1, 8, 2)
TRACE = Trace((Event("x", "kernel", 0.0, 1.0),))
IMAGE = {"side": 1, "kernel": 1, "stride": 1, "padding": 0}
TIME = {"seconds": 1, "peak_flops": 1, "devices": 1}

# What is given besides, and the least of each number.
LEAST = [
    (Operation, {"name": "x"}, {"flops": 0, "read": 0, "written": 0, "sent": 0}),
    (matmul, {}, {"m": 1, "k": 1, "n": 1, "batch": 1, "itemsize": 1}),
    (scores, {}, {"sequence": 1, "head_size": 1, "heads": 1, "itemsize": 1}),
    (
        elementwise,
        {},
        {"elements": 1, "flops_each": 0, "inputs": 1, "outputs": 1, "itemsize": 1},
    ),
    (layer_norm, {}, {"tokens": 1, "hidden": 1, "itemsize": 1}),
    (softmax, {}, {"rows": 1, "columns": 1, "itemsize": 1}),
    (embedding, {}, {"tokens": 1, "hidden": 1, "itemsize": 1, "index_size": 1}),
    (all_reduce, {}, {"elements": 1, "n": 1, "itemsize": 1}),
    (
        convolution,
        {},
        IMAGE | {"batch": 1, "channels": 1, "filters": 1, "groups": 1, "itemsize": 1},
    ),
    (output_side, {}, IMAGE),
    (layer_operations, {"spec": SPEC}, {"batch": 1, "tokens": 1, "context": 1, "itemsize": 1}),
    (attainable, {"device": H100}, {"intensity": 0}),
    (
        attainable,
        {"intensity": 1, "device": H100, "link": LINKS["nvlink4"]},
        {"network_intensity": 0},
    ),
    (axis_ridge, {"axis": "data"}, {"rate": 1, "bandwidth": 1, "n": 1, "itemsize": 1}),
    (decode_batch, {"device": H100}, {"itemsize": 1}),
    (Processor, {"name": "x"}, {"multiprocessors": 1, "rate": 1, "cache_bandwidth": 1}),
    (waves, {}, {"tiles": 1, "multiprocessors": 1}),
    (
        tiled,
        {"tile": Tile(64, 64), "processor": PROCESSORS["h100-sxm"]},
        {"m": 1, "k": 1, "n": 1},
    ),
    (mfu, {}, TIME | {"model_flops": 0}),
    (hfu, {}, TIME | {"model_flops": 0, "recomputed_flops": 0}),
    (
        PublishedRun,
        {"model": "gpt2-small", "device": "h100-sxm", "source": "us"},
        {"devices": 1, "tokens_per_second": 1, "counted": 1},
    ),
    (
        PublishedRun,
        {"model": "gpt2-small", "device": "h100-sxm", "source": "us", "devices": 1},
        {"flops_per_second": 1},
    ),
    (waterfall, {"levels": {"all": 0}, "measured": []}, {"peak": 1}),
    (diagnose, {"trace": TRACE, "device": H100}, {"peak_bytes": 0}),
    (by_utilization_alone, {}, {"utilization": 0, "memory": 0}),
]


@pytest.mark.parametrize(
    ("function", "given", "least"), LEAST, ids=lambda x: getattr(x, "__name__", "")
)
def test_the_least_of_each_number_is_taken_and_what_is_below_is_refused_by_its_name(
    function, given, least
):
    function(**given, **least)
    for name, number in least.items():
        with pytest.raises(ValueError, match=rf"^{name} is {number - 1}; it must be "):
            function(**given, **least | {name: number - 1})


@pytest.mark.parametrize(
    ("said", "call"),
    [
        (
            "bound is 'magic'; it must be one of compute, bandwidth, network.",
            lambda: price([matmul(1, 1, 1)], H100).share("magic"),
        ),
        (
            "model_flops is 3; it must be at most 2, the peak of all devices in these seconds.",
            lambda: mfu(3, 1, 1, 2),
        ),
        (
            "model_flops + recomputed_flops is 3; it must be at most 2, the peak of all devices",
            lambda: hfu(1, 2, 1, 1, 2),
        ),
        (
            "flops_per_second is None; it must be given, or tokens_per_second, not both.",
            lambda: PublishedRun("gpt2-small", "h100-sxm", 1, "us"),
        ),
        (
            "flops_per_second is 2.0; it must be given, or tokens_per_second, not both.",
            lambda: PublishedRun("gpt2-small", "h100-sxm", 1, "us", 1.0, 2.0),
        ),
        ("flops is -1; it must be a whole number", lambda: Operation("x", -1, 1, 0)),
        ("'gpt9'", lambda: PublishedRun("gpt9", "h100-sxm", 1, "us", 1.0)),
        ("'h9'", lambda: PublishedRun("gpt2-small", "h9", 1, "us", 1.0)),
        ("tile.n is 0; it must be", lambda: tiled(1, 1, 1, Tile(1, 0), PROCESSORS["a100-80"])),
        (
            "tiles is (); it must have at least one",
            lambda: choose_tile(1, 1, 1, PROCESSORS["a100-80"], ()),
        ),
        ("operations is (); it must have at least one", lambda: together(())),
        ("operations is (); it must have at least one", lambda: price((), H100)),
        ("levels is {}; it must have at least one", lambda: waterfall(1.0, {}, [])),
        (
            "spec is 'Mixtral 8x7B'; it must be a dense transformer",
            lambda: layer_operations(CATALOGUE["mixtral-8x7b"], 1),
        ),
        (
            "x is of torch.int64; it must be of a floating-point type",
            lambda: im2col(torch.ones(1, 1, 4, 4).long(), 2),
        ),
        (
            "weight is of torch.int64; it must be of a floating-point type",
            lambda: conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2).long()),
        ),
        ("levels['all'] is -1; it must be", lambda: waterfall(1.0, {"all": -1}, [])),
    ],
)
def test_what_is_refused_is_named_with_what_is_allowed(said, call):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        *((matmul, "matmul"), (scores, "scores"), (elementwise, "elementwise")),
        *((layer_norm, "layer norm"), (softmax, "softmax"), (embedding, "embedding")),
        *((all_reduce, "all-reduce"), (convolution, "convolution")),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_an_operation_is_called_what_it_is(function, name):
    least = next(least for each, _, least in LEAST if each is function)
    assert function(**least).name == name
