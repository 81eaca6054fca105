"""Input pipelines: the price in closed form, simulations of it, and what published sums get wrong."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.hardware import DEVICES, LINKS
from dlsys.input_pipeline import (
    InputPipeline,
    Span,
    Stage,
    Timeline,
    buffer_needed,
    depth_needed,
    epoch_seconds,
    exponential_utilization,
    fused,
    lru_hits,
    prefetch_needed,
    simulate,
    speedups,
    storage_bandwidth,
    workers_needed,
)

STAGES = st.builds(
    lambda s, w, p, nbytes: (s, w, p, nbytes),
    st.integers(0, 8),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 5),
)


def pipeline(*stages: tuple[float, int, int, float], batch: int = 2, **more: int) -> InputPipeline:
    """Stages of (seconds a batch, workers, prefetch, bytes a sample)."""
    made = [
        Stage(f"stage {i}", 0.0, float(s), w, p, float(nbytes))
        for i, (s, w, p, nbytes) in enumerate(stages)
    ]
    return InputPipeline(tuple(made), batch, **more)


def played(plan: InputPipeline, batches: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Start and end of each batch in each stage, by workers that move one tick at a time.

    An oracle of another kind than the recurrence: at every tick each idle worker looks whether its
    next batch is there and whether it may begin it. Seconds are whole numbers.
    """
    done: dict[tuple[int, int], tuple[float, float]] = {}
    stages = plan.stages
    hands = {(i, j): j for i, s in enumerate(stages) for j in range(s.workers)}
    busy: dict[tuple[int, int], float] = {}
    for tick in range(10_000):
        moved = True
        while moved:  # at one moment, as long as anything changes
            moved = False
            for (i, j), k in hands.items():
                if k >= batches or busy.get((i, j), 0) > tick:
                    continue
                there = i == 0 or ((i - 1, k) in done and done[i - 1, k][1] <= tick)
                mine = [b for b in range(k) if b % stages[i].workers == j]
                untaken = [b for b in mine if (i + 1, b) not in done]
                room = i + 1 == len(stages) or len(untaken) < stages[i].prefetch
                if there and room:
                    end = tick + stages[i].seconds(plan.batch)
                    done[i, k] = (tick, end)
                    busy[i, j], hands[i, j] = end, k + stages[i].workers
                    moved = True
        if len(done) == batches * len(stages):
            return {(stages[i].name, k): span for (i, k), span in done.items()}
    raise AssertionError("it stands still")


@settings(max_examples=60, deadline=None)
@given(st.lists(STAGES, min_size=1, max_size=4))
def test_the_recurrence_begins_every_batch_when_workers_that_look_every_tick_do(stages):
    plan = pipeline(*stages)
    timeline = simulate(plan, 14)
    timeline.check()
    found = {(span.stage, span.batch): (span.start, span.end) for span in timeline.spans}
    assert found == played(plan, 14)


@settings(max_examples=60, deadline=None)
@given(st.lists(STAGES, min_size=1, max_size=4).filter(lambda s: any(each[0] for each in s)))
def test_in_the_long_run_a_pipeline_makes_what_its_slowest_stage_makes(stages):
    plan = pipeline(*stages)
    price = plan.price()
    rounds = 12  # the least common multiple of the numbers of workers
    # Once the beginning is over (places fill at one batch a period at the least), exactly so.
    ends = [s.end for s in simulate(plan, 30 * rounds).of(plan.stages[-1].name)]
    assert 10 * rounds * plan.batch / (ends[-1] - ends[-1 - 10 * rounds]) == pytest.approx(
        price.samples_per_second
    )
    assert price.rates[price.bottleneck] == price.samples_per_second == min(price.rates.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(STAGES, min_size=2, max_size=4).filter(lambda s: any(each[0] for each in s)))
def test_no_moment_holds_more_bytes_than_the_price_says(stages):
    plan = pipeline(*stages)
    timeline = simulate(plan, 40)
    assert timeline.peak_bytes <= plan.price().memory_bytes
    for stage in plan.stages[:-1]:
        assert timeline.most_ahead(stage.name) <= stage.ahead


def test_where_the_step_is_slow_all_that_may_be_held_is_held():
    plan = pipeline((3, 4, 2, 100), (5, 1, 1, 0), batch=8)
    timeline = simulate(plan, 60)
    # 4 workers with 2 batches each are ahead, and one is in the step.
    assert timeline.most_ahead("stage 0") == 8 == plan.price().batches_ahead
    assert timeline.peak_bytes == 9 * 8 * 100 == plan.price().memory_bytes


@settings(max_examples=40, deadline=None)
@given(st.lists(STAGES, min_size=1, max_size=4), st.integers(0, 3))
def test_a_stage_s_seconds_busy_and_idle_add_up_to_its_workers_seconds(stages, seed):
    plan = pipeline(*stages)
    plan = replace(plan, stages=tuple(replace(s, variation=0.7) for s in plan.stages))
    timeline = simulate(plan, 20, seed)
    for stage in plan.stages:
        spent = timeline.spent(stage.name)
        assert sum(spent) == pytest.approx(stage.workers * timeline.seconds)
        assert min(spent) >= -1e-9
        assert spent.busy == pytest.approx(sum(s.end - s.start for s in timeline.of(stage.name)))


def test_the_device_starves_behind_a_slow_loader_and_a_fast_one_is_blocked():
    slow = simulate(pipeline((4, 1, 2, 1), (1, 1, 1, 0)), 40)
    assert slow.spent("stage 1").starved == 40 * 4 - 39 == slow.seconds - slow.spent("stage 1").busy
    assert slow.spent("stage 0").blocked == 0
    fast = simulate(pipeline((1, 1, 2, 1), (4, 1, 1, 0)), 40)
    assert fast.spent("stage 1").starved == 1  # before the first
    assert fast.spent("stage 0").blocked > 80
    assert fast.spent("stage 0").starved == 0


def test_the_first_batch_comes_after_all_stages_and_after_the_shuffle_buffer_has_filled():
    stages = (
        Stage("read", 0.5, workers=2, sample_bytes=10),
        Stage("load", 0.0, 3.0),
        Stage("step", 1),
    )
    plan = InputPipeline(stages, batch=4, shuffle=100)
    assert simulate(plan, 3).first_batch_seconds == plan.price().first_batch_seconds
    assert plan.price().first_batch_seconds == 100 * 0.5 / 2 + 4 * 0.5 + 3
    without = replace(plan, shuffle=0)
    assert plan.price().memory_bytes - without.price().memory_bytes == 1000


@pytest.mark.parametrize("ahead", [1, 2, 8])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_exponential_times_starve_the_step_as_a_queue_with_so_many_places_says(ratio, ahead):
    load = Stage("load", 0.0, ratio, prefetch=ahead, variation=1.0)
    plan = InputPipeline((load, Stage("step", 0.0, 1.0, variation=1.0)))
    timeline = simulate(plan, 20_000, seed=3)
    used = timeline.spent("step").busy / timeline.seconds
    assert used == pytest.approx(exponential_utilization(ratio, ahead), rel=0.02)


def test_a_balanced_pipeline_of_exponential_times_loses_one_part_of_ahead_and_two():
    assert exponential_utilization(1, 1) == pytest.approx(2 / 3)
    assert exponential_utilization(1.0, 8) == pytest.approx(9 / 10)
    # It is continuous at 1, and deep queues reach the bound without variation.
    for ratio in (1 - 1e-7, 1 + 1e-7):
        assert exponential_utilization(ratio, 8) == pytest.approx(0.9, abs=1e-5)
    assert exponential_utilization(0.5, 10**6) == 1
    assert exponential_utilization(4.0, 10**6) == 0.25


def test_seconds_of_a_stage_have_the_mean_and_the_variation_asked_for():
    for variation in (0.3, 1.0, 2.0):
        plan = InputPipeline((Stage("only", 0.0, 2.0, variation=variation),))
        took = [span.end - span.start for span in simulate(plan, 40_000).spans]
        mean = sum(took) / len(took)
        spread = (sum((t - mean) ** 2 for t in took) / len(took)) ** 0.5
        assert mean == pytest.approx(2, rel=0.04)
        assert spread / mean == pytest.approx(variation, rel=0.04)


def test_variation_never_makes_a_pipeline_faster_than_its_price():
    for variation, seed in itertools.product((0.2, 1.0), range(3)):
        stages = [Stage("load", 0.0, 3.0, 3, 2, variation=variation), Stage("step", 0.0, 1.0)]
        plan = InputPipeline(tuple(stages))
        assert 2000 / simulate(plan, 2000, seed).seconds < plan.price().samples_per_second * 1.01


def test_the_same_seed_gives_the_same_seconds_and_a_stage_its_own():
    plan = InputPipeline((Stage("a", 1.0, variation=1.0), Stage("b", 1.0, variation=1.0)))
    assert simulate(plan, 9, 1) == simulate(plan, 9, 1) != simulate(plan, 9, 2)
    alone = InputPipeline((plan.stages[1],))
    took = [s.end - s.start for s in simulate(alone, 9, 1).spans]
    assert took == pytest.approx([s.end - s.start for s in simulate(plan, 9, 1).of("b")])


def test_only_the_bottleneck_moves_the_whole_and_another_one_stops_it():
    plan = pipeline((10, 1, 1, 0), (8, 1, 1, 0), (2, 1, 1, 0))
    assert speedups(plan) == {"stage 0": 1.25, "stage 1": 1.0, "stage 2": 1.0}
    measured = {
        name: simulate(plan.sped_up(name, 2), 60).samples_per_second
        / simulate(plan, 60).samples_per_second
        for name in ("stage 0", "stage 1", "stage 2")
    }
    assert measured == pytest.approx(speedups(plan))
    gone = simulate(plan.sped_up("stage 0"), 60)
    assert gone.spent("stage 0").busy == 0
    assert gone.samples_per_second == pytest.approx(2 / 8)


def test_stages_in_one_hand_take_their_sum_and_overlap_nothing():
    stages = [
        Stage("read", 0.5, 1.0, variation=0.6),
        Stage("transform", 2.0, 0.0, variation=0.8, sample_bytes=7),
    ]
    one = fused(stages, "worker", workers=3, prefetch=2)
    assert (one.sample_seconds, one.batch_seconds, one.workers, one.ahead) == (2.5, 1.0, 3, 6)
    assert one.sample_bytes == 7
    assert one.variation * 3.5 == pytest.approx(((0.6 * 1.5) ** 2 + (0.8 * 2) ** 2) ** 0.5)
    serial = InputPipeline((fused([*stages, Stage("step", 0.0, 4.0)], "all"),), 8)
    assert serial.price().samples_per_second == 8 / (2.5 * 8 + 1 + 4)


def test_a_plan_is_checked_with_each_stage_in_turn_as_the_slow_one():
    pipeline((3, 2, 2, 1), (1, 3, 1, 1), (2, 1, 1, 0)).check()


def test_a_simulation_that_breaks_the_plan_fails_its_check(monkeypatch):
    def shifted(plan: InputPipeline, *args: object, **more: object) -> Timeline:
        """Every step a moment before its batch is there."""
        timeline = simulate(plan, *args, **more)
        last = plan.stages[-1].name
        return replace(
            timeline,
            spans=tuple(
                s._replace(start=s.start - 1) if s.stage == last else s for s in timeline.spans
            ),
        )

    monkeypatch.setattr("dlsys.input_pipeline.check.simulate", shifted)
    with pytest.raises(ValueError, match="stage 1 begins batch 0 by worker 0 before the stage"):
        pipeline((1, 1, 1, 0), (1, 1, 1, 0)).check()


def spans(**changed: tuple[int, float, float]) -> list[Span]:
    """A good timeline of two stages and three batches, some spans replaced by (worker, start, end)."""
    good = {
        **{"a0": (0, 0.0, 1.0), "a1": (0, 1.0, 2.0), "a2": (0, 2.0, 3.0)},
        **{"b0": (0, 1.0, 2.0), "b1": (0, 2.0, 3.0), "b2": (0, 3.0, 4.0)},
    }
    return [Span(k[0], int(k[1]), *v) for k, v in (good | changed).items()]


TWO = InputPipeline((Stage("a", 1.0), Stage("b", 1.0)))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b1": (0, 1.5, 2.5)}, "b begins batch 1 by worker 0 before the stage in front"),
        ({"b2": (0, 2.9, 4.0)}, "before the stage in front"),
        ({"a1": (0, 0.5, 1.5)}, "while that worker had another one"),
        ({"b0": (1, 1.0, 2.0)}, "that the stage has not"),
        ({"a0": (0, 0.0, -1.0)}, "backwards in time"),
        ({"b0": (0, 1.5, 2.0)}, "more than 1 batches ahead of the next stage"),
    ],
)
def test_a_timeline_that_breaks_the_plan_is_told(changed, said):
    Timeline(TWO, spans()).check()
    with pytest.raises(ValueError, match=said):
        Timeline(TWO, spans(**changed)).check()


def test_a_timeline_has_each_batch_once_in_each_stage():
    for wrong in (spans()[1:], [*spans(), spans()[0]], []):
        with pytest.raises(ValueError, match="it must have one for each batch in each of a, b"):
            Timeline(TWO, tuple(wrong))


# What section numbers of a published chapter say, and what comes out.


def test_the_same_seconds_overlapped_take_65_of_95_and_not_55_of_105():
    opened = [7.5 + 12.5, 10.0, 7.5 + 12.5]  # Open 1, Read 1; Read 2; Open 2, Read 3
    plan = InputPipeline((Stage("read", 1.0), Stage("train", 1.0)))
    took = {"read": opened, "train": [15.0] * 3}
    overlapped = simulate(
        replace(plan, stages=(replace(plan.stages[0], prefetch=2), plan.stages[1])), 3, seconds=took
    )
    assert overlapped.seconds == 65
    serial = InputPipeline((Stage("all", 1.0),))
    assert simulate(serial, 3, seconds={"all": [o + 15 for o in opened]}).seconds == 95
    assert pytest.approx((0.316, 1.46), abs=0.005) == (1 - 65 / 95, 95 / 65)
    assert pytest.approx((0.389, 1.636), abs=0.001) == (1 - 55 / 90, 90 / 55)  # as published


def test_everything_in_flight_and_not_two_batches_is_what_buffers_hold():
    image = 1024**2 * 3  # bytes: uint8
    load = Stage("load", 0.03, workers=4, prefetch=2, sample_bytes=image)
    plan = InputPipeline((load, Stage("step", 0.0, 1.0)), 256)
    one = 256 * image
    assert one / 1e9 == pytest.approx(0.805, abs=5e-4)
    assert plan.price().memory_bytes == 9 * one  # 8 ahead and 1 in the step
    assert plan.price().batches_ahead * one / 1e9 == pytest.approx(6.44, abs=0.01)
    slow_step = InputPipeline((load, Stage("step", 0.0, 10.0)), 256)
    assert simulate(slow_step, 40).peak_bytes == 9 * one


def test_rates_are_compared_in_samples_a_second_whatever_storage_and_device_count():
    """Batches, bytes and samples a second: the least of the plain numbers is another stage."""
    read = Stage("read", 110e3 / 500e6)  # 500e6 bytes/s
    transform = Stage("transform", 0.0, 64 / 300)  # 300 samples/s, in batches
    step = Stage("step", 0.0, 1 / 10)  # 10 batches/s
    price = InputPipeline((read, transform, step), 64).price()
    assert price.rates == pytest.approx({"read": 4545.4545, "transform": 300, "step": 640})
    assert (
        min({"read": 500e6, "transform": 300, "step": 10}.items(), key=lambda x: x[1])[0] == "step"
    )
    assert price.bottleneck == "transform"


def test_a_random_share_of_a_practical_share_is_not_both_times_the_tenth():
    """0.1 of 3.5 GB/s is 0.35; of the half that is practical, 0.175: one or the other, said so."""
    nvme = LINKS["nvme"]
    assert 0.5 * nvme.bandwidth == 1.75e9
    assert (0.1 * nvme.bandwidth, 0.1 * 0.5 * nvme.bandwidth) == pytest.approx((0.35e9, 0.175e9))
    # A share is not a property of the drive: it depends on the size of a read.
    share = [n / nvme.seconds(n) / nvme.bandwidth for n in (4096, 110e3, 4e6)]
    assert share[0] < 0.02 < 0.2 < share[1] < 0.35 < 0.9 < share[2]


def test_utilization_is_the_pipeline_s_rate_over_the_device_s():
    for device, used in ((1000, 0.2), (2000, 0.1)):
        plan = InputPipeline((Stage("load", 1 / 200), Stage("step", 1 / device)))
        assert plan.price().utilization == pytest.approx(used)


def test_a_device_of_several_workers_is_used_by_as_much_as_a_simulation_says():
    plan = pipeline((3, 1, 4, 0), (6, 4, 1, 0))
    spent = simulate(plan, 400).spent("stage 1")
    assert plan.price().utilization == 0.5
    assert spent.busy / (spent.busy + spent.starved) == pytest.approx(0.5, abs=0.01)


def test_crop_jitter_and_norm_take_30_ms_and_workers_follow_from_the_step():
    chain = [Stage("crop", 0.010), Stage("jitter", 0.015), Stage("norm", 0.005)]
    worker = fused(chain, "worker")
    assert worker.seconds(1) == pytest.approx(0.030)
    assert workers_needed(0.030, 0.010) == 3
    # 20 to 40 ms against 10 to 15: two to four workers; four to eight only with a margin of two.
    ends = [workers_needed(load, step) for load, step in ((0.020, 0.015), (0.040, 0.010))]
    assert ends == [2, 4]
    assert workers_needed(0.040, 0.010, margin=2) == 8


def test_tokenising_is_not_the_bottleneck_of_a_step_that_takes_longer():
    batch, rate = 32 * 1024, 500e3
    tokenise, move, step = batch / rate, batch * 8 / LINKS["pcie3"].bandwidth, 0.080
    assert tokenise == pytest.approx(65.5e-3, abs=1e-4)
    assert tokenise / 8 == pytest.approx(8.19e-3, abs=1e-5)
    assert batch * 8 == 256 * 1024
    assert move == pytest.approx(0.0166e-3, abs=1e-6)
    stages = Stage("tokenise", 0, tokenise), Stage("move", 0, move), Stage("step", 0, step)
    plan = InputPipeline(stages, 32)
    assert plan.price().bottleneck == "step"
    assert simulate(plan, 40).spent("step").starved == pytest.approx(tokenise + move)  # once
    faster = InputPipeline((*stages[:2], Stage("step", 0, 0.045)), 32)  # the same page's A100
    assert faster.price().bottleneck == "tokenise"


def test_only_from_storage_to_dram_do_tiers_of_memory_differ_by_fifty():
    """Of 1 to 2, 50 to 100 and 900 GB/s: the same megabyte through stages of these bandwidths."""

    def through(*bandwidths: float) -> dict[str, float]:
        tiers = (Stage(f"{rate:g}", 1e6 / rate) for rate in bandwidths)
        return InputPipeline(tuple(tiers), 8).price().rates

    rates = through(1e9, 2e9, 50e9, 100e9, DEVICES["v100"].memory_bandwidth)
    storage, fast_storage, dram, fast_dram, hbm = rates.values()
    assert (dram / fast_storage, fast_dram / storage) == pytest.approx((25, 100))
    assert (hbm / fast_dram, hbm / dram) == pytest.approx((9, 18))


def test_a_night_at_1200_tokens_a_second_is_no_epoch_of_9_billion():
    step = InputPipeline((Stage("read", 2 / 3.5e9), Stage("step", 1 / 1200)), 1200)
    rate = step.price().samples_per_second
    assert rate * 8.3 * 3600 == pytest.approx(36e6, rel=0.01)
    assert 9e9 / rate / 86400 == pytest.approx(87, rel=0.01)
    assert simulate(step, 40).samples_per_second == pytest.approx(rate)


def test_a_low_utilization_may_have_another_cause_than_the_input():
    """The device at 50 %: starved in one case, in the other nobody is kept waiting."""
    starved = simulate(pipeline((2, 1, 1, 0), (1, 1, 1, 0)), 100)
    exchanging = simulate(pipeline((0.5, 1, 1, 0), (2, 1, 1, 0)), 100)  # half of it communication
    assert starved.spent("stage 1").starved / starved.seconds == pytest.approx(0.5, abs=0.01)
    assert exchanging.spent("stage 1").starved / exchanging.seconds < 0.01


# Laws.


def test_workers_and_depth_follow_littles_law_as_the_simulation_has_it():
    for load, step in ((30, 10), (31, 10), (7, 3), (1, 5)):
        need = workers_needed(load, step)
        assert need == depth_needed(load, step)
        for workers, fed in ((need, True), (need - 1, False)):
            if workers:
                plan = pipeline((load, workers, 1, 0), (step, 1, 1, 0))
                starved = simulate(plan, 400).spent("stage 1").starved
                assert (starved <= load) == fed
    assert workers_needed(0.3, 0.1) == 3


def cached(samples: int, room: int, epochs: int, lru: bool, seed: int | None) -> float:
    """Hits of the last epoch of a cache that drops the least recently used, or nothing."""
    held: dict[int, None] = {}
    rng = random.Random(seed)
    hits = 0
    for _ in range(epochs):
        order, hits = list(range(samples)), 0
        if seed is not None:
            rng.shuffle(order)
        for row in order:
            if row in held:
                hits += 1
                if lru:
                    held[row] = held.pop(row)
            elif len(held) < room or lru:
                if len(held) == room:
                    del held[next(iter(held))]
                held[row] = None
    return hits / samples


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_cache_that_drops_the_oldest_hits_less_than_it_holds(share):
    n = 4000
    assert cached(n, int(share * n), 4, True, 1) == pytest.approx(lru_hits(share), abs=0.015)
    assert cached(n, int(share * n), 3, False, 1) == pytest.approx(share)
    assert cached(n, int(share * n), 3, True, None) == 0  # in one order, every time
    assert (lru_hits(0), lru_hits(1)) == (0, 1)


def test_ten_gigabytes_are_read_once_and_ten_terabytes_every_epoch():
    memory, rate = 512e9, 2e9
    assert epoch_seconds(10e9, memory, rate) == 0
    assert epoch_seconds(10e12, memory, rate) == pytest.approx(5000, rel=0.01)
    missed = 1 - cached(4000, 2000, 4, True, 1)
    assert epoch_seconds(1024e9, memory, rate) == pytest.approx(512 * missed, rel=0.02)
    assert epoch_seconds(1024e9, memory, rate, lru=False) == 256


def test_text_asks_little_of_storage_and_clips_much():
    assert storage_bandwidth(1e6, 2) == 2e6  # a million tokens a second
    assert storage_bandwidth(20_000, 110e3) == 2.2e9
    assert buffer_needed(1001, 64) == 31_500


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: InputPipeline(()), "stages is .*; it must have at least one"),
        (lambda: InputPipeline((TWO.stages[0],) * 2), "stages are called a, a; each needs a name"),
        (lambda: Stage("x", 1.0, workers=0), "workers is 0"),
        (lambda: TWO.stage("c"), "no stage of the name 'c'"),
        (lambda: TWO.sped_up("a").sped_up("b").price(), "The seconds of all stages is 0"),
        (lambda: simulate(TWO, 0), "batches is 0"),
        (lambda: simulate(TWO, 2, seconds={"a": [1.0]}), "are those of 1 batches; there are 2"),
        (lambda: simulate(TWO, 2, seconds={"c": [1.0]}), "no stage of the name 'c'"),
        (lambda: simulate(TWO, 1, seconds={"a": [-1.0]}), "seconds of a is -1.0"),
        (lambda: workers_needed(1, 0), "step_seconds is 0"),
        (lambda: lru_hits(2), "share is 2; it must be a fraction"),
    ],
)
def test_what_is_no_pipeline_is_a_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_plan_price_and_simulation_need_the_standard_library_alone():
    program = (
        "import sys; from dlsys.input_pipeline import *; simulate(InputPipeline((Stage('a', 1.0),)))\n"
        "print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    ).replace("import *", "import InputPipeline, Stage, simulate, ThreadLoader, train_tokenizer")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def fed(load: float, workers: int, prefetch: int, variation: float, batches: int = 4000) -> float:
    """The share of its time that a step of 1 s works behind workers that need `load` s a batch."""
    made = Stage("load", 0.0, load, workers, prefetch, variation=variation)
    timeline = simulate(InputPipeline((made, Stage("step", 0.0, 1.0))), batches)
    return timeline.spent("step").busy / (timeline.seconds - timeline.first_batch_seconds)


@pytest.mark.parametrize("variation", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("load", [2, 4, 8, 16])
def test_a_prefetch_by_the_rule_feeds_the_step_whatever_the_workers(variation, load):
    for margin in (1.25, 1.5, 2.0):
        if load * margin == round(load * margin):
            prefetch = prefetch_needed(variation, margin)
            assert fed(load, round(load * margin), prefetch, variation) >= 0.95


def test_a_quarter_of_the_prefetch_of_the_rule_is_too_little_where_times_vary_much():
    for variation, margin in ((1.0, 1.25), (1.0, 1.5), (1.0, 2.0), (0.5, 1.25)):
        prefetch = prefetch_needed(variation, margin)
        assert fed(8, round(8 * margin), prefetch // 4, variation) < 0.9


def test_with_several_workers_the_law_of_one_worker_promises_far_too_much():
    """Sixteen batches ahead, however many workers share them: those in order wait for each other."""
    share = {w: used_by_exponential_times(w, 16 // w) for w in (1, 4, 8, 16)}
    assert share[1] == pytest.approx(exponential_utilization(1.0, 16), abs=0.02)
    assert share[4] == pytest.approx(0.75, abs=0.03)
    assert share[8] == pytest.approx(0.56, abs=0.03)
    assert share[16] == pytest.approx(0.34, abs=0.03)


def used_by_exponential_times(workers: int, prefetch: int) -> float:
    load = Stage("load", 0.0, float(workers), workers, prefetch, variation=1.0)
    timeline = simulate(InputPipeline((load, Stage("step", 0.0, 1.0, variation=1.0))), 20_000)
    return timeline.spent("step").busy / timeline.seconds


def test_a_margin_of_nothing_needs_a_queue_without_end_and_is_refused():
    with pytest.raises(ValueError, match="margin - 1 is 0; it must be a finite number above zero"):
        prefetch_needed(0.5, 1)
