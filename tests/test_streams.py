"""A device and a network beside it: nothing runs twice at one time, and what is hidden adds up."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsys.streams import Overlap, Span, Streams

SECONDS = st.integers(0, 9)


@given(st.lists(st.tuples(st.sampled_from(["compute", "carry", "wait"]), SECONDS), min_size=1))
def test_each_stream_does_one_thing_after_the_other_and_busy_and_waiting_add_up(script):
    streams, busy, carried = Streams(), 0, 0
    streams.compute("first", 1)
    for number, (kind, seconds) in enumerate(script):
        if kind == "compute":
            streams.compute(number, streams.now + seconds)
            busy += seconds
        elif kind == "carry":
            asked = max(streams.now, streams.free)
            assert streams.carry(number, seconds) == asked + seconds
            carried += seconds
        else:
            streams.wait(streams.free)
    step = streams.overlap()
    for spans in (step.compute, step.network):
        assert all(before.end <= after.start for before, after in pairwise(spans))
    assert (step.compute_seconds, step.communication_seconds) == (1 + busy, carried)
    assert 1 + busy <= step.seconds <= step.blocking_seconds == 1 + busy + carried
    assert step.exposed_seconds == step.seconds - 1 - busy
    assert 0 <= step.hidden_fraction <= 1


def test_what_the_network_carries_under_compute_is_hidden():
    compute = Span("a", 0, 2), Span("b", 3, 5)  # one second is waited for
    step = Overlap(compute, (Span("x", 1, 3), Span("y", 4, 6)))
    assert (step.compute_seconds, step.exposed_seconds, step.hidden_fraction) == (4, 2, 0.5)
    assert Overlap(compute[:1], ()).hidden_fraction == 1.0
    assert step.network[0].seconds == pytest.approx(2)
