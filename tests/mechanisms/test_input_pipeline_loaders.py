"""Loaders of threads and processes, held against the simulation, torch's DataLoader and each other."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from dlsys.input_pipeline import (
    InputPipeline,
    LoaderError,
    ProcessLoader,
    Stage,
    ThreadLoader,
    dealt,
    simulate,
)
from tests import needs

BATCHES = [list(range(4 * k, 4 * k + 4)) for k in range(11)]

LOADERS = [ThreadLoader, ProcessLoader]


def fetch(rows: list[int], rng: random.Random) -> tuple[list[int], int]:
    return rows, rng.randrange(10**9)


def square(rows: list[int], rng: random.Random) -> list[int]:
    return [row**2 for row in rows]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (2, 3), (3, 1), (20, 2)])
def test_batches_come_once_and_in_order_whatever_the_workers(loader, workers, prefetch):
    if loader is ProcessLoader and workers == 20:
        workers = 12
    made = loader(square, BATCHES, workers, prefetch)
    assert list(made) == [[row**2 for row in rows] for rows in BATCHES]
    assert len(made) == len(BATCHES)


def test_random_numbers_belong_to_batches_and_not_to_workers():
    """So what a run reads is the same on another number of workers, and of another kind."""
    alone = list(ThreadLoader(fetch, BATCHES, 1, seed=5))
    assert len({number for _, number in alone}) == len(BATCHES)
    assert list(ThreadLoader(fetch, BATCHES, 3, seed=5)) == alone
    assert list(ProcessLoader(fetch, BATCHES, 2, seed=5)) == alone
    assert list(ThreadLoader(fetch, BATCHES, 3, seed=6)) != alone


@pytest.mark.parametrize("loader", LOADERS)
def test_another_epoch_has_other_random_numbers_of_the_same_seed(loader):
    epochs = [list(loader(fetch, BATCHES, 2, seed=1, epoch=epoch)) for epoch in (0, 1, 1)]
    assert {number for _, number in epochs[0]}.isdisjoint(number for _, number in epochs[1])
    assert epochs[1] == epochs[2]
    other = list(loader(fetch, BATCHES, 2, seed=0, epoch=1))
    assert {number for _, number in epochs[0]}.isdisjoint(number for _, number in other)


def test_a_generator_that_processes_bring_along_draws_alike_in_each():
    shared = random.Random(0)

    def augment(rows: list[int], rng: random.Random) -> float:
        return shared.random()

    drawn = list(ProcessLoader(augment, BATCHES, 2))
    assert drawn[0::2][:5] == drawn[1::2]  # worker 0 and worker 1
    shared.seed(0)
    assert len(set(ThreadLoader(augment, BATCHES, 2))) == len(BATCHES)


@pytest.mark.parametrize("loader", LOADERS)
def test_an_empty_epoch_ends_at_once(loader):
    assert list(loader(square, [], 2)) == []


@pytest.mark.parametrize("loader", LOADERS)
def test_each_iteration_begins_anew(loader):
    made = loader(fetch, BATCHES, 2)
    assert list(made) == list(made)


class Counted:
    """A fetch of threads that knows how many batches are begun; `gate` keeps them from ending."""

    def __init__(self) -> None:
        self.lock, self.begun, self.now, self.most = threading.Lock(), 0, 0, 0

    def __call__(self, rows: list[int], rng: random.Random) -> list[int]:
        with self.lock:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
        return rows


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 4), (2, 2), (3, 2)])
def test_threads_are_as_far_ahead_as_the_simulation_says_and_no_further(workers, prefetch):
    counted = Counted()
    loader = iter(ThreadLoader(counted, BATCHES, workers, prefetch))
    taken = next(loader)
    assert taken == BATCHES[0]
    # Nothing more is taken, so they come to stand: all places but the one that was freed are full.
    wanted = min(len(BATCHES), 1 + workers * prefetch)
    for _ in range(100_000):
        if counted.begun == wanted:
            break
        threading.Event().wait(0.001)
    load = Stage("load", 0.0, 1.0, workers, prefetch)
    plan = InputPipeline((load, Stage("step", 0.0, 1000.0)))
    # In the simulation, too: begun before the first step ends.
    timeline = simulate(plan, len(BATCHES))
    first = timeline.of("step")[0].end
    assert sum(span.start < first for span in timeline.of("load")) == wanted == counted.begun
    loader.close()
    assert counted.begun == wanted


def test_processes_are_asked_for_as_many_batches_as_the_simulation_has_ahead():
    loader = ProcessLoader(square, BATCHES, 2, 3)
    assert len(list(loader)) == len(BATCHES)
    plan = InputPipeline((Stage("load", 0.0, 1.0, 2, 3), Stage("step", 0.0, 100.0)))
    assert loader.most_asked == simulate(plan, 40).most_ahead("load") == 6


def test_what_threads_did_keeps_to_the_plan_they_were_given():
    loader = ThreadLoader(square, BATCHES * 20, 3, 2)
    assert sum(1 for _ in loader) == 220
    timeline = loader.timeline()
    timeline.check()
    assert timeline.batches == 220
    assert timeline.most_ahead("load") <= 6
    assert {span.worker for span in timeline.of("load")} == {0, 1, 2}


def test_an_iteration_that_was_left_has_no_timeline():
    loader = ThreadLoader(square, BATCHES)
    for _ in zip(BATCHES, loader, strict=False):  # zip never asks for the end
        pass
    with pytest.raises(ValueError, match="an iteration that has gone to its end"):
        loader.timeline()


def test_a_replay_of_what_threads_took_begins_no_batch_later_than_they_did():
    """The recurrence is the soonest that places and workers allow; real threads come after it."""
    loader = ThreadLoader(lambda rows, rng: sum(range(20_000)), BATCHES * 4, 2, 2)
    for _ in loader:
        sum(range(20_000))
    real = loader.timeline()
    took = {n: [s.end - s.start for s in real.of(n)] for n in ("load", "step")}
    replay = simulate(real.pipeline, real.batches, seconds=took)
    for one, other in zip(replay.of("step"), real.of("step"), strict=True):
        assert one.start <= other.start - real.begin + 1e-9
    assert replay.seconds <= real.seconds + 1e-9


class BadError(Exception):
    """Of nobody else."""


def breaks(rows: list[int], rng: random.Random) -> list[int]:
    if 21 in rows:
        raise BadError("sample 21 is no image")
    return rows


@pytest.mark.parametrize("loader", LOADERS)
def test_an_error_of_a_worker_comes_in_its_turn_and_says_who_and_what(loader):
    came: list[Any] = []
    with pytest.raises(LoaderError) as caught:
        came += (batch for batch in loader(breaks, BATCHES, 2))
    assert str(caught.value) == ("worker 1 could not make batch 5: BadError: sample 21 is no image")
    assert "in breaks" in str(caught.value.__cause__) or isinstance(
        caught.value.__cause__, BadError
    )


@pytest.mark.parametrize("loader", LOADERS)
def test_the_batches_before_an_error_have_come(loader):
    made = iter(loader(breaks, BATCHES, 3))
    assert [next(made) for _ in range(5)] == BATCHES[:5]
    with pytest.raises(LoaderError):
        next(made)


def leaves(rows: list[int], rng: random.Random) -> list[int]:
    if 12 in rows:
        sys.exit(3)
    return rows


@pytest.mark.parametrize("loader", LOADERS)
def test_a_worker_that_leaves_is_an_error_and_nobody_waits_for_it(loader):
    with pytest.raises(LoaderError, match=r"worker 1 could not make batch 3: "):
        list(loader(leaves, BATCHES, 2))


def test_a_batch_that_cannot_be_sent_is_an_error_and_no_dead_process():
    with pytest.raises(LoaderError, match=r"worker 0 could not make batch 0: .*(pickle|local)"):
        list(ProcessLoader(lambda rows, rng: lambda: rows, BATCHES, 1))  # Python 3.13's words


def test_a_process_that_dies_is_an_error_with_its_exit_code():
    def dies(rows: list[int], rng: random.Random) -> list[int]:
        if 12 in rows:
            os._exit(7)
        return rows

    with pytest.raises(LoaderError, match=r"worker 1 could not make batch 3: .* exit code 7"):
        list(ProcessLoader(dies, BATCHES, 2))


def test_threads_end_when_nobody_wants_their_batches():
    before = threading.active_count()
    loader = iter(ThreadLoader(square, BATCHES, 4, 2))
    next(loader)
    loader.close()
    assert threading.active_count() == before
    with pytest.raises(LoaderError):
        list(ThreadLoader(breaks, BATCHES, 4, 1))
    assert threading.active_count() == before


def test_processes_end_when_nobody_wants_their_batches():
    loader = iter(ProcessLoader(fetch_pid, BATCHES, 2))
    pids = {next(loader), next(loader)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    loader.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_process_that_is_busy_ends_as_well():
    def stuck(rows: list[int], rng: random.Random) -> int:
        if 4 in rows:
            threading.Event().wait()
        return os.getpid()

    loader = iter(ProcessLoader(stuck, BATCHES, 2))
    next(loader)
    loader.close()
    assert not [p for p in multiprocessing.active_children() if p.is_alive()]


def fetch_pid(rows: list[int], rng: random.Random) -> int:
    return os.getpid()


class Rows(Dataset):
    """Each sample with the worker that read it."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, i: int) -> tuple[int, int]:
        info = get_worker_info()
        return i, info.id if info else -1


@needs.shared_memory
def test_torchs_loader_gives_the_same_batches_to_the_same_workers():
    theirs = DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    ours = ThreadLoader(square, BATCHES, 2)
    assert [rows.tolist() for rows, _ in theirs] == BATCHES
    assert len(list(ours)) == len(BATCHES)
    workers = [set(worker.tolist()) for _, worker in theirs]
    assert workers == [{span.worker} for span in ours.timeline().of("load")]


@needs.shared_memory
def test_torchs_loader_asks_for_as_many_batches_ahead():
    """Its prefetch_factor is ours: the rows it has asked its sampler for, batch by batch."""
    asked: list[int] = []

    class Sampler:
        def __iter__(self) -> Any:
            for rows in BATCHES:
                asked.append(rows[0])
                yield rows

        def __len__(self) -> int:
            return len(BATCHES)

    theirs = DataLoader(
        Rows(),
        batch_sampler=Sampler(),  # type: ignore[arg-type]
        num_workers=2,
        prefetch_factor=3,
        multiprocessing_context="fork",
    )
    walk = iter(theirs)
    assert len(asked) == 6  # before any is taken
    next(walk)
    assert len(asked) == 7  # one more for one taken
    plan = InputPipeline((Stage("load", 0.0, 1.0, 2, 3), Stage("step", 0.0, 100.0)))
    timeline = simulate(plan, 11)
    first = timeline.of("step")[0]
    assert sum(span.start < first.end for span in timeline.of("load")) == 7
    del walk


class Drawing(Dataset):
    """Each sample with a number of the interpreter's generator, and one of the dataset's own."""

    def __init__(self) -> None:
        self.own = random.Random(0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[int, int]:
        return random.randrange(10**9), self.own.randrange(10**9)


@needs.shared_memory
def test_torch_seeds_its_workers_and_leaves_a_dataset_s_own_generator_alike_in_each():
    theirs = DataLoader(Drawing(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    seeded, own = zip(*((a.tolist(), b.tolist()) for a, b in theirs), strict=True)
    assert own[0] == own[1] != own[2] == own[3]
    assert len({number for numbers in seeded for number in numbers}) == 8


class Stream(IterableDataset):
    """Samples that come one after the other, dealt to workers or not."""

    def __init__(self, dealing: bool) -> None:
        self.dealing = dealing

    def __iter__(self) -> Any:
        info = get_worker_info()
        return iter(
            dealt(range(10), 0, 1, info.id, info.num_workers) if self.dealing else range(10)
        )


@needs.shared_memory
def test_torchs_workers_read_a_stream_once_each_unless_it_is_dealt_to_them():
    for dealing, times in ((True, 1), (False, 2)):
        theirs = DataLoader(
            Stream(dealing), batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        assert sorted(int(row) for row in theirs) == sorted([*range(10)] * times)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 5000}, "at most 1,024"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"epoch": -1}, "epoch is -1"),
        ({"fetch": 3}, "fetch is 3; it must be a function"),
        ({"batches": 3}, "batches is 3; it must be a sequence"),
    ],
)
def test_what_is_no_loader_is_a_sentence(loader, options, said):
    with pytest.raises(ValueError, match=said):
        loader(**{"fetch": square, "batches": BATCHES} | options)


def test_an_unknown_way_to_start_is_refused():
    with pytest.raises(ValueError, match="start is 'thread'; it must be 'forkserver', 'spawn' or"):
        ProcessLoader(square, BATCHES, start="thread")  # type: ignore[arg-type]


@needs.shared_memory
def test_tensors_come_through_processes():
    def ones(rows: list[int], rng: random.Random) -> torch.Tensor:
        return torch.full((2,), rows[0])

    made = torch.stack(list(ProcessLoader(ones, BATCHES[:2], 1, start="fork")))
    assert made.tolist() == [[0, 0], [4, 4]]
