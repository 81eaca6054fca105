"""Traces are read as they were written, and what holds a step back is found, whatever it is."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from dlsys import world
from dlsys.hardware import DEVICES, LINKS
from dlsys.roofline import (
    CATEGORIES,
    LIMITS,
    REMEDIES,
    Event,
    Operation,
    Step,
    Trace,
    all_reduce,
    by_utilization_alone,
    count_operations,
    diagnose,
    elementwise,
    layer_operations,
    matmul,
    place,
    read_trace,
)
from dlsys.transformer import CATALOGUE

H100, NDR = DEVICES["h100-sxm"], LINKS["infiniband-ndr"]
PRODUCTS = (matmul(4096, 4096, 4096),) * 8
ADDITIONS = (elementwise(10**8, 1, 2),) * 8
SMALL_ONES = (elementwise(1000),) * 200
GRADIENTS = all_reduce(10**8, 8)
STEPS = {
    "compute": Step(PRODUCTS),
    "bandwidth": Step(ADDITIONS),
    "network": Step((*PRODUCTS, GRADIENTS)),
    "input": Step(PRODUCTS, input_seconds=0.02),
    "launch": Step(SMALL_ONES),
}


def diagnosed(step, **options):
    return diagnose(step.profile(H100, link=NDR), H100, **options)


@pytest.mark.parametrize("limit", STEPS)
def test_what_holds_a_step_back_is_found(limit):
    found = diagnosed(STEPS[limit])
    assert found.limit == limit
    assert set(found.shares) == set(LIMITS)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares[limit] > 0.5
    assert found.efficiency == pytest.approx(1)
    assert limit in REMEDIES


def test_a_full_memory_is_no_share_of_the_time():
    for limit, step in STEPS.items():
        empty, full = (diagnosed(step, peak_bytes=peak) for peak in (1e9, 79e9))
        assert (empty.is_full, full.is_full) == (False, True)
        assert full.memory == 79 / 80
        assert empty.limit == full.limit == limit
    assert diagnosed(STEPS["compute"]).memory is None
    assert not diagnosed(STEPS["compute"]).is_full
    at_90, above = (diagnosed(STEPS["compute"], peak_bytes=peak) for peak in (72e9, 72.1e9))
    assert (at_90.is_full, above.is_full) == (False, True)


def test_a_chart_that_asks_for_utilization_alone_is_wrong_about_most_of_them():
    said = {
        limit: by_utilization_alone(diagnosed(step).busy, 0.95) for limit, step in STEPS.items()
    }
    right = [limit for limit in STEPS if said[limit] == limit]
    assert right == ["input"]
    assert said["network"] == said["launch"] == "input"
    assert said["bandwidth"] == "capacity"


def test_the_chart_blames_the_data_below_70_percent_and_memory_above_90():
    assert [by_utilization_alone(*said) for said in ((0.69, 1), (0.7, 0.9), (0.7, 0.91))] == [
        "input",
        "compute",
        "capacity",
    ]


def test_the_same_stretch_is_nobodys_twice():
    """Messages under kernels are hidden; waits under messages are the messages' own."""
    events = (
        Event("kernel", "kernel", 0.0, 4.0, flops=1, nbytes=10),
        Event("kernel, at the same time", "kernel", 3.0, 5.0, flops=1, nbytes=10),
        Event("message", "communication", 3.0, 7.0),
        Event("batch", "input", 6.0, 8.0),
        Event("launch", "host", 0.0, 9.0),
        Event("last", "kernel", 9.5, 10.0, flops=1, nbytes=10),
    )
    shares, busy = diagnose(Trace(events), H100).shares, diagnose(Trace(events), H100).busy
    assert shares["bandwidth"] == busy == pytest.approx(0.55)
    assert shares["network"] == pytest.approx(0.2)
    assert shares["input"] == pytest.approx(0.1)
    assert shares["launch"] == pytest.approx(0.1)
    assert shares["idle"] == pytest.approx(0.05)


def test_a_kernel_slower_than_its_roofs_shows_in_the_efficiency():
    at = place(matmul(4096, 4096, 4096), H100)
    half = Event(
        "x", "kernel", 0.0, 2 * at.seconds, "", at.operation.flops, at.operation.nbytes, True
    )
    assert diagnose(Trace((half,)), H100).efficiency == pytest.approx(0.5)
    assert diagnose(Trace((half,)), H100, "fp8").efficiency == pytest.approx(0.25, rel=1e-3)


def test_a_trace_of_no_time_has_shares_of_nothing():
    found = diagnose(Trace((Event("x", "kernel", 1.0, 1.0),)), H100)
    assert (found.seconds, found.efficiency, found.memory) == (0, 0, None)
    assert set(found.shares.values()) == {0}


# -- virtual time --------------------------------------------------------------------------------


def test_a_device_that_is_never_kept_waiting_takes_the_sum_of_its_operations():
    trace = STEPS["compute"].profile(H100, steps=4)
    work = 32 * place(PRODUCTS[0], H100).seconds
    assert trace.seconds == pytest.approx(work + 5e-6)


def test_batches_made_ahead_hide_behind_compute_as_long_as_they_are_quicker():
    compute = 8 * place(PRODUCTS[0], H100).seconds
    for seconds, each in ((0.5 * compute, compute), (2 * compute, 2 * compute)):
        step = Step(PRODUCTS, input_seconds=seconds, prefetch=2, synchronous=True)
        long, short = (step.profile(H100, steps=n).seconds for n in (40, 20))
        assert (long - short) / 20 == pytest.approx(each, rel=0.1)
    alone = Step(PRODUCTS, input_seconds=0.5 * compute, synchronous=True)
    long, short = (alone.profile(H100, steps=n).seconds for n in (40, 20))
    assert (long - short) / 20 == pytest.approx(1.5 * compute, rel=0.05)


def test_a_worker_that_is_slower_than_the_device_is_waited_for_in_every_step():
    step = Step(PRODUCTS, input_seconds=1.0, prefetch=2)
    waits = step.profile(H100, steps=5).of("input")
    assert [wait.end for wait in waits] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert replace(step, batch_bytes=100).waiting_bytes == 300


def test_who_needs_no_time_for_input_waits_for_none():
    assert STEPS["compute"].profile(H100).of("input") == []


def test_prefetching_trades_memory_for_time():
    step = Step(PRODUCTS, input_seconds=5e-4, synchronous=True, batch_bytes=10**9)
    ahead = replace(step, prefetch=8)
    assert ahead.profile(H100).seconds < step.profile(H100).seconds
    assert ahead.waiting_bytes == 9 * step.waiting_bytes


def test_a_host_that_waits_for_the_loss_launches_late():
    quick = Step(SMALL_ONES[:20] + PRODUCTS)
    waiting = replace(quick, synchronous=True)
    assert waiting.profile(H100, steps=10).seconds > quick.profile(H100, steps=10).seconds


def test_messages_beside_compute_are_hidden_where_there_is_enough_of_it():
    blocking = Step((GRADIENTS, *PRODUCTS * 20))
    beside = replace(blocking, overlap=True)
    shares = [diagnosed(step).shares["network"] for step in (blocking, beside)]
    assert shares[0] > 0.2 > shares[1] == pytest.approx(0, abs=1e-3)


def test_a_step_of_the_small_gpt_is_bound_by_its_launches_on_a_large_device():
    counted = count_operations(lambda: torch.ones(64, 64) @ torch.ones(64, 64))
    assert diagnosed(Step(counted.operations)).limit == "launch"


def test_a_message_waits_for_what_it_sends_and_for_the_message_before_it():
    step = Step((PRODUCTS[0], GRADIENTS, GRADIENTS, PRODUCTS[0]), overlap=True)
    trace = step.profile(H100, link=NDR, steps=2)
    work, message = place(PRODUCTS[0], H100).seconds, place(GRADIENTS, H100, link=NDR).seconds
    first, second, third, _ = trace.of("communication")
    kernels = trace.of("kernel")
    assert first.start == kernels[0].end == pytest.approx(5e-6 + work)
    assert second.start == first.end == pytest.approx(5e-6 + work + message)
    # The product after them waits for neither; the next step's waits for both.
    assert kernels[1].end == pytest.approx(5e-6 + 2 * work)
    assert kernels[2].start == second.end
    assert third.start == kernels[2].end
    alone = replace(step, overlap=False).profile(H100, link=NDR, steps=1)
    assert alone.of("kernel")[1].start == alone.of("communication")[1].end


def test_a_profile_of_a_million_events_is_refused():
    for operations, steps in ((1, 500_001), (2, 250_001)):
        with pytest.raises(ValueError, match=r"at most (500|250),000 of these"):
            Step(PRODUCTS[:operations]).profile(H100, steps=steps)


# -- files ---------------------------------------------------------------------------------------


def test_a_trace_is_read_as_it_was_written(tmp_path):
    trace = STEPS["network"].profile(H100, link=NDR)
    trace.save(tmp_path / "trace.json")
    again = read_trace(tmp_path / "trace.json")
    assert len(again.events) == len(trace.events)
    for event, other in zip(trace.events, again.events, strict=True):
        assert event._replace(start=0, end=0) == other._replace(start=0, end=0)
        assert (event.start, event.end) == pytest.approx((other.start, other.end))
    assert diagnose(again, H100).shares == pytest.approx(diagnose(trace, H100).shares)


def test_a_simulated_worlds_timeline_is_read(tmp_path):
    def program(comm):
        comm.compute(2e-3)
        comm.all_reduce(torch.ones(10_000))

    run = world.simulate(program, 2, cluster=None)
    run.timeline.save(tmp_path / "world.json")
    trace = read_trace(tmp_path / "world.json")
    assert len(trace.of("kernel")) == 2
    assert trace.of("kernel")[0].seconds == pytest.approx(2e-3)
    assert trace.of("communication")


def test_the_profilers_own_trace_is_read_with_the_seconds_that_it_says(tmp_path):
    a = torch.ones(200, 200)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(3):
            torch.relu(a @ a).sum()
    profiled.export_chrome_trace(str(tmp_path / "torch.json"))
    trace = read_trace(tmp_path / "torch.json")
    own = trace.own_seconds()
    theirs = {e.key: (e.count, e.self_cpu_time_total * 1e-6) for e in profiled.key_averages()}
    assert own["aten::mm"][0] == own["aten::matmul"][0] == 3
    assert own.keys() == theirs.keys()
    for name, (_, seconds) in theirs.items():
        assert own[name][1] == pytest.approx(seconds, abs=1e-8)
    assert {event.category for event in trace.events} == {"host"}


def test_gpu_events_of_the_profiler_are_told_apart():
    raw = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1e9, "dur": 2, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 2, "dur": 2},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 2, "dur": 2},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 1},
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "enumerate(DataLoader)#_Next",
            "ts": 0,
            "dur": 1,
        },
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9},
        {"ph": "i", "cat": "kernel", "name": "an instant", "ts": 0},
    ]
    trace = read_trace({"traceEvents": raw})
    names = {category: [e.name for e in trace.of(category)] for category in CATEGORIES}
    assert names == {
        "kernel": ["Memcpy HtoD", "gemm"],
        "communication": ["ncclDevKernel_AllReduce"],
        "host": ["cudaLaunchKernel"],
        "input": ["enumerate(DataLoader)#_Next"],
    }
    gemm = next(event for event in trace.events if event.name == "gemm")
    assert (gemm.start, gemm.seconds) == (pytest.approx(1e3), pytest.approx(2e-6))


def test_own_seconds_are_those_without_what_is_called_inside():
    events = (
        Event("outer", "host", 0.0, 10.0, "a"),
        Event("middle", "host", 1.0, 5.0, "a"),
        Event("inner", "host", 2.0, 3.0, "a"),
        Event("middle", "host", 6.0, 7.0, "a"),
        Event("outer", "host", 0.0, 2.0, "b"),
    )
    own = Trace(events).own_seconds()
    assert own == {"outer": (2, 7.0), "middle": (2, 4.0), "inner": (1, 1.0)}
    last = (Event("outer", "host", 5.0, 9.0), Event("last", "host", 7.0, 9.0))
    assert Trace(last).own_seconds() == {"outer": (1, 2.0), "last": (1, 2.0)}
    assert (Trace(last).start, Trace(last).seconds) == (5.0, 4.0)
    assert (last[0].flops, last[0].nbytes, last[0].product, last[0].lane) == (0, 0, False, "")


@pytest.mark.parametrize("text", ["{", '{"traceEvents": 3}', '{"traceEvents": []}', "[]", '"x"'])
def test_what_is_no_trace_is_refused(tmp_path, text):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(ValueError, match=r"source is .*; it must be a"):
        read_trace(tmp_path / "bad.json")
    with pytest.raises(ValueError, match=r"source is .*; it must be a file of JSON"):
        read_trace(tmp_path / "nowhere.json")


def test_an_event_that_ends_before_it_starts_or_is_of_no_kind_is_refused():
    with pytest.raises(ValueError, match=r"The seconds in events, of x is -1.0"):
        Trace((Event("x", "host", 2.0, 1.0),))
    with pytest.raises(
        ValueError, match="The category in events, of x, is 'lunch'; it must be one"
    ):
        Trace((Event("x", "lunch", 0.0, 1.0),))


def test_a_written_trace_has_what_perfetto_asks_for(tmp_path):
    STEPS["network"].profile(H100, link=NDR).save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    timed = [e for e in events if e["ph"] == "X"]
    assert all({"name", "cat", "ts", "dur", "pid", "tid"} <= e.keys() for e in timed)
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"host", "device", "network"}


def test_operations_of_nothing_are_bandwidths():
    blank = Event("unknown", "kernel", 0.0, 1.0)
    assert diagnose(Trace((blank,)), H100)[2:] == (0, None)  # no part of a roof
    assert diagnose(Trace((blank,)), H100).limit == "bandwidth"
    assert diagnose(Trace((blank._replace(flops=10),)), H100).limit == "bandwidth"
    nothing = Operation("nothing", 0, 0, 0)
    assert Step((nothing,)).profile(H100).seconds == pytest.approx(15e-6)


def test_a_layer_that_decodes_one_token_is_launched_slower_than_it_runs():
    layers = layer_operations(CATALOGUE["gpt2-small"], 1, 1, 128) * 12
    assert diagnosed(Step(layers)).limit == "launch"


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # whose reader waits for a writer
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=r"^source is '.*'; it must be a file of JSON\.$"):
            read_trace(path)
