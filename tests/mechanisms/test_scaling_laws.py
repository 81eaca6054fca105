"""Laws and their prices: each closed form against a search, each ratio against two runs of the law."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsys.memory_wall import training_seconds
from dlsys.scaling_laws import (
    CHINCHILLA_TABLE,
    PUBLISHED,
    Allocation,
    ChinchillaLaw,
    DataConstrainedLaw,
    Frontier,
    KaplanLaw,
    QualityLaw,
    apparent_exponent,
    compute_wasted,
    compute_wasted_near,
    effective_tokens,
    fit_quality,
    least_factor,
    lifetime_optimal,
    lowest,
    numeric_optimum,
    optimum_without_embeddings,
    overtraining,
    purchase,
    tokens_worth,
    with_embeddings,
)

HOFFMANN, ROUNDED, BESIROGLU = (
    PUBLISHED[name].law for name in ("hoffmann-2022", "hoffmann-2022-rounded", "besiroglu-2024")
)
KAPLAN, MUENNIGHOFF = PUBLISHED["kaplan-2020"].law, PUBLISHED["muennighoff-2023"].law
LAWS = st.builds(
    ChinchillaLaw,
    E=st.floats(0, 3),
    A=st.floats(10, 3000),
    B=st.floats(10, 3000),
    alpha=st.floats(0.15, 0.7),
    beta=st.floats(0.15, 0.7),
)
BUDGETS = st.floats(18, 26).map(lambda power: 10.0**power)
FACTORS = st.floats(-1, 1).map(lambda power: 10.0**power)


def least(function: Callable[[float], float], low: float, high: float, points: int = 20_001):
    """Of a fine grid in equal ratios, the place of the least value, and it: no search to trust."""
    grid = [low * (high / low) ** (k / (points - 1)) for k in range(points)]
    return min((function(x), x) for x in grid)[::-1]


def on_budget(law, flops: float) -> Callable[[float], float]:
    return lambda N: law.loss(N, flops / 6 / N)


# -- the optimum -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(LAWS, BUDGETS)
def test_no_other_split_of_the_budget_has_a_lower_loss(law, flops):
    N, D = law.optimal(flops)
    assert pytest.approx(flops, rel=1e-12) == 6 * N * D
    loss = on_budget(law, flops)
    for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2.0):
        if min(N * factor, D / factor) >= 1:
            assert loss(N * factor) >= loss(N) - 1e-13


@pytest.mark.parametrize(
    "name", ["hoffmann-2022", "besiroglu-2024", "muennighoff-2023", "kaplan-2020"]
)
@pytest.mark.parametrize("flops", [1e19, 5.76e23, 1e26])
def test_the_closed_optimum_is_where_a_fine_grid_has_its_lowest_point(name, flops):
    law = PUBLISHED[name].law
    best = law.optimal(flops)
    place, value = least(on_budget(law, flops), best.N / 4, best.N * 5, 40_001)
    assert place == pytest.approx(best.N, rel=2e-4)
    assert law.loss(*best) <= value
    assert pytest.approx(best.N, rel=1e-5) == numeric_optimum(law, flops).N


@settings(max_examples=40, deadline=None)
@given(LAWS, BUDGETS)
def test_at_the_optimum_both_terms_fall_alike(law, flops):
    N, D = law.optimal(flops)
    falls = [law.alpha * law.A * N**-law.alpha, law.beta * law.B * D**-law.beta]
    assert falls[0] == pytest.approx(falls[1], rel=1e-9)


@pytest.mark.parametrize("law", [HOFFMANN, KAPLAN, BESIROGLU])
def test_the_exponent_is_the_slope_of_ln_n_over_ln_c(law):
    sizes = [law.optimal(flops).N for flops in (1e20, 1e24)]
    assert math.log(sizes[1] / sizes[0]) / math.log(1e4) == pytest.approx(law.exponent)


def test_the_fewest_flops_for_a_loss_are_found_by_spending_less_and_less():
    for law in (HOFFMANN, BESIROGLU):
        low, high = 1e15, 1e30
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if law.loss(*law.optimal(middle)) > 2.1 else (low, middle)
        assert law.flops_for(2.1) == pytest.approx(high, rel=1e-9)


def test_tokens_for_a_loss_reach_it_and_below_the_smallest_size_none_do():
    for loss in (2.0, 2.5, 3.0):
        least_size = HOFFMANN.smallest(loss)
        for N in (1.01 * least_size, 3 * least_size):
            assert HOFFMANN.loss(N, HOFFMANN.tokens(N, loss)) == pytest.approx(loss, rel=1e-12)
        assert HOFFMANN.loss(0.99 * least_size, 1e300) > loss
        with pytest.raises(ValueError, match=r"which .* parameters never reach"):
            HOFFMANN.tokens(0.99 * least_size, loss)
    with pytest.raises(ValueError, match=r"above 1.6934, the law's E, which nothing reaches"):
        HOFFMANN.flops_for(1.69)


def test_kaplans_law_becomes_its_parts_where_one_of_the_two_is_no_limit():
    assert KAPLAN.loss(1e9, 1e300) == pytest.approx((6.4e13 / 1e9) ** 0.076)
    assert KAPLAN.loss(1e300, 1e9) == pytest.approx((1.8e13 / 1e9) ** 0.103)
    assert KAPLAN.loss(1e9, 1e10) == pytest.approx(
        ((6.4e13 / 1e9) ** (0.076 / 0.103) + 1.8e13 / 1e10) ** 0.103
    )


def test_a_frontier_spends_its_budget():
    assert Frontier(0.1, 0.5).optimal(1e22) == pytest.approx((1e10, 1e22 / 6e10))
    assert Frontier(0.1, 0.5).optimal(1e22).flops == pytest.approx(1e22)


# -- what others have published --------------------------------------------------------------------


def test_c_is_6nd_and_twenty_tokens_a_parameter_make_69_billion_of_chinchillas_budget():
    assert math.sqrt(5.76e23 / 120) == pytest.approx(69.3e9, rel=1e-3)
    for row in CHINCHILLA_TABLE:
        assert Allocation(row.N, row.D).flops == pytest.approx(row.flops, rel=0.05)
        assert 20 < row.D / row.N < 23
    # Approach 3 of the same paper prints 1.26e24 FLOPs for 175B; its 12 trillion tokens take tenfold.
    assert Allocation(175e9, 12e12).flops == pytest.approx(1.26e25, rel=1e-3)


def test_hoffmanns_third_approach_gives_40_billion_on_chinchillas_budget_and_the_replication_70():
    assert pytest.approx(40e9, rel=0.02) == HOFFMANN.optimal(5.76e23).N
    best = BESIROGLU.optimal(5.76e23)
    assert pytest.approx(70e9, rel=0.05) == best.N
    assert 17 < best.tokens_per_parameter < 21


def test_175_billion_parameters_are_optimal_for_ten_times_the_flops_of_hoffmanns_table_a3():
    printed, tenfold = HOFFMANN.optimal(1.26e24), HOFFMANN.optimal(1.26e25)
    assert printed.N < 0.5 * 175e9
    assert pytest.approx(175e9, rel=0.1) == tenfold.N
    assert pytest.approx(12e12, rel=0.1) == tenfold.D


def test_rounding_the_exponents_moves_the_optimum_by_a_quarter():
    exact, rounded = HOFFMANN.optimal(1e26), ROUNDED.optimal(1e26)
    assert pytest.approx(0.78, abs=0.01) == rounded.N / exact.N
    assert rounded.tokens_per_parameter / exact.tokens_per_parameter == pytest.approx(
        1.65, abs=0.02
    )


def test_llama_3s_printed_exponents_miss_its_own_forecast_and_the_figures_do_not():
    printed, figure = (
        PUBLISHED[n].law.optimal(3.8e25) for n in ("llama3-2024-rounded", "llama3-2024")
    )
    assert pytest.approx(16.55e12, rel=0.02) == figure.D
    assert pytest.approx(10.5e12, rel=0.01) == printed.D
    assert pytest.approx(402e9, rel=0.05) == figure.N


def test_kaplans_frontier_is_1_3_billion_at_a_petaflop_day():
    frontier = PUBLISHED["kaplan-2020-frontier"].law
    assert pytest.approx(1.3e9) == frontier.optimal(8.64e19).N
    assert pytest.approx(1.3e9 * 10**0.73) == frontier.optimal(8.64e20).N


def test_deepseeks_tokens_are_the_printed_ones():
    assert (
        pytest.approx(5.8316 * 1e22**0.4757, rel=2e-3)
        == PUBLISHED["deepseek-2024"].law.optimal(1e22).D
    )


# -- off the optimum -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(LAWS, FACTORS, BUDGETS)
def test_compute_wasted_is_what_an_optimal_run_of_that_loss_would_have_saved(law, factor, flops):
    N, D = law.optimal(flops)
    if min(N * factor, D / factor) < 1:
        return
    loss = law.loss(N * factor, D / factor)
    excess = (loss - law.E) / loss  # what is left of a float's digits after E is taken away
    assert compute_wasted(law, factor) == pytest.approx(
        flops / law.flops_for(loss), rel=1e-10 / excess
    )


def test_near_the_optimum_waste_is_e_to_half_the_exponents_times_the_square_of_the_log():
    for law in (HOFFMANN, BESIROGLU, MUENNIGHOFF):
        for factor, error in ((0.5, 0.01), (2, 0.01), (0.25, 0.04), (4, 0.04)):
            exact = compute_wasted(law, factor)
            assert compute_wasted_near(law, factor) == pytest.approx(exact, rel=error)
    assert compute_wasted_near(HOFFMANN, 4) == compute_wasted_near(HOFFMANN, 0.25)
    assert compute_wasted(HOFFMANN, 1) == 1


@settings(max_examples=40, deadline=None)
@given(LAWS, st.floats(0.4, 3), BUDGETS)
def test_overtraining_is_the_ratio_of_two_runs_of_one_loss(law, factor, flops):
    N, D = law.optimal(flops)
    loss = law.loss(max(1, N), max(1, D))
    if factor < 1.05 * least_factor(law) or N * factor < 1 or D < 1 or loss - law.E < 1e-3 * loss:
        return
    tokens = law.tokens(N * factor, loss)
    found = overtraining(law, factor)
    assert found.tokens == pytest.approx(tokens / D, rel=1e-5)
    assert found.flops == pytest.approx(6 * N * factor * tokens / flops, rel=1e-5)


def test_a_tenth_of_the_optimal_size_is_the_least_that_ever_reaches_its_loss():
    assert least_factor(HOFFMANN) == pytest.approx(0.099, abs=5e-4)
    N, D = HOFFMANN.optimal(1e23)
    assert HOFFMANN.smallest(HOFFMANN.loss(N, D)) / N == pytest.approx(least_factor(HOFFMANN))
    with pytest.raises(ValueError, match=r"factor is 0.09; it must be above 0.0990"):
        overtraining(HOFFMANN, 0.09)


def test_half_the_size_takes_a_fifth_more_compute():
    found = overtraining(HOFFMANN, 0.5)
    assert found.tokens == pytest.approx(2.42, abs=0.01)
    assert found.flops == pytest.approx(1.21, abs=0.01)


def test_a_larger_model_on_the_same_tokens_is_better_and_wastes_compute():
    """Not worse, as is said: on 400 million tokens 20 billion beat 7 billion; the law has no other
    way. It has the loss of an optimal run that costs a tenth."""
    seven, twenty = (HOFFMANN.loss(N, 4e8) for N in (7e9, 20e9))
    assert twenty < seven
    assert 10 * HOFFMANN.flops_for(twenty) < 6 * 20e9 * 4e8


# -- a life of inference ---------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(LAWS, st.floats(20, 25), st.floats(9, 14))
def test_no_other_model_of_the_loss_has_a_cheaper_life(law, budget, load):
    best, served = law.optimal(10**budget), 10**load
    loss = law.loss(max(1, best.N), max(1, best.D))
    if min(best) < 100 or loss - law.E < 1e-2 * loss:
        return
    found = lifetime_optimal(law, loss, served)

    def life(N: float) -> float:
        return 6 * N * law.tokens(N, loss) + 2 * N * served

    low = law.smallest(loss) * (1 + 1e-9)
    place, value = least(life, low, best.N * 1.01, 4001)
    assert found.flops <= value * (1 + 1e-9)
    assert law.loss(found.N, found.D) == pytest.approx(loss, rel=1e-9)
    assert pytest.approx(place, rel=0.02) == found.N


def test_sardanas_13_billion_model_with_2_trillion_tokens_served_should_have_been_one_of_7():
    """Their figure 1: 17 % or 1.7e22 FLOPs less. They use exponents of 0.336 and 0.283."""
    law = ChinchillaLaw(1.69, 406.4, 410.7, 0.336, 0.283)
    D = (law.beta * law.B / (law.alpha * law.A) * 13e9**law.alpha) ** (1 / law.beta)
    assert pytest.approx(13e9) == law.optimal(6 * 13e9 * D).N
    before = 6 * 13e9 * D + 2 * 13e9 * 2e12
    life = lifetime_optimal(law, law.loss(13e9, D), 2e12)
    assert pytest.approx(7e9, rel=0.01) == life.N
    assert before - life.flops == pytest.approx(1.7e22, rel=0.01)
    assert 1 - life.flops / before == pytest.approx(0.17, abs=0.005)
    assert life.training + life.inference == life.flops


def test_without_inference_the_optimum_stays():
    best = HOFFMANN.optimal(1e23)
    life = lifetime_optimal(HOFFMANN, HOFFMANN.loss(*best), 0)
    assert pytest.approx(best.N) == life.N
    assert pytest.approx(best.D) == life.D


def test_what_dollars_buy_takes_the_hours_that_the_iron_law_says():
    bought = purchase(HOFFMANN, 1e6, 2.0, 989e12, 0.4)
    seconds = training_seconds(6 * bought.N * bought.D, 989e12, 0.4, devices=1024)
    assert bought.device_hours == pytest.approx(seconds * 1024 / 3600) == pytest.approx(5e5)
    assert bought.days(1024) == pytest.approx(seconds / 86_400)
    assert bought.loss == HOFFMANN.loss(bought.N, bought.D)
    with pytest.raises(ValueError, match=r"utilization is 1.5; it must be at most 1"):
        purchase(HOFFMANN, 1e6, 2.0, 989e12, 1.5)


# -- what counts as a parameter --------------------------------------------------------------------


@pytest.mark.parametrize("N", [1e5, 1e7, 1e9, 1e11])
def test_the_optimum_without_embeddings_is_where_a_grid_of_such_budgets_has_it(N):
    run = optimum_without_embeddings(HOFFMANN, N)
    flops = run.flops

    def loss(size: float) -> float:
        return HOFFMANN.loss(with_embeddings(size), flops / 6 / size)

    place, _ = least(loss, N / 3, N * 3, 20_001)
    assert place == pytest.approx(N, rel=3e-4)


def test_a_study_of_small_models_without_embeddings_finds_kaplans_exponent():
    """Pearce and Song 2024: 0.74 to 0.78 in Kaplan's range, where all parameters have 0.46 to 0.51."""
    for law, found in ((HOFFMANN, 0.75), (BESIROGLU, 0.786)):
        assert apparent_exponent(law, 790, 1.58e9) == pytest.approx(found, abs=0.005)
        assert apparent_exponent(law, 1e10, 1e12) == pytest.approx(law.exponent, abs=0.005)
        assert apparent_exponent(law, 1e3, 1e9, omega=0) == pytest.approx(law.exponent)


def test_embeddings_are_a_cube_root_and_most_of_a_small_model():
    assert with_embeddings(8e6) == 8e6 + 47491 * 200
    assert with_embeddings(8e6) / 8e6 > 2
    assert with_embeddings(8e6, 0) == 8e6


# -- data that runs out ----------------------------------------------------------------------------


def test_repeated_tokens_lose_their_worth_exponentially():
    """dD' of each further token is e^(-R/R*): summed up in small steps."""
    for epochs in (1, 2, 4, 16, 60):
        steps = 20_000
        worth = (
            1
            + sum(math.exp(-(k + 0.5) * (epochs - 1) / steps / 15.387756) for k in range(steps))
            * (epochs - 1)
            / steps
        )
        assert effective_tokens(epochs * 1e9, 1e9) == pytest.approx(worth * 1e9, rel=1e-8)
    assert effective_tokens(5e8, 1e9) == 5e8
    assert effective_tokens(1e15, 1e9) == pytest.approx(16.387756e9)


def test_four_epochs_are_worth_93_percent_of_new_tokens_and_forty_40():
    assert effective_tokens(4e9, 1e9) / 4e9 == pytest.approx(0.931, abs=1e-3)
    assert effective_tokens(40e9, 1e9) / 40e9 == pytest.approx(0.379, abs=1e-3)


def test_with_data_enough_a_constrained_law_is_the_law():
    law = DataConstrainedLaw(MUENNIGHOFF, 1e14)
    assert law.loss(1e10, 2e11) == MUENNIGHOFF.loss(1e10, 2e11)
    assert pytest.approx(MUENNIGHOFF.optimal(1e22).N, rel=1e-5) == law.optimal(1e22).N


def test_with_data_short_the_best_model_is_smaller_and_reads_more_often():
    law = DataConstrainedLaw(MUENNIGHOFF, 1e11)
    for flops in (1e23, 1e24):
        free, best = MUENNIGHOFF.optimal(flops), law.optimal(flops)
        assert best.N < free.N
        place, value = least(on_budget(law, flops), best.N / 10, best.N * 10)
        assert place == pytest.approx(best.N, rel=1e-3)
        assert law.loss(*best) == pytest.approx(value)
        assert MUENNIGHOFF.loss(*free) < law.loss(*best) < law.loss(*free)


def test_parameters_beyond_what_the_data_calls_for_lose_their_worth_sooner():
    law = DataConstrainedLaw(MUENNIGHOFF, 1e11)
    assert pytest.approx(law.enough) == MUENNIGHOFF.optimal(6 * law.enough * 1e11).N
    N, D = law.effective(100 * law.enough, 100e11)
    assert N / law.enough == pytest.approx(6.31, abs=0.01)
    assert pytest.approx(16.36, abs=0.01) == D / 1e11
    assert law.effective(law.enough / 2, 5e10) == (law.enough / 2, 5e10)


@pytest.mark.parametrize("flops", [1e21, 1e22, 1e24])
@pytest.mark.parametrize("factor", [0.5, 1, 3])
def test_the_tokens_for_a_loss_are_those_with_which_the_parameters_have_it(flops, factor):
    law = DataConstrainedLaw(MUENNIGHOFF, 1e11, 12.0, 4.0)
    best = law.optimal(flops)
    N, D = best.N * factor, best.D * 0.9
    assert law.tokens(N, law.loss(N, D)) == pytest.approx(D, rel=1e-6)
    with pytest.raises(ValueError, match=r"loss is 1\.871"):
        law.tokens(N, MUENNIGHOFF.E + 1e-3)


def test_no_epochs_are_enough_for_a_loss_that_only_new_tokens_reach():
    law = DataConstrainedLaw(MUENNIGHOFF, 1e9)
    N = law.enough
    assert 100e9 < law.tokens(N, law.law.loss(N, 16.38e9)) < math.inf
    with pytest.raises(ValueError, match=r"never reach it on 1e\+09 unique"):
        law.tokens(N, law.law.loss(N, 16.39e9))


# -- data that is worth less -----------------------------------------------------------------------


def test_worth_is_the_share_of_new_tokens_that_would_have_led_to_the_loss():
    for share in (0.2, 0.5, 1.0, 1.5):
        assert tokens_worth(HOFFMANN, 1e9, 2e10, HOFFMANN.loss(1e9, share * 2e10)) == pytest.approx(
            share
        )


def test_the_quality_exponent_of_a_law_is_found_in_its_losses():
    runs = [
        (N, D, clean) for N in (1e8, 1e9) for D in (1e9, 1e10) for clean in (0.9, 0.7, 0.5, 1.0)
    ]
    for k in (0.5, 1.0, 3.0):
        law = QualityLaw(HOFFMANN, k)
        N, D, clean = zip(*runs, strict=True)
        loss = [law.loss(*run) for run in runs]
        assert fit_quality(HOFFMANN, N, D, clean, loss).k == pytest.approx(k)
    assert QualityLaw(HOFFMANN, 2.0).loss(1e9, 4e10, 0.5) == pytest.approx(HOFFMANN.loss(1e9, 1e10))
    with pytest.raises(ValueError, match="clean is 1 in all runs"):
        fit_quality(HOFFMANN, [1e9], [1e10], [1.0], [2.5])
    with pytest.raises(ValueError, match="loss is no higher on spoilt data"):
        fit_quality(HOFFMANN, [1e9], [1e10], [0.5], [HOFFMANN.loss(1e9, 2e10)])


# -- the search ------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 0.99))
def test_the_lowest_point_is_found_wherever_it_lies(share):
    at = 1e3 * 1e6**share
    assert lowest(lambda x: math.log(x / at) ** 2, 1e3, 1e9) == pytest.approx(at, rel=1e-6)


def test_of_two_valleys_the_deeper_is_found_and_an_end_is_a_place():
    def two(x: float) -> float:
        return min(math.log(x / 10) ** 2, math.log(x / 1e5) ** 2 - 1)

    assert lowest(two, 1, 1e6) == pytest.approx(1e5, rel=1e-6)
    assert lowest(lambda x: x, 2, 10) == pytest.approx(2, rel=1e-6)
    assert lowest(lambda x: -x, 2, 10) == pytest.approx(10, rel=1e-6)
    with pytest.raises(ValueError, match="high is 1; it must be above low, 2"):
        lowest(lambda x: x, 2, 1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ChinchillaLaw(1, 2, 3, 0.3, 20), "beta is 20; it must be at most 10"),
        (lambda: ChinchillaLaw(-1, 2, 3, 0.3, 0.3), "E is -1; it must be a finite number of at least 0"),
        (lambda: KaplanLaw(0, 2, 0.1, 0.1), "N_c is 0; it must be a finite number above zero"),
        (lambda: HOFFMANN.loss(0.5, 1e9), "N is 0.5; it must be a finite number of at least 1"),
        (lambda: numeric_optimum(HOFFMANN, 5), "flops is 5; it must be above 6, which one parameter"),
        (lambda: numeric_optimum("law", 1e20), "law is 'law'; it must be a law, such as PUBLISHED"),
        (lambda: PUBLISHED["hofman-2022"], "did you mean 'hoffmann-2022'"),
        (lambda: lifetime_optimal(HOFFMANN, 1e9, 1), "one parameter on one token has it already"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_words(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
