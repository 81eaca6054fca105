"""A bad argument of data parallelism is called by its name, with what is allowed."""

import re
from functools import partial
from math import inf, nan

import pytest
from torch import nn

from dlsys import data_parallel as dp
from dlsys import world
from dlsys.data_parallel.price import all_reduce_seconds, equal_buckets
from dlsys.hardware import Link
from dlsys.transformer import CATALOGUE
from tests.mechanisms.bad_arguments import (
    ABOVE_ZERO,
    AT_LEAST_0,
    AT_MOST_1,
    COUNT,
    COUNT_FROM_0,
    cases_of,
    each,
)


class Communicator:
    """One by its name, which is all that is asked of it before the batch is."""


LINK = Link("plain", 1e-6, 1e9)
BUCKETS = dp.buckets({"a": 8, "b": 8}, 8)
RANKS, SECONDS, BYTES = (2, COUNT), (1.0, AT_LEAST_0), (8.0, AT_LEAST_0)
BUCKET_BYTES = (8.0, ABOVE_ZERO)


def scaling(function, n, seconds, gradient_bytes, bucket_bytes):
    return function([n], seconds, gradient_bytes, LINK, bucket_bytes=bucket_bytes)


def step(size, share, backward_seconds, forward_seconds, ranks):
    return dp.overlap(
        [size], backward_seconds, ranks, LINK, "ring", forward_seconds, shares=[share]
    )


CASES = [
    *cases_of(
        "buckets",
        lambda size, limit: dp.buckets({"a": size}, limit),
        size=(4, COUNT_FROM_0, "The size of 'a' in bytes"),
        limit=(8.0, ABOVE_ZERO.or_none(), "bucket_bytes"),
    ),
    *cases_of("Buckets.sent", BUCKETS.sent, ranks=RANKS),
    *cases_of(
        "Buckets.price", partial(BUCKETS.price, where=LINK), ranks=RANKS, backward_seconds=SECONDS
    ),
    *cases_of(
        "overlap",
        step,
        size=(*BYTES, "A bucket's size in bytes"),
        share=(1.0, AT_LEAST_0, "A share of backward"),
        backward_seconds=SECONDS,
        forward_seconds=SECONDS,
        ranks=RANKS,
    ),
    *cases_of(
        "step_bytes", dp.step_bytes, nbytes=BYTES, ranks=RANKS, all_reduces=(1, COUNT_FROM_0)
    ),
    *cases_of(
        "accumulation_steps",
        dp.accumulation_steps,
        batch=(8, COUNT),
        micro_batch=(2, COUNT),
        ranks=RANKS,
    ),
    *cases_of(
        "all_reduce_seconds", partial(all_reduce_seconds, where=LINK), nbytes=BYTES, ranks=RANKS
    ),
    *cases_of("equal_buckets", equal_buckets, nbytes=BYTES, bucket_bytes=BUCKET_BYTES),
    *(
        case
        for function in (dp.weak_scaling, dp.strong_scaling)
        for case in cases_of(
            function.__name__,
            partial(scaling, function),
            n=(*RANKS, "ranks"),
            seconds=(1.0, ABOVE_ZERO, "compute_seconds"),
            gradient_bytes=BYTES,
            bucket_bytes=(8.0, ABOVE_ZERO.or_none()),
        )
    ),
    *(
        case
        for function in (dp.amdahl_speedup, dp.constant_fraction_speedup)
        for kind in (AT_LEAST_0, AT_MOST_1)
        for case in cases_of(function.__name__, function, ranks=RANKS, r=(0.5, kind))
    ),
    *cases_of(
        "noise_scale",
        dp.noise_scale,
        small_batch=(1, ABOVE_ZERO),
        small_square=(2.0, AT_LEAST_0),
        large_batch=(4, ABOVE_ZERO),
        large_square=(1.0, AT_LEAST_0),
    ),
    *cases_of(
        "BatchTradeoff",
        dp.BatchTradeoff,
        least_steps=(1.0, ABOVE_ZERO),
        least_samples=(2.0, ABOVE_ZERO),
    ),
    *cases_of("BatchTradeoff.samples", dp.BatchTradeoff(1.0, 2.0).samples, batch=(1.0, ABOVE_ZERO)),
    *cases_of(
        "NoiseMeter.estimate",
        partial(dp.NoiseMeter().estimate, Communicator()),
        batch=(1, ABOVE_ZERO),
    ),
    *cases_of("TopK", dp.TopK, fraction=(0.5, ABOVE_ZERO)),
    *cases_of("TopK", dp.TopK, fraction=(0.5, AT_MOST_1)),
    *cases_of("PowerSGD", dp.PowerSGD, rank=(1, COUNT)),
    *(
        case
        for sent in (dp.TopK(0.5), dp.PowerSGD(1))
        for case in cases_of(
            f"{type(sent).__name__}.sent_bytes",
            partial(sent.sent_bytes, [(2,)]),
            ranks=RANKS,
            itemsize=(4, COUNT),
        )
    ),
    *cases_of(
        "Int8.sent_bytes",
        partial(dp.Int8().sent_bytes, [(2,)]),
        ranks=RANKS,
        itemsize=(4, COUNT),
    ),
    *cases_of("TopK.kept", dp.TopK(0.5).kept, elements=(8, COUNT_FROM_0)),
    *cases_of(
        "data_or_model",
        partial(dp.data_or_model, CATALOGUE["gpt2-small"]),
        batch=(4, COUNT),
        ranks=RANKS,
        itemsize=(2, COUNT),
    ),
]


@each(CASES)
def test_a_bad_argument_is_called_by_its_name(case):
    case.check()


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


def test_a_seed_is_a_whole_number():
    with pytest.raises(ValueError, match=r"^seed is 1\.5; it must be a whole number"):
        dp.PowerSGD(1, seed=1.5)


def test_where_nothing_was_measured_there_is_a_sentence():
    with pytest.raises(ValueError, match=r"^No step was measured: .* DataParallel's hook\.$"):
        dp.NoiseMeter().estimate(Communicator(), 1)
    with pytest.raises(ValueError, match="shows in the difference between two sizes: the large"):
        dp.noise_scale(4, 1.0, 4, 1.0)


def test_a_dtype_of_torch_is_not_its_name():
    with pytest.raises(
        ValueError, match="dtype is 'half'; write its name with its bits: 'float32'"
    ):
        dp.buckets({"a": 4}, dtypes="half")
    with pytest.raises(ValueError, match="dtypes is 5; it must be text or a dictionary"):
        dp.buckets({"a": 4}, dtypes=5)
