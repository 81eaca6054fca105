"""The exercises on resilience: their figures are those of the package, and what holds for all."""

import re
from math import sqrt
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import pytest
import torch

from dlsys.exercises.disk import at_the_end
from dlsys.model import GPT
from dlsys.resilience import (
    SPENT_ON,
    Cadence,
    Manifest,
    Part,
    Region,
    SampleOrder,
    Spares,
    Trainer,
    best_cadence,
    best_spares,
    devices_at_waste,
    exact_interval,
    latest,
    majority,
    mtbf,
    optimal_interval,
    restore,
    save,
    shares,
    simulate_run,
    stragglers,
    waiting_share,
    wasted_share,
)
from dlsys.resilience.order import share
from dlsys.resilience.plan import FileEntry, TensorEntry
from dlsys.transformer import TransformerSpec
from tests.exercises import contract
from tests.exercises.notebooks import load, model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def question(name: str) -> str:
    """The text of a question."""
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in load("solutions", "resilience")["cells"]
    }
    return cells[f"{name}-question"]


# -- the interval --------------------------------------------------------------------------------

PARTS = [Part("device", 6144, 0.12), Part("card", 6144, 0.02), Part("node", 768, 0.25)]
PARTS += [Part("switch", 96, 0.5)]


def test_the_numbers_of_the_first_question_are_those_of_the_package() -> None:
    answers, m = solved("resilience"), mtbf(PARTS)
    assert answers["mean_hours"] == pytest.approx(m / 3600)
    assert answers["interval_hours"] == pytest.approx(optimal_interval(45, m) / 3600)
    assert answers["lost_in_all"] == pytest.approx(wasted_share(45, m, 480))
    yearly = 8766 * 3600 / m / 6144
    assert answers["devices"] == pytest.approx(devices_at_waste(0.1, 45, yearly))


def test_saves_every_hour_lose_what_the_exact_price_says_but_for_a_twentieth() -> None:
    exact = shares(Cadence(3600, 45), mtbf(PARTS)).wasted
    assert solved("resilience")["lost_hourly"] == pytest.approx(exact, rel=0.05)


def test_the_exact_price_and_interval_that_hints_tell_apart_are_the_packages() -> None:
    m = mtbf(PARTS)
    assert shares(best_cadence(45, m), m, 480).wasted == pytest.approx(0.0707, abs=1e-4)
    assert optimal_interval(45, m) - exact_interval(45, m) == pytest.approx(30, abs=1)


# -- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_save_of_the_solution_does_on_a_real_disk_what_it_does_on_the_pretended(
    ranks: int, tmp_path: Path
) -> None:
    answers = solved("resilience")
    done = answers["run_save"](answers["atomic_save"], 3, 6, ranks)
    (tmp_path / "step-3").mkdir()
    for kind, name, *more in done:
        path = tmp_path / name
        if kind == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(more[0])
        elif kind == "rename":
            path.rename(tmp_path / more[0])
        elif kind == "delete":
            path.rmdir()
    files = {path.name: path.read_text() for path in (tmp_path / "step-6").iterdir()}
    assert [path.name for path in tmp_path.iterdir()] == ["step-6"]
    assert files == answers["checkpoint"](6, ranks)
    assert at_the_end(done, {"step-3": {}}) == {"step-6": files}


def test_no_fsync_of_the_solutions_can_be_left_out() -> None:
    answers = solved("resilience")
    done = answers["run_save"](answers["atomic_save"], 3, 6, 2)
    right = answers["told"](done, 3, 6, 2)
    slots = answers["run_slots"](answers["repaired"], "b", 2)
    right_slots = answers["slots_told"](slots, "a", "b", 2)
    for several, told, args, good in (
        (done, answers["told"], (3, 6, 2), right),
        (slots, answers["slots_told"], ("a", "b", 2), right_slots),
    ):
        fsyncs = [i for i, one in enumerate(several) if one[0] == "fsync"]
        assert len(fsyncs) == 5 + (several is slots)
        for left_out in fsyncs:
            assert told(several[:left_out] + several[left_out + 1 :], *args) != good


def test_the_faulty_save_has_three_faults_that_its_report_shows() -> None:
    answers = solved("resilience")
    report = answers["slot_report"](answers["pointed_save"], "a", "b", 2)
    for fault in ("latest is empty", "a file is missing", "a file is an older one"):
        assert fault in report


# -- resharding ----------------------------------------------------------------------------------


def rows_of(tensors: list[tuple[int, int]], rank: int, ranks: int) -> list[Region]:
    """A rank's part of each tensor of bytes."""
    cuts = [(rows * rank // ranks, rows * (rank + 1) // ranks, nbytes) for rows, nbytes in tensors]
    return [
        Region(str(i), (first, 0), (stop - first, nbytes))
        for i, (first, stop, nbytes) in enumerate(cuts)
    ]


@pytest.mark.parametrize(("saved", "ranks"), [(4, 3), (3, 4), (1, 6), (7, 1), (12, 8), (5, 5)])
def test_what_is_read_is_what_the_plan_of_the_package_reads(saved: int, ranks: int) -> None:
    answers, random = solved("resilience"), Random(5)
    tensors = [(random.randint(1, 23), random.randint(1, 5)) for _ in range(6)]
    files = tuple(FileEntry(tuple(rows_of(tensors, rank, saved))) for rank in range(saved))
    entries = tuple(TensorEntry(str(i), each, "U8") for i, each in enumerate(tensors))
    manifest = Manifest(1, entries, files)
    manifest.check()
    for rank, mine in enumerate(answers["reads"](tensors, saved, ranks)):
        theirs = [
            (
                r.file,
                r.begin + (r.part.offsets[0] - r.stored.offsets[0]) * r.part.sizes[1],
                r.nbytes,
            )
            for r in manifest.reads(rows_of(tensors, rank, ranks))
        ]
        assert mine == answers["joined"](theirs)


# -- resuming ------------------------------------------------------------------------------------


def test_the_samples_of_the_faulty_program_are_those_of_the_answers() -> None:
    answers = solved("resilience")
    start = answers["faulty_position"](0, 830, 800, 640, 4)
    trained = max(answers["faulty_places"](0, 799, 639, 640, 4)) + 1
    first = [answers["faulty_places"](start, 0, 0, ranks, 4)[0] for ranks in (512, 800)]
    assert answers["trained_twice"] == trained - first[0]
    assert answers["never_trained"] == first[1] - trained


def test_places_are_those_of_the_packages_order_on_any_number_of_ranks() -> None:
    answers, order, start = solved("resilience"), SampleOrder(60, 12), 0
    row = torch.cat([SampleOrder(60, 60).take()])
    for ranks in (4, 3, 2):
        rows = order.take()
        for rank in range(ranks):
            places = answers["places"](start, 0, rank, ranks, 12 // ranks)
            assert row[places].tolist() == share(rows, rank, ranks).tolist()
        start = answers["position"](start, 3, 1, ranks, 12 // ranks)


SPEC = TransformerSpec(layers=2, hidden=32, heads=4, vocab=64, sequence=16)
FIRST = torch.randint(64, (64, 1), generator=torch.Generator().manual_seed(0))
TEXT = (FIRST + 7 * torch.arange(17)) % 64


def trainer(seed: int = 0) -> Trainer:
    """A small run without dropout."""
    torch.manual_seed(seed)
    model = GPT(SPEC)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adamw, 40)
    return Trainer(
        model,
        adamw,
        SampleOrder(64, batch=8),
        lambda model, rows: model(TEXT[rows, :-1], TEXT[rows, 1:]),
        schedule,
    )


def test_the_losses_of_the_three_runs_are_those_of_runs_without_these_parts(
    tmp_path: Path,
) -> None:
    answers, parts = solved("resilience"), {1: "model", 2: "optimizer", 3: "schedule", 4: "order"}
    cells = {c["id"]: "".join(c["source"]) for c in load("solutions", "resilience")["cells"]}
    table = dict(
        re.findall(r"^(never interrupted|[ABC])  +(\d.*)$", cells["resume-ask"], re.MULTILINE)
    )

    def agrees(told: str, run: Trainer) -> bool:
        return [float(each) for each in told.split()] == pytest.approx(run.train(19)[14:], abs=1e-3)

    trainer().train(14, lambda state, step: save(state, tmp_path, step), every=14)
    assert agrees(table.pop("never interrupted"), trainer())
    for name, told in table.items():
        state, run = restore(latest(tmp_path)), trainer(1)
        part = parts[answers[f"without_{name.lower()}"]]
        state[part] = run.state()[part]
        run.load(state)
        assert agrees(told, run), part


# -- simulating ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_seconds_are_those_of_the_packages_simulation(seed: int) -> None:
    answers, random = solved("resilience"), Random(seed)
    interval, write, restart = (random.randint(1, most) for most in (90, 20, 60))
    end = random.randint(200, 4000)
    failures = sorted(random.sample(range(end + 50), random.randint(0, 40)))
    mine = answers["simulate"](interval, write, restart, end, failures)
    run = simulate_run(Cadence(interval, write), end, failures, restart)
    assert {kind: 10**9 * each for kind, each in mine.items()} == {
        kind: nanoseconds for kind, nanoseconds in run.nanoseconds.items() if kind in mine
    }
    assert sum(mine.values()) == end


def test_one_interval_is_the_best_for_the_trace() -> None:
    answers = solved("resilience")
    trace, quarter = answers["TRACE"], answers["QUARTER"]
    useful = {
        minutes: answers["simulate"](minutes, 1, 5, quarter, trace)["useful"]
        for minutes in range(5, 125, 5)
    }
    first, second = sorted(useful, key=useful.__getitem__, reverse=True)[:2]
    assert first == answers["best_minutes"]
    assert useful[first] - useful[second] > 300
    assert answers["young_minutes"] == pytest.approx(optimal_interval(1, quarter / len(trace)))
    nearest = min(useful, key=lambda minutes: abs(minutes - answers["young_minutes"]))
    assert nearest == 25 != first  # as a hint says
    no_restarts = {m: answers["simulate"](m, 1, 0, quarter, trace)["useful"] for m in useful}
    assert max(no_restarts, key=no_restarts.__getitem__) == 25
    half = {
        m: answers["simulate"](2 * m, 1, 10, 2 * quarter, [2 * t for t in trace]) for m in useful
    }
    assert max(half, key=lambda m: half[m]["useful"]) == 20
    assert f"{quarter:,} minutes" in question("simulate")


# -- choosing ------------------------------------------------------------------------------------


def allowed(units: float, copies: int) -> list[dict[str, Any]]:
    """The designs within these limits, the best first."""
    a = solved("resilience")
    fits = [d for d in a["every"] if a["money"](d) <= units and a["copies"](d) <= copies]
    return sorted(fits, key=a["lost"])


def test_one_design_loses_least_with_any_of_the_limits() -> None:
    lost = solved("resilience")["lost"]
    for limits in ((20, 2), (24, 2), (20, 3)):
        first, second = map(lost, allowed(*limits)[:2])
        assert second > 1.02 * first
    assert allowed(20, 2)[0] == solved("resilience")["design"]


def test_money_is_what_binds() -> None:
    a = solved("resilience")
    now, dearer, roomier = (
        a["lost"](allowed(*limits)[0]) for limits in ((20, 2), (24, 2), (20, 3))
    )
    assert a["loosened"] == "money"
    assert a["gained"] == pytest.approx(now - dearer)
    assert now - dearer > 3 * (now - roomier) > 0


def test_what_designs_lose_is_what_the_laws_of_the_package_say() -> None:
    a = solved("resilience")
    m = a["MEAN"]
    for one in a["every"]:
        parts, write = a["parts"](one), a["STATE_TB"] / one["storage"]
        stall = write if one["saves"] == "blocking" else a["SNAPSHOT"]
        down = one["restart"]
        if one["levels"] == 1:
            behind = 0 if one["saves"] == "blocking" else write
            law = wasted_share(stall, m, down + write + behind)
            assert sum(parts.values()) - parts["waiting"] == pytest.approx(law)
        assert parts["waiting"] == waiting_share(one["spares"], a["REPAIR"], m)


def test_twice_the_bandwidth_is_worth_six_times_as_much_where_saves_block() -> None:
    a = solved("resilience")
    assert a["gained_blocking"] > 5 * a["gained_faster"] > 0


# -- detecting -----------------------------------------------------------------------------------


def test_who_is_slow_and_who_is_wrong_are_named_by_the_package_as_well() -> None:
    a = solved("resilience")
    found = a["suspects"](a["TIMES"], a["HASHES"], [2, 5, 8])
    named = stragglers(a["TIMES"], window=len(a["TIMES"]), least=0.05)
    assert sorted(slow.rank for slow in named) == found["slow"]
    assert list(majority(a["HASHES"][found["step"]]).odd) == found["wrong"]
    tie = majority(a["hashed"](4, 4, 5, {0: (1, 0), 3: (1, 0)})[1])
    assert not tie.agreed


# -- the answer in words -------------------------------------------------------------------------

MEAN, SAVES, TEN_YEARS = 12 * 3600.0, Cadence(1800, 40), range(10)


def run_of_4096(
    spares: int = 3, found: float = 1800, restart: float = 1200, cadence: Cadence = SAVES
):
    """The mean shares of ten years."""
    runs = [
        simulate_run(
            cadence, 365 * 86_400, MEAN, restart, found,
            spares=Spares(spares, 23 * 3600), seed=seed,
        )
        for seed in TEN_YEARS
    ]  # fmt: skip
    return {kind: 100 * mean(run.share(kind) for run in runs) for kind in SPENT_ON}


def test_the_table_of_the_last_question_is_that_of_a_simulated_run() -> None:
    rows = re.findall(r"^\w.*?  +([\d.]+) %$", question("goodput"), re.MULTILINE)
    came = run_of_4096()
    kinds = ("useful", "writing", "redone", "detecting", "waiting", "restarting")
    assert rows == [f"{came[kind]:.1f}" for kind in kinds]


def test_the_figures_of_the_model_answer_are_right() -> None:
    text, now = model_answer("resilience"), run_of_4096()["useful"]
    assert f"Young's is {optimal_interval(40, MEAN) / 60:.0f} minutes" in text
    assert "Writing and redoing together are 3.5 %" in text
    faster = run_of_4096(cadence=best_cadence(20, MEAN))["useful"]
    assert 0.7 < faster - now < 1.3  # "about 1 %"
    assert f"{23 / 12:.1f} devices are in repair" in text
    assert waiting_share(3, 23 * 3600, MEAN) == pytest.approx(1 / 8, rel=0.05)
    assert best_spares(4096, 23 * 3600, MEAN) == 8
    assert 4 < (8 - 23 / 12) / sqrt(23 / 12) < 4.5  # "some four square roots above"
    assert 11 < run_of_4096(8)["useful"] - now < 12
    assert pytest.approx(1 / 8, rel=0.03) == 100 * 5 / 4096
    both = run_of_4096(8, 120)["useful"]
    assert f"to about {both:.0f} %" in text
    assert 3.4 < both - run_of_4096(8)["useful"] < 4
    assert 0.9 < run_of_4096(restart=600)["useful"] - now < 1.3
    assert 1.9 < run_of_4096(cadence=Cadence(590, 4, 40))["useful"] - now < 2.6
