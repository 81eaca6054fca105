"""What a world refuses before anything runs: both worlds in the same sentences."""

from __future__ import annotations

import functools
import threading
from fractions import Fraction

import numpy as np
import pytest
import torch

from dlsys import world
from dlsys.hardware import DEVICES, LINKS

both = pytest.mark.parametrize("run", [world.simulate, world.launch])


def nothing(comm, *args):
    """The empty program."""


def generator(comm):
    yield comm.rank


async def coroutine(comm):
    return comm.rank


async def asynchronous_generator(comm):
    yield comm.rank


class Generator:
    def __call__(self, comm):
        yield comm.rank


UNRUN = [generator, coroutine, asynchronous_generator, Generator(), functools.partial(generator)]


@both
@pytest.mark.parametrize("program", UNRUN, ids=lambda p: getattr(p, "__name__", type(p).__name__))
def test_a_program_whose_call_runs_nothing_is_refused(run, program):
    with pytest.raises(
        TypeError,
        match=r"program is .*(yield|async).* its call would run nothing of it; it must be",
    ):
        run(program, 2)


# What nobody awaited is told when it is collected. So are sockets of other tests, which are no error.
@pytest.mark.filterwarnings("error:coroutine:RuntimeWarning")
@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@both
@pytest.mark.parametrize("program", [generator, coroutine, asynchronous_generator])
def test_a_result_that_still_has_to_run_is_refused(run, program):
    with pytest.raises(TypeError, match=r"rank 0 returned a? ?(async_)?(generator|coroutine)"):
        run(lambda comm: program(comm), 1)


@both
@pytest.mark.parametrize("args", ["ab", b"ab", 5, None, {1: 2}, {3}, iter((1,)), torch.ones(1)])
def test_arguments_that_are_no_sequence_are_refused(run, args):
    with pytest.raises(
        TypeError, match=r"args is .*; it must be a tuple or a list of what follows comm"
    ):
        run(nothing, 1, args=args)


@both
def test_a_refused_generator_of_arguments_is_not_used_up(run):
    args = (x for x in "a")
    with pytest.raises(TypeError, match=r"args is <generator.* a tuple or a list"):
        run(nothing, 1, args=args)
    assert list(args) == ["a"]


@both
@pytest.mark.parametrize("args", [(), [1, 2], range(2)])
def test_every_rank_gets_a_sequence_of_arguments(run, args):
    assert run(lambda comm, *args: args, 2, args=args).results == [tuple(args)] * 2


@both
def test_a_seed_that_is_too_large_for_torch_is_refused(run):
    with pytest.raises(
        ValueError, match=r"seed is .*; it must be at most 9,223,372,036,854,775,807"
    ):
        run(nothing, 1, seed=2**63)


@both
def test_the_largest_seed_is_taken_and_so_is_one_of_numpys(run):
    def draw(comm):
        return torch.rand(2).tolist()

    assert run(draw, 2, seed=2**63 - 1).results[0] != run(draw, 2, seed=0).results[0]
    assert run(draw, 1, seed=np.int64(5)).results == run(draw, 1, seed=5).results


@both
@pytest.mark.parametrize("ranks", [10**9, 10**30])
def test_more_ranks_than_memory_holds_are_refused(run, ranks):
    with pytest.raises(
        ValueError, match=r"ranks is 1,000.*; it must be at most [\d,]+: each takes about .*B\."
    ):
        run(nothing, ranks)


def test_a_link_and_a_device_may_be_given_by_name():
    def program(comm):
        x = torch.empty(1000, 1000, device="meta")
        comm.all_reduce(x @ x)

    by_name = world.simulate(program, 2, link="nvlink4", device="h100-sxm")
    by_value = world.simulate(program, 2, link=LINKS["nvlink4"], device=DEVICES["h100-sxm"])
    assert by_name.seconds == by_value.seconds > 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"link": "nvlink44"}, "There is no link 'nvlink44'; did you mean 'nvlink4'"),
        ({"device": "h100"}, "There is no device 'h100'; did you mean"),
        ({"link": 5}, "link is 5; it must be a Link, or one's name: nvlink2"),
        ({"link": DEVICES["v100"]}, "it must be a Link"),
        ({"device": LINKS["nvlink4"]}, "it must be a Device, or one's name: v100"),
        ({"cluster": "dgx"}, "cluster is 'dgx'; it must be a Cluster."),
    ],
)
def test_other_links_devices_and_clusters_are_refused(options, words):
    with pytest.raises((TypeError, LookupError, ValueError)) as caught:
        world.simulate(nothing, 2, **options)
    assert words in str(caught.value)


def test_what_cannot_be_sent_to_another_process_is_named():
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"args\[1\] is a lock, which cannot be sent"):
        world.launch(nothing, 1, args=(1, lock))
    with pytest.raises(TypeError, match=r"program is a function, which cannot be sent .*lock"):
        world.launch(lambda comm: lock, 1)


def test_a_time_limit_of_ages_is_none():
    assert world.launch(nothing, 1, timeout=1e300).results == [None]


@pytest.mark.parametrize("timeout", [10**400, Fraction(10**400, 3)])
def test_a_time_limit_beyond_every_float_is_refused(timeout):
    with pytest.raises(ValueError, match=r"timeout is .*; it must be at most 1\.8e\+308"):
        world.launch(nothing, 1, timeout=timeout)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("RANK", "first", "RANK is 'first' in the environment; here it is a whole number from 0"),
        ("RANK", "-1", "RANK is '-1'"),
        ("RANK", "4", "RANK is '4' .* from 0 to 3"),
        ("RANK", "", "RANK is ''"),
        ("WORLD_SIZE", "0", "WORLD_SIZE is '0' .* from 1 to"),
        ("WORLD_SIZE", "4.0", "WORLD_SIZE is '4.0'"),
        ("MASTER_PORT", "http", "MASTER_PORT is 'http'"),
        ("MASTER_PORT", "70000", "MASTER_PORT is '70000'"),
    ],
)
def test_a_broken_environment_is_refused_before_anybody_waits(variable, value, words, monkeypatch):
    fitting = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, text in (fitting | {variable: value}).items():
        monkeypatch.setenv(name, text)
    with pytest.raises(RuntimeError, match=f"{words}.*torchrun"):
        world.from_environment()


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what torch is about to drop, or tries out
@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
            r"quantized, of torch.qint8; it must be .*: pass tensor.dequantize\(\)",
        ),
        (
            lambda x: x.to_mkldnn(),
            r"of layout torch._mkldnn; it must be dense: pass tensor.to_dense",
        ),
        (lambda x: x.to_sparse(), "of layout torch.sparse_coo; it must be dense"),
        (lambda x: x.to_sparse_csr(), "of layout torch.sparse_csr; it must be dense"),
        (
            lambda x: torch.nested.nested_tensor(list(x)),
            r"a nested tensor; it must be dense: pass tensor.to_padded_tensor\(0\)",
        ),
        (
            lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
            "a nested tensor; it must be dense",
        ),
    ],
)
def test_a_tensor_that_is_no_row_of_numbers_is_refused_by_every_call(made, sentence):
    calls = [
        *("broadcast", "reduce", "all_reduce", "reduce_scatter"),
        *("all_gather", "gather", "scatter", "all_to_all"),
    ]

    def program(comm):
        tensor = made(torch.ones(4, 2))
        for call in calls:
            if call != "scatter" or comm.rank == 0:  # others pass nothing
                with pytest.raises(ValueError, match=f"^tensor is {sentence}"):
                    getattr(comm, call)(tensor)
        for call in (comm.send, comm.isend, comm.recv, comm.irecv):
            with pytest.raises(ValueError, match=f"^tensor is {sentence}"):
                call(tensor, 1 - comm.rank)
        return "refused"

    assert world.simulate(program, 2).results == ["refused"] * 2


def test_complex_tensors_whose_numbers_are_turned_by_a_mark_arrive_as_they_read():
    def program(comm):
        z = torch.tensor([1 + 2j, 3 - 4j]).conj()
        seen = [comm.all_gather(z), comm.all_gather(z.imag), comm.broadcast(z), comm.all_reduce(z)]
        seen.append(comm.all_to_all(z))
        part = comm.scatter(z if comm.rank == 0 else None)
        return [each.tolist() for each in (*seen, part)]

    turned = [1 - 2j, 3 + 4j]
    for run in (world.simulate, world.launch):
        for rank, found in enumerate(run(program, 2).results):
            doubled = [2 * each for each in turned]
            assert found == [
                *(turned * 2, [-2.0, 4.0] * 2, turned, doubled),
                *([turned[rank]] * 2, [turned[rank]]),
            ]
