"""A simulated run: exact accounts of failures given by hand, and means against the exact price.

Where a mean is compared, the standard error is that of the seeds' own spread: a difference above
four of them is chance once in 16,000 times, and seeds are fixed.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import mean, stdev

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsys.resilience import (
    SPENT_ON,
    Cadence,
    Corruption,
    Disk,
    Maintenance,
    SimulatedRun,
    Spares,
    Stragglers,
    Weibull,
    best_cadence,
    best_spares,
    exact_interval,
    search,
    shares,
    simulate_run,
    waiting_share,
)
from dlsys.units import DAY, HOUR, YEAR

M = 50_000 * HOUR / 16_384
DOWN = {"restart_seconds": 300, "detection_seconds": 60}


def spent(run: SimulatedRun) -> dict[str, float]:
    """Seconds by what they were spent on, where there are any."""
    return {kind: ns / 1e9 for kind, ns in run.nanoseconds.items() if ns}


def stretches(run: SimulatedRun) -> list[tuple[float, float, str]]:
    return [tuple(stretch) for stretch in run.stretches]


def agree(measured: list[float], expected: float, errors: float = 4.0) -> None:
    error = stdev(measured) / math.sqrt(len(measured))
    assert abs(mean(measured) - expected) < errors * error + 1e-12, (mean(measured), error)


# -- by hand -------------------------------------------------------------------------------------


def test_a_failure_undoes_what_came_after_the_last_save_that_blocked():
    # Saved at 12 and 24; fails at 30; up again at 37 and saved at 49.
    run = simulate_run(Cadence(10, 2), 50, [30], restart_seconds=4, detection_seconds=3)
    assert spent(run) == {
        **{"useful": 31, "writing": 6, "redone": 6, "detecting": 3, "restarting": 4}
    }
    assert stretches(run) == [
        *((0, 24, "running"), (24, 30, "redone"), (30, 33, "detecting"), (33, 37, "restarting")),
        (37, 50, "running"),
    ]
    assert run.events == {"failure": 1}
    assert (run.seconds, run.goodput) == (50, 31 / 50)


@pytest.mark.parametrize(
    ("failure", "useful", "writing", "redone"),
    [(11.9, 9, 0, 11.9), (12, 19, 2, 0), (13, 19, 2, 1), (23.9, 19, 2, 11.9), (24, 29, 4, 0)],
)
def test_a_save_counts_from_its_last_moment_on(failure, useful, writing, redone):
    run = simulate_run(Cadence(10, 2), failure + 9, [failure])
    assert [run.nanoseconds[kind] / 1e9 for kind in ("useful", "writing", "redone")] == [
        *(useful, writing, redone)
    ]


@pytest.mark.parametrize(("failure", "redone"), [(15.9, 15.9), (16, 5), (26.9, 15.9), (27, 5)])
def test_what_is_written_behind_counts_once_it_is_written(failure, redone):
    # Snapshots at 11 and 22, each written 5 seconds later.
    run = simulate_run(Cadence(10, 1, 5), failure + 1, [failure])
    assert spent(run)["redone"] == pytest.approx(redone)


def test_failures_while_it_restarts_begin_that_anew():
    run = simulate_run(Cadence(10, 2), 40, [15, 17, 20], **dict.fromkeys(DOWN, 4))
    # Down from 15: detecting to 17, anew to 20, anew to 24, up at 28.
    assert spent(run) == {
        **{"useful": 10 + 10, "writing": 4, "redone": 3, "detecting": 2 + 3 + 4, "restarting": 4}
    }
    assert run.events == {"failure": 3}


def test_failures_at_one_instant_are_one_way_back():
    run = simulate_run(Cadence(10, 2), 20, [15, 15, 15])
    assert spent(run) == {"useful": 15, "writing": 2, "redone": 3}


def test_the_end_may_come_while_it_is_down():
    run = simulate_run(Cadence(10, 2), 16, [15], restart_seconds=9, detection_seconds=9)
    assert spent(run) == {"useful": 10, "writing": 2, "redone": 3, "detecting": 1}


def test_every_third_checkpoint_goes_to_disk_and_all_failures_go_back_there():
    disk = Disk(3, 5, share=1, restart_seconds=7)
    # 12, 24, and 36 + 5 on disk; 53, 65: fails at 66, back to 41.
    run = simulate_run(Cadence(10, 2), 80, [66], restart_seconds=1, disk=disk)
    assert spent(run) == {"useful": 30 + 7, "writing": 11, "redone": 25, "restarting": 7}
    memory = replace(disk, share=0)
    run = simulate_run(Cadence(10, 2), 80, [66], restart_seconds=1, disk=memory)
    assert spent(run) == {"useful": 60, "writing": 6 + 5 + 4 + 3, "redone": 1, "restarting": 1}


def test_a_spare_takes_a_device_s_place_and_without_one_the_run_waits_for_a_repair():
    cadence = Cadence(10, 0)
    none = simulate_run(cadence, 100, [20, 30], spares=Spares(1, 50))
    # Broken at 20, whose place the spare takes, and at 30: the first is back at 70.
    assert spent(none) == {"useful": 60, "waiting": 40}
    assert stretches(none)[1] == (30, 70, "waiting")
    two = simulate_run(cadence, 100, [20, 30], spares=Spares(2, 50))
    assert spent(two) == {"useful": 100}
    broken = simulate_run(cadence, 100, [20, 30], spares=Spares(0, 15))
    # The second breaks while the first is waited for, until 35: the run goes on at 45.
    assert spent(broken) == {"useful": 75, "waiting": 25}


def test_maintenance_is_saved_for_and_restarted_from():
    run = simulate_run(
        Cadence(100, 1),
        1000,
        [],
        restart_seconds=7,
        maintenance=Maintenance(every_seconds=450, lasts_seconds=20),
    )
    # Saves every 101 s, four before 450, and then one each before both stops.
    assert run.events == {"failure": 0, "maintenance": 2}
    assert spent(run)["maintenance"] == 40
    assert spent(run)["restarting"] == 14
    assert "redone" not in spent(run)
    assert spent(run)["writing"] == 4 + 1 + 4 + 1


@pytest.mark.parametrize(
    ("cadence", "disk"), [(Cadence(10, 1, 5), None), (Cadence(10, 1), Disk(4, 5, 1))]
)
def test_a_planned_save_is_written_to_its_end_and_to_every_level(cadence, disk):
    # Saved at 11, 22 and 33; from 34 to 40 once more, with what would have come later.
    stop = Maintenance(every_seconds=34, lasts_seconds=2)
    run = simulate_run(cadence, 60, [42.5], disk=disk, maintenance=stop)
    assert spent(run) == {
        "useful": 31 + 16.5,
        "writing": 3 + 6 + 1,
        "redone": 0.5,
        "maintenance": 2,
    }


def test_a_save_before_maintenance_may_fail_like_any_other():
    stop = Maintenance(every_seconds=50, lasts_seconds=5)
    run = simulate_run(Cadence(100, 4), 60, [52], 1, 1, maintenance=stop)
    assert spent(run) == {"useful": 6, "redone": 52, "detecting": 1, "restarting": 1}


# -- what adds up --------------------------------------------------------------------------------

SECONDS = st.floats(0.1, 300)


@given(
    st.builds(Cadence, st.floats(1, 100), st.floats(0, 20), st.floats(0, 1)),
    st.one_of(st.floats(20, 1e4), st.builds(Weibull, st.floats(20, 1e4), st.floats(0.5, 3))),
    st.tuples(st.floats(0, 50), st.floats(0, 50)),
    st.none() | st.builds(Disk, st.integers(1, 5), SECONDS, st.floats(0, 1), SECONDS),
    st.none() | st.builds(Spares, st.integers(0, 3), SECONDS),
    st.none() | st.builds(Stragglers, SECONDS, st.floats(1, 5), SECONDS),
    st.none() | st.builds(Corruption, SECONDS, SECONDS),
    st.none() | st.builds(Maintenance, st.floats(301, 900), SECONDS),
    st.integers(0, 100),
)
@example(  # back to a disk's checkpoint that lies before the last one
    *(Cadence(1, 0), 20.0, (0, 0), Disk(1, 1, 0, 1), None, None, Corruption(1, 1), None, 0)
)
@example(  # checkpoints of which one has no more work than the one before
    *(Cadence(1, 0), 20.0, (0, 0), Disk(1, 1, 0, 1), None, Stragglers(1, 1, 1)),
    *(Corruption(1, 1), None, 0),
)
@settings(max_examples=40, deadline=None)
def test_whatever_befalls_a_run_its_seconds_add_up_to_the_last_one(
    cadence, failures, down, disk, spares, stragglers, corruption, maintenance, seed
):
    cadence = replace(cadence, behind=0) if disk else cadence
    run = simulate_run(
        cadence,
        500.5,
        failures,
        *down,
        disk=disk,
        spares=spares,
        stragglers=stragglers,
        corruption=corruption,
        maintenance=maintenance,
        seed=seed,
    )
    assert sum(run.nanoseconds.values()) == 500_500_000_000
    assert min(run.nanoseconds.values()) >= 0
    assert list(run.nanoseconds) == list(SPENT_ON)
    ends = [stretch.end for stretch in run.stretches]
    assert [0.0, *ends[:-1]] == [stretch.start for stretch in run.stretches]
    assert ends[-1] == 500.5
    drawn = dict.fromkeys(("running", *SPENT_ON), 0.0)
    for start, end, kind in run.stretches:
        assert start < end
        drawn[kind] += end - start
    stays = sum(run.nanoseconds[kind] for kind in ("useful", "writing", "slowed"))
    assert drawn["running"] == pytest.approx(stays / 1e9, abs=1e-6)
    for kind in ("redone", "detecting", "waiting", "restarting", "maintenance"):
        assert drawn[kind] == pytest.approx(run.nanoseconds[kind] / 1e9, abs=1e-6)


def test_a_run_is_the_same_for_the_same_seed_and_another_for_another():
    runs = [simulate_run(Cadence(1100, 60), 30 * DAY, M, **DOWN, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_trouble_more_leaves_the_failures_where_they_were():
    plain = simulate_run(Cadence(1100, 60), 30 * DAY, M)
    more = simulate_run(Cadence(700, 60), 30 * DAY, M, corruption=Corruption(DAY, HOUR))
    assert plain.events["failure"] == more.events["failure"]


def test_checkpoints_between_two_events_are_not_stepped_through():
    # Thirty billion of them, of which each takes half of its period.
    run = simulate_run(Cadence(5e-4, 5e-4), YEAR, [YEAR / 3, YEAR / 2])
    assert run.nanoseconds["useful"] == pytest.approx(run.nanoseconds["writing"])
    assert run.nanoseconds["redone"] <= 2e6


# -- against the price ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cadence", "disk"),
    [
        (Cadence(exact_interval(60, M), 60), None),
        (Cadence(2 * M, 600), None),
        (Cadence(900, 10, 850), None),
        (Cadence(3000, 10, 3000), None),
        (Cadence(300, 5), Disk(12, 60, 0.1, 900)),
        (Cadence(900, 5), Disk(4, 600, 0.5, 3000)),
    ],
)
def test_each_share_of_a_run_is_within_noise_of_the_price(cadence, disk):
    expected = shares(cadence, M, disk=disk, **DOWN)
    runs = [simulate_run(cadence, YEAR, M, disk=disk, seed=seed, **DOWN) for seed in range(12)]
    for kind, share in expected._asdict().items():
        agree([run.share(kind) for run in runs], share)
    assert expected.goodput > 0.03


def naive_goodput(cadence: Cadence, m: float, down: float, seed: int) -> float:
    """Work over time of 3,000 periods that block, attempt by attempt."""
    rng = random.Random(seed)
    clock, period = 0.0, cadence.interval + cadence.stall
    for _ in range(3_000):
        while (lives := rng.expovariate(1 / m)) < period:
            clock += lives
            while (lives := rng.expovariate(1 / m)) < down:
                clock += lives
            clock += down
        clock += period
    return 3_000 * cadence.interval / clock


def test_a_loop_of_five_lines_finds_the_same_goodput():
    cadence = Cadence(1500, 60)
    expected = shares(cadence, M, 600, 300).goodput
    agree([naive_goodput(cadence, M, 900, seed) for seed in range(10)], expected)


def test_the_best_interval_of_a_search_is_that_of_the_formula():
    best = best_cadence(60, M).interval
    factors = (0.25, 0.5, 1, 2, 4)
    tried = [Cadence(best * factor, 60) for factor in factors]
    half = {"seconds": YEAR / 2, "failures": M, **DOWN}
    found = search(tried, 8, **half)
    assert [one.cadence for one in found] == tried
    assert max(found, key=lambda one: one.goodput).cadence.interval == best
    for one in found:
        expected = shares(one.cadence, M, **DOWN).goodput
        assert abs(one.goodput - expected) < 4 * one.standard_error
    each = [simulate_run(tried[2], **half, seed=seed).goodput for seed in range(8)]
    assert found[2].goodput == pytest.approx(mean(each))
    assert found[2].standard_error == pytest.approx(stdev(each) / math.sqrt(8))


def test_failures_in_bursts_are_as_many_and_cost_less():
    runs = {
        shape: [
            simulate_run(Cadence(1100, 60), YEAR / 2, Weibull(M, shape), seed=seed, **DOWN)
            for seed in range(10)
        ]
        for shape in (0.7, 1.0, 3.0)
    }
    for shape, each in runs.items():
        # The first gap of a renewal process shifts the number by (variance / mean^2 - 1) / 2.
        variance = math.gamma(1 + 2 / shape) / math.gamma(1 + 1 / shape) ** 2 - 1
        agree([run.events["failure"] for run in each], YEAR / 2 / M + (variance - 1) / 2)
    expected = shares(Cadence(1100, 60), M, **DOWN).goodput
    agree([run.goodput for run in runs[1.0]], expected)
    assert mean(run.goodput for run in runs[0.7]) > expected


@pytest.mark.parametrize("spares", [0, 2, 6])
def test_a_run_waits_for_spares_as_long_as_the_law_says(spares):
    repair = 3 * M
    beside = Spares(spares, repair)
    runs = [simulate_run(Cadence(600, 0), YEAR, M, spares=beside, seed=k) for k in range(12)]
    agree([run.share("waiting") for run in runs], waiting_share(spares, repair, M), 4.5)


def test_the_best_number_of_spares_is_that_of_simulated_runs():
    # A small run, so that a spare is dear; failures of it cost nothing but their wait.
    def worth(spares: int) -> float:
        beside = Spares(spares, 3 * M)
        run = simulate_run(Cadence(10, 0), 2 * YEAR, M, spares=beside)
        return run.share("useful") / (40 + spares)

    assert max(range(14), key=worth) == pytest.approx(best_spares(40, 3 * M, M), abs=1)


@pytest.mark.parametrize(("slowdown", "found"), [(1.5, HOUR), (4.0, DAY / 2)])
def test_stragglers_slow_the_run_while_they_are_not_found(slowdown, found):
    slow = Stragglers(DAY, slowdown, found)
    runs = [simulate_run(Cadence(600, 0), YEAR, [], stragglers=slow, seed=k) for k in range(10)]
    share = (1 - 1 / slowdown) * (1 - math.exp(-found / DAY))
    agree([run.share("slowed") for run in runs], share)
    assert runs[0].share("redone") == 0
    assert runs[0].events["straggler"] > 300


@pytest.mark.parametrize("found", [0.5, 20.0, 300.0])
def test_silent_corruption_throws_away_all_until_it_is_found(found):
    apart, cadence = 50.0, Cadence(10, 2)
    each = Corruption(apart, found)
    runs = [simulate_run(cadence, 2e5, [], corruption=each, seed=k) for k in range(10)]
    # A cycle: whole periods until it goes wrong, and what follows until that is found.
    kept = cadence.interval / math.expm1(12 / apart)
    agree([run.share("useful") for run in runs], kept / (apart + found))


def test_a_failure_undoes_a_corruption_before_anybody_sees_it():
    # Each failure goes back to the beginning, so nothing that went wrong is left after 15 seconds.
    failures = [10.0 * k for k in range(1, 100)]
    wrong = Corruption(1.0, 15.0)
    run = simulate_run(Cadence(1e4, 0), 1000, failures, 1, corruption=wrong)
    assert run.events["corruption"] > 900
    assert spent(run) == {"useful": 9, "redone": 1000 - 9 - 99, "restarting": 99}
    # Without them it is seen, again and again.
    alone = simulate_run(Cadence(1e4, 0), 1000, [], 1, corruption=wrong)
    assert spent(alone)["restarting"] > 50


# -- what is refused -----------------------------------------------------------------------------

SAVING = Cadence(100, 1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simulate_run(SAVING, 0, 1e4), "seconds is 0; it must be at least a nanosecond"),
        (lambda: simulate_run(SAVING, 1e16, 1e15), r"seconds is 1e\+16; it must be at most 1e\+15"),
        (lambda: simulate_run(SAVING, 1e9, 1.0), r"so few that of failures and other troubles"),
        (
            lambda: simulate_run(Cadence(1e-3, 0), 1e4, 1e3, disk=Disk(1, 0, 0)),
            r"seconds is 10000\.0; it must be so few that at most 1,000,000 checkpoints go to disk",
        ),
        (lambda: simulate_run(SAVING, 1e3, [5, 4]), "failures is .5, 4.; .* in their order"),
        (lambda: simulate_run(SAVING, 1e3, [-1]), "An instant of failures is -1"),
        (lambda: simulate_run(SAVING, 1e3, 0), "failures is 0"),
        (lambda: simulate_run(SAVING, 1e3, 10, seed=-1), "seed is -1"),
        (lambda: simulate_run(10, 1e3, 10), "cadence is 10; it must be a Cadence"),
        (
            lambda: simulate_run(Cadence(9, 1, 1), 1e3, 10, disk=Disk(2, 1, 0.1)),
            "behind is 1; it must be 0",
        ),
        (lambda: simulate_run(SAVING, 1e3, 10).share("fun"), "kind is 'fun'; it must be one of"),
        (lambda: search([], seconds=1e3, failures=1e2), "cadences is .*; it must have at least"),
        (lambda: search([SAVING], 1, seconds=1e3, failures=1e2), "runs is 1"),
        (lambda: Weibull(1e3, 0.01), r"shape is 0.01; it must be from 0\.1 to 100"),
        (lambda: Spares(-1, 1), "count is -1"),
        (lambda: Spares(1, -1), "repair_seconds is -1"),
        (lambda: Corruption(0, 1), "mtbf_seconds is 0"),
        (lambda: Maintenance(10, 10), "lasts_seconds is 10; it must be less than every_seconds"),
    ],
)
def test_what_cannot_be_simulated_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
