"""Laws and plans of input pipelines against sums done by hand, and refusals word for word."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

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
    mean_displacement,
    permutation,
    prefetch_needed,
    run_mates,
    simulate,
    speedups,
    storage_bandwidth,
    workers_needed,
)

A = Stage("a", 1.0)
THREE = InputPipeline((A, Stage("b", 1.0), Stage("c", 1.0)))
LAWS: dict[Callable[..., float], dict[str, float]] = {  # with numbers that are good
    buffer_needed: {"run": 9, "batch": 2, "mates": 0.5},
    depth_needed: {"latency_seconds": 1.0, "step_seconds": 1.0},
    epoch_seconds: {"data_bytes": 4.0, "memory_bytes": 1.0, "bytes_per_second": 1.0, "lru": True},
    exponential_utilization: {"ratio": 2.0, "ahead": 1},
    lru_hits: {"share": 0.5},
    mean_displacement: {"buffer": 9},
    prefetch_needed: {"variation": 1.0, "margin": 2.0},
    run_mates: {"run": 9, "buffer": 9, "batch": 2},
    storage_bandwidth: {"samples_per_second": 1.0, "sample_bytes": 1.0},
    workers_needed: {"load_seconds": 1.0, "step_seconds": 1.0, "margin": 1.0},
}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_law_names_the_number_that_is_none(law):
    for name in LAWS[law]:
        with pytest.raises(ValueError, match=rf"^{name} is nan; it must be "):
            law(**LAWS[law] | {name: math.nan})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: workers_needed(1e300, 1e-300), "load_seconds / step_seconds is inf"),
        (lambda: prefetch_needed(1e300, 2), "The batches ahead is inf"),
        (lambda: storage_bandwidth(1e300, 1e300), "The bytes a second is inf"),
        (lambda: buffer_needed(1000, 64, 1e-306), "batch x run / mates is inf"),
        (lambda: epoch_seconds(1e300, 0, 1e-300), "data_bytes / bytes_per_second is inf"),
    ],
)
def test_a_law_refuses_what_is_too_large_to_compute_with(call, said):
    said = f"{said}; it must be a finite number of at least 0."
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        call()


def test_laws_hold_for_next_to_nothing():
    assert workers_needed(0, 1) == workers_needed(0.1, 1) == buffer_needed(1, 64) == 1
    assert depth_needed(0.5, 0.25) == 2
    assert buffer_needed(3, 2, mates=30) == buffer_needed(9, 1) == 1
    assert storage_bandwidth(0.5, 0.5) == 0.25
    assert storage_bandwidth(9, 0) == 0
    assert epoch_seconds(2, 0.5, 4, lru=False) == 0.375
    assert prefetch_needed(0, 1.5) == prefetch_needed(0.1, 1.5) == 2


def test_a_prefetch_has_room_for_eight_times_what_kingman_says_and_rounding_adds_none():
    for variation, margin in ((1.0, 1.25), (1.0, 1.2), (0.5, 1.2), (2.0, 2.0)):
        late = variation**2 / (2 * (margin - 1))
        assert prefetch_needed(variation, margin) == round(8 * late)
    assert prefetch_needed(1.0, 1.3) == 14  # 13 and a third


@pytest.mark.parametrize(
    ("ratio", "share"), [(0.5, 6 / 7), (1.5, 10 / 19), (2, 3 / 7), (4, 5 / 21)]
)
def test_a_queue_of_two_places_starves_a_step_as_its_balance_says(ratio, share):
    """0, 1 or 2 batches are there in the proportions 1 : r : r^2, for r = 1 / ratio."""
    assert exponential_utilization(ratio, 1) == pytest.approx(share)


@pytest.mark.parametrize(("size", "places"), [(1, 0), (2, 1), (3, 16 / 9), (4, 81 / 32)])
def test_a_small_buffer_moves_samples_as_its_geometric_stay_says(size, places):
    stays = ((g, (1 - 1 / size) ** (g - 1) / size) for g in range(1, 300))
    assert sum(abs(g - size) * chance for g, chance in stays) == pytest.approx(places)
    assert mean_displacement(size) == pytest.approx(places)


@pytest.mark.parametrize(("run", "buffer"), [(101, 50), (101, 1000), (11, 20), (2, 1)])
def test_mates_are_the_integral_over_the_places_of_two_samples(run, buffer):
    long, parts = run - 1, 2000
    places = [(k + 0.5) * long / parts for k in range(parts)]
    chance = sum((1 - x / long) * math.exp(-x / buffer) / buffer for x in places) * long / parts
    assert run_mates(run, buffer, 33) == pytest.approx(32 * chance, rel=1e-5)
    assert run_mates(1, buffer, 33) == run_mates(run, buffer, 1) == 0
    # A run that is next to nothing beside its buffer: the series and no difference of near numbers.
    assert run_mates(run, 10**12, 2) == pytest.approx(long / 2e12, rel=1e-9)


# Plans.


def test_a_plan_holds_its_stages_as_a_tuple_and_its_numbers_as_pythons():
    stage = Stage("a", 1.0, workers=np.int64(2), prefetch=np.int64(3))
    plan = InputPipeline([stage], np.int64(4), np.int64(5))  # type: ignore[arg-type]
    assert plan == InputPipeline((Stage("a", 1.0, workers=2, prefetch=3),), 4, 5)
    assert [type(n) for n in (stage.workers, stage.prefetch, plan.batch, plan.shuffle)] == [int] * 4
    assert type(plan.stages) is tuple


def test_batches_are_ahead_in_all_stages_but_the_step():
    stages = Stage("a", 1.0, 0, 4, 3), Stage("b", 1.0, 0, 2, 5), Stage("c", 1.0, 0, 7, 9)
    assert InputPipeline(stages).price().batches_ahead == 12 + 10


def test_what_is_left_out_is_one_worker_one_place_and_seed_0():
    stages = [A, Stage("b", 2.0, variation=0.5), Stage("c", 4.0, sample_bytes=7)]
    one = fused(stages, "all")
    assert one == Stage("all", 7.0, 0.0, 1, 1, 7, variation=1 / 7)
    assert fused([A, A], "twice").variation == fused([Stage("a", 0.0)], "free").variation == 0
    drawn = InputPipeline((Stage("a", 1.0, variation=1.0),))
    assert simulate(drawn) == simulate(drawn, 32, 0)
    assert speedups(drawn) == {"a": 2.0}
    assert speedups(drawn, 1) == {"a": 1.0}
    assert simulate(THREE, 2, seconds={"a": [0.25, 0.25]}).first_batch_seconds == 1.25


TOO_MANY, MOST = 10**9 + 1, "it must be at most 1,000,000,000."


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Stage("a", 1.0, workers=TOO_MANY), f"workers is {TOO_MANY}; {MOST}"),
        (lambda: Stage("a", 1.0, prefetch=TOO_MANY), f"prefetch is {TOO_MANY}; {MOST}"),
        (lambda: A.seconds(TOO_MANY), f"batch is {TOO_MANY}; {MOST}"),
        (lambda: InputPipeline((A,), TOO_MANY), f"batch is {TOO_MANY}; {MOST}"),
        (lambda: InputPipeline((A,), 1, TOO_MANY), f"shuffle is {TOO_MANY}; {MOST}"),
        (
            lambda: InputPipeline((Stage("a", 1e308), Stage("b", 1e308))),
            "The seconds of stages in all is inf; it must be a finite number of at least 0.",
        ),
        (
            lambda: InputPipeline((Stage("a", 1.0, sample_bytes=1e308),), 2),
            "The bytes of a batch in stages is inf; it must be a finite number of at least 0.",
        ),
        (
            lambda: InputPipeline((Stage("a", 0.0),)).price(),
            "The seconds of all stages is 0; it must be above zero for one of them.",
        ),
        (
            lambda: InputPipeline((Stage("a", 0.0, 1e-308),), 10**9).price(),
            "The samples a second is inf; it must be a finite number of at least 0.",
        ),
        (lambda: fused([], "all"), "stages is []; it must have at least one."),
        (lambda: simulate(THREE, 666_667), "batches is 666667; it must be at most 666,666."),
        (
            lambda: simulate(THREE, 2, seconds={"a": [1.0, -1.0]}),
            "seconds of a is -1.0; it must be a finite number of at least 0.",
        ),
        (
            lambda: simulate(THREE, 2, seconds={"a": [1.0]}),
            "seconds of a are those of 1 batches; there are 2.",
        ),
        (
            lambda: Timeline(THREE, (Span("a", 0, 0, 0.0, 1.0),)),
            "spans has 1 spans; it must have one for each batch in each of a, b, c.",
        ),
        (lambda: permutation(10**30), f"samples is {10**30}; it must be at most 100,000,000."),
    ],
)
def test_what_is_no_plan_is_refused_word_for_word(call, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        call()


def test_the_proof_makes_each_stage_the_only_slow_one_and_fills_each_place_twice(monkeypatch):
    ran: list[Timeline] = []

    def noted(plan: InputPipeline, batches: int, seconds: Mapping[str, Any]) -> Timeline:
        ran.append(simulate(plan, batches, seconds=seconds))
        return ran[-1]

    monkeypatch.setattr("dlsys.input_pipeline.check.simulate", noted)
    InputPipeline((Stage("a", 7.0, 2.0, 2, 3), Stage("b", 0.0), Stage("c", 5.0)), 4).check()
    slow = [{s.stage for s in timeline.spans if s.end > s.start} for timeline in ran]
    assert slow == [{"a"}, {"b"}, {"c"}]
    assert [timeline.batches for timeline in ran] == [2 * (6 + 1 + 1)] * 3
    assert (ran[-1].most_ahead("a"), ran[-1].most_ahead("b")) == (6, 1)


# Timelines.


def moved(**starts: float) -> Timeline:
    """Three batches in three stages of a second each; some begin at another second."""
    usual = {f"{stage}{k}": i + k for i, stage in enumerate("abc") for k in range(3)}
    return Timeline(
        THREE, tuple(Span(n[0], int(n[1]), 0, s, s + 1) for n, s in (usual | starts).items())
    )


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ({"c0": 5, "c1": 6, "c2": 7}, "b begins batch 1 by worker 0 more than 1 batches ahead of"),
        ({"b0": 1.5, "b1": 2.5}, "a begins batch 1 by worker 0 more than 1 batches ahead of"),
    ],
)
def test_each_stage_is_held_back_by_the_next_one_alone(starts, said):
    moved().check()
    with pytest.raises(ValueError, match=f"^{said} the next stage.$"):
        moved(**starts).check()


@pytest.mark.parametrize(
    ("span", "why"),
    [
        (Span("c", 2, 0, 3.5, 5.0), "before the stage in front was done with it"),
        (Span("c", 2, 1, 4.0, 5.0), "that the stage has not, or backwards in time"),
        (Span("c", 2, -1, 4.0, 5.0), "that the stage has not, or backwards in time"),
        (Span("c", 2, 0, 4.0, 3.0), "that the stage has not, or backwards in time"),
        (Span("a", 2, 0, 1.5, 3.0), "while that worker had another one"),
    ],
)
def test_a_timeline_that_breaks_the_plan_is_told_word_for_word(span, why):
    spans = [span if s[:2] == span[:2] else s for s in moved().spans]
    said = re.escape(f"{span.stage} begins batch 2 by worker {span.worker} {why}.")
    with pytest.raises(ValueError, match=f"^{said}$"):
        Timeline(THREE, tuple(spans)).check()


def test_a_timeline_of_a_list_out_of_order_is_one_of_a_tuple():
    spans = list(moved().spans)
    turned = Timeline(THREE, spans[::-1])  # type: ignore[arg-type]
    assert type(turned.spans) is tuple
    assert turned.of("b") == spans[3:6]
    assert turned.most_ahead("c") == 0  # nothing follows the last
    turned.check()


@pytest.mark.parametrize(
    ("workers", "batches", "rate"),
    [
        (2, 10, 4 / 6),  # the last 4 of 5, in whole rounds of two: from second 9 to 15
        (8, 10, 5 / 3),  # half of all is no whole round: the last 5, of which 3 end with the first
        (1, 1, 0),  # from the last step's end to itself
    ],
)
def test_the_rate_is_that_of_whole_rounds_in_the_second_half(workers, batches, rate):
    """Each worker takes 3 seconds, so that as many batches as workers end at one moment."""
    plan = InputPipeline((Stage("load", 3.0, workers=workers), Stage("step", 0.0)))
    assert simulate(plan, batches).samples_per_second == pytest.approx(rate)
    assert simulate(plan.sped_up("load"), batches).samples_per_second == 0  # in no time


def test_the_rate_is_counted_at_the_last_stage():
    """Whose steps of 4 seconds the others, of 1 second, run ahead of."""
    ahead = [Stage(name, 1.0, prefetch=10) for name in "ab"]
    plan = InputPipeline((*ahead, Stage("step", 4.0)))
    assert simulate(plan, 6).samples_per_second == 1 / 4


def test_seconds_and_bytes_of_three_stages_are_those_counted_by_hand():
    timeline = moved()
    spent = [tuple(timeline.spent(stage)) for stage in "abc"]
    assert spent == [(3, 0, 0, 2), (3, 1, 0, 1), (3, 2, 0, 0)]
    assert timeline.peak_bytes == 0
    sized = Stage("a", 1.0, sample_bytes=0.2), Stage("b", 1.0, sample_bytes=0.3)
    held = InputPipeline((*sized, Stage("c", 1.0)))
    # From second 2 to 3: batches 1 and 2 of a, and 0 and 1 of b.
    assert Timeline(held, timeline.spans).peak_bytes == pytest.approx(2 * 0.2 + 2 * 0.3)


def test_a_timeline_begins_and_ends_with_its_first_and_last_span():
    late = Timeline(
        THREE, tuple(s._replace(start=s.start + 5, end=s.end + 6) for s in moved().spans)
    )
    assert (late.begin, late.end, late.seconds, late.first_batch_seconds) == (5, 11, 6, 7)
    assert late.batches == 3
