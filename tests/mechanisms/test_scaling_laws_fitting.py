"""Laws found again in runs that they generated; the objective against torch's own; its robustness."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.scaling_laws import (
    PUBLISHED,
    ChinchillaLaw,
    Runs,
    bootstrap,
    cost,
    curve_runs,
    envelope,
    fit,
    fit_parabola,
    fit_power_law,
    hoffmann_like,
    interval,
    isoflop,
    isoflop_runs,
    tiny_sweep,
)

HOFFMANN, BESIROGLU = (PUBLISHED[name].law for name in ("hoffmann-2022", "besiroglu-2024"))
EVEN = PUBLISHED["muennighoff-2023"].law
BUDGETS = [6e18, 3e19, 1e20, 6e20, 3e21]
ALL = hoffmann_like(BESIROGLU, noise=0.004)
GOOD = Runs(*(column[:240] for column in ALL))


def constants(law: ChinchillaLaw) -> list[float]:
    return [law.E, law.A, law.B, law.alpha, law.beta]


def of_torch(point: torch.Tensor, runs: Runs, delta: float) -> torch.Tensor:
    """The objective of Hoffmann et al., section D.2, in torch's own functions."""
    N, D, loss = (torch.tensor(column, dtype=torch.float64).log() for column in runs)
    a, b, e, alpha, beta = point
    terms = torch.stack([a - alpha * N, b - beta * D, e.expand(len(N))])
    predicted = torch.logsumexp(terms, 0)
    return torch.nn.functional.huber_loss(predicted, loss, reduction="sum", delta=delta)


def at(law: ChinchillaLaw) -> torch.Tensor:
    values = [math.log(law.A), math.log(law.B), math.log(law.E), law.alpha, law.beta]
    return torch.tensor(values, dtype=torch.float64)


# -- approach 3 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-3, 0.1])
@pytest.mark.parametrize("law", [HOFFMANN, EVEN, ChinchillaLaw(0.5, 30, 600, 0.5, 0.4)])
def test_the_objective_is_torchs_huber_loss_of_torchs_log_sum_exp(law, delta):
    assert cost(law, *ALL, delta) == pytest.approx(float(of_torch(at(law), ALL, delta)), rel=1e-12)


@pytest.mark.parametrize(
    "law", [HOFFMANN, BESIROGLU, EVEN, ChinchillaLaw(1.1, 30.0, 80.0, 0.3, 0.45)], ids=str
)
def test_a_law_is_found_again_in_its_own_runs(law):
    found = fit(*isoflop_runs(law, BUDGETS))
    assert constants(found) == pytest.approx(constants(law), rel=1e-4)


def test_small_models_with_losses_of_a_few_nats_are_fitted_as_well():
    law = ChinchillaLaw(0.8, 60, 90, 0.45, 0.4)
    found = fit(*curve_runs(law, [3e3, 1e4, 3e4, 1e5], 1e4, 1e6, 6))
    assert constants(found) == pytest.approx(constants(law), rel=1e-3)


@pytest.mark.parametrize("runs", [ALL, GOOD, isoflop_runs(HOFFMANN, BUDGETS, 5, noise=0.01)])
def test_torchs_own_optimizer_finds_nothing_lower(runs):
    """torch's L-BFGS, from the truth and from the fit, with the curvature of autograd."""
    found = fit(*runs)
    for start in (HOFFMANN, BESIROGLU, found):
        point = at(start).requires_grad_()
        lbfgs = torch.optim.LBFGS([point], max_iter=300, line_search_fn="strong_wolfe")

        def closure(point: torch.Tensor = point, lbfgs: torch.optim.Optimizer = lbfgs):
            lbfgs.zero_grad()
            value = 1e4 * of_torch(point, runs, 1e-3)  # its tolerances are absolute
            value.backward()
            return value

        lbfgs.step(closure)
        assert cost(found, *runs) <= float(of_torch(point.detach(), runs, 1e-3)) * (1 + 1e-5)


def test_the_order_and_the_scale_of_runs_do_not_matter():
    N, D, loss = (list(reversed(column)) for column in GOOD)
    found, again = fit(*GOOD), fit(N, D, loss)
    assert constants(again) == pytest.approx(constants(found), rel=1e-3)
    thousands = fit([n / 1000 for n in N], [d / 1000 for d in D], loss)
    assert thousands.beta == pytest.approx(found.beta, abs=1e-4)
    assert pytest.approx(found.B * 1000**-found.beta, rel=1e-3) == thousands.B


def test_runs_that_determine_no_law_are_refused():
    N, D, loss = GOOD
    with pytest.raises(ValueError, match="N is the same in all runs; it must be of at least two"):
        fit([1e9] * 240, D, loss)
    with pytest.raises(ValueError, match="D is of 239 runs; it must be of as many as N, 240"):
        fit(N, D[1:], loss)
    with pytest.raises(ValueError, match="a sequence of at least 5 numbers"):
        fit(N[:4], D[:4], loss[:4])
    with pytest.raises(ValueError, match="loss is 0 in one run; it must be a finite number above"):
        fit(N, D, [0.0, *loss[1:]])


# -- five bad points -------------------------------------------------------------------------------


def test_five_bad_points_of_245_move_b_many_times_and_what_it_stands_for_hardly():
    good, bad = fit(*GOOD), fit(*ALL)
    assert good.B < 2200 < 6 * good.B < bad.B
    middle = math.exp(sum(map(math.log, GOOD.D)) / 240)
    terms = [law.B * middle**-law.beta for law in (good, bad)]
    assert 0.6 < terms[1] / terms[0] < 1.0
    losses = [law.loss(1e10, 2e11) for law in (good, bad)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_plain_squares_are_moved_further_than_hubers_loss():
    moved = {delta: fit(*ALL, delta).beta - fit(*GOOD, delta).beta for delta in (1e-3, 10.0)}
    assert moved[10.0] > 1.3 * moved[1e-3] > 0


def test_the_bad_points_are_those_of_the_highest_loss_and_fewest_tokens():
    least = sorted(range(245), key=lambda k: ALL.D[k] / ALL.N[k])[:5]
    assert sorted(least) == [240, 241, 242, 243, 244]
    assert hoffmann_like(BESIROGLU, bad=0, noise=0.004) == GOOD


# -- real runs -----------------------------------------------------------------------------------


def test_the_law_of_the_sweep_foretells_the_larger_run_that_was_held_back():
    rows, (back,) = tiny_sweep().of("iso_flop"), tiny_sweep().of("held_back")
    columns = zip(*[(row.parameters, row.run.tokens, row.loss) for row in rows], strict=True)
    law = fit(*map(list, columns))
    errors = [law.loss(row.parameters, row.run.tokens) / row.loss - 1 for row in rows]
    assert max(map(abs, errors)) < 0.035
    assert law.loss(back.parameters, back.run.tokens) == pytest.approx(back.loss, rel=0.03)
    assert 0.3 < law.exponent < 0.65


def test_of_two_tiny_models_on_as_many_tokens_the_larger_always_has_the_lower_loss():
    rows = tiny_sweep().of("iso_flop")
    pairs = [
        (a, b)
        for a in rows
        for b in rows
        if 1.5 * a.parameters < b.parameters and 0.97 < a.run.tokens / b.run.tokens < 1.03
    ]
    assert len(pairs) >= 10
    assert all(b.loss < a.loss for a, b in pairs)


# -- the bootstrap ---------------------------------------------------------------------------------


def test_a_resample_weighs_runs_as_often_as_they_were_drawn():
    """The law of a resample is that of a table in which runs stand as often."""
    runs = isoflop_runs(HOFFMANN, BUDGETS, 5, noise=0.01)
    law = bootstrap(*runs, resamples=1, seed=3)[0]
    drawn = np.random.default_rng(3).multinomial(25, np.full(25, 1 / 25), 1)[0]
    table = [np.repeat(column, drawn).tolist() for column in runs]
    assert cost(law, *table) == pytest.approx(cost(fit(*table), *table), rel=1e-3)


def test_the_same_seed_draws_the_same_laws_and_another_others():
    first, again, other = (bootstrap(*GOOD, resamples=3, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = 0
    for seed in range(12):
        runs = isoflop_runs(HOFFMANN, BUDGETS, 7, span=64, noise=0.01, seed=seed)
        low, high = interval([law.beta for law in bootstrap(*runs, resamples=50)], 0.9)
        held += low < HOFFMANN.beta < high
    assert 8 <= held <= 12


def test_more_noise_makes_wider_intervals():
    widths = []
    for noise in (0.002, 0.01):
        laws = bootstrap(*hoffmann_like(BESIROGLU, 0, noise), resamples=100)
        low, high = interval([law.exponent for law in laws])
        widths.append(high - low)
    assert widths[1] == pytest.approx(5 * widths[0], rel=0.4)


def test_an_interval_leaves_as_much_out_at_both_ends():
    assert interval(range(101), 0.9) == pytest.approx((5, 95))
    assert interval([3.0], 0.5) == (3, 3)


# -- approaches 1 and 2 ----------------------------------------------------------------------------


@given(st.integers(-5, 5), st.integers(-9, 9), st.integers(1, 7))
def test_a_parabola_is_found_exactly(place, value, curvature):
    x = [place + k for k in (-3, -1, 0, 2, 5)]
    found = fit_parabola(x, [value + curvature * (each - place) ** 2 for each in x])
    assert found == pytest.approx((place, value, curvature), abs=1e-9)
    assert found(place + 2) == pytest.approx(value + 4 * curvature, abs=1e-8)


def test_points_without_a_bottom_are_refused():
    with pytest.raises(ValueError, match="y is lowest at an end"):
        fit_parabola([1, 2, 3], [1, 2, 1])
    with pytest.raises(ValueError, match="at least three differ"):
        fit_parabola([1, 1, 2], [1, 2, 1])


@given(st.floats(0.01, 100), st.floats(-2, 2))
def test_a_power_law_is_found_exactly(coefficient, exponent):
    x = [1.0, 7.0, 90.0, 4e3]
    found = fit_power_law(x, [coefficient * each**exponent for each in x])
    assert found == pytest.approx((coefficient, exponent), rel=1e-9, abs=1e-9)


def test_parabolas_find_the_optimum_of_an_even_law_and_miss_that_of_a_lopsided_one():
    """With alpha = beta the profile is symmetric in ln N, and its parabola has the right bottom,
    wherever the runs lie round it; otherwise the bottom is off, the more the wider they lie."""
    runs = isoflop_runs(EVEN, BUDGETS)
    found = isoflop(runs.N, runs.flops, runs.loss)
    assert found.budgets == pytest.approx(BUDGETS)
    assert found.sizes == pytest.approx([EVEN.optimal(budget).N for budget in BUDGETS], rel=1e-6)
    assert found.frontier.exponent == pytest.approx(EVEN.exponent, abs=1e-6)
    lopsided, off = ChinchillaLaw(1.7, 400, 400, 0.5, 0.25), []
    for span in (4, 16, 64):
        runs = isoflop_runs(lopsided, BUDGETS, span=span)
        found = isoflop(runs.N, runs.flops, runs.loss)
        off.append(found.sizes[0] / lopsided.optimal(BUDGETS[0]).N)
        assert found.frontier.exponent == pytest.approx(lopsided.exponent, abs=1e-3)
    assert 1 < off[0] < 1.05
    assert off[0] < off[1] < off[2] > 1.1


def test_parabolas_of_noisy_runs_find_the_exponent():
    for seed in range(5):
        runs = isoflop_runs(HOFFMANN, BUDGETS, noise=0.003, seed=seed, skew=1.3)
        found = isoflop(runs.N, runs.flops, runs.loss).frontier
        assert found.exponent == pytest.approx(HOFFMANN.exponent, abs=0.04)


def test_one_budget_makes_no_frontier():
    runs = isoflop_runs(HOFFMANN, [1e20])
    with pytest.raises(ValueError, match="flops is one budget; it must be at least two"):
        isoflop(runs.N, runs.flops, runs.loss)


@pytest.mark.parametrize("law", [HOFFMANN, EVEN])
def test_the_envelope_of_many_curves_follows_the_optimum(law):
    sizes = [1e8 * 1.3**k for k in range(20)]
    runs = curve_runs(law, sizes, 1e8, 1e13, 60)
    found = envelope(runs.N, runs.flops, runs.loss, points=400)
    for budget, size in zip(found.budgets, found.sizes, strict=True):
        assert 1 / 1.3 < size / law.optimal(budget).N < 1.3
    assert found.frontier.exponent == pytest.approx(law.exponent, abs=0.01)
    assert min(found.sizes) > min(sizes)
    assert max(found.sizes) < max(sizes)


def test_curves_of_one_size_have_no_envelope():
    runs = curve_runs(HOFFMANN, [1e8, 1e9], 1e9, 1e11, 5)
    with pytest.raises(ValueError, match="the sizes of at least three curves"):
        envelope(runs.N, runs.flops, runs.loss)


# -- generated runs --------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.floats(18, 24), st.integers(2, 9), st.floats(1.5, 100), st.floats(0.5, 2))
def test_isoflop_runs_spend_their_budget_round_the_optimum(power, sizes, span, skew):
    runs = isoflop_runs(HOFFMANN, [10**power], sizes, span, skew=skew)
    assert runs.flops == pytest.approx([10**power] * sizes)
    assert runs.N[-1] / runs.N[0] == pytest.approx(span)
    middle = math.sqrt(runs.N[0] * runs.N[-1])
    assert middle == pytest.approx(skew * HOFFMANN.optimal(10**power).N)
    assert list(runs.loss) == [HOFFMANN.loss(n, d) for n, d in zip(runs.N, runs.D, strict=True)]


def test_noise_has_the_deviation_that_was_asked_for():
    runs = isoflop_runs(HOFFMANN, BUDGETS, 200, noise=0.01)
    off = [math.log(loss / HOFFMANN.loss(n, d)) for n, d, loss in zip(*runs, strict=True)]
    assert np.std(off) == pytest.approx(0.01, rel=0.1)
    assert abs(np.mean(off)) < 1e-3


def test_of_hoffmanns_runs_the_good_lie_in_figure_4_and_the_bad_8_to_24_percent_above_the_law():
    runs = hoffmann_like(HOFFMANN, bad=3, noise=0)
    assert [len(column) for column in (*runs, runs.flops)] == [243] * 4
    rows = list(zip(*runs, runs.flops, strict=True))
    for N, D, loss, flops in rows[:240]:
        assert 44e6 <= N <= 16e9
        assert 6e18 <= flops <= 3e21
        assert 1 <= D / N <= 400
        assert loss == HOFFMANN.loss(N, D)
    for (N, D, loss, _), above in zip(rows[240:], (1.08, 1.16, 1.24), strict=True):
        assert 1e9 <= N <= 8e9
        assert pytest.approx(N / 10) == D
        assert loss / HOFFMANN.loss(N, D) == pytest.approx(above)


def test_curves_are_read_in_equal_ratios_of_tokens():
    runs = curve_runs(HOFFMANN, [1e8, 1e9], 1e9, 1e11, 3)
    assert runs.N == (1e8,) * 3 + (1e9,) * 3
    assert pytest.approx([1e9, 1e10, 1e11] * 2) == runs.D


def test_a_parabola_and_a_power_law_by_hand():
    found = fit_parabola([1, 2, 4, 5], [11, 5, 5, 11])
    assert found == pytest.approx((3, 3, 2))
    assert found(6) == pytest.approx(21)
    assert fit_power_law([1, 2, 4], [3, 12, 48]) == pytest.approx((3, 2))


@pytest.mark.parametrize("name", ["flops", "loss"])
@pytest.mark.parametrize("read", [isoflop, envelope])
def test_columns_of_different_lengths_are_told_by_name(read, name):
    columns = {column: [1.0] * 6 for column in ("N", "flops", "loss")} | {name: [1.0] * 7}
    with pytest.raises(
        ValueError, match=rf"^{name} is of 7 runs; it must be of as many as N, 6\.$"
    ):
        read(**columns)
