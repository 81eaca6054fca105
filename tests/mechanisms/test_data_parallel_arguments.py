"""Bad numbers given to data and tensor parallelism: each is called by its name, with what is allowed."""

import re
from functools import partial
from math import inf, nan

import pytest
from torch import nn

from dlsys import data_parallel as dp
from dlsys import tensor_parallel as tp
from dlsys import world
from dlsys.data_parallel.price import all_reduce_seconds, equal_buckets
from dlsys.hardware import Link
from dlsys.transformer import CATALOGUE, TransformerSpec

LINK = Link("plain", 1e-6, 1e9)
TINY = TransformerSpec(2, 16, 4, 32, 8)
LAYOUT, BUCKETS = tp.layout(TINY, 2), dp.buckets({"a": 8, "b": 8}, 8)

BAD = {
    "a whole number of at least 1": (True, 0, -1, 1.0, 1.5, nan, inf, "4", None),
    "a whole number of at least 0": (True, -1, 1.0, nan, inf, "4", None),
    "above zero, and finite": (True, 0, -1.5, nan, inf, "4"),
    "at least 0, and finite": (True, -1.5, nan, inf, "4"),
    "at most 1": (1.5, 2),
}
ONE, NONE, ABOVE, LEAST, PART = BAD


def scaling(function, n=2, seconds=1.0, gradient_bytes=8.0, bucket_bytes=8.0):
    return function([n], seconds, gradient_bytes, LINK, bucket_bytes=bucket_bytes)


def step(sizes=8.0, shares=1.0, backward_seconds=1.0, forward_seconds=1.0, ranks=2):
    return dp.overlap(
        [sizes], backward_seconds, ranks, LINK, "ring", forward_seconds, shares=[shares]
    )


def best(gradients=8.0, backward_seconds=1.0, ranks=2, bucket_bytes=8.0):
    return dp.best_bucket_bytes(
        gradients, backward_seconds, ranks, LINK, bucket_bytes=[bucket_bytes]
    )


SPEEDUPS = dp.amdahl_speedup, dp.constant_fraction_speedup
DEGREE = (2, ONE, "tensor-parallel degree")

# Of each argument a right value, what it must be, and what it is called if not by its name.
CALLS = [
    (lambda t: tp.layout(TINY, t), {"t": DEGREE}),
    (LAYOUT["embedding.weight"].bounds, {"rank": (1, NONE)}),
    (LAYOUT.held, {"rank": (1, NONE)}),
    (tp.all_reduce_bytes, {"tokens": (8, ONE), "hidden": (4, ONE), "itemsize": (2, ONE)}),
    (
        tp.step_bytes,
        {"layers": (2, ONE), "tp": (2, ONE), "tokens": (8, ONE), "hidden": (4, ONE)}
        | {"itemsize": (2, ONE), "micro_batches": (2, ONE)},
    ),
    (
        LAYOUT.price,
        {"batch": (2, ONE), "itemsize": (2, ONE), "micro_batches": (1, ONE), "rate": (1e12, ABOVE)},
    ),
    (lambda b, t: tp.activation_bytes(TINY, b, t), {"b": (2, ONE, "batch"), "t": DEGREE}),
    (
        lambda size, limit: dp.buckets({"a": size}, limit),
        {"size": (4, NONE, "The size of 'a' in bytes"), "limit": (8.0, ABOVE, "bucket_bytes")},
    ),
    (BUCKETS.sent, {"ranks": (2, ONE)}),
    (partial(BUCKETS.price, where=LINK), {"ranks": (2, ONE), "backward_seconds": (1.0, LEAST)}),
    (
        step,
        {
            "sizes": (8.0, LEAST, "A bucket's size in bytes"),
            "shares": (1.0, LEAST, "A share of backward"),
            "backward_seconds": (1.0, LEAST),
            "forward_seconds": (1.0, LEAST),
            "ranks": (2, ONE),
        },
    ),
    (dp.step_bytes, {"nbytes": (8.0, LEAST), "ranks": (2, ONE), "all_reduces": (1, NONE)}),
    (dp.accumulation_steps, {"batch": (8, ONE), "micro_batch": (2, ONE), "ranks": (2, ONE)}),
    (partial(all_reduce_seconds, where=LINK), {"nbytes": (8.0, LEAST), "ranks": (2, ONE)}),
    (
        best,
        {"gradients": (8.0, ABOVE, "The bytes of all gradients"), "bucket_bytes": (8.0, ABOVE)}
        | {"backward_seconds": (1.0, LEAST), "ranks": (2, ONE)},
    ),
    (equal_buckets, {"nbytes": (8.0, LEAST), "bucket_bytes": (8.0, ABOVE)}),
    *(
        (
            partial(scaling, function),
            {"n": (2, ONE, "ranks"), "seconds": (1.0, ABOVE, "compute_seconds")}
            | {"gradient_bytes": (8.0, LEAST), "bucket_bytes": (8.0, ABOVE)},
        )
        for function in (dp.weak_scaling, dp.strong_scaling)
    ),
    *((f, {"ranks": (2, ONE), "r": (0.5, must)}) for f in SPEEDUPS for must in (LEAST, PART)),
    (
        dp.straggler_seconds,
        {"ranks": (2, ONE), "base_seconds": (1.0, LEAST), "delay_seconds": (1.0, LEAST)},
    ),
    (
        lambda ranks, time: dp.slowest_of(ranks, [1.0, time]),
        {"ranks": (2, ONE), "time": (1.0, LEAST, "A time in seconds")},
    ),
    (
        dp.noise_scale,
        {"small_batch": (1, ABOVE), "small_square": (2.0, LEAST)}
        | {"large_batch": (4, ABOVE), "large_square": (1.0, LEAST)},
    ),
    (dp.BatchTradeoff, {"least_steps": (1.0, ABOVE), "least_samples": (2.0, ABOVE)}),
    (dp.BatchTradeoff(1.0, 2.0).samples, {"batch": (1.0, ABOVE)}),
    (partial(dp.NoiseMeter().estimate, None), {"batch": (1, ABOVE)}),
    (dp.TopK, {"fraction": (0.5, ABOVE)}),
    (dp.TopK, {"fraction": (0.5, PART)}),
    (dp.LowRank, {"rank": (1, ONE)}),
    (partial(dp.TopK(0.5).sent_bytes, [(2,)]), {"ranks": (2, ONE), "itemsize": (4, ONE)}),
    (partial(dp.LowRank(1).sent_bytes, [(2,)]), {"ranks": (2, ONE), "itemsize": (4, ONE)}),
    (partial(dp.Int8().sent_bytes, [(2,)]), {"ranks": (2, ONE)}),
]
CASES = [
    pytest.param(function, arguments, name, id=f"{number}-{name}")
    for number, (function, arguments) in enumerate(CALLS)
    for name in arguments
]


@pytest.mark.parametrize(("function", "arguments", "name"), CASES)
def test_a_bad_argument_is_called_by_its_name(function, arguments, name):
    right = {each: value for each, (value, *_) in arguments.items()}
    must, called = (*arguments[name][1:], name)[:2]
    for bad in BAD[must]:
        with pytest.raises(
            ValueError, match=rf"^{called} is {re.escape(repr(bad))}; it (must be|is) .*{must}"
        ):
            function(**right | {name: bad})


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: dp.DataParallel(nn.Linear(2, 2), bucket_bytes=bad),
        lambda bad: dp.LocalSGD(nn.Linear(2, 2), every=bad),
    ],
    ids=["bucket_bytes", "every"],
)
def test_a_wrapper_calls_a_bad_argument_by_its_name(make, request):
    name = request.node.callspec.id
    for bad in (True, 0, -1, nan, inf, "4"):
        with pytest.raises(ValueError, match=rf"{name} is {re.escape(repr(bad))}; it must be"):
            world.simulate(lambda comm, bad=bad: make(bad), 1)


@pytest.mark.parametrize(
    "call", [lambda spec: tp.layout(spec, 2), lambda spec: tp.activation_bytes(spec, 1)]
)
def test_a_models_name_is_no_spec(call):
    with pytest.raises(ValueError, match=r"spec is 'llama3-70b'; give .*CATALOGUE\['llama3-70b'\]"):
        call("llama3-70b")
    call(CATALOGUE["llama3-70b"])


def test_a_dtype_of_torch_is_not_its_name():
    with pytest.raises(ValueError, match="dtype is 5; write its name with its bits: 'float32'"):
        dp.buckets({"a": 4}, dtypes=5)
