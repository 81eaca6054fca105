"""What is refused is named, with what is allowed."""

from __future__ import annotations

import re

import pytest
import torch

from dlsys.hardware import DEVICES
from dlsys.roofline import (
    PROCESSORS,
    PublishedRun,
    Tile,
    all_reduce,
    choose_tile,
    conv2d,
    convolution,
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
)
from dlsys.transformer import CATALOGUE, TransformerSpec

H100 = DEVICES["h100-sxm"]
SPEC = TransformerSpec(1, 4, 1, 8, 2)


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
            "model_flops + recomputed_flops is 3.0; it must be at most 2, the peak of all devices",
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
    ("operation", "name"),
    [
        (matmul(1, 1, 1), "matmul"),
        (scores(1, 1), "scores"),
        (elementwise(1), "elementwise"),
        (layer_norm(1, 1), "layer norm"),
        (softmax(1, 1), "softmax"),
        (embedding(1, 1), "embedding"),
        (all_reduce(1, 1), "all-reduce"),
        (convolution(1, 1, 1, 1, 1), "convolution"),
    ],
)
def test_an_operation_is_called_what_it_is(operation, name):
    assert operation.name == name
