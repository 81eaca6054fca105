"""Real processes: what comes back from them, how they end, and that none stays behind."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys import world
from dlsys.collectives import (
    pairwise_all_to_all,
    ring_all_gather,
    ring_all_reduce,
    tree_all_reduce,
    tree_broadcast,
)
from dlsys.hardware import Link
from dlsys.world.alpha_beta import SIZES, Sample, fit
from dlsys.world.real import fork_server, lines, processes
from tests import torchrun
from tests.mechanisms.disks import in_a_child

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module", autouse=True)
def _servers_start_soon():
    """Several are killed here; no rank steps an optimizer, and so none needs what these import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server, "_WITH_OPTIMIZERS", "no module")
        yield


@pytest.fixture(scope="module", autouse=True)
def _answers_may_take_long():
    """All can answer here, on a busy machine late."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_ANSWER", 60.0)
        yield


def failure(program, ranks=3, **options):
    try:
        world.launch(program, ranks, **options)
    except Exception as error:
        return error
    pytest.fail("the launch went through")


# -- what goes there and comes back --------------------------------------------------------------


def test_functions_arguments_and_results_travel():
    offset = 3

    def program(comm, scale, table):
        inner = lambda x: x * scale + offset  # noqa: E731 (a function that no module holds)
        return {"rank": comm.rank, "value": inner(table["x"]), "call": inner}

    run = world.launch(program, 2, args=(2, {"x": torch.arange(3)}))
    for rank, result in enumerate(run.results):
        assert result["rank"] == rank
        assert result["value"].tolist() == [3, 5, 7]
        assert result["call"](10) == 23


def test_large_results_come_back_whole():
    run = world.launch(lambda comm: torch.full((2**22,), comm.rank), 2)
    assert all(torch.equal(r, torch.full((2**22,), n)) for n, r in enumerate(run.results))


def test_each_rank_draws_the_random_numbers_that_it_draws_when_simulated():
    def program(comm):
        return torch.rand(3)

    real = world.launch(program, 3, seed=5).results
    simulated = world.simulate(program, 3, seed=5).results
    assert torch.equal(torch.stack(real), torch.stack(simulated))


def test_what_ranks_print_appears_where_the_caller_prints(capsys):
    def program(comm):
        print("rank", comm.rank, "of", comm.size)
        print("no newline", end="")

    world.launch(program, 2)
    text = capsys.readouterr().out
    assert "rank 0 of 2\n" in text
    assert "rank 1 of 2\n" in text
    assert text.count("no newline") == 2


def test_variables_of_the_environment_are_those_of_the_caller(monkeypatch):
    monkeypatch.setenv("DLSYS_TEST", "first")
    assert world.launch(lambda comm: os.environ["DLSYS_TEST"], 1).results == ["first"]
    monkeypatch.setenv("DLSYS_TEST", "second")
    assert world.launch(lambda comm: os.environ["DLSYS_TEST"], 1).results == ["second"]


def test_a_rank_computes_with_the_threads_it_is_given():
    assert world.launch(lambda comm: torch.get_num_threads(), 2).results == [1, 1]
    assert world.launch(lambda comm: torch.get_num_threads(), 1, threads=2).results == [2]


def test_the_run_holds_the_traffic_of_all_ranks_and_when_it_was():
    def program(comm):
        comm.all_reduce(torch.ones(8), plan="ring")
        comm.all_reduce(torch.ones(8))
        return comm.traffic.sent

    run = world.launch(program, 4)
    assert run.traffic.sent == run.traffic.received == [2 * 3 * 2 * 4] * 4
    assert run.traffic.count("all_reduce") == 8
    assert run.results[2] == [0, 0, 48, 0]  # while it runs a rank knows its own alone
    assert all(0 <= m.start <= m.end <= run.seconds for m in run.traffic.messages)
    assert {s.rank for s in run.timeline.spans if s.kind == "communication"} == {0, 1, 2, 3}
    assert run.timeline.draw() is not None


def test_the_current_world_is_the_communicator_the_program_got():
    def program(comm):
        return world.current() is comm is world.from_environment()

    assert all(world.launch(program, 2).results)


def test_outside_of_any_world_there_is_no_current_one(monkeypatch):
    with pytest.raises(RuntimeError, match=r"world\.simulate or world\.launch"):
        world.current()
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match=r"lacks RANK.*torchrun"):
        world.from_environment()


def test_the_librarys_plans_agree_with_torchs_own_collectives():
    def program(comm):
        x = (torch.arange(12.0) * (comm.rank + 1)).reshape(4, 3)
        reduced, shifted = x.clone(), torch.empty_like(x)
        dist.all_reduce(reduced)
        dist.all_to_all_single(shifted, x)
        parts = [torch.empty_like(x) for _ in range(comm.size)]
        dist.all_gather(parts, x)
        sent = x.clone()
        dist.broadcast(sent, 2)
        return [
            torch.equal(comm.all_reduce(x, plan="halving_doubling"), reduced),
            torch.equal(comm.reduce_scatter(x, plan="ring"), reduced[comm.rank, None]),
            torch.equal(comm.all_to_all(x, plan="pairwise"), shifted),
            torch.equal(comm.all_gather(x, plan="ring"), torch.cat(parts)),
            torch.equal(comm.broadcast(x, 2, plan="tree"), sent),
        ]

    assert world.launch(program, 4).results == [[True] * 5] * 4


# -- how it ends when something is wrong ---------------------------------------------------------


def test_an_exception_names_the_rank_its_line_and_what_the_others_did():
    class SpecialError(KeyError):
        pass

    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise SpecialError("lost")
        comm.all_reduce(torch.ones(3))

    error = failure(program)
    assert isinstance(error, world.RankError)
    assert isinstance(error, SpecialError)
    assert type(error.__cause__) is SpecialError
    text = str(error)
    assert "rank 1 of 3 raised SpecialError: 'lost'" in text
    assert 'raise SpecialError("lost")' in text
    assert "rank_process.py" not in text
    for rank in (0, 2):
        # Real ranks may not have come as far as rank 1 when it fails.
        doing = (
            rf"rank {rank} (waits in (barrier|all_reduce of 3 float32, sum).*|is busy) at test_p"
        )
        assert re.search(doing, text.partition("Meanwhile")[2]), text


def test_an_exception_that_cannot_travel_is_still_told():
    class HeldError(ValueError):
        def __init__(self, text):
            super().__init__(text)
            self.generator = (i for i in range(3))

    def program(comm):
        raise HeldError("it holds a generator")

    error = failure(program, 1)
    assert isinstance(error, world.RankError)
    assert "rank 0 of 1 raised HeldError: it holds a generator" in str(error)


class NumberedError(Exception):
    """An exception that is made from a number alone."""

    def __init__(self, code):
        super().__init__(f"code {int(code)}")


class MuteError(Exception):
    """An exception whose text its author got wrong."""

    def __str__(self):
        return self.reason


class ChangedError(Exception):
    """An exception that arrives as something else."""

    def __reduce__(self):
        return int, (3,)


@pytest.mark.parametrize("run", [world.simulate, world.launch])
@pytest.mark.parametrize(
    ("error", "value", "text"),
    [
        (NumberedError, 3, "code 3"),
        (MuteError, 3, "(its text cannot be read)"),
        (ChangedError, "why", "why"),
    ],
)
def test_an_exception_that_is_unlike_others_is_still_the_ranks(run, error, value, text):
    def program(comm):
        raise error(value)

    with pytest.raises(world.RankError) as caught:
        run(program, 2)
    assert re.match(
        rf"rank \d of 2 raised {error.__name__}.*: {re.escape(text)}\n", str(caught.value)
    )


def test_a_result_that_cannot_be_made_again_is_refused():
    class Point(Exception):  # noqa: N818
        def __init__(self, x, y):
            super().__init__(f"{x}, {y}")

    error = failure(lambda comm: Point(1, 2) if comm.rank else None, 2)
    assert isinstance(error, TypeError)
    assert "rank 1 returned what cannot be read here (" in str(error)
    assert "missing 1 required positional argument: 'y'): return tensors" in str(error)


def test_a_result_that_cannot_travel_is_refused_with_what_can():
    error = failure(lambda comm: (i for i in range(3)), 2)
    assert isinstance(error, TypeError)
    assert "returned generator, which cannot be sent" in str(error)
    assert "return tensors" in str(error)


@pytest.mark.parametrize(
    ("die", "words"),
    [
        (lambda: os._exit(3), "rank 1 of 3 exited with code 3 before"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1 of 3 was ended by SIGKILL"),
        (lambda: os.abort(), "rank 1 of 3 was ended by SIGABRT"),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_rank_that_dies_is_named_with_how_it_died(die, words, check):
    def program(comm):
        if comm.rank == 1:
            die()
        comm.recv(torch.ones(3), 1)

    error = failure(program, check=check)
    assert type(error) is world.WorldError
    assert words in str(error)


def test_the_time_limit_names_the_ranks_that_still_run_and_their_lines():
    def program(comm):
        if comm.rank == 1:
            return
        while comm.rank == 2:
            pass
        comm.recv(torch.ones(1), 2)

    for seconds in (1.0, 8.0, 64.0):  # until it is enough for rank 1 to end, and others to wait
        error = failure(program, timeout=seconds)
        assert isinstance(error, TimeoutError)
        text = str(error)
        if "rank 1 has finished" in text and "rank 0 waits" in text and "rank 2 is busy" in text:
            break
    assert f"time limit of {seconds:g} s while 2 of 3 ranks still ran" in text
    assert "rank 0 waits in recv from rank 2 at test_processes.py:" in text
    assert "rank 1 has finished" in text
    assert "rank 2 is busy at test_processes.py:" in text


def everyone_sends_first(comm):
    comm.send(torch.ones(2), (comm.rank + 1) % comm.size)
    comm.recv(torch.ones(2), (comm.rank - 1) % comm.size)


def one_does_not_come(comm):
    if comm.rank != 1:
        comm.all_reduce(torch.ones(4))


def other_shapes(comm):
    comm.all_reduce(torch.ones(4 + comm.rank % 2))


def other_collectives(comm):
    return comm.barrier() if comm.rank == 1 else comm.all_gather(torch.ones(2))


def other_plans(comm):
    comm.all_reduce(torch.ones(4), plan="ring" if comm.rank else "tree")


def a_letter_too_long(comm):
    if comm.rank == 0:
        comm.send(torch.ones(8), 1)
    elif comm.rank == 1:
        comm.recv(torch.ones(4), 0)


def a_letter_of_another_type(comm):
    if comm.rank == 0:
        comm.send(torch.ones(4), 1)
    elif comm.rank == 1:
        comm.recv(torch.ones(4, dtype=torch.int32), 0)


def a_letter_nobody_takes(comm):
    if comm.rank == 0:
        comm.isend(torch.ones(4), 1)


def round_a_ring(comm, x):
    """Start to send x to the right, and receive from the left; returns the handle."""
    sending = comm.isend(x, (comm.rank + 1) % comm.size)
    comm.recv(torch.zeros(4), (comm.rank - 1) % comm.size)
    return sending


def a_send_nobody_waits_for(comm):
    round_a_ring(comm, torch.ones(4))


def a_receive_nobody_waits_for(comm):
    receiving = comm.irecv(torch.zeros(4), (comm.rank - 1) % comm.size)
    comm.send(torch.ones(4), (comm.rank + 1) % comm.size)
    comm.barrier()
    return None if comm.rank == 0 else receiving.wait().tolist()


def a_collective_nobody_waits_for(comm):
    comm.all_reduce(torch.ones(4), async_op=True)
    comm.barrier()


def a_tensor_changed_while_it_is_sent(comm):
    x = torch.ones(4)
    sending = round_a_ring(comm, x)
    x += 1
    sending.wait()


def a_part_changed_while_it_is_sent(comm):
    x = torch.ones(8)
    sending = round_a_ring(comm, x[:4])
    x[3] = 2
    sending.wait()


def a_collective_not_all_come_to(comm):
    if comm.rank == 0:
        comm.all_reduce(torch.ones(4), async_op=True)


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (everyone_sends_first, world.DeadlockError, "rank 2 waits in send to rank 0 at"),
        (one_does_not_come, world.DeadlockError, "(collective number 1) for rank 1 at"),
        (other_shapes, world.MismatchError, "called all_reduce of 5 float32, sum"),
        (other_collectives, world.MismatchError, "rank 1 called barrier"),
        (other_plans, world.MismatchError, "called all_reduce of 4 float32, sum, by tree"),
        (a_letter_too_long, world.MismatchError, "which receives into 4 float32: shape and"),
        (a_letter_of_another_type, world.MismatchError, "which receives into 4 int32: shape and"),
        (a_letter_nobody_takes, world.MismatchError, "rank 0 sends 4 float32 (send to rank 1"),
        (a_collective_not_all_come_to, world.MismatchError, "and ranks 1, 2 never did"),
        (a_send_nobody_waits_for, world.UnwaitedError, "never waited for its isend to rank 1,"),
        (a_receive_nobody_waits_for, world.UnwaitedError, "rank 0 never waited for its irecv"),
        (a_collective_nobody_waits_for, world.UnwaitedError, "its all_reduce of 4 float32, sum"),
        (a_tensor_changed_while_it_is_sent, world.UnwaitedError, "changed the tensor of its isend"),
        (a_part_changed_while_it_is_sent, world.UnwaitedError, "changed the tensor of its isend"),
    ],
)
def test_ranks_that_do_not_fit_together_get_the_same_error_in_both_worlds(program, kind, words):
    real = failure(program)
    with pytest.raises(kind) as simulated:
        world.simulate(program, 3)
    assert type(real) is type(simulated.value) is kind
    for error in (real, simulated.value):
        assert words in str(error)


def test_after_an_error_the_next_launch_is_a_fresh_world():
    failure(other_shapes)
    assert world.launch(lambda comm: comm.all_reduce(torch.ones(1)).item(), 2).results == [2, 2]


def test_tensors_without_data_are_refused():
    error = failure(lambda comm: comm.all_reduce(torch.ones(2, device="meta")), 1)
    assert isinstance(error, ValueError)
    assert "world.simulate takes such tensors" in str(error)


@pytest.mark.parametrize("ranks", [0, -1, 2.0, True, "4"])
def test_a_rank_count_below_one_is_refused(ranks):
    with pytest.raises(ValueError, match=r"ranks is .* whole number of at least 1"):
        world.launch(lambda comm: None, ranks)


def test_a_time_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="timeout is 0; it must be a finite number above zero"):
        world.launch(lambda comm: None, 1, timeout=0)


# -- alpha and beta ------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [ring_all_reduce(4), tree_broadcast(5), pairwise_all_to_all(3)])
def test_a_fit_finds_the_link_that_the_times_come_from(plan):
    link = Link("true", latency=40e-6, bandwidth=3e9)
    sizes = (1024, 65536, 2**22)
    times = [plan.price(n, link).seconds for n in sizes]
    found = fit(plan, [Sample(n, t, t, t) for n, t in zip(sizes, times, strict=True)])
    assert found.latency == pytest.approx(link.latency)
    assert found.bandwidth == pytest.approx(link.bandwidth)


def test_times_that_noise_makes_steep_or_falling_still_give_a_link():
    plan = ring_all_reduce(2)
    steep = fit(plan, [Sample(n, t, t, t) for n, t in ((10, 1.0), (20, 3.0), (30, 6.0))])
    assert steep.latency == 0.0
    assert 10 / 6 < steep.bandwidth < 10
    falling = fit(plan, [Sample(n, t, t, t) for n, t in ((10, 6.0), (20, 3.0), (30, 1.0))])
    assert 0.5 < falling.latency < 3.0  # two messages, one after the other
    assert falling.bandwidth == pytest.approx(30.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-6, 1e2), min_size=len(SIZES), max_size=len(SIZES)))
def test_whatever_seconds_a_busy_machine_shows_a_tree_of_two_takes_one_to_two_rings(times):
    """The chapter on collectives asserts this of real measurements, beside other programs."""
    ring, tree = ring_all_reduce(2), tree_all_reduce(2)
    link = fit(ring, [Sample(n, t, t, t) for n, t in zip(SIZES, times, strict=True)])
    costs = [plan.price(2**22, link).seconds for plan in (ring, tree)]
    assert costs[0] < costs[1] < 2.001 * costs[0]


def test_a_measured_link_predicts_and_draws_plans():
    found = world.measure(2, sizes=(1024, 2**20), repeats=3)
    assert found.link.latency >= 0
    assert [s.nbytes for s in found.samples] == [1024, 2**20]
    assert all(0 < s.fastest <= s.seconds <= s.slowest for s in found.samples)
    other = tree_broadcast(2)
    assert found.predict(other, 4096) == other.price(4096, found.link).seconds
    samples = world.measure_plan(other, sizes=(4096, 65536), repeats=2)
    axes = found.draw((other, samples)).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == [
        "ring all_reduce",
        "tree broadcast",
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: world.measure(1), "ranks is 1; it must be a whole number of at least 2"),
        (lambda: world.measure(2, sizes=(1024,)), "two sizes or more"),
        (
            lambda: world.measure(2, repeats=0),
            "repeats is 0; it must be a whole number of at least 1",
        ),
        (lambda: world.measure_plan(ring_all_gather(3), sizes=(4,)), "multiples of 12"),
        (lambda: world.measure_plan(ring_all_reduce(2), sizes=(0,)), "multiples of 4"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# -- programs of their own -----------------------------------------------------------------------


def start(*command, **options):
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.fixture(scope="module")
def without_guard():
    """The exit status of a script that launches at its top level, what it printed, and its errors."""
    script = start(PROGRAMS / "launch_without_guard.py")
    out, err = script.communicate(timeout=120)
    return script.returncode, out.splitlines(), err


def test_a_script_needs_no_guard_and_nothing_is_said_on_standard_error(without_guard):
    status, out, err = without_guard
    assert (status, err) == (0, "")
    assert out[:3] == ["the script runs", "rank 1 prints", "[60.0, 60.0, 60.0] True"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork beside threads
def test_a_launch_within_a_launch_is_refused_at_once_also_in_what_a_rank_forks():
    def refused():
        with pytest.raises(
            RuntimeError, match=r"^launch was called by a rank of another launch, or"
        ):
            world.launch(lambda comm: comm.rank, 2)
        return "refused"

    def program(comm):
        return refused(), in_a_child(refused)

    assert world.launch(program, 2).results == [("refused", "refused")] * 2
    assert world.launch(lambda comm: comm.rank, 2).results == [0, 1]


def test_a_process_that_python_forks_launches_by_a_server_of_its_own(without_guard):
    _, out, err = without_guard
    assert (out[3:], err) == (["forked: [0, 1]", "parent: [0, 1]"], "")


def test_no_process_outlives_a_script_that_is_interrupted():
    script = start(PROGRAMS / "wait_for_ever.py", start_new_session=True)
    assert script.stdout.readline() == "running\n"
    assert script.stdout.readline() == "running\n"
    os.killpg(script.pid, signal.SIGINT)  # as a terminal does: the ranks get it, too
    # Every process holds the other end of these pipes: their end is the end of all of them.
    out, err = script.communicate(timeout=60)
    assert out == ""
    assert script.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1


def is_there(number):
    """Whether a process has this number; one that has ended and waits to be asked how has not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition):
    until = time.monotonic() + 120
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc, and adopts orphans")


@pytest.fixture(scope="module")
def leaving(tmp_path_factory):
    """A script at the run whose ranks wait, after the runs that end; and by these runs' names, what
    was said, the numbers of all processes, and which of these were there when it was over."""
    folder, seen = tmp_path_factory.mktemp("numbers"), {}
    files = {how: folder / how for how in ("return", "fail", "wait")}
    script = start(PROGRAMS / "leave_processes.py", *files.values(), stdin=subprocess.PIPE)
    with script:
        for how in ("return", "fail"):
            said = []
            while (line := script.stdout.readline()) != f"{how} is over\n":
                assert line, script.communicate()
                said.append(line)
            numbers = files[how].read_text().split()
            seen[how] = said, numbers, [n for n in numbers if is_there(n)]
            script.stdin.write("go on\n")
            script.stdin.flush()
        yield script, seen, files["wait"]
        script.kill()


@on_linux
@pytest.mark.parametrize(("how", "says"), [("return", ""), ("fail", "exited with code 3")])
def test_what_ranks_started_ends_with_the_run_also_daemons(leaving, how, says):
    said, numbers, left = leaving[1][how]
    assert [line for line in said if line != "running\n" and not (says and says in line)] == []
    assert (len(numbers), left) == (8, [])


@on_linux
def test_all_ends_when_python_is_killed_though_a_process_that_it_forked_lives_on(leaving):
    script, _, file = leaving
    server, child = script.stdout.readline().split()
    try:
        assert script.stdout.readline() == "running\n"
        assert script.stdout.readline() == "running\n"
        numbers = [server, *file.read_text().split()]
        assert len(numbers) == 9
        assert all(map(is_there, numbers))
        script.kill()
        assert script.wait() == -signal.SIGKILL
        assert wait_until(lambda: not any(map(is_there, numbers)))
        # All who are printed to, or may print, have let go of it; none has complained.
        assert script.communicate(timeout=60) == ("", "")
        assert is_there(child)
    finally:
        os.kill(int(child), signal.SIGKILL)


@on_linux
def test_a_rank_whose_child_holds_its_pipe_is_still_seen_to_die():
    def program(comm):
        if comm.rank == 1:
            if os.fork() == 0:
                time.sleep(600)
            os._exit(3)
        comm.barrier()

    error = failure(program, 2, check=False)
    assert type(error) is world.WorldError  # and no TimeoutError: nobody waited for the limit
    assert "rank 1 of 2 exited with code 3" in str(error)


def test_after_its_server_was_killed_a_launch_starts_another_one():
    world.launch(lambda comm: None, 1)
    server = fork_server._server.process
    server.kill()
    server.wait()
    assert world.launch(lambda comm: comm.rank, 2).results == [0, 1]


def test_a_launch_starts_another_server_where_the_old_one_is_about_to_end():
    world.launch(lambda comm: None, 1)
    old = fork_server._server
    old.process.send_signal(signal.SIGSTOP)  # it is there still
    old.line.shutdown(socket.SHUT_RDWR)  # and its line is not, as when a process ends
    try:
        assert world.launch(lambda comm: comm.rank, 2).results == [0, 1]
    finally:
        old.process.kill()


@on_linux
def test_a_server_that_ends_while_it_should_fork_is_told_of(monkeypatch):
    world.launch(lambda comm: None, 1)
    server = fork_server._server.process
    server.send_signal(signal.SIGSTOP)  # so that what is asked next waits at its socket

    def ask_and_kill(line):
        fork_server.fork_keeper(line)
        server.kill()

    monkeypatch.setattr(lines, "fork_keeper", ask_and_kill)
    error = failure(lambda comm: None, 2)
    assert type(error) is world.WorldError
    assert "the process that keeps the ranks was ended" in str(error)


def test_the_time_limit_counts_from_the_call():
    world.launch(lambda comm: None, 1)
    error = failure(lambda comm: comm.barrier(), 300, timeout=1e-3)  # no rank is ready so soon
    assert isinstance(error, TimeoutError)
    assert "while 300 of 300 ranks still ran" in str(error)
    assert "rank 15 has not started" in str(error)  # the last one named
    assert "  and 284 more ranks" in str(error)


def test_a_rank_that_cannot_get_its_pipe_is_named():
    world.launch(lambda comm: None, 1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/dev/fd")))
    most = next(n for n in itertools.count() if n - len(used & set(range(n))) == 40)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        error = failure(lambda comm: None, 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert isinstance(error, world.WorldError)
    words = r"rank \d+ of 100 could not start \(.*Too many open files"
    assert re.search(words, str(error))


def test_a_module_that_ranks_import_does_not_launch_again_in_each_of_them(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "launches_as_it_is_imported.py").write_text(
        "from dlsys import world\n\ndef program(comm):\n    return comm.rank\n\n"
        "world.launch(program, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(world.WorldError) as caught:
        import_module("launches_as_it_is_imported")
    assert 'put the call under `if __name__ == "__main__":`' in str(caught.value)
    assert "could not start" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_communicator_of_a_group_that_has_ended_is_refused_at_once(tmp_path):
    def begin(name):
        dist.init_process_group("gloo", f"file://{tmp_path}/{name}", rank=0, world_size=1)
        return world.current()

    try:
        first = begin("first")
        part = first.split(0)
        handle = first.all_reduce(torch.ones(2), async_op=True)
        dist.destroy_process_group()
        second = begin("second")
        for late in (first.barrier, lambda: part.all_reduce(torch.ones(1)), handle.wait):
            with pytest.raises(RuntimeError, match=r"default group of torch.distributed that has"):
                late()
        assert second.all_reduce(torch.ones(1)).tolist() == [1]
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of a fork beside threads
def test_the_same_file_runs_under_torchrun(tmp_path):
    options, program = ["--nproc-per-node", "2"], [str(PROGRAMS / "sum_of_ranks.py")]
    said, errors = torchrun.ended(tmp_path, run=torchrun.begin(tmp_path, "run", options, program))
    assert said == {"run": (0, ["2 ranks agree on [3]"])}, errors
