"""The sweep over all that is public: what counts as which ending, and a few hundred of its calls."""

import time
from collections import Counter

import numpy as np
import pytest
import torch

from tests.public_api import Public
from tests.sweep import workers
from tests.sweep.__main__ import drawn, faults, main
from tests.sweep.ending import (
    CRASHED,
    HUNG,
    KILLED,
    REFUSED,
    RIGHT,
    TAKEN,
    UNNAMED,
    WRONG,
    alike,
    ending,
    told_of,
)
from tests.sweep.workers import Call, made


def refuses(lanes: float = 4.0) -> None:
    raise ValueError("lanes is 3; it must be more")


def complains(lanes: float = 4.0) -> None:
    raise TypeError("no good")


def doubles(lanes: float = 4.0) -> float:
    return 2 * float(lanes)


def rounds(lanes: float = 0.1) -> float:
    return float(lanes * type(lanes)(3))


def breaks(lanes: float = 4.0) -> None:
    raise AttributeError("it has none")


def spins(lanes: float = 4.0) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("call", "kind", "end"),
    [
        (refuses, "text", REFUSED),
        (complains, "text", UNNAMED),
        (doubles, "a float16", RIGHT),
        (rounds, "a float16", WRONG),
        (doubles, "0.5", TAKEN),
        (breaks, "[]", CRASHED),
    ],
)
def test_a_call_ends_as_what_it_did(call, kind, end):
    assert ending(Public("x", call), "lanes", kind).kind == end


def test_a_call_that_takes_too_much_processor_time_hangs(monkeypatch):
    monkeypatch.setattr("tests.sweep.ending.SECONDS", 0.05)
    assert ending(Public("x", spins), "lanes", "0").kind == HUNG


def test_a_call_that_kills_its_process_is_told_from_those_beside_it(tmp_path, monkeypatch):
    def kills(lanes: float = 4.0) -> None:
        import os

        os._exit(7)

    here = (Public("one", doubles), Public("two", kills), Public("three", refuses))
    monkeypatch.setattr(workers, "public", lambda: here)
    calls = [Call(each.name, "lanes", "0.5") for each in here]
    found = {call.function: end.kind for call, end in made(calls, tmp_path, 1)}
    assert found == {"one": TAKEN, "two": KILLED, "three": REFUSED}


def test_a_process_that_says_nothing_for_long_hangs(tmp_path, monkeypatch):
    def waits(lanes: float = 4.0) -> None:
        time.sleep(1000)

    here = (Public("one", waits), Public("two", doubles))
    monkeypatch.setattr(workers, "public", lambda: here)
    monkeypatch.setattr(workers, "SILENT", 0.1)
    calls = [Call(each.name, "lanes", "0.5") for each in here[:1]]
    assert [end.kind for _, end in made(calls, tmp_path, 1)] == [HUNG]


def test_results_are_compared_in_their_numbers():
    assert alike(told_of({"a": (1, np.float64(0.1))}), told_of({"a": [1, 0.1 + 1e-16]}))
    assert not alike(told_of([1, 2]), told_of([1, 3]))
    assert alike(told_of(torch.ones(2)), told_of(np.ones(2)))
    assert not alike(told_of("4"), told_of(4))


def test_a_wrong_result_a_hang_a_killed_process_and_too_few_names_are_faults():
    fine = Counter({REFUSED: 98, UNNAMED: 2, CRASHED: 1})
    assert faults(fine) == []
    assert faults(fine | Counter({UNNAMED: 3})) == ["only 98 of 101 refusals name the parameter"]
    for kind in (WRONG, HUNG, KILLED):
        assert faults(fine | Counter({kind: 1})) == [f"1 {kind}"]


def test_the_calls_of_a_seed_are_always_the_same_and_those_of_another_seed_others():
    assert drawn(50, 0) == drawn(50, 0)
    assert drawn(50, 0) != drawn(50, 1)
    assert len(drawn(10**9, 0)) > 100_000


def test_a_few_hundred_calls_end_in_a_sentence_or_in_a_right_result(capsys):
    assert main(["--calls", "400", "--seed", "1"]) == 0, capsys.readouterr().out
    assert "refused by name" in capsys.readouterr().out
