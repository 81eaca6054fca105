"""The simulated world: determinism, clocks, records, and errors that name the ranks."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dlsys import world
from dlsys.collectives import Plan, Transfer, ring_all_reduce
from dlsys.hardware import DEVICES, LINKS, Cluster, Link

SLOW = Link("slow", latency=1.0, bandwidth=10.0)
H100 = DEVICES["h100-sxm"]
TWO_NODES = Cluster(H100, 2, 4, LINKS["nvlink4"], LINKS["infiniband-ndr"])


def ring_by_hand(comm, tensor):
    """All-reduce over send and receive alone, as a student writes it."""
    n, after, before = comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    parts = [p.clone() for p in tensor.tensor_split(n)]
    for k in range(2 * (n - 1)):
        sent, got = (comm.rank - k) % n, (comm.rank - k - 1) % n
        sending = comm.isend(parts[sent], after)
        arrived = comm.recv(torch.empty_like(parts[got]), before)
        sending.wait()
        parts[got] = parts[got] + arrived if k < n - 1 else arrived
    return torch.cat(parts)


# -- results and records -------------------------------------------------------------------------


def test_a_ring_by_hand_sums_what_the_ranks_hold_and_sends_what_the_plan_sends():
    n, length = 5, 20
    by_hand = world.simulate(lambda c: ring_by_hand(c, torch.arange(length) * c.rank), n)
    by_plan = world.simulate(lambda c: c.all_reduce(torch.arange(length) * c.rank), n)
    for mine, theirs in zip(by_hand.results, by_plan.results, strict=True):
        assert torch.equal(mine, torch.arange(length) * 10)
        assert torch.equal(theirs, mine)
    assert by_hand.traffic.sent == by_plan.traffic.sent == [2 * 4 * 4 * 8] * n
    assert by_hand.traffic.by_kind() == {"send": by_hand.traffic.nbytes}
    assert by_plan.traffic.by_kind() == {"all_reduce": by_plan.traffic.nbytes}


def test_the_same_program_runs_the_same_way_every_time():
    def program(comm):
        torch.rand(comm.rank)  # ranks draw different amounts
        order.append(comm.rank)
        comm.all_reduce(torch.rand(8))
        order.append(comm.rank)
        return torch.rand(3)

    runs = []
    for _ in range(3):
        order: list[int] = []
        run = world.simulate(program, cluster=TWO_NODES)
        runs.append((order, run.traffic.messages, torch.stack(run.results), run.timeline.spans))
    for again in runs[1:]:
        assert again[0] == runs[0][0]
        assert again[1] == runs[0][1]
        assert torch.equal(again[2], runs[0][2])
        assert again[3] == runs[0][3]


def test_each_rank_draws_its_own_random_numbers_and_the_callers_are_left_alone():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()

    def program(comm):
        first = torch.rand(2)
        comm.barrier()
        return torch.cat([first, torch.rand(2)])

    drawn = world.simulate(program, 3, seed=40).results
    assert torch.equal(torch.random.get_rng_state(), before)
    for rank, numbers in enumerate(drawn):
        alone = torch.Generator().manual_seed(40 + rank)
        assert torch.equal(numbers, torch.rand(4, generator=alone))


def test_exactly_one_rank_runs_at_a_time():
    running = 0

    def program(comm):
        nonlocal running
        for _ in range(20):
            running += 1
            assert running == 1
            torch.ones(100).sum()
            running -= 1
            comm.barrier()

    world.simulate(program, 6)


def test_a_collective_leaves_its_argument_as_it_was():
    def program(comm):
        mine = torch.full((4,), comm.rank)
        calls = [comm.all_reduce, comm.reduce_scatter, comm.all_gather, comm.all_to_all]
        for call in [*calls, comm.broadcast, comm.reduce, comm.gather, comm.scatter]:
            call(mine)
            assert torch.equal(mine, torch.full((4,), comm.rank)), call.__name__

    world.simulate(program, 4)


def test_parts_of_uneven_length_join_again():
    rows = torch.arange(14).reshape(7, 2)

    def program(comm):
        part = comm.reduce_scatter(rows)
        assert part.shape == ((comm.rank + 1) * 7 // 3 - comm.rank * 7 // 3, 2)
        return comm.all_gather(part, length=7)

    for joined in world.simulate(program, 3).results:
        assert torch.equal(joined, rows * 3)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_every_reduction_is_torchs(op):
    def program(comm):
        x = torch.arange(6.0) * (comm.rank - 1) + 1
        return comm.all_reduce(x, op=op), comm.reduce(x, dst=2, op=op), comm.reduce_scatter(x, op)

    stacked = torch.stack([torch.arange(6.0) * (r - 1) + 1 for r in range(4)])
    expected = {
        "sum": stacked.sum(0),
        "mean": stacked.mean(0),
        "max": stacked.amax(0),
        "min": stacked.amin(0),
        "prod": stacked.prod(0),
    }[op]
    for rank, (everywhere, at_root, part) in enumerate(world.simulate(program, 4).results):
        assert torch.equal(everywhere, expected)
        assert (at_root is None) == (rank != 2)
        assert torch.equal(part, expected[rank * 6 // 4 : (rank + 1) * 6 // 4])
    assert torch.equal(world.simulate(program, 4).results[2][1], expected)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (4, 3), (4, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_any_shape_and_dtype_goes_through_every_collective(shape, dtype):
    def program(comm):
        x = torch.ones(shape, dtype=dtype)
        total = comm.all_reduce(x)
        assert total.shape == x.shape
        assert total.dtype == dtype
        assert torch.equal(total, x * 3)
        assert torch.equal(comm.broadcast(x, src=1), x)
        assert torch.equal(comm.all_gather(x), torch.cat([x.reshape(shape or (1,))] * 3))
        comm.reduce_scatter(x), comm.all_to_all(x), comm.scatter(x), comm.gather(x), comm.reduce(x)

    world.simulate(program, 3)


def test_non_contiguous_tensors_are_sent_as_they_read():
    def program(comm):
        x = torch.arange(12).reshape(3, 4).t()
        assert torch.equal(comm.all_reduce(x), x * 2)
        if comm.rank == 0:
            comm.send(x[:, 1], 1)
            return None
        return comm.recv(torch.zeros(3, 8, dtype=torch.int64)[:, 0:4][0], 0)

    assert world.simulate(program, 2).results[1].tolist() == [4, 5, 6, 7]


def test_meta_tensors_take_time_and_bytes_but_no_memory():
    def program(comm):
        return comm.all_reduce(torch.empty(70 * 10**9, dtype=torch.bfloat16, device="meta"))

    run = world.simulate(program, cluster=TWO_NODES)
    priced = ring_all_reduce(8).price(140e9, TWO_NODES)
    assert run.results[0].device.type == "meta"
    assert max(run.traffic.sent) == priced.bytes_per_rank == 245e9
    assert run.seconds == pytest.approx(priced.seconds, rel=1e-12)


def test_a_split_groups_by_colour_orders_by_key_and_labels_its_traffic():
    def program(comm):
        row = comm.split(comm.rank // 3, axis="tp")
        column = comm.split(comm.rank % 3, key=-comm.rank, axis="dp")
        assert comm.split(None) is None
        here = torch.tensor([comm.rank])
        return row.all_gather(here).tolist(), column.all_gather(here).tolist(), column.rank

    run = world.simulate(program, 6)
    assert run.results[1] == ([0, 1, 2], [4, 1], 1)
    assert run.results[5] == ([3, 4, 5], [5, 2], 0)
    assert run.traffic.by_axis() == {"tp": 2 * 6 * 8, "dp": 3 * 2 * 8}
    assert run.traffic.count("all_gather", axis="tp", rank=0) == 1
    assert (0, 3) in run.traffic.by_pair()
    assert (0, 4) not in run.traffic.by_pair()


def test_a_plan_may_send_and_receive_the_same_chunk_in_one_round():
    exchange = [Transfer(0, 1, 0, 1, reduce=True), Transfer(1, 0, 0, 1, reduce=True)]
    plan = Plan("all_reduce", "exchange", ranks=2, chunks=1, rounds=[exchange])
    plan.check()
    run = world.simulate(lambda c: plan.run(c, torch.tensor([c.rank + 1])), 2)
    assert [r.item() for r in run.results] == [3, 3]


def test_numbers_and_reductions_may_come_from_numpy_and_torch():
    two, one = np.int64(2), np.int32(1)

    def program(comm):
        mean = comm.all_reduce(torch.ones(2) * comm.rank, op=torch.distributed.ReduceOp.AVG)
        top = comm.all_reduce(torch.tensor(comm.rank), "MAX")
        if comm.rank == 0:
            comm.send(torch.zeros(1), one)
        else:
            comm.recv(torch.zeros(1), np.int64(0))
        return mean.tolist(), top.item(), comm.broadcast(torch.tensor(comm.rank), src=one).item()

    assert world.simulate(program, two).results == [([0.5, 0.5], 1, 1)] * 2


def test_current_is_the_simulated_ranks_communicator():
    run = world.simulate(lambda c: world.current() is c, 2)
    assert run.results == [True, True]


# -- virtual time --------------------------------------------------------------------------------


def test_a_message_takes_latency_plus_bytes_over_bandwidth():
    def program(comm):
        if comm.rank == 0:
            comm.compute(2.0)
            comm.send(torch.zeros(5), 1)  # 20 bytes at 10 bytes/s
        else:
            comm.recv(torch.zeros(5), 0)
        return comm.seconds

    assert world.simulate(program, 2, link=SLOW).results == [5.0, 5.0]


def test_a_port_carries_one_message_at_a_time_and_latency_is_pipelined():
    def to_one(comm):
        if comm.rank == 0:
            for h in [comm.irecv(torch.zeros(5), src) for src in (1, 2, 3)]:
                h.wait()
        else:
            comm.send(torch.zeros(5), 0)
        return comm.seconds

    assert sorted(world.simulate(to_one, 4, link=SLOW).results) == [3.0, 5.0, 7.0, 7.0]


def test_the_earlier_message_gets_the_port_even_when_its_rank_runs_later():
    def program(comm):
        if comm.rank == 0:  # runs first, but is ready only at 10 s
            comm.compute(10.0)
            comm.send(torch.zeros(5), 2)
        elif comm.rank == 1:
            comm.send(torch.zeros(5), 2)
        else:
            late, early = comm.irecv(torch.zeros(5), 0), comm.irecv(torch.zeros(5), 1)
            early.wait(), late.wait()
        return comm.seconds

    assert world.simulate(program, 3, link=SLOW).results == [13.0, 3.0, 13.0]


def test_an_asynchronous_collective_hides_behind_compute():
    plan = ring_all_reduce(8)
    nbytes = 4 * 10**6
    communication = plan.price(nbytes, TWO_NODES).seconds

    def program(comm, seconds):
        handle = comm.all_reduce(torch.empty(10**6, device="meta"), async_op=True)
        comm.compute(seconds, "backward")
        handle.wait()
        return comm.seconds

    for share in (0.0, 0.5, 1.0, 3.0):
        compute = share * communication
        run = world.simulate(program, cluster=TWO_NODES, args=(compute,))
        assert run.seconds == pytest.approx(max(compute, communication), rel=1e-12)
        waited = run.timeline.seconds(0, "wait")
        assert waited == pytest.approx(max(0.0, communication - compute), rel=1e-9)
        assert run.timeline.seconds(0, "compute") == compute


def test_a_collective_ends_when_its_slowest_rank_has_come():
    def program(comm):
        comm.compute(7.0 if comm.rank == 2 else 0.0)
        comm.all_reduce(torch.zeros(4))
        return comm.seconds

    alone = ring_all_reduce(4).price(16, SLOW).seconds
    assert world.simulate(program, 4, link=SLOW).seconds == pytest.approx(7.0 + alone)


def test_devices_of_one_node_share_its_only_card():
    def program(comm):
        if comm.rank < 4:
            comm.send(torch.zeros(25, dtype=torch.uint8), comm.rank + 4)
        else:
            comm.recv(torch.zeros(25, dtype=torch.uint8), comm.rank - 4)
        return comm.seconds

    intra = Link("inside", 0.0, 1000.0)
    own = Cluster(H100, 2, 4, intra, SLOW)
    shared = Cluster(H100, 2, 4, intra, SLOW, nics_per_node=1)
    assert world.simulate(program, cluster=own).seconds == 3.5
    assert world.simulate(program, cluster=shared).seconds == 11.0


def test_torch_operations_cost_what_the_devices_roofline_says():
    m, k, n = 512, 1024, 2048

    def program(comm, kind, dtype):
        a = torch.empty(m, k, device=kind, dtype=dtype, requires_grad=True)
        b = torch.empty(k, n, device=kind, dtype=dtype)
        made = comm.seconds
        out = a @ b
        forward = comm.seconds
        out.relu()
        return made, forward - made, comm.seconds - forward

    with FlopCounterMode(display=False) as counter:
        torch.empty(m, k, device="meta") @ torch.empty(k, n, device="meta")
    for kind in ("meta", "cpu"):
        made, product, relu = world.simulate(
            program, 1, device=H100, args=(kind, torch.bfloat16)
        ).results[0]
        assert made == 0
        nbytes = 2 * (m * k + k * n + m * n)
        by_compute = counter.get_total_flops() / H100.flops["bf16"]
        assert product == pytest.approx(max(by_compute, nbytes / H100.memory_bandwidth))
        assert relu == pytest.approx(2 * 2 * m * n / H100.memory_bandwidth)


@pytest.mark.parametrize(("name", "sizes"), [("addmm", ()), ("baddbmm", (3,))])
def test_a_product_that_adds_in_place_is_not_free(name, sizes):
    def program(comm, name):
        a, b, into = (torch.empty(*sizes, 4096, 4096, device="meta") for _ in range(3))
        getattr(into, name)(a, b)
        return comm.seconds

    plain, in_place = (
        world.simulate(program, 1, device=H100, args=(each,)).seconds for each in (name, f"{name}_")
    )
    assert in_place == plain > 0


def test_an_operation_on_lists_costs_what_those_on_their_tensors_do():
    def program(comm, together):
        many = [torch.empty(1000, device="meta") for _ in range(3)]
        if together:
            torch._foreach_add_(many, many)
        else:
            for each in many:
                each.add_(each)
        return comm.seconds

    one_by_one, together = (
        world.simulate(program, 1, device=H100, args=(each,)).seconds for each in (False, True)
    )
    assert together == pytest.approx(one_by_one)
    assert together > 0


def test_the_backward_pass_is_priced_too():
    def program(comm):
        a = torch.empty(4096, 4096, device="meta", dtype=torch.bfloat16, requires_grad=True)
        b = torch.empty(4096, 4096, device="meta", dtype=torch.bfloat16, requires_grad=True)
        out = a @ b
        forward = comm.seconds
        out.backward(torch.empty_like(out))
        return forward, comm.seconds - forward

    forward, backward = world.simulate(program, 1, device=H100).results[0]
    assert backward == pytest.approx(2 * forward)


def test_views_and_the_worlds_own_copies_are_free():
    def program(comm):
        x = torch.zeros(1000)
        x.view(10, 100).t()[3]
        comm.all_reduce(x)
        return comm.seconds

    assert world.simulate(program, 4, device=H100).seconds == 0


def test_peak_memory_counts_what_is_alive_at_once():
    def program(comm):
        a = torch.zeros(1000)
        b = a + 1
        del a
        c = b + 1
        return (b, c)

    run = world.simulate(program, 2, track_memory=True)
    assert run.peak_memory == [8000, 8000]
    assert world.simulate(program, 2).peak_memory is None


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "scatter", "all_to_all"])
def test_what_a_collective_held_is_let_go_with_its_result_not_when_garbage_is_collected(kind):
    def program(comm):
        x = torch.zeros(1000)
        for _ in range(20):
            getattr(comm, kind)(x)

    gc.disable()
    try:
        run = world.simulate(program, 2, track_memory=True)
    finally:
        gc.enable()
    # The tensor, its copy on the way and the result; not those of 20 calls.
    assert max(run.peak_memory) <= 4 * 4000


def test_a_timeline_is_drawn_and_written_as_a_trace(tmp_path):
    def program(comm):
        comm.compute(1e-3, "forward")
        comm.all_reduce(torch.zeros(1000))

    timeline = world.simulate(program, cluster=TWO_NODES).timeline
    axes = timeline.draw("a step").axes[0]
    assert axes.get_xlabel() == "time (ms)"
    timeline.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    forward = [e for e in events if e["name"] == "forward"]
    assert len(forward) == 8
    assert forward[0]["dur"] == pytest.approx(1000)


# -- errors --------------------------------------------------------------------------------------


def test_everyone_sending_first_is_a_deadlock_that_says_who_waits_where():
    def program(comm):
        comm.send(torch.zeros(1), (comm.rank + 1) % comm.size)
        comm.recv(torch.zeros(1), (comm.rank - 1) % comm.size)

    with pytest.raises(world.DeadlockError) as caught:
        world.simulate(program, 3)
    line = program.__code__.co_firstlineno + 1
    for rank in range(3):
        wait = f"rank {rank} waits in send to rank {(rank + 1) % 3} at test_simulated.py:{line}"
        assert wait in str(caught.value)


def test_a_rank_that_never_joins_a_collective_is_named():
    def program(comm):
        if comm.rank != 2:
            comm.all_reduce(torch.zeros(3))

    with pytest.raises(world.DeadlockError, match=r"all_reduce .* for rank 2 at test_simulated.py"):
        world.simulate(program, 4)
    with pytest.raises(world.DeadlockError, match="rank 2 has finished"):
        world.simulate(program, 4)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (lambda c: c.all_reduce(torch.zeros(3)), lambda c: c.all_gather(torch.zeros(3)), "gather"),
        (lambda c: c.all_reduce(torch.zeros(3)), lambda c: c.all_reduce(torch.zeros(4)), "of 4"),
        (
            lambda c: c.all_reduce(torch.zeros(3)),
            lambda c: c.all_reduce(torch.zeros(3, dtype=torch.int32)),
            "int32",
        ),
        (lambda c: c.broadcast(torch.zeros(3), 0), lambda c: c.broadcast(torch.zeros(3), 1), "1"),
        (
            lambda c: c.all_reduce(torch.zeros(3)),
            lambda c: c.all_reduce(torch.zeros(3), "max"),
            "max",
        ),
        (
            lambda c: c.all_reduce(torch.zeros(3)),
            lambda c: c.all_reduce(torch.zeros(3), plan="tree"),
            "tree",
        ),
        (lambda c: c.barrier(), lambda c: c.split(0), "split"),
    ],
)
def test_collectives_that_differ_between_ranks_are_refused_with_both_calls(first, second, words):
    def program(comm):
        (second if comm.rank == 1 else first)(comm)

    with pytest.raises(world.MismatchError, match=words) as caught:
        world.simulate(program, 2)
    assert "rank 0 called" in str(caught.value)
    assert "rank 1 called" in str(caught.value)
    assert "test_simulated.py:" in str(caught.value)


@pytest.mark.parametrize("target", [torch.zeros(4), torch.zeros(3, dtype=torch.int32)])
def test_a_receive_of_another_shape_or_dtype_is_refused(target):
    def program(comm):
        if comm.rank == 0:
            comm.send(torch.zeros(3), 1)
        else:
            comm.recv(target, 0)

    with pytest.raises(world.MismatchError, match=r"rank 0 .* sends 3 float32 to rank 1"):
        world.simulate(program, 2)


def test_what_is_started_and_never_met_is_an_error():
    with pytest.raises(world.MismatchError, match="never receives it"):
        world.simulate(lambda c: c.rank or (c.isend(torch.zeros(1), 1) and None), 2)
    with pytest.raises(world.MismatchError, match="rank 1 never did"):
        world.simulate(
            lambda c: c.rank or (c.all_reduce(torch.zeros(1), async_op=True) and None), 2
        )


def test_an_exception_ends_the_run_and_tells_the_rank_and_what_the_others_did():
    ended = []

    def program(comm):
        try:
            if comm.rank == 1:
                raise KeyError("lost")
            comm.barrier()
        finally:
            ended.append(comm.rank)

    with pytest.raises(world.RankError) as caught:
        world.simulate(program, 3)
    message = str(caught.value)
    assert "rank 1 of 3 raised KeyError at test_simulated.py:" in message
    assert "rank 0 waits in barrier" in message
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value.__cause__, KeyError)
    assert 0 in ended
    assert 1 in ended
    assert not [t for t in threading.enumerate() if t.name.startswith("rank ")]


def test_an_interrupt_ends_a_rank_that_computes_without_end():
    def program(comm):
        if comm.rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            world.simulate(program, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [t for t in threading.enumerate() if t.name.startswith("rank ")]


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_an_interrupt_that_a_rank_raises_names_it_and_stays_one(run):
    def program(comm):
        if comm.rank == 1:
            raise KeyboardInterrupt("enough")
        comm.recv(torch.ones(1), 1)

    with pytest.raises(KeyboardInterrupt, match="rank 1 of 2 raised KeyboardInterrupt"):
        run(program, 2)


def test_ranks_that_take_whatever_is_raised_do_not_keep_python_from_ending():
    command = [sys.executable, str(Path(__file__).parent / "programs" / "swallow.py")]
    script = subprocess.Popen(command, stdout=-1, stderr=-1, text=True)
    assert script.stdout.readline() == "running\n"
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=60)
    assert (script.returncode, err) == (0, "")
    assert re.fullmatch(r"rank 1 of 2 was at work at swallow.py:\d+\n", out)


# What of an earlier run is used in the next one, or after it.
LATE = {
    "send": lambda kept: kept.comm.send(torch.ones(1), 1 - kept.comm.rank),
    "recv": lambda kept: kept.comm.recv(torch.ones(1), 1 - kept.comm.rank),
    "collective": lambda kept: kept.comm.all_reduce(torch.ones(1)),
    "barrier": lambda kept: kept.comm.barrier(),
    "split": lambda kept: kept.comm.split(0),
    "compute": lambda kept: kept.comm.compute(1.0),
    "part": lambda kept: kept.part.barrier(),
    "handle": lambda kept: kept.handle.wait(),
    "request": lambda kept: kept.request.wait(),
}


@pytest.mark.parametrize("use", LATE.values(), ids=LATE)
@pytest.mark.parametrize("fails", [False, True])
def test_what_is_kept_from_an_earlier_run_is_refused_at_once(use, fails):
    def keep(comm):
        kept[comm.rank] = mine = SimpleNamespace(comm=comm, part=comm.split(0))
        mine.handle = comm.all_reduce(torch.ones(1), async_op=True)
        mine.request = comm.isend(torch.ones(1), 1 - comm.rank)
        comm.recv(torch.ones(1), 1 - comm.rank)
        mine.handle.wait(), mine.request.wait()
        if fails:
            raise ValueError("no more")

    kept: dict = {}
    with suppress(world.RankError):
        world.simulate(keep, 2)
    words = "belongs to a run that has ended"
    with pytest.raises(RuntimeError, match=words):
        use(kept[0])
    with pytest.raises(world.RankError, match=f"rank 0 of 2 raised RuntimeError .*{words}"):
        world.simulate(lambda comm: use(kept[comm.rank]), 2)

    def caught(comm):
        with suppress(Exception):
            use(kept[comm.rank])
        return comm.all_reduce(torch.ones(1)).item()

    assert world.simulate(caught, 2).results == [2, 2]


@pytest.mark.parametrize(
    "call",
    [
        lambda comm: comm.barrier(),
        lambda comm: comm.compute(1.0),
        lambda comm: comm.split(0),
        lambda comm: comm.all_reduce(torch.ones(2)),
        lambda comm: comm.send(torch.ones(2), 0),
        lambda comm: comm.recv(torch.ones(2), 0),
    ],
    ids=["barrier", "compute", "split", "all_reduce", "send", "recv"],
)
def test_another_ranks_communicator_is_refused_in_a_sentence_that_names_both_ranks(call):
    held = {}

    def program(comm):
        held[comm.rank] = comm
        comm.barrier()
        if comm.rank == 0:
            call(held[1])

    words = "the communicator of rank 1, and rank 0 calls it; it must be rank 0's own"
    with pytest.raises(world.RankError, match=words):
        world.simulate(program, 2)


def test_another_ranks_handle_is_refused_in_a_sentence_that_names_both_ranks():
    held = {}

    def program(comm):
        held[comm.rank] = comm.all_reduce(torch.ones(2), async_op=True)
        if comm.rank == 1:
            held[0].wait()
        held[comm.rank].wait()

    with pytest.raises(world.RankError, match="of rank 0, and rank 1 calls it"):
        world.simulate(program, 2)


def test_the_threads_of_ranks_that_never_wait_do_not_pile_up():
    def program(comm):
        return sum(t.name.startswith("rank ") and t.is_alive() for t in threading.enumerate())

    assert max(world.simulate(program, 200).results) < 100


def test_a_rank_that_the_system_gives_no_thread_is_named(monkeypatch):
    def begin(thread):
        if thread.name == "rank 5":
            raise RuntimeError("can't start new thread")
        begin_as_ever(thread)

    begin_as_ever = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", begin)
    for program in (lambda comm: None, lambda comm: comm.barrier()):
        with pytest.raises(world.WorldError, match=r"rank 5 of 8 could not start: .* fewer ranks"):
            world.simulate(program, 8)
    assert not [t for t in threading.enumerate() if t.name.startswith("rank ")]


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_a_rank_that_exits_is_an_error_and_does_not_end_the_caller(run):
    with pytest.raises(world.RankError, match="rank 1 of 2 raised SystemExit"):
        run(lambda comm: comm.rank and sys.exit("bye"), 2)


@pytest.mark.parametrize("run", [world.simulate, world.launch])
def test_a_program_that_cannot_be_called_is_refused_before_anything_runs(run):
    with pytest.raises(
        TypeError, match=r"args is \(1,\); it must be what <lambda>\(comm\) takes .*: too many"
    ):
        run(lambda comm: None, 2, args=(1,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.send(torch.zeros(1), 5), "ranks are 0 to 1"),
        (lambda c: c.send(torch.zeros(1), c.rank), "itself"),
        (lambda c: c.recv([0.0], 1 - c.rank), "torch.Tensor"),
        (
            lambda c: c.broadcast(torch.zeros(1), src=2),
            "src is 2; it must be a rank .* from 0 to 1",
        ),
        (lambda c: c.all_reduce(torch.zeros(1), "average"), "sum, mean, max"),
        (lambda c: c.all_reduce(torch.zeros(1, dtype=torch.int32), "mean"), "mean of integers"),
        (lambda c: c.all_reduce(torch.zeros(1), plan="star"), "star"),
        (lambda c: c.all_gather(torch.zeros(1), plan=ring_all_reduce(2)), "plan for all_reduce"),
        (lambda c: c.all_reduce(torch.zeros(1), plan=ring_all_reduce(3)), "3 ranks"),
        (lambda c: ring_all_reduce(4).run(c, torch.zeros(1)), "4 ranks"),
        (lambda c: c.all_gather(torch.zeros(3), length=7), "length 7"),
        (lambda c: c.send(torch.zeros(1), True), "cannot send to rank True"),
        (lambda c: c.compute(-1.0), "seconds of compute is -1.0"),
        (lambda c: c.compute(float("inf")), "seconds of compute is inf"),
        (lambda c: c.all_gather([torch.zeros(1)], torch.zeros(1)), "returns its result"),
        (lambda c: c.reduce_scatter(torch.zeros(1), torch.zeros(2)), "fills no other"),
        (lambda c: c.all_reduce(torch.zeros(2, dtype=torch.complex64), "max"), "no order"),
    ],
)
def test_bad_input_is_a_sentence(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        world.simulate(call, 2)


@pytest.mark.parametrize("ranks", [0, -1, 2.5, True, None])
def test_a_rank_count_below_one_is_refused(ranks):
    with pytest.raises(ValueError, match="ranks"):
        world.simulate(lambda c: None, ranks)


def test_a_cluster_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"8 devices .* 4 ranks"):
        world.simulate(lambda c: None, 4, cluster=TWO_NODES)


def test_one_rank_is_a_world_too():
    def program(comm):
        x = torch.arange(3.0)
        comm.barrier()
        assert comm.split(0).size == 1
        return [comm.all_reduce(x), comm.all_gather(x), comm.reduce_scatter(x), comm.all_to_all(x)]

    run = world.simulate(program, 1, link=SLOW)
    assert all(torch.equal(r, torch.arange(3.0)) for r in run.results[0])
    assert run.traffic.messages == []
    assert run.seconds == 0


def test_simulations_side_by_side_leave_the_collector_as_it_was():
    before = gc.get_threshold()
    begun, other_begun, ended = (threading.Event() for _ in range(3))

    def first(comm):
        begun.set()
        other_begun.wait(60)

    def second(comm):
        other_begun.set()
        ended.wait(60)
        return gc.get_threshold()[0]

    with ThreadPoolExecutor(2) as both:
        one = both.submit(world.simulate, first, 1)
        begun.wait(60)
        other = both.submit(world.simulate, second, 1)
        one.result()
        ended.set()
        assert other.result().results == [max(10_000, before[0])]
    assert gc.get_threshold() == before


def test_a_simulation_within_a_simulation_leaves_it_as_it_was():
    def program(comm):
        within = world.simulate(lambda comm: torch.get_num_threads(), 1).results
        return within, torch.get_num_threads(), gc.get_threshold()[0]

    before = gc.get_threshold(), torch.get_num_threads()
    most = max(10_000, before[0][0])
    assert world.simulate(program, 2).results == [([1], 1, most)] * 2
    assert (gc.get_threshold(), torch.get_num_threads()) == before


def test_seconds_of_few_bits_add_up_as_any_others():
    def program(comm):
        for _ in range(2):
            comm.compute(np.float16(60_000))
        return comm.seconds

    assert world.simulate(program, 1).results == [120_000]
