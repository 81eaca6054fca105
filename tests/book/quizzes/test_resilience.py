"""The numbers of the quiz on resilience, computed."""

import pytest
import torch

from dlsys import world
from dlsys.exercises.disk import crashes
from dlsys.resilience import (
    Cadence,
    Manifest,
    Region,
    best_cadence,
    compare_replicas,
    optimal_interval,
    shares,
    wasted_share,
)
from dlsys.resilience.plan import FileEntry, TensorEntry
from dlsys.world import Communicator
from tests.book.quizzes import contract

MEAN = 1e6  # between failures, s: so long that saves are short beside the interval
WRITE = MEAN * 0.04**2 / 2  # with which 4 % are lost


def lost(write: float, mean: float) -> float:
    """Percent, by the law."""
    return 100 * wasted_share(write, mean)


def times_as_much(part: float) -> float:
    """What is lost at this part of the best interval, beside the best; exactly, for rare failures."""
    write, mean = 1e-3, 1e9
    young = optimal_interval(write, mean)
    parts = [shares(Cadence(young * each, write), mean).wasted for each in (part, 1)]
    return round(parts[0] / parts[1], 3)


def requests(saved: int, ranks: int, rows: int = 72) -> int:
    """Pieces that all ranks read, of a tensor cut by rows."""

    def region(rank: int, of: int) -> Region:
        first, stop = rows * rank // of, rows * (rank + 1) // of
        return Region("w", (first, 0), (stop - first, 1))

    files = tuple(FileEntry((region(rank, saved),)) for rank in range(saved))
    manifest = Manifest(1, (TensorEntry("w", (rows, 1), "F32"),), files)
    manifest.check()
    return sum(len(manifest.reads([region(rank, ranks)])) for rank in range(ranks))


MINUTES = optimal_interval(24, 4 * 3600) / 60
NUMBERS = {
    "resilience-more-devices": lost(WRITE, MEAN / 6),
    "resilience-interval": MINUTES,
    "resilience-too-often": times_as_much(1 / 3),
    "resilience-pieces": requests(12, 8),
}

MISCONCEPTIONS = {
    "resilience-more-devices": {
        "each failure cost as much": 6 * lost(WRITE, MEAN),
        "How often does something fail": lost(WRITE, MEAN),
        "Less with more devices": lost(WRITE, 6 * MEAN),
        "at the old interval": lost(WRITE, MEAN) * (1 + 6) / 2,
        "more slowly than the number": 36 * lost(WRITE, MEAN),
    },
    "resilience-interval": {
        "a whole interval away": MINUTES / 2**0.5,
        "Those are seconds": 60 * MINUTES,
        "Those are hours": MINUTES / 60,
        "half the time between failures": 4 * 60 / 2,
        "Half of it": MINUTES / 2,
        "stand below one root": (2 * 24 * 4 * 60) ** 0.5,
    },
    "resilience-too-often": {
        "So much more is written": 3,
        "Twice too much": 2 * times_as_much(1 / 3),
        "half the best interval": times_as_much(1 / 2),
        "Less than at the best": 1 / 3,
        "A little is still done again": 3 / 2,
        "Near": 2,
    },
    "resilience-pieces": {
        "read by one rank": 12,
        "read one file": requests(8, 8),
        "fall on the same row": 12 + 8 - 1,
        "one cut less than parts": 12 + 8,
        "every rank read of every file": 12 * 8,
        "one request": 72,
    },
}


class TestQuiz(contract.Quiz): ...


def test_the_first_run_loses_4_percent() -> None:
    assert lost(WRITE, MEAN) == pytest.approx(4)


def test_twice_and_half_the_best_interval_lose_alike() -> None:
    assert times_as_much(2) == times_as_much(1 / 2) == pytest.approx(1.25, abs=2e-3)


def test_a_deletion_may_be_on_the_disk_before_the_new_name() -> None:
    save = [("write", "part/a", "new"), ("fsync", "part/a"), ("fsync", "part")]
    save += [("rename", "part", "new"), ("delete", "old")]
    left = [set(disk) for _, disk in crashes(save, {"old": {"a": "old"}})]
    assert {"part"} in left
    save.insert(4, ("fsync", "."))
    assert all({"old", "new"} & set(disk) for _, disk in crashes(save, {"old": {"a": "old"}}))


def test_faster_storage_does_little_for_saves_behind_the_work() -> None:
    hours = 3 * 3600
    blocking, behind = (
        [best_cadence(*args) for args in pairs]
        for pairs in (
            ((60, hours), (15, hours)),
            ((4, hours, 60), (4, hours, 15)),
        )
    )
    gained = [shares(b, hours).goodput - shares(a, hours).goodput for a, b in (blocking, behind)]
    assert gained[0] > 8 * gained[1] > 0
    assert behind[0].interval == behind[1].interval


def test_wrong_gradients_make_all_replicas_wrong_alike() -> None:
    def program(comm: Communicator) -> dict[str, str]:
        model = torch.nn.Linear(3, 3, bias=False)
        torch.nn.init.ones_(model.weight)
        gradient = torch.full((3, 3), 1.01 if comm.rank == 1 else 1.0)
        model.weight.data -= comm.all_reduce(gradient)
        return {name: str(verdict) for name, verdict in compare_replicas(model, comm).items()}

    assert not any(world.simulate(program, 4).results[0].values())
