"""The step-time model against the rooms that its terms are from, its calibration, and the planner."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlsys import pipeline_parallel
from dlsys.composing_axes import calibrate as calibration
from dlsys.composing_axes.calibrate import NAMES, calibrated, calibrated_memory, error, interval
from dlsys.composing_axes.laws import sharding_degree, tokens_to_hide
from dlsys.composing_axes.machines import machine
from dlsys.composing_axes.memory import held_bytes, stage_bytes
from dlsys.composing_axes.planner import SCHEDULES, plan
from dlsys.composing_axes.runs import cut, join, runs_of, shape
from dlsys.composing_axes.search import Search
from dlsys.composing_axes.step_time import (
    Constants,
    Machine,
    head_seconds,
    kept_bytes,
    layer_seconds,
    parameters,
    step_parts,
    step_seconds,
)
from dlsys.composing_axes.strategies import megatron, playbook
from dlsys.hardware import DEVICES, LINKS, Cluster, dgx_h100
from dlsys.memory_wall import activations, parameters_held
from dlsys.transformer import CATALOGUE, MixtureOfExperts, TransformerSpec

GPT3 = CATALOGUE["gpt3-175b"]
LLAMA = CATALOGUE["llama3-70b"]
MIXTURE = TransformerSpec(
    8, 1024, 16, 32000, 2048, 2816, gated=True, moe=MixtureOfExperts(16, 2, shared=1)
)
IDEAL = Constants(1 - 1e-12, 1e-9, 1e-12, 1 - 1e-12, 1 - 1e-12, 1e-15, 1e-15, 1e-12, 1e-15, 1.0)
"""Peak everywhere, and nothing that a data sheet does not say."""
H100 = Machine(dgx_h100(16))


# -- terms against the rooms they are from ---------------------------------------------------------


def pipelined(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Seconds of all passes."""
    return sum(parts.values()) - parts["gradients"] - parts["update"] - parts["fixed"]


@pytest.mark.parametrize("spec", [GPT3, LLAMA, CATALOGUE["mixtral-8x7b"], CATALOGUE["deepseek-v3"]])
def test_without_losses_a_step_takes_its_flops_over_the_peak(spec: TransformerSpec) -> None:
    runs = runs_of(spec, flash=0, sequences=2, micro_batches=3)
    ideal = Machine(dgx_h100(1), IDEAL)
    expected = spec.training_flops(6) / ideal.cluster.device.rate("bf16")
    found = pipelined(step_parts(runs, ideal))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("flash", [False, True])
def test_a_layer_keeps_what_the_memory_wall_counts(
    t: int, sequence_parallel: bool, flash: bool
) -> None:
    kept = activations(GPT3, 2, t, sequence_parallel, flash=flash)
    runs = runs_of(GPT3, sequences=2, tp=t, sequence_parallel=sequence_parallel, flash=flash)
    assert kept_bytes(runs) == pytest.approx(kept.per_layer, rel=1e-9)


@pytest.mark.parametrize("spec", [GPT3, LLAMA, CATALOGUE["llama2-7b"]])
@pytest.mark.parametrize(("t", "p"), [(1, 1), (2, 1), (8, 4), (4, 16)])
def test_a_device_has_the_parameters_that_the_memory_wall_counts(
    spec: TransformerSpec, t: int, p: int
) -> None:
    exact = max(parameters_held(spec, t, p), parameters_held(spec, t, p, at_end=True))
    found = parameters(runs_of(spec, tp=t, pp=p))
    assert found == pytest.approx(exact, rel=0.02)  # norms, biases and positions apart


@pytest.mark.parametrize(("p", "m"), [(2, 2), (4, 8), (8, 8), (4, 13)])
def test_the_bubble_is_that_of_the_schedule(p: int, m: int) -> None:
    spec = replace(GPT3, layers=16, vocab=1)
    runs = runs_of(spec, pp=p, micro_batches=m)
    found = pipelined(step_parts(runs, H100))
    stage = (16 / p * layer_seconds(runs, H100))[0]
    price = pipeline_parallel.one_f_one_b(p, m).price(stage / 3, 2 * stage / 3)
    assert found[0] == pytest.approx(price.makespan, rel=1e-3)


@pytest.mark.parametrize("p", [2, 4])
def test_interleaving_divides_the_bubble_by_the_chunks(p: int) -> None:
    m, stage = 2 * p, 1.0
    runs = runs_of(replace(GPT3, layers=16, vocab=1), pp=p, micro_batches=m, chunks=[1, 2])
    bubbles = step_parts(runs, H100)["bubble"]
    price = pipeline_parallel.interleaved(p, m, 2).price(stage / 3, 2 * stage / 3)
    exact = price.makespan - m * stage
    assert bubbles[1] / bubbles[0] == pytest.approx(exact / ((p - 1) * stage), rel=1e-6)


def test_a_group_has_the_cards_of_its_members_in_a_node() -> None:
    # In 16 nodes of 8: two ranks that lie 8 apart have a card each, 16 ranks side by side all eight.
    ndr = 0.85 * LINKS["infiniband-ndr"].bandwidth
    one, four, eight = H100.bandwidth(np.array([2.0, 16.0, 16.0]), np.array([8.0, 2.0, 1.0]))
    assert one == pytest.approx(ndr)
    assert four == pytest.approx(4 * ndr)
    assert eight == pytest.approx(min(8 * ndr, 0.8 * LINKS["nvlink4"].bandwidth))


def test_a_cut_is_even_or_nanotrons() -> None:
    one_b = TransformerSpec(16, 2048, 32, 131072, 4096, 8192, gated=True)
    assert cut(one_b, 2, True) == (11, 11, 5)  # of 20 units, of which the head is four
    assert cut(one_b, 1, True) == cut(one_b, 1, False) == (16, 0, 16)
    assert cut(replace(one_b, layers=10), 4, False) == (3, 3, 2)
    for p in range(1, 17):
        first, most, last = cut(one_b, p, True)
        assert first <= most or p == 1
        assert last + most >= 16 / p


# -- memory ----------------------------------------------------------------------------------------


def test_zero_divides_one_bucket_more_with_each_stage() -> None:
    runs = runs_of(LLAMA, tp=8, pp=2, dp=8, micro_batches=4, zero=[0, 1, 2, 3])
    state = held_bytes(runs, H100)["state"]
    assert state / state[0] * 18 == pytest.approx([18, 6 + 12 / 8, 2 + 16 / 8, 18 / 8])


def test_stage_3_gathers_layers_and_waits_for_what_its_passes_do_not_hide() -> None:
    runs = runs_of(LLAMA, dp=128, zero=[1, 3, 3], micro_batches=[2, 2, 4])
    slow = replace(H100.cluster, inter=replace(H100.cluster.inter, bandwidth=1e9))
    found = step_parts(runs, replace(H100, cluster=slow))["gradients"]
    each = (
        found[0] - 80 * layer_seconds(runs, H100)[0]
    )  # of a micro-batch: as many bytes as stage 1
    assert found == pytest.approx([found[0], 2 * each, 4 * each])
    assert step_parts(runs, H100)["gradients"][1:].tolist() == [0, 0]
    gathered = held_bytes(runs, H100)["gathered"]
    assert gathered[0] == 0
    layer = (LLAMA.parameters() - 2 * LLAMA.vocab * LLAMA.hidden) / LLAMA.layers
    assert gathered[1] == pytest.approx((2 * 2 + 4) * layer, rel=1e-3)


def test_gradients_of_16_bits_are_half_as_many_bytes() -> None:
    for zero in range(4):
        wide, narrow = (
            runs_of(LLAMA, dp=8, micro_batches=1, zero=zero, gradient=g, tp=8) for g in (4, 2)
        )
        held = [held_bytes(runs, H100)["state"][0] for runs in (wide, narrow)]
        over = 8 if zero > 1 else 1
        assert held[0] - held[1] == pytest.approx(2 * parameters(wide)[0] / over)
        if zero < 2:
            seconds = [step_parts(runs, H100)["gradients"][0] for runs in (wide, narrow)]
            assert seconds[0] == pytest.approx(2 * seconds[1])


def test_the_first_stage_holds_a_micro_batch_for_each_stage() -> None:
    runs = runs_of(replace(GPT3, layers=16), pp=4, micro_batches=[2, 8, 8], chunks=[1, 1, 2])
    kept = stage_bytes(runs, H100, first=True)["activations"]
    assert kept / kept[0] == pytest.approx([1, 2, 2.75])  # (3 x 4 - 1) / 2 = 5.5, over 2
    assert pipeline_parallel.one_f_one_b(4, 8).price(1, 2).peak_in_flight[0] == 4


BARE = Machine(dgx_h100(16), IDEAL)
CUTS = [(12, 1, 1), (13, 2, 1), (13, 4, 1), (12, 2, 2), (12, 4, 3)]


@pytest.mark.parametrize(("layers", "p", "v"), CUTS)
@pytest.mark.parametrize(("t", "sp"), [(1, False), (4, False), (4, True)])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_stage_holds_what_the_rooms_count(
    layers: int, p: int, v: int, t: int, sp: bool, again: bool, tied: bool, first: bool
) -> None:
    spec, m = replace(LLAMA, layers=layers, sequence=512, tied=tied), 2 * p
    how = {"tp": t, "pp": p, "chunks": v, "sequence_parallel": sp, "recompute": again}
    runs = runs_of(spec, dp=5, sequences=3, micro_batches=m, zero=[0, 1, 2, 3], **how)
    held = stage_bytes(runs, BARE, first)

    rooms = pipeline_parallel
    schedule = rooms.interleaved(p, m, v) if v > 1 else rooms.one_f_one_b(p, m)
    under_way = schedule.price(1, 2).peak_in_flight[0 if first else -1] / v
    here = -(-layers // p) if first else layers // p
    of_layer = activations(spec, 3, t, sp, flash=True).per_layer
    kept = 2 * 3 * 512 * spec.hidden / (t if sp else 1) if again else of_layer
    expected = under_way * here * kept + (of_layer if again else 0)
    assert held["activations"] == pytest.approx(4 * [expected])

    has_head = p == 1 or not first
    assert held["logits"] == pytest.approx(4 * [has_head * 16 * 3 * 512 * spec.vocab / t])
    number = parameters_held(replace(spec, layers=here * p), t, p, at_end=not first)
    by_stage = [18, 6 + 12 / 5, 2 + 16 / 5, 18 / 5]
    assert held["state"] == pytest.approx([number * each for each in by_stage], rel=1e-3)
    assert held["base"].tolist() == 4 * [0.5e9]
    assert not held["gathered"][:3].any()


def test_experts_are_dealt_over_fewer_ranks_and_sharded_over_those_that_have_the_same() -> None:
    runs = runs_of(MIXTURE, tp=2, dp=8, cp=3, ep=[1, 4, 4], zero=[0, 0, 3])
    held = held_bytes(runs, BARE)
    experts = MIXTURE.layers * 16 * 3 * 1024 * 2816 / 2
    shared = parameters_held(MIXTURE, 2) - experts
    expected = [18 * (shared + experts), 18 * (shared + experts / 4)]
    expected.append(18 * (shared / 24 + experts / 4 / 6))
    assert held["state"] == pytest.approx(expected, rel=1e-3)
    layer = (parameters_held(MIXTURE, 2) - 32000 * 1024 / 2 - experts) / MIXTURE.layers
    whole = 8 * (layer + experts / MIXTURE.layers / 4)
    assert held["gathered"] == pytest.approx([0, 0, whole], rel=1e-3)


def test_the_fuller_of_the_first_and_the_last_stage_counts() -> None:
    of_words = replace(LLAMA, layers=8, vocab=2_000_000)  # whose logits outweigh what is under way
    for spec, is_first in ((replace(LLAMA, layers=8), True), (of_words, False)):
        runs = runs_of(spec, pp=4, tp=8, micro_batches=[8, 16])
        first, last = (stage_bytes(runs, BARE, each) for each in (True, False))
        held, wanted = held_bytes(runs, BARE), first if is_first else last
        assert first["activations"] != pytest.approx(last["activations"])
        assert {name: [*each] for name, each in held.items()} == {
            name: [*each] for name, each in wanted.items()
        }


# -- calibration -----------------------------------------------------------------------------------

TRUTH = Constants(0.55, 8e10, 4.0, 0.7, 0.5, 2e-4, 4e-3, 20.0, 0.05, 1.3)


def trials(number: int = 300) -> tuple[object, np.ndarray]:
    """Runs of two models on a cluster of which TRUTH says how fast it is."""
    stream = np.random.default_rng(0)
    small = TransformerSpec(16, 2048, 32, 131072, 4096, 8192, gated=True)
    large = TransformerSpec(28, 3072, 32, 131072, 4096, 8192, gated=True)
    pick = lambda *of: stream.choice(of, number).astype(float)  # noqa: E731
    specs = [[small, large][i] for i in stream.integers(0, 2, number)]
    runs = runs_of(
        specs,
        tp=pick(1, 2, 4, 8, 16),
        dp=pick(1, 2, 4, 8),
        pp=pick(1, 2, 4),
        sequences=pick(1, 2, 4, 8),
        micro_batches=pick(1, 4, 16),
    )
    return runs, step_seconds(runs, H100.having(TRUTH))


def test_planted_constants_are_found_again_beside_stalled_runs() -> None:
    runs, seconds = trials()
    stream = np.random.default_rng(1)
    seconds = seconds * np.exp(0.03 * stream.standard_normal(len(seconds)))
    seconds[::12] *= 2.5  # which stalled for a reason that no column tells
    machine = calibrated(runs, seconds, H100)
    found, said = machine.constants, machine.source
    assert said == "300 runs"
    for name in ("products", "floor", "logits", "inter", "fixed"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.2), name
    assert error(runs, step_seconds(runs, H100.having(TRUTH)), H100.having(found)) < 2


def test_what_runs_do_not_tell_stays_what_it_was() -> None:
    runs, seconds = trials()
    alone = runs.take((runs.tp == 1) & (runs.dp == 1))
    found = calibrated(alone, seconds[(runs.tp == 1) & (runs.dp == 1)], H100).constants
    for name in ("intra", "inter", "latency"):
        assert getattr(found, name) == pytest.approx(getattr(H100.constants, name), rel=1e-6)


def test_slack_is_found_again() -> None:
    runs, _ = trials()
    nbytes = sum(stage_bytes(runs, H100.having(TRUTH), True).values())
    assert calibrated_memory(runs, nbytes, H100).constants.slack == pytest.approx(1.3, abs=0.011)


def test_before_any_run_nine_of_ten_machines_lie_in_the_interval() -> None:
    runs = runs_of(LLAMA, tp=8, pp=4, dp=4, micro_batches=16)
    low, high = interval(runs, H100)
    middle = step_seconds(runs, H100)
    assert low < middle < high
    assert 1.5 < high / low < 20  # a data sheet is no calibration


def test_no_constant_of_a_machine_is_at_a_bound() -> None:
    for name in ("a100", "h100"):
        constants = machine(name).constants
        for each in NAMES:
            value, before = getattr(constants, each), getattr(Constants(), each)
            if each in ("products", "intra", "inter"):
                assert 0.05 < value < 0.95
            else:
                assert before / 12 < value < 12 * before, each


def test_the_command_reads_a_file_and_says_what_each_constant_buys(tmp_path, capsys) -> None:
    runs, seconds = trials(60)
    nbytes = sum(stage_bytes(runs, H100.having(TRUTH), True).values())
    names = ["layers", "hidden", "heads", "ffn_hidden", "vocab", "sequence", "gated"]
    how = ["tp", "dp", "pp", "sequences"]
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*names, *how, "batch", "seconds", "bytes"])
        for i in range(60):
            spec = [runs.layers[i], runs.hidden[i], 32, 8192, 131072, 4096, 1]
            degrees = [getattr(runs, name)[i] for name in how]
            batch = runs.dp[i] * runs.sequences[i] * runs.micro_batches[i]
            table.writerow([*spec, *degrees, batch, seconds[i], nbytes[i]])
    calibration.main([str(tmp_path / "runs.csv")])
    said = capsys.readouterr().out
    assert "60 runs, mean absolute error 0." in said
    assert "without floor" in said


def test_a_file_of_runs_that_cannot_be_read_gets_a_sentence(tmp_path: Path) -> None:
    for text, words in {
        "layers,hidden\n": "has no runs",
        "layers,hiden\n1,2\n": "no column 'hiden'|'hiden'",
        "layers,hidden\n1,2\n": "has no column 'heads'",
    }.items():
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(ValueError, match=words):
            calibration.read(tmp_path / "x.csv")


def test_runs_refuse_a_column_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="no column 'dq'"):
        runs_of(LLAMA, dq=3)
    with pytest.raises(ValueError, match="2 models were given for 1 runs"):
        runs_of([LLAMA, GPT3], tp=1)


def test_runs_of_several_kinds_go_into_one_table() -> None:
    one, two = runs_of(LLAMA, tp=[1, 2]), runs_of(GPT3, tp=4, pp=2)
    assert step_seconds(join([one, two]), H100) == pytest.approx(
        [*step_seconds(one, H100), *step_seconds(two, H100)]
    )


# -- the planner -----------------------------------------------------------------------------------


def brute_force(spec: TransformerSpec, size: int, batch: int) -> set[tuple[int, ...]]:
    found = set()
    for tp, cp, dp, pp in itertools.product(range(1, size + 1), repeat=4):
        if tp * cp * dp * pp != size or spec.heads % tp or spec.ffn_hidden % tp or batch % dp:
            continue
        if pp > spec.layers or spec.sequence % (2 * cp):
            continue
        if spec.kv_heads % tp and tp % spec.kv_heads:
            continue
        found.add((tp, cp, dp, pp))
    return found


@pytest.mark.parametrize(("size", "batch"), [(8, 64), (16, 24)])
def test_every_layout_that_divides_is_priced_and_no_other(size: int, batch: int) -> None:
    spec = CATALOGUE["gpt2-xl"]
    search = plan(
        spec,
        Machine(
            Cluster(DEVICES["h100-sxm"], size // 8, 8, LINKS["nvlink4"], LINKS["infiniband-ndr"])
        ),
        batch,
    )
    runs = search.runs
    found = {
        *zip(
            *(getattr(runs, n).astype(int).tolist() for n in ("tp", "cp", "dp", "pp")), strict=True
        )
    }
    assert found == brute_force(spec, size, batch)
    assert (runs.dp * runs.sequences * runs.micro_batches == batch).all()


def test_experts_divide_the_data_axis() -> None:
    search = plan(MIXTURE, machine("h100", 1), 64)
    runs = search.runs
    assert (runs.data % runs.ep == 0).all()
    assert set(runs.ep) == {1, 2, 4, 8}


def test_the_best_plan_is_the_fastest_that_fits() -> None:
    search = plan(LLAMA, machine("h100", 16), 512)
    fits = search.total <= search.memory
    assert search.best.seconds == search.seconds[fits].min()
    assert sum(search.best.parts.values()) == pytest.approx(search.best.seconds)
    assert sum(search.best.held.values()) <= 80e9
    best = search.best
    assert best.tp * best.cp * best.dp * best.pp == 128


def test_no_plan_of_the_front_is_beaten_in_both() -> None:
    front = plan(LLAMA, machine("h100", 16), 512).front()
    seconds = [each.seconds for each in front]
    nbytes = [sum(each.held.values()) for each in front]
    assert len(front) > 3
    assert seconds == sorted(seconds)
    assert nbytes == sorted(nbytes, reverse=True)


def test_what_cannot_fit_is_refused_by_its_fullest_bucket() -> None:
    with pytest.raises(ValueError, match=r"None of .* plans fits.*state .*: more devices"):
        _ = plan(CATALOGUE["llama3-405b"], machine("h100", 1), 8).best


def test_the_constraint_that_binds_is_the_one_whose_loosening_gains_most() -> None:
    binding = plan(LLAMA, machine("h100", 16), 512).binding()
    assert all(gain >= 1 - 1e-9 for gain in binding.values())
    assert max(binding, key=lambda name: binding[name]) == "flops"
    slow = machine("h100", 2)
    thin = replace(slow.cluster, inter=replace(slow.cluster.inter, bandwidth=1e7))
    binding = plan(replace(LLAMA, layers=1), replace(slow, cluster=thin), 32).binding()
    assert max(binding, key=lambda name: binding[name]) == "inter"


def test_a_device_that_waits_draws_a_part_of_its_power() -> None:
    search = plan(LLAMA, machine("h100", 16), 512)
    power = 128 * DEVICES["h100-sxm"].tdp
    computing = sum(search.parts[name] for name in ("products", "traffic", "head", "update"))
    assert search.joules(1) == pytest.approx(power * search.seconds)
    assert search.joules(0) == pytest.approx(power * computing)
    assert search.joules(0.25) == pytest.approx(power * (0.25 * search.seconds + 0.75 * computing))
    with pytest.raises(ValueError, match="waiting"):
        search.joules(1.5)
    unknown = replace(search.machine.cluster, device=DEVICES["tpu-v5p"])
    with pytest.raises(ValueError, match="power"):
        replace(search, machine=replace(search.machine, cluster=unknown)).joules()


def test_the_plan_of_least_cost_fits_and_none_that_fits_costs_less() -> None:
    search = plan(LLAMA, machine("h100", 16), 512)
    fits = search.total <= search.memory
    frugal = search.least(search.joules())
    assert sum(frugal.held.values()) <= search.memory
    assert search.joules()[search.seconds == frugal.seconds].min() == search.joules()[fits].min()
    assert search.least(search.seconds) == search.best
    assert search.least(search.total).seconds > search.best.seconds
    with pytest.raises(ValueError, match="one for each"):
        search.least(search.seconds[:-1])


def test_a_named_plan_is_found_and_a_missing_one_gets_a_sentence() -> None:
    search = plan(LLAMA, machine("h100", 16), 512)
    named = search.where(tp=8, pp=4, dp=4)
    assert named.axes == {"tp": 8, "cp": 1, "dp": 4, "pp": 4, "ep": 1}
    with pytest.raises(ValueError, match="No plan has tp 3"):
        search.where(tp=3)


def test_tensor_parallelism_stays_in_the_node_because_of_its_price() -> None:
    # No rule: where what is between nodes is as fast as what is inside, and latency is nothing, it
    # leaves the node.
    short = replace(LLAMA, layers=2)
    assert plan(LLAMA, machine("h100", 16), 512).best.tp <= 8
    flat = Machine(Cluster(DEVICES["h100-sxm"], 16, 8, LINKS["nvlink4"], LINKS["nvlink4"]), IDEAL)
    assert plan(short, flat, 4).best.tp > 8


def test_the_explanation_tells_what_is_saved_and_what_it_costs() -> None:
    said = plan(LLAMA, machine("h100", 16), 512).explain()
    assert "runner-up" in said
    assert "saves" in said
    assert "holds" in said
    assert "No run" not in said
    assert "No run of this machine was seen: nine of ten" in plan(LLAMA, H100, 512).explain()


def test_a_schedule_that_cannot_run_is_not_planned() -> None:
    search = plan(replace(LLAMA, layers=4), machine("h100", 1), 8, schedules=tuple(SCHEDULES))
    for place, schedule in enumerate(search.schedules):
        p, m = search.runs.pp[place], search.runs.micro_batches[place]
        if schedule == "interleaved":
            assert p > 1
            assert 2 * p <= 4
            assert m % p == 0


def test_the_head_is_counted_with_the_last_stage() -> None:
    runs = runs_of(replace(GPT3, layers=4), pp=[1, 4], micro_batches=8)
    assert (head_seconds(runs, H100) > 0).all()
    assert shape(GPT3).weights == 12 * GPT3.hidden**2


# -- laws ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2**18, 2**22])
@pytest.mark.parametrize(("sharding", "tensor"), [(25e9, 350e9), (100e9, 100e9)])
def test_the_law_of_two_axes_is_where_their_messages_take_least(tokens, sharding, tensor) -> None:
    n, h, neurons, rate = 256, 8192, 28672, 500e12
    x = np.geomspace(1, n, 100_001)
    seconds = 4 * h * neurons * x / n / sharding + 4 * h * tokens / x / tensor
    law = sharding_degree(tokens, n, neurons, sharding, tensor)
    assert law == pytest.approx(x[np.argmin(seconds)], rel=1e-3)
    # and their seconds at it are those of the products where there are just enough tokens
    enough = tokens_to_hide(neurons, rate, sharding, tensor) * n
    at = sharding_degree(enough, n, neurons, sharding, tensor)
    sent = 4 * h * neurons * at / n / sharding + 4 * h * enough / at / tensor
    assert sent == pytest.approx(4 * enough * h * neurons / n / rate)


def test_the_law_costs_a_tenth_beside_the_planner_which_knows_what_hides() -> None:
    worse = []
    for name, nodes, batch in itertools.product(
        ("llama2-7b", "llama2-13b"), (2, 8, 32), (128, 2048)
    ):
        spec, made = CATALOGUE[name], machine("h100", nodes)
        search = plan(spec, made, batch, zero=(3,), schedules=("1f1b",))
        two = (search.runs.pp == 1) & (search.runs.cp == 1) & (search.total <= search.memory)
        c, cluster = made.constants, made.cluster
        between, inside = c.inter * cluster.inter.bandwidth, c.intra * cluster.intra.bandwidth
        neurons = 1.5 * spec.ffn_hidden  # a gated network has three matrices, not two
        law = sharding_degree(batch * spec.sequence, cluster.size, neurons, between, inside)
        near = min(set(search.runs.dp[two]), key=lambda dp: abs(np.log(dp / law)))
        worse.append(
            search.seconds[two & (search.runs.dp == near)].min() / search.seconds[two].min()
        )
    assert max(worse) < 1.4
    assert np.mean(worse) < 1.15


# -- rules of thumb --------------------------------------------------------------------------------


def test_rules_of_thumb_cost_what_they_leave_out() -> None:
    lost: dict[str, list[float]] = {"megatron": [], "playbook": []}
    for name, nodes in itertools.product(("llama2-13b", "llama2-70b", "gpt3-175b"), (8, 32, 128)):
        made = machine("h100", nodes)
        search = plan(CATALOGUE[name], made, 256, zero=(0, 1, 2, 3), schedules=("1f1b",))
        for rule in (megatron, playbook):
            found = rule(search)
            assert sum(found.held.values()) <= search.memory
            lost[rule.__name__].append(found.seconds / search.best.seconds - 1)
    assert all(min(each) >= 0 for each in lost.values())
    assert np.mean(lost["playbook"]) < 0.2 < 0.3 < np.mean(lost["megatron"])


class Rows(Search):
    """A search that gives the row of a plan, in which every plan but those of `full` fits."""

    def at(self, place: int) -> Any:
        """The row itself."""
        return place


COLUMNS = ("tp", "cp", "pp", "zero", "recompute")
EVERY = [*itertools.product((1, 2, 8, 16), (1, 2, 4), (1, 2, 3), (0, 1, 2, 3), (0, 1))]


def allowed_by(
    rule: Callable[[Search], Any], parameters: float, size: int, full: Collection[tuple] = ()
) -> set[tuple]:
    """The rows that a rule chooses if they are the fastest."""
    runs = SimpleNamespace(**dict(zip(COLUMNS, np.array(EVERY, float).T, strict=True)))
    spec = SimpleNamespace(parameters=lambda: parameters)
    made = SimpleNamespace(node=8, cluster=SimpleNamespace(size=size))
    held = {"all": np.array([2.0 if each in full else 1.0 for each in EVERY])}
    found = set()
    for place, row in enumerate(EVERY):
        seconds = np.where(np.arange(len(EVERY)) == place, 1.0, 2.0)
        if rule(Rows(spec, made, 1, runs, (), seconds, {}, held, memory=1.0)) == place:
            found.add(row)
    return found


@pytest.mark.parametrize("parameters", [10e9 - 1, 10e9, 100e9 - 1, 100e9])
@pytest.mark.parametrize("size", [8, 511, 512, 1023, 1024])
def test_the_playbooks_rule_leaves_what_it_says_at_each_size(parameters: float, size: int) -> None:
    sharded = {(1, 1, 1, 3, 0), (1, 1, 1, 3, 1)} if size < 512 else set()
    piped = {(8, 1, pp, zero, r) for pp in (2, 3) for zero in (0, 1, 2, 3) for r in (0, 1)}
    if size >= 1024:
        expected = {row for row in piped if row[3] in (1, 2)}
    elif parameters < 10e9:
        expected = {(8, 1, 1, zero, r) for zero in (0, 1, 2) for r in (0, 1)}
        expected |= sharded - {(1, 1, 1, 3, 0)}
    elif parameters < 100e9:
        expected = piped | sharded | {(8, 1, 1, 3, 0), (8, 1, 1, 3, 1)}
    else:
        expected = piped
    assert allowed_by(playbook, parameters, size) == expected


def test_megatrons_rule_leaves_the_least_cut_that_fits() -> None:
    stages = [(zero, r) for zero in (0, 1) for r in (0, 1)]
    one, two, eight = ({(t, 1, 1, *each) for each in stages} for t in (1, 2, 8))
    assert allowed_by(megatron, 1e9, 64) == one
    assert allowed_by(megatron, 1e9, 64, one - {(1, 1, 1, 1, 0)}) == {(1, 1, 1, 1, 0)}
    assert allowed_by(megatron, 1e9, 64, one) == two
    by_node = {(8, 1, 2, *each) for each in stages}
    assert allowed_by(megatron, 1e9, 64, one | two | eight) == by_node
    with pytest.raises(ValueError, match=r"^Megatron-LM's rule leaves none of 288 plans that fits"):
        allowed_by(megatron, 1e9, 64, EVERY)


def test_megatrons_rule_cuts_just_enough_and_layers_before_stages() -> None:
    search = plan(GPT3, machine("h100", 32), 256, schedules=("1f1b",))
    found = megatron(search)
    assert (found.tp, found.pp) == (8, 2)
    smaller = search.runs.tp * search.runs.pp * search.runs.cp < 16
    allowed = smaller & (search.runs.zero <= 1) & (search.runs.cp == 1)
    assert (search.total[allowed] > search.memory).all()


def test_the_playbooks_rule_is_that_of_its_size() -> None:
    small = plan(CATALOGUE["llama2-7b"], machine("h100", 8), 256, zero=(0, 1, 2, 3))
    assert (playbook(small).zero, playbook(small).recompute) == (3, True)
    large = plan(CATALOGUE["llama2-70b"], machine("h100", 128), 256, zero=(0, 1, 2, 3))
    found = playbook(large)
    assert (found.tp, found.zero, found.pp > 1) == (8, 1, True)
    with pytest.raises(ValueError, match="The Playbook's rule leaves none of"):
        playbook(plan(CATALOGUE["llama3-405b"], machine("h100", 2), 16))
