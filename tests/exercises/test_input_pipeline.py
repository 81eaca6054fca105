"""The exercises on the input pipeline: their figures are those of the package, and what holds for all."""

import re
from collections import Counter
from collections.abc import Callable
from math import ceil
from random import Random
from typing import Any

import pytest
import torch

from dlsys.input_pipeline import (
    InputPipeline,
    Stage,
    ThreadLoader,
    dealt,
    exponential_utilization,
    padding_share,
    simulate,
    train_tokenizer,
    workers_needed,
)
from dlsys.input_pipeline.bpe import WORD
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def question(name: str) -> str:
    """The text of a question."""
    cells = load("solutions", "input_pipeline")["cells"]
    return {cell["id"]: "".join(cell["source"]) for cell in cells}[f"{name}-question"]


def table(text: str) -> dict[str, list[str]]:
    """The rows of a table in a question, by what they begin with."""
    rows = re.findall(r"^(\w.*?)  +(.*)$", text.split("```")[1], re.MULTILINE)
    return {name: re.split(r"  +", rest) for name, rest in rows}


# -- feeding -------------------------------------------------------------------------------------


def clips(storage: float = 450e6, workers: int = 12, prefetch: int = 3) -> InputPipeline:
    """The pipeline of the first question."""
    nbytes = 16 * 112 * 112 * 3 * 4
    return InputPipeline(
        (
            Stage("read", 1.8e6 / storage, prefetch=4),
            Stage("decode", 0.045, workers=workers, prefetch=prefetch, sample_bytes=nbytes),
            Stage("transfer", nbytes / 0.8e9),
            Stage("step", 0.0, 0.110),
        ),
        batch=32,
    )


def test_the_numbers_of_the_first_question_are_what_a_simulation_counts() -> None:
    answers = solved("input_pipeline")
    rates = [
        simulate(plan, 400).samples_per_second for plan in (clips(), clips(900e6), clips(900e6, 24))
    ]
    assert answers["clips_per_second"] == pytest.approx(rates[0], rel=1e-3)
    assert answers["times_storage"] == pytest.approx(rates[1] / rates[0], rel=1e-3)
    assert answers["times_both"] == pytest.approx(rates[2] / rates[0], rel=1e-3)
    fourteen = clips(1e12, 14)
    assert answers["memory_gb"] == pytest.approx(fourteen.price().memory_bytes / 1e9)
    first = simulate(clips(workers=14), 60).first_batch_seconds
    assert answers["first_ms"] == pytest.approx(1000 * first)


def test_fourteen_workers_feed_the_step_and_thirteen_do_not() -> None:
    starved = [clips(1e12, w).price().bottleneck != "step" for w in (13, 14)]
    assert starved == [True, False]
    assert solved("input_pipeline")["workers"] == workers_needed(32 * 0.045, 0.110) == 14


def test_the_depth_of_the_first_question_is_the_least_that_starves_so_seldom() -> None:
    ahead = solved("input_pipeline")["ahead"]
    assert exponential_utilization(1, ahead) >= 0.97 > exponential_utilization(1, ahead - 1)


# -- the loader ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("load_s", "step_s"), [(1.0, 4.0), (4.0, 1.0), (2.5, 1.0)])
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (3, 2), (2, 3)])
def test_the_loader_of_the_exercises_keeps_the_times_of_the_packages_plan(
    workers: int, prefetch: int, load_s: float, step_s: float
) -> None:
    answers = solved("input_pipeline")
    events, _ = answers["run_of"](answers["loader"], 20, workers, prefetch, load_s, step_s, [])
    plan = InputPipeline((Stage("load", 0, load_s, workers, prefetch), Stage("step", 0, step_s)))
    timeline = simulate(plan, 20)
    for stage, what in (("load", "begins"), ("step", "step")):
        came = {k: t for t, name, k in events if name == what}
        assert came == pytest.approx({s.batch: s.start for s in timeline.of(stage)})


def test_it_hands_over_what_a_loader_of_threads_does() -> None:
    answers = solved("input_pipeline")
    events, _ = answers["run_of"](answers["loader"], 9, 2, 2, 1.0, 1.0, [])
    threads = ThreadLoader(lambda k, rng: answers["made"](k), range(9), workers=2)
    trained = [k for _, what, k in events if what == "step"]
    assert torch.equal(torch.stack(list(threads)), torch.stack([*map(answers["made"], trained)]))


# -- seeds ---------------------------------------------------------------------------------------


def crops(program: int, workers: int, epoch: int) -> list[Any]:
    """The random numbers of each batch of an epoch: of which generator, and which of its numbers."""
    own: dict[int, Callable[[int, int], Any]] = {
        1: lambda j, k: ("copy", epoch * ceil(120 / workers) + k // workers),
        2: lambda j, k: (j, k // workers),
        3: lambda j, k: (j + epoch, k // workers),
        4: lambda j, k: ((epoch, j), k // workers),
        5: lambda j, k: ((epoch, k), 0),
        6: lambda j, k: ((epoch, j), k),
    }
    if program == 6:
        return [own[6](j, k) for k in range(120) for j in range(workers)]
    return [own[program](k % workers, k) for k in range(120)]


def test_the_reports_are_those_of_the_programs_that_the_solution_names() -> None:
    rows = table(question("alike"))
    for at, run in enumerate("ABCDE"):
        program = solved("input_pipeline")["sources"][run]
        first, second = crops(program, 4, 0), crops(program, 4, 1)
        again = set(enumerate(first)) & set(enumerate(crops(program, 3, 0)))
        if program == 6:  # batch k of worker j, of those three that are there both times
            again = set(first) & set(crops(program, 3, 0))
        assert [rows[name][at].replace(",", "") for name in rows if name.strip()][1:] == [
            str(n)
            for n in (
                len(first),
                len(set(first)),
                len(set(first) & set(second)),
                len(again),
            )
        ]
        assert rows["photographs trained on in an epoch"][at] == f"{32 * len(first):,}"


def test_the_crops_and_generators_that_are_asked_for_can_be_counted() -> None:
    answers = solved("input_pipeline")
    assert answers["crops_of_16"] == len({k // 16 for k in range(1000)})
    assert answers["generators"] == len({w + e for w in range(8) for e in range(10)})


# -- dealing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_samples_are_dealt_to_ranks_as_the_package_deals_them(seed: int) -> None:
    random, batches_of = Random(seed), solved("input_pipeline")["batches_of"]
    samples, batch = random.randint(0, 200), random.randint(1, 20)
    ranks, workers = random.randint(1, 7), random.randint(1, 4)
    for rank in range(ranks):
        mine = [batches_of(samples, batch, rank, ranks, j, workers) for j in range(workers)]
        rows = sorted(row for each in mine for rows in each for row in rows)
        assert rows == dealt(range(samples), rank, ranks)
        assert sum(map(len, mine)) == ceil(samples / (ranks * batch))


# -- resuming ------------------------------------------------------------------------------------


def lost_and_twice(fault: int) -> tuple[int, int, bool]:
    """Samples never and twice trained on, and whether the order is that of a run without a break,
    for 10,000 of them, a buffer of 1,000, batches of 50, and a break after 80 with 92 made."""
    take = solved("input_pipeline")["take"]
    state: dict[str, Any] = {"read": 0, "held": [], "drawn": 0}
    states, given = [state], []
    while True:
        rows, state = take(state, 10_000, 1_000, 50, 7)
        if not rows:
            break
        given.append(rows)
        states.append(state)
    faulty = {
        1: states[92],
        2: states[80] | {"held": []},
        3: states[80] | {"drawn": 0},
        4: {"read": 80 * 50, "held": [], "drawn": 0},
    }
    state, trained = faulty[fault], [row for rows in given[:80] for row in rows]
    while True:
        rows, state = take(state, 10_000, 1_000, 50, 7)
        if not rows:
            break
        trained += rows
    seen = Counter(trained)
    whole = [row for rows in given for row in rows]
    return 10_000 - len(seen), sum(n > 1 for n in seen.values()), trained == whole


def test_the_reports_of_resumed_runs_are_those_of_runs_with_these_faults() -> None:
    rows = table(question("resume"))
    for at, run in enumerate("ABCD"):
        never, twice, is_same = lost_and_twice(solved("input_pipeline")["faults"][run])
        told = [each[at] for each in rows.values()]
        assert told == [str(never), str(twice), "yes" if is_same else "no"]


def test_what_the_two_faults_lose_together_is_counted() -> None:
    take = solved("input_pipeline")["take"]
    state: dict[str, Any] = {"read": 0, "held": [], "drawn": 0}
    for _ in range(40 + 32):
        _, state = take(state, 60_000, 20_000, 256, 1)
    trained = 40 * 256
    assert state["read"] - trained == solved("input_pipeline")["never"]


# -- tokens and rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"aaa aaaa ab aab baa aaaaa", b"she sells sea shells, sells she?"]
)
def test_merges_are_those_that_the_packages_tokenizer_learns(text: bytes) -> None:
    merge, learnt = solved("input_pipeline")["merge"], train_tokenizer(text, 12).merges
    words = [([*word], n) for word, n in Counter(WORD.findall(text)).items()]
    for i, pair in enumerate(learnt):
        found, words = merge(words, 256 + i)
        assert found == pair
    if len(learnt) < 12:
        assert merge(words, 999)[0] is None


def test_padding_is_what_the_package_counts() -> None:
    answers = solved("input_pipeline")
    lengths = answers["documents"](1, 60)
    assert answers["padding_alone"] == pytest.approx(100 * padding_share(lengths, 1024))
    rows = answers["packed"](lengths, 1024)
    sums = [sum(lengths[n] for n in row) for row in rows]
    assert answers["padding_packed"] == pytest.approx(100 * padding_share(sums, 1024))


def test_fewer_rows_than_the_best_known_would_not_hold_all_tokens() -> None:
    assert ceil(sum(solved("input_pipeline")["documents"](1, 60)) / 1024) == 30


# -- choosing ------------------------------------------------------------------------------------


def cheapest(room: float, rate: float) -> list[tuple[float, dict[str, Any]]]:
    """The designs within these limits, the cheapest first."""
    a = solved("input_pipeline")
    fits = [
        (a["units"](d), d)
        for d in a["every"]
        if a["memory"](d) <= room
        and a["mates"](d) <= 4
        and a["pipeline"](d).price().samples_per_second >= rate
        and a["images"](d) >= rate
    ]
    return sorted(fits, key=lambda one: one[0])


def test_one_design_is_the_cheapest_and_images_are_what_binds() -> None:
    a = solved("input_pipeline")
    first, second = cheapest(5, 11_500)[:2]
    assert first == (23, a["design"])
    assert second[0] > 23
    assert a["images"](a["design"]) > 1.02 * 11_500
    assert a["memory"](a["design"]) == pytest.approx(4.63, abs=0.005)
    more, fewer = cheapest(6, 11_500)[0][0], cheapest(5, 10_800)[0][0]
    assert (23 - more, 23 - fewer) == (4, a["saved"]) == (4, 6)


def test_the_cheapest_designs_are_fast_enough_with_other_random_times_too() -> None:
    pipeline = solved("input_pipeline")["pipeline"]
    for room, rate in ((5, 11_500), (6, 11_500), (5, 10_800)):
        plan = pipeline(cheapest(room, rate)[0][1])
        assert min(simulate(plan, 2000, seed=n).samples_per_second for n in range(5)) >= rate


def test_faster_storage_changes_nothing_in_the_long_run() -> None:
    a = solved("input_pipeline")
    rates = [
        a["pipeline"](a["design"] | {"storage": each}).price().samples_per_second
        for each in (1.0, 2.0)
    ]
    assert rates[0] == rates[1]
    assert a["faster"] == 0


# -- the answer in words -------------------------------------------------------------------------


def photographs(workers: int = 8, prefetch: int = 2) -> InputPipeline:
    """The run of the last question."""
    nbytes = 224 * 224 * 3 * 4
    return InputPipeline(
        (
            Stage("read", 110e3 / 1e9, prefetch=8),
            Stage("transform", 0.012, workers=workers, prefetch=prefetch, sample_bytes=nbytes),
            Stage("step", 0.0, 0.250),
        ),
        batch=256,
    )


def test_the_table_of_the_last_question_is_that_of_a_simulated_run() -> None:
    rows, timeline = table(question("words")), simulate(photographs(), 4000)
    for stage in photographs().stages:
        spent = timeline.spent(stage.name)
        whole = sum(spent[:3])
        assert rows[stage.name] == [f"{100 * part / whole:.0f} %" for part in spent[:3]]
    assert f"{photographs().seconds()['transform']:.2f} s" in question("words")


def test_the_figures_of_the_model_answer_are_right() -> None:
    text = model_answer("input_pipeline")
    batch = 256 * 224 * 224 * 3 * 4
    assert round(batch / 1e6) == 154
    assert "10 GB in the place of 2.6" in text
    assert (round(65 * batch / 1e9), round(17 * batch / 1e9, 1)) == (10, 2.6)
    assert workers_needed(256 * 0.012, 0.250) == 13
    now = photographs().price().samples_per_second
    assert "at most 1.54 times as fast" in text
    assert photographs(16).price().samples_per_second / now == pytest.approx(1.54, abs=0.01)
    assert photographs(16).price().bottleneck == photographs(13).price().bottleneck == "step"
    assert round(27 * batch / 1e9, 1) == 4.2
    deeper = simulate(photographs(prefetch=8), 400).samples_per_second
    assert deeper == pytest.approx(simulate(photographs(), 400).samples_per_second, rel=0.01)
