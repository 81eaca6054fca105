"""A bad argument of tensor parallelism is called by its name, with what is allowed."""

from functools import partial

import pytest

from dlsys import tensor_parallel as tp
from dlsys.hardware import LINKS
from dlsys.transformer import CATALOGUE, TransformerSpec
from tests.mechanisms.bad_arguments import (
    ABOVE_ZERO,
    AT_LEAST_0,
    COUNT,
    COUNT_FROM_0,
    cases_of,
    each,
)

TINY = TransformerSpec(2, 16, 4, 32, 8)
LAYOUT = tp.layout(TINY, 2)
DEGREE = (2, COUNT, "tensor-parallel degree")

CASES = [
    *cases_of("layout", lambda t: tp.layout(TINY, t), t=DEGREE),
    *cases_of("Parameter.bounds", LAYOUT["embedding.weight"].bounds, rank=(1, COUNT_FROM_0)),
    *cases_of("Layout.held", LAYOUT.held, rank=(1, COUNT_FROM_0)),
    *cases_of(
        "all_reduce_bytes",
        tp.all_reduce_bytes,
        tokens=(8, COUNT),
        hidden=(4, COUNT),
        itemsize=(2, COUNT),
    ),
    *cases_of(
        "step_bytes",
        tp.step_bytes,
        layers=(2, COUNT),
        tp=(2, COUNT),
        tokens=(8, COUNT),
        hidden=(4, COUNT),
        itemsize=(2, COUNT),
        micro_batches=(2, COUNT),
    ),
    *cases_of(
        "Layout.price",
        LAYOUT.price,
        batch=(2, COUNT),
        itemsize=(2, COUNT),
        micro_batches=(1, COUNT),
        rate=(1e12, ABOVE_ZERO.or_none()),
    ),
    *cases_of(
        "activation_bytes",
        lambda batch, t: tp.activation_bytes(TINY, batch, t),
        batch=(2, COUNT),
        t=DEGREE,
    ),
    *cases_of(
        "seconds_in_pieces",
        partial(tp.seconds_in_pieces, link=LINKS["nvlink4"]),
        compute_seconds=(1.0, AT_LEAST_0),
        nbytes=(8.0, AT_LEAST_0),
        tp=(2, COUNT),
    ),
    *cases_of(
        "communication_over_compute",
        partial(tp.communication_over_compute, link=LINKS["nvlink4"]),
        hidden=(64, COUNT),
        tp=(2, COUNT),
        rate=(1e12, ABOVE_ZERO),
    ),
]


@each(CASES)
def test_a_bad_argument_is_called_by_its_name(case):
    case.check()


@pytest.mark.parametrize(
    "call", [lambda spec: tp.layout(spec, 2), lambda spec: tp.activation_bytes(spec, 1)]
)
def test_a_models_name_is_no_spec(call):
    with pytest.raises(
        ValueError, match=r"spec is 'llama3-70b'; it must be .*CATALOGUE\['llama3-70b'\]"
    ):
        call("llama3-70b")
    call(CATALOGUE["llama3-70b"])
