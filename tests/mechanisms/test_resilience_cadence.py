"""How often to save: intervals and shares against published values, against searches, and each law
against the exact price."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.resilience import (
    RUNS,
    Cadence,
    Disk,
    Part,
    PublishedRun,
    asynchronous_pays,
    best_cadence,
    best_share,
    best_spares,
    corruption_pays,
    daly_interval,
    devices_at_waste,
    exact_interval,
    failures_a_year,
    mtbf,
    optimal_interval,
    shares,
    state_bytes,
    two_levels_pay,
    waiting_share,
    wasted_share,
    yearly_failures,
)
from dlsys.units import DAY, HOUR, MINUTE, YEAR

M = mtbf([Part("GPU", 16_384, failures_a_year(50_000 * HOUR))])
LLAMA, OPT = RUNS["llama3-405b"], RUNS["opt-175b"]
RATIOS = st.floats(-9, 1).map(lambda power: 10.0**power)


# -- how often a run fails -----------------------------------------------------------------------


def test_a_run_of_many_devices_fails_as_many_times_as_often():
    assert round(M / HOUR, 2) == 3.05
    assert failures_a_year(50_000 * HOUR) == pytest.approx(0.17532)
    parts = [Part("GPU", 16_384, 0.1), Part("host", 2_048, 0.3), Part("switch", 300, 0.05)]
    assert yearly_failures(parts) == pytest.approx(1638.4 + 614.4 + 15)
    assert mtbf(parts) == pytest.approx(YEAR / 2267.8)


def test_llama_3_has_the_interruptions_that_its_table_has():
    assert LLAMA.interruptions == 419
    assert len(LLAMA.causes) == 18
    assert list(LLAMA.causes.values()) == sorted(LLAMA.causes.values(), reverse=True)
    assert round(LLAMA.share("faulty GPU"), 3) == 0.353  # printed as 30.1 %
    assert round(LLAMA.share("GPU HBM3 memory"), 3) == 0.172  # printed as 17.2 %
    assert round(LLAMA.mtbf_seconds / HOUR, 2) == 3.09
    # Its devices live as long as the 50,000 hours that are claimed of such: a check of both.
    assert YEAR / LLAMA.failures_a_device_year / HOUR == pytest.approx(50_000, rel=0.02)


def test_a_device_of_opt_failed_six_times_as_often_as_one_of_llama():
    assert round(OPT.mtbf_seconds / HOUR, 1) == 8.8
    assert OPT.failures_a_device_year / LLAMA.failures_a_device_year == pytest.approx(5.6, rel=0.01)


# -- intervals -----------------------------------------------------------------------------------


def test_young_saves_every_19_minutes_what_takes_one_to_write():
    assert round(optimal_interval(60, M) / MINUTE, 1) == 19.1
    assert state_bytes(405e9) == 6.48e12
    assert state_bytes(0) == 0
    assert exact_interval(0, M) == 0


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_the_three_optima_that_daly_prints_come_out(hours, minutes):
    # Daly 2006, figures 3 to 5: five minutes to write, all but the last rounded to minutes.
    digits = 0 if minutes > 10 else 1
    assert round(daly_interval(300, hours * HOUR) / MINUTE, digits) == minutes
    assert exact_interval(300, hours * HOUR) / MINUTE == pytest.approx(minutes, rel=0.01)


@given(RATIOS)
def test_no_interval_has_more_goodput_than_the_exact_one(c):
    best = exact_interval(c, 1.0)

    def goodput(interval: float) -> float:
        return shares(Cadence(interval, c), 1.0, 0.1).goodput

    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
        assert goodput(best * factor) < goodput(best) * (1 + 1e-12)


@given(RATIOS)
def test_the_exact_interval_is_lamberts(c):
    # W e^W = x, by the W that the interval stands for; near its branch point digits go lost.
    w = exact_interval(c, 1.0) - 1
    assert w * math.exp(w) == pytest.approx(-math.exp(-1 - c), abs=1e-14)


@given(st.floats(-18, 1).map(lambda power: 10.0**power))
def test_its_last_digits_are_right_however_short_a_write_is(c):
    with localcontext(prec=60):
        s = Decimal(2 * c).sqrt() + Decimal(c)
        for _ in range(60):
            s -= (s - 1 + (-s).exp() - Decimal(c)) / (1 - (-s).exp())
        expected = float(1 - (-s).exp())
    assert exact_interval(c, 1.0) == pytest.approx(expected, rel=4e-15, abs=0)


@given(st.floats(1e-12, 0.02))
def test_young_and_daly_come_near_it_where_a_write_is_far_below_a_failure(c):
    exact = exact_interval(c, 1.0)
    assert optimal_interval(c, 1.0) - exact == pytest.approx(2 * c / 3, rel=0.05, abs=1e-13)
    assert daly_interval(c, 1.0) == pytest.approx(exact, rel=2e-4)


def test_where_a_write_takes_as_long_as_a_failure_young_is_far_off_and_daly_is_not():
    assert optimal_interval(1.0, 1.0) / exact_interval(1.0, 1.0) == pytest.approx(1.68, rel=0.01)
    assert daly_interval(1.0, 1.0) == pytest.approx(exact_interval(1.0, 1.0), rel=0.03)
    assert daly_interval(2.0, 1.0) == 1.0
    assert daly_interval(1.99, 1.0) == pytest.approx(1.0, rel=0.12)


def test_young_misses_little_goodput_even_so():
    for c, missed in ((1e-3, 1e-4), (1e-2, 1e-3), (0.1, 0.013)):
        young = shares(Cadence(optimal_interval(c, 1.0), c), 1.0).goodput
        assert 0 < shares(best_cadence(c, 1.0), 1.0).goodput - young < missed


# -- shares --------------------------------------------------------------------------------------


@given(RATIOS)
def test_at_the_best_interval_the_wasted_share_is_that_interval_over_the_mtbf(c):
    best = best_cadence(c, 1.0)
    assert shares(best, 1.0).wasted == pytest.approx(best.interval, rel=1e-9, abs=1e-12)


CADENCES = st.builds(
    lambda interval, stall, behind: Cadence(interval, stall, behind * interval),
    st.floats(1e-3, 3),
    st.floats(0, 2),
    st.floats(0, 1),
)


@given(CADENCES, st.floats(0, 2), st.floats(0, 2))
def test_shares_add_up_and_the_run_is_up_unless_it_failed_a_moment_ago(cadence, restart, detect):
    found = shares(cadence, 1.0, restart, detect)
    assert math.fsum(found) == pytest.approx(1)
    assert min(found) >= 0
    assert found.detecting + found.restarting == pytest.approx(1 - math.exp(-restart - detect))
    assert found.useful * cadence.stall == pytest.approx(found.writing * cadence.interval)


@given(CADENCES, st.floats(0.01, 2))
def test_writing_behind_costs_what_a_longer_restart_would(cadence, restart):
    behind = shares(cadence, 1.0, restart).goodput
    longer = shares(replace(cadence, behind=0), 1.0, restart + cadence.behind).goodput
    assert behind == pytest.approx(longer)


def test_an_interval_is_no_shorter_than_the_write_behind_it():
    assert best_cadence(10, M) == Cadence(exact_interval(10, M), 10)
    assert best_cadence(10, M, behind=900) == Cadence(900, 10, 900)
    assert best_cadence(900, M, behind=900).interval == exact_interval(900, M)
    assert best_cadence(10, M, behind=100).interval == exact_interval(10, M)
    with pytest.raises(ValueError, match="behind is 11; it must be at most the interval, 10 s"):
        Cadence(10, 1, 11)
    with pytest.raises(ValueError, match="stall is 0; it must be above zero"):
        best_cadence(0, M)


@given(CADENCES, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_two_levels_of_which_the_disk_takes_each_checkpoint_are_one(cadence, r, detect, share):
    one = replace(cadence, behind=0.0)
    both = shares(one, 1.0, r, detect, Disk(1, 0.0, share, r))
    assert both == pytest.approx(shares(one, 1.0, r, detect))


@given(CADENCES, st.integers(1, 20), st.floats(0, 1))
def test_two_levels_whose_memory_never_survives_are_the_disk_alone(cadence, every, stall):
    inner = replace(cadence, behind=0.0)
    both = shares(inner, 1.0, disk=Disk(every, stall, 1.0))
    alone = Cadence(every * inner.interval, every * inner.stall + stall)
    assert both == pytest.approx(shares(alone, 1.0), rel=1e-6, abs=1e-12)


def by_states(cadence: Cadence, m: float, restart: float, detect: float, disk: Disk) -> list[float]:
    """Shares by the seconds that are to come in each state of a pattern: n segments, a restart from
    memory in each, and one from disk; the equations between them, solved."""
    n = disk.every
    matrix, seconds = np.eye(2 * n + 1), np.zeros((3, 2 * n + 1))
    for k in range(n):
        lasts = math.exp(-(cadence.interval + cadence.stall + disk.stall * (k == n - 1)) / m)
        seconds[0, k] = m * (1 - lasts)
        matrix[k, n + k] -= (1 - lasts) * (1 - disk.share)
        matrix[k, -1] -= (1 - lasts) * disk.share
        if k < n - 1:
            matrix[k, k + 1] -= lasts
    for k in range(n, 2 * n + 1):
        takes, share = (restart, disk.share) if k < 2 * n else (disk.restart_seconds, 0)
        detected, lasts = math.exp(-detect / m), math.exp(-(detect + takes) / m)
        seconds[1:, k] = m * (1 - detected), m * (detected - lasts)
        matrix[k, k % (2 * n) % n] -= lasts
        matrix[k, k] -= (1 - lasts) * (1 - share)
        matrix[k, -1] -= (1 - lasts) * share
    up, *down = np.linalg.solve(matrix, seconds.T)[0]
    useful, writing = n * cadence.interval, n * cadence.stall + disk.stall
    spent = [useful, writing, up - useful - writing, *down]
    return [each / sum(spent) for each in spent]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.7, 1.0])
@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize(
    ("restart", "detect", "from_disk"), [(0, 0, 0), (0.8, 0.3, 1.5), (2, 0, 1)]
)
def test_two_levels_take_what_all_their_states_do(share, every, restart, detect, from_disk):
    given = Cadence(0.5, 0.1), 3.0, restart, detect, Disk(every, 0.4, share, from_disk)
    assert list(shares(*given)) == pytest.approx(by_states(*given), abs=1e-9)


def test_more_failures_that_memory_survives_never_hurt():
    found = [
        shares(Cadence(300, 5), M, 60, 30, Disk(8, 60, share, 600)).goodput
        for share in (0, 0.01, 0.1, 0.5, 1)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] + 0.05


@pytest.mark.parametrize("disk", [None, Disk(3, 1.0, 0.2, 1.0), Disk(3, 1e30, 0, 1e30)])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e9, 1e30])
def test_numbers_beyond_all_runs_give_shares_all_the_same(scale, disk):
    for cadence in (Cadence(scale, 1.0), Cadence(1.0, scale), Cadence(1e-30, 1e-30)):
        for m in (1e-30, 1e9, 1e30):
            found = shares(cadence, m, 1.0, scale, disk)
            assert math.fsum(found) == pytest.approx(1)
            assert all(0 <= share <= 1 for share in found)


def test_a_period_that_is_nothing_to_a_failure_is_all_work():
    assert shares(Cadence(1e-300, 0), 1e300).useful == 1


# -- laws ----------------------------------------------------------------------------------------


@given(st.floats(1e-9, 1), st.floats(0, 1))
def test_the_law_of_waste_is_above_the_exact_waste_by_less_than_it_says(c, down):
    exact = shares(best_cadence(c, 1.0), 1.0, down).wasted
    law = wasted_share(c, 1.0, down)
    assert -1e-12 <= law - exact <= 2 * c / 3 + law**2 / 2 + 1e-12


@pytest.mark.parametrize("unit", [0.01, 60])
def test_a_law_does_not_depend_on_the_unit_of_time(unit):
    assert wasted_share(3 * unit, 100 * unit, 5 * unit) == pytest.approx(wasted_share(3, 100, 5))
    assert asynchronous_pays(0.2 * unit, unit) == pytest.approx(unit * asynchronous_pays(0.2, 1))
    found = corruption_pays(3 * unit, 100 * unit, 9 * unit)
    assert found == pytest.approx(unit * corruption_pays(3, 100, 9))


def test_waste_of_a_write_of_a_minute_on_16384_devices():
    cadence, found = best_share(16_384, 365.25 * 24 / 50_000, 60)
    assert cadence.interval == pytest.approx(exact_interval(60, M))
    assert round(found.wasted, 3) == 0.101
    assert round(wasted_share(60, M), 3) == 0.105


def test_ten_devices_wait_for_what_is_written_behind_and_for_each_failure():
    yearly = YEAR / 10 / 1000  # one of them fails every 1,000 seconds
    cadence, found = best_share(10, yearly, 20, 30, 40, behind=500)
    assert cadence == Cadence(500, 20, 500)
    useful = 0.5 * math.exp(-0.5 - 0.04 - 0.03) / math.expm1(0.52)
    assert found.useful == pytest.approx(useful)
    assert found.detecting == pytest.approx(1 - math.exp(-0.04))
    assert found.restarting == pytest.approx(math.exp(-0.04) - math.exp(-0.07))
    cadence, found = best_share(10, yearly, 20)
    assert (cadence.stall, cadence.behind) == (20, 0)
    assert (found.detecting, found.restarting) == (0, 0)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1])
def test_at_the_devices_of_the_law_about_that_share_is_wasted(share):
    devices = round(devices_at_waste(share, 60, 0.17))
    wasted = best_share(devices, 0.17, 60)[1].wasted
    assert share * (1 - share) < wasted < share * 1.001
    assert devices_at_waste(share, 6, 0.17) == pytest.approx(10 * devices, rel=0.01)
    assert devices_at_waste(0, 60, 0.17) == 0


@given(st.floats(0.001, 0.98))
def test_saving_behind_the_work_pays_from_the_law_on_and_not_at_half_of_it(part):
    law = asynchronous_pays(part, 1.0)

    def gain(m: float) -> float:
        behind = shares(best_cadence(part, m, behind=1.0), m).goodput
        return behind - shares(best_cadence(1.0, m), m).goodput

    assert gain(law) > 0
    assert gain(10 * law) > 0
    assert gain(0.5 * law) < 0


@pytest.mark.parametrize("part", [0.01, 0.1, 0.2, 0.25, 0.3, 0.6, 0.9])
def test_at_that_law_both_ways_of_saving_waste_as_much_to_first_order(part):
    m = asynchronous_pays(part, 1.0)
    interval = max(1.0, math.sqrt(2 * part * m))
    behind = part / interval + interval / (2 * m) + 1 / m
    assert behind == pytest.approx(wasted_share(1.0, m))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25])
@pytest.mark.parametrize(("of_limit", "pays"), [(0.85, True), (1.15, False)])
def test_two_levels_pay_below_the_law_and_not_above(share, of_limit, pays):
    m, second = 1e4, 10.0
    first = of_limit * two_levels_pay(share) * second
    young = math.sqrt(2 * first * m / (1 - share))
    every = max(1, round(math.sqrt(second * (1 - share) / (first * share))))
    best = max(
        shares(Cadence(young * factor, first), m, disk=Disk(max(1, k), second, share)).goodput
        for factor in (0.7, 1, 1.4)
        for k in (every - 1, every, every + 1, every + 3)
    )
    assert (best > shares(best_cadence(second, m), m).goodput) == pays


def test_spares_are_waited_for_as_a_poisson_number_says():
    assert waiting_share(0, 5.0, 10.0) == pytest.approx(1 - math.exp(-0.5))
    assert waiting_share(1, 5.0, 10.0) == pytest.approx(1 - 1.5 * math.exp(-0.5))
    assert waiting_share(0, 20.0, 10.0) == pytest.approx(1 - math.exp(-2))
    assert waiting_share(1, 20.0, 10.0) == pytest.approx(1 - 3 * math.exp(-2))
    assert waiting_share(3, 0, 10.0) == waiting_share(0, 0, 10.0) == 0
    assert waiting_share(0, 1e5, 1.0) == 1
    mean = 100.0
    assert waiting_share(100, mean, 1.0) == pytest.approx(0.5, abs=0.03)
    assert waiting_share(120, mean, 1.0) == pytest.approx(1 / 40, abs=0.01)
    exactly = sum(Fraction(100**k, math.factorial(k)) for k in range(201, 400)) * math.exp(-mean)
    far = pytest.approx(exactly, rel=1e-9, abs=0)  # no digit of it is in 1 - x
    assert waiting_share(200, mean, 1.0) == far


def worth(devices: int, spares: int, mean: float) -> float:
    return (1 - waiting_share(spares, mean, 1.0)) / (devices + spares)


@given(st.integers(2, 3000), st.floats(0.01, 30))
@settings(max_examples=30)
def test_no_number_of_spares_gives_more_goodput_a_device(devices, mean):
    most = max(worth(devices, spares, mean) for spares in range(60))
    assert worth(devices, best_spares(devices, mean, 1.0), mean) == pytest.approx(most)


@pytest.mark.parametrize("devices", [1, 2, 3, 6, 20, 70])
def test_a_run_of_few_devices_has_as_few_spares_as_give_the_most(devices):
    most = max(range(60), key=lambda spares: worth(devices, spares, 2.0))
    assert best_spares(devices, 2.0, 1.0) == most


def test_a_run_of_llamas_size_wants_four_square_roots_more_spares_than_repairs():
    mean = DAY / M
    assert best_spares(16_384, DAY, M) == 20
    assert (20 - mean) / math.sqrt(mean) == pytest.approx(4.3, abs=0.1)
    assert best_spares(16_384, 0, M) == 0
    assert best_spares(2, 0.5, 1.0) == 0  # one spare would give as much a device


def test_silent_corruption_found_after_a_day_wastes_what_all_checkpoints_of_llama_do():
    apart = LLAMA.days * DAY / LLAMA.causes["silent data corruption"]
    assert apart == 9 * DAY
    assert corruption_pays(60, LLAMA.mtbf_seconds, apart) / DAY == pytest.approx(0.93, abs=0.01)


# -- what is refused -----------------------------------------------------------------------------

BILLION = "1000000001; it must be at most 1,000,000,000"
KNOWN = r"it must be such that numbers of failures and seconds stay finite and above zero\.$"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mtbf([]), "parts is .*; it must have at least one"),
        (lambda: mtbf([Part("x", 1, 0)]), r"parts is \[Part.*; it must be at least one that fails"),
        (lambda: mtbf([Part("x", 10**9, 1e300)] * 2), rf"parts is \[Part.*; {KNOWN}"),
        (lambda: Part("x", 1, -1), "failures_a_year is -1"),
        (lambda: Part("x", 10**9 + 1, 1), f"count is {BILLION}"),
        (lambda: failures_a_year(0), "mttf_seconds is 0"),
        (lambda: failures_a_year(1e-308), f"mttf_seconds is 1e-308; {KNOWN}"),
        (lambda: PublishedRun("x", 4, 1, {}, "us"), "causes is .*; it must have at least one"),
        (lambda: PublishedRun("x", 4, 1, {"y": 0}, "us"), "A number in causes is 0"),
        (
            lambda: PublishedRun("x", 4, 1, {"y": 10**9 + 1}, "us"),
            f"A number in causes is {BILLION}",
        ),
        (lambda: PublishedRun("x", 10**9 + 1, 1, {"y": 1}, "us"), f"devices is {BILLION}"),
        (lambda: PublishedRun("x", 1, 1e305, {"y": 1}, "us"), rf"days is 1e\+305; {KNOWN}"),
        (lambda: PublishedRun("x", 1, 5e-324, {"y": 1}, "us"), f"days is 5e-324; {KNOWN}"),
        (lambda: LLAMA.share("rats"), "cause is 'rats'; it must be one of 'faulty GPU', "),
        (
            lambda: RUNS["llama-3"],
            "There is no published run 'llama-3'; did you mean 'llama3-405b'",
        ),
        (lambda: state_bytes(1e200, 1e200), "parameters times bytes_each is inf"),
        (lambda: Disk(1_000_001, 1, 0.1), "every is 1000001; it must be at most 1,000,000"),
        (lambda: Disk(2, 1, 1.1), r"share is 1\.1; it must be a fraction"),
        (
            lambda: shares(Cadence(9, 1, 1), M, disk=Disk(2, 1, 0.1)),
            "behind is 1; it must be 0 where every so many checkpoints go to disk",
        ),
        (lambda: asynchronous_pays(60, 60), "snapshot_seconds is 60; it must be less than write"),
        (lambda: asynchronous_pays(9e307, 1e308), "The time, by write_seconds, is inf"),
        (lambda: waiting_share(-1, 1, 1), "spares is -1"),
        (lambda: waiting_share(100_001, 1, 1), "spares is 100001; it must be at most 100,000"),
        (
            lambda: waiting_share(1, 100_000.5, 1),
            r"repair_seconds is 100000\.5; it must be so few that at most 100,000 devices are broken",
        ),
        (lambda: best_spares(10**9 + 1, 1, 1), f"devices is {BILLION}"),
        (lambda: best_share(10**9 + 1, 1, 1), f"devices is {BILLION}"),
        (
            lambda: best_share(1, 1e-308, 1),
            "The mean time between failures, by devices and failures_a_year, is inf",
        ),
        (lambda: devices_at_waste(2, 1, 1), "share is 2"),
        (
            lambda: devices_at_waste(0.1, 1e-200, 1e-200),
            "devices, by write_seconds and failures_a_year, is inf",
        ),
        (lambda: two_levels_pay(-1), "share is -1"),
        (lambda: corruption_pays(1, 1, 0), "corruption_seconds is 0"),
        (
            lambda: corruption_pays(99, 1, 1e308),
            "The time to notice, by corruption_seconds, is inf",
        ),
    ],
)
def test_what_no_price_holds_for_is_refused(call, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        call()


def test_a_number_of_any_integer_type_is_held_as_one_of_pythons():
    three = np.int64(3)
    assert type(Part("x", three, 1).count) is int
    assert type(PublishedRun("x", three, 1, {"y": 1}, "us").devices) is int
    assert type(Disk(three, 1, 0.1).every) is int
