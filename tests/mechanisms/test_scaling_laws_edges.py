"""The ends of what laws and prices take: the last value that is, the first that is not, and why."""

from __future__ import annotations

import math

import pytest

from dlsys.scaling_laws import (
    PUBLISHED,
    Allocation,
    ChinchillaLaw,
    DataConstrainedLaw,
    Frontier,
    KaplanLaw,
    Purchase,
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
from dlsys.scaling_laws.plan import allocation

HOFFMANN = PUBLISHED["hoffmann-2022"].law
ABOVE_ZERO = "a finite number above zero"
HELD = "is a number that can be held"


def law(
    E: float = 0, A: float = 1, B: float = 1, alpha: float = 1, beta: float = 1
) -> ChinchillaLaw:
    """1 / N + 1 / D, but for what is given."""
    return ChinchillaLaw(E, A, B, alpha, beta)


def slow(alpha: float = 1e-3, beta: float = 1e-3) -> ChinchillaLaw:
    """A law that falls so slowly that few losses have runs of numbers that can be held."""
    return law(alpha=alpha, beta=beta)


REFUSED = [
    # plan
    (lambda: law(E=-1), "E is -1; it must be a finite number of at least 0."),
    (lambda: law(A=0), f"A is 0; it must be {ABOVE_ZERO}."),
    (lambda: law(B=0), f"B is 0; it must be {ABOVE_ZERO}."),
    (lambda: law(beta=10.5), "beta is 10.5; it must be at most 10, as exponents of a law are."),
    (lambda: law().loss(0.5, 9), "N is 0.5; it must be a finite number of at least 1."),
    (lambda: law().loss(9, 0.5), "D is 0.5; it must be a finite number of at least 1."),
    (lambda: law(E=2).flops_for(2), "loss is 2; it must be above 2, the law's E, which nothing reaches."),
    (lambda: law(E=1).tokens(4, 1.25), "loss is 1.25; it must be above 1.25, which 4 parameters never reach."),
    (lambda: law().tokens(0.5, 4), "N is 0.5; it must be a finite number of at least 1."),
    (lambda: slow().smallest(1 / math.e), f"loss is {1 / math.e}; it must be one whose result, e^(1000), {HELD}."),
    (lambda: slow().flops_for(2 / math.e), f"loss is {2 / math.e}; it must be one whose result, e^(2002), {HELD}."),
    (lambda: slow(alpha=1).tokens(1, 1 + 1 / math.e), f"loss is {1 + 1 / math.e}; it must be one whose result, e^(1000), {HELD}."),
    (lambda: KaplanLaw(0, 1, 1, 1), f"N_c is 0; it must be {ABOVE_ZERO}."),
    (lambda: KaplanLaw(1, 0, 1, 1), f"D_c is 0; it must be {ABOVE_ZERO}."),
    (lambda: KaplanLaw(1, 1, 0, 1), f"alpha_N is 0; it must be {ABOVE_ZERO}."),
    (lambda: KaplanLaw(1, 1, 1, 0), f"alpha_D is 0; it must be {ABOVE_ZERO}."),
    (lambda: KaplanLaw(1, 1, 1, 1).loss(0, 1), "N is 0; it must be a finite number of at least 1."),
    (lambda: KaplanLaw(1e100, 1, 10, 1).loss(1, 1), f"N is 1; it must be one whose result, e^(2303), {HELD}."),
    (lambda: Frontier(1, 10).optimal(1e100), f"flops is 1e+100; it must be one whose result, e^(2303), {HELD}."),
    (lambda: allocation(700.0, 6), f"flops is 6; it must be one whose result, e^(700), {HELD}."),
    (lambda: allocation(700.5, 6e9), f"flops is {6e9}; it must be one whose result, e^(700.5), {HELD}."),
    (lambda: allocation(-700.0, 0.06), f"flops is 0.06; it must be one whose result, e^(-700), {HELD}."),
    (lambda: allocation(-700.5, 0.06), f"flops is 0.06; it must be one whose result, e^(-700.5), {HELD}."),
    (lambda: allocation(-690.0, 6e9), f"flops is {6e9}; it must be one whose result, e^(710.7), {HELD}."),
    # price
    (lambda: numeric_optimum("law", 9), "law is 'law'; it must be a law, such as PUBLISHED['hoffmann-2022'].law, with a loss(N, D)."),
    (lambda: numeric_optimum(law(), 6), "flops is 6; it must be above 6, which one parameter takes on one token."),
    (lambda: compute_wasted(law(alpha=0.1, beta=0.1), 1e200), f"factor is {1e200}; it must be one whose result, e^(907.2), {HELD}."),
    (lambda: compute_wasted_near(law(), 1e20), f"factor is {1e20}; it must be one whose result, e^(2121), {HELD}."),
    (lambda: overtraining(law(), 0.5), "factor is 0.5; it must be above 0.5, below which no data suffices."),
    (lambda: overtraining(law(), 1e-300), "factor is 1e-300; it must be above 0.5, below which no data suffices."),
    (lambda: overtraining(slow(alpha=1), 0.001), f"factor is 0.001; it must be one whose result, e^(6908), {HELD}."),
    (lambda: lifetime_optimal(HOFFMANN, 2, -1), "served is -1; it must be a finite number of at least 0."),
    (lambda: lifetime_optimal(law(B=100), 1.25, 0), "loss is 1.25; it must be lower: one parameter on one token has it already."),
    (lambda: lifetime_optimal(law(A=100), 3, 0), "loss is 3; it must be lower: one parameter on one token has it already."),
    (lambda: Purchase(1, 1, 1, 1, 1).days(0), "devices is 0; it must be a whole number of at least 1."),
    (lambda: purchase(law(), 1, 1, 1, 1.5), "utilization is 1.5; it must be at most 1: no device does more than its peak."),
    # optimum
    (lambda: lowest(abs, 1, math.inf), f"high is inf; it must be {ABOVE_ZERO}."),
    (lambda: lowest(abs, 2, 2), "high is 2; it must be above low, 2."),
    # counting
    (lambda: with_embeddings(0.5), "N is 0.5; it must be a finite number of at least 1."),
    (lambda: with_embeddings(1, -1), "omega is -1; it must be a finite number of at least 0."),
    (lambda: optimum_without_embeddings(law(), 0.5), "N is 0.5; it must be a finite number of at least 1."),
    (lambda: optimum_without_embeddings(law(alpha=10), 1e100, 0), f"N is {1e100}; it must be one whose result, e^(2300), {HELD}."),
    (lambda: apparent_exponent(law(), 1, 9, points=1), "points is 1; it must be a whole number of at least 2."),
    (lambda: apparent_exponent(law(), 1, 9, points=10_001), "points is 10001; it must be at most 10,000."),
    (lambda: apparent_exponent(law(), 0.5, 9), "smallest is 0.5; it must be a finite number of at least 1."),
    (lambda: apparent_exponent(law(), 9, 9), "largest is 9; it must be above smallest, 9."),
    (lambda: apparent_exponent(law(), 1e9, 1e9 + 1), "largest is 1000000001.0; it must be further above smallest, for a slope between them."),
    # quality
    (lambda: tokens_worth(law(), 1, 0, 2), "D is 0; it must be a finite number of at least 1."),
    (lambda: QualityLaw(law(), 1).loss(0, 1), "N is 0; it must be a finite number of at least 1."),
    (lambda: QualityLaw(law(), 1).loss(1, 1, 1.5), "clean is 1.5; it must be a fraction, from 0 to 1."),
    (lambda: QualityLaw(law(), 1).loss(1, 1, 1e-7), "clean is 1e-07; it must be a share of at least one in a million."),
    (lambda: fit_quality(law(), [], [], [], []), "N is []; it must have at least one."),
    (lambda: fit_quality(law(), [1], [1, 1], [1], [1]), "D is of 2 runs; it must be of as many as N, 1."),
    (lambda: fit_quality(law(), [1], [1], [1, 1], [1]), "clean is of 2 runs; it must be of as many as N, 1."),
    (lambda: fit_quality(law(), [1], [1], [1], [1, 1]), "loss is of 2 runs; it must be of as many as N, 1."),
    (lambda: fit_quality(law(), [1], [1], [1.5], [1]), "clean is 1.5; it must be a fraction, from 0 to 1."),
    (lambda: fit_quality(law(), [1], [1], [1.0], [3]), "clean is 1 in all runs; it must be less in one of them."),
    # A loss of 1 / 2 + 1 / 2: the spoilt tokens are worth one each.
    (lambda: fit_quality(law(), [2], [2], [0.5], [1]), "loss is no higher on spoilt data; it must be higher, for it to be worth less."),
    # repetition
    (lambda: effective_tokens(0.5, 1), "D is 0.5; it must be a finite number of at least 1."),
    (lambda: effective_tokens(1, 0.5), "unique is 0.5; it must be a finite number of at least 1."),
    (lambda: effective_tokens(1, 1, 0), f"R is 0; it must be {ABOVE_ZERO}."),
    (lambda: DataConstrainedLaw(law(), 0.5), "unique is 0.5; it must be a finite number of at least 1."),
    (lambda: DataConstrainedLaw(law(), 1, 0), f"R_D is 0; it must be {ABOVE_ZERO}."),
    (lambda: DataConstrainedLaw(law(), 1, 1, 0), f"R_N is 0; it must be {ABOVE_ZERO}."),
    (lambda: DataConstrainedLaw(law(), 1).loss(0.5, 1), "N is 0.5; it must be a finite number of at least 1."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_refused_is_told_in_a_whole_sentence(call, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011  (its whole text is compared)
        call()
    assert str(refused.value) == sentence


def test_the_least_and_the_most_that_may_be_are_taken():
    assert law(E=0).loss(1, 1) == 2
    assert law(alpha=10, beta=10).loss(2, 2) == 2 / 1024
    assert law().tokens(1, 1.5) == pytest.approx(2)
    assert pytest.approx(0.01 * math.exp(699.9)) == allocation(-699.9, 0.06).D
    assert pytest.approx(math.exp(699.9)) == allocation(699.9, 6).N
    assert KaplanLaw(1, 1, 1, 1).loss(1, 1) == pytest.approx(2)
    assert with_embeddings(1, 0) == 1
    assert with_embeddings(1, 5) == 6
    assert QualityLaw(law(), 1).loss(1, 1e6, 1e-6) == pytest.approx(2)
    assert QualityLaw(law(), 1).loss(1, 4) == 1.25, "all of it is clean where nothing is said"
    assert effective_tokens(1, 1) == effective_tokens(1, 1e9) == 1
    assert DataConstrainedLaw(law(), 1).loss(1, 1) == 2


def test_with_all_parameters_counted_the_optimum_is_where_both_terms_cost_alike():
    assert optimum_without_embeddings(law(A=4, B=9), 8, 0) == pytest.approx((8, 18))
    for points in (2, 10_000):
        assert apparent_exponent(law(), 1, 100, 0, points) == pytest.approx(0.5)


def test_a_budget_of_few_tokens_is_split_as_evenly_as_one_of_many():
    """1 / N + 1 / D is lowest at N = D, and where D is worth nothing, at D = 1."""
    for product in (2.0, 3.0, 5.0, 7.0, 9.0):
        assert pytest.approx(math.sqrt(product)) == numeric_optimum(law(), 6 * product).N
        assert pytest.approx(product) == numeric_optimum(law(B=1e-9), 6 * product).N
        assert pytest.approx(1) == numeric_optimum(law(A=1e-9), 6 * product).N
    assert numeric_optimum(law(), 6.6) == pytest.approx((math.sqrt(1.1),) * 2)


def test_kaplans_optimum_is_where_its_slope_along_the_budget_is_nothing():
    """Along N D = 18 the square of loss is 16 / N^2 + N / 2, with a slope of -32 / N^3 + 1 / 2."""
    assert KaplanLaw(4, 9, 1, 0.5).optimal(6 * 18) == pytest.approx((4, 4.5))


def test_far_off_the_optimum_one_term_is_all_of_the_waste():
    """A loss of 1 / N at k times too small a size is that of an optimal run k^2 / 4 times cheaper."""
    assert compute_wasted(law(), 1e-150) == pytest.approx(1e300 / 4)
    assert compute_wasted(law(), 1e150) == pytest.approx(1e300 / 4)
    steep = law(alpha=10, beta=5)
    for factor, exponent in ((1e-30, 10 * (1 / 10 + 1 / 5)), (1e30, -5 * (1 / 10 + 1 / 5))):
        share = 5 / 15 if factor < 1 else 10 / 15
        assert compute_wasted(steep, factor) == pytest.approx(share**0.3 * factor**-exponent)


def test_however_slowly_a_law_falls_a_model_above_the_least_reaches_the_loss():
    """1 + (1 - k^-alpha) = D^-beta: with both at a thousandth, 2 - 10^0.04 and its power -1000."""
    assert least_factor(slow()) == pytest.approx(2.0**-1000)
    found = overtraining(slow(), 1e-40)
    assert found.tokens == pytest.approx((2 - 10**0.04) ** -1000, rel=1e-9)
    assert found == (1e-40, found.tokens, 1e-40 * found.tokens)
    assert overtraining(law(), 0.75) == pytest.approx((0.75, 1.5, 1.125))  # 2 - 4 / 3 = 1 / 1.5
    assert overtraining(law(), math.nextafter(0.5, 1)).tokens > 1e15


def test_a_life_begins_where_one_parameter_or_one_token_would_do():
    """At a loss of 2, 2 / N and 100 / D: one parameter is the limit that no data makes enough."""
    life = lifetime_optimal(law(A=2, B=100), 2, 0)
    assert pytest.approx((2, 100), rel=1e-6) == (life.N, life.D)


def test_whoever_serves_without_end_trains_the_smallest_model_that_reaches_the_loss():
    life = lifetime_optimal(law(), 0.5, 1e40)
    assert pytest.approx(2) == life.N
    assert law().loss(life.N, life.D) == pytest.approx(0.5)


def test_a_few_cents_buy_one_parameter_and_one_token_at_the_least():
    bought = purchase(law(), 1e-6, 3600, 6e3, 1)
    assert bought.flops == pytest.approx(6e-3)
    assert bought.loss == 2
    assert Purchase(48, 1, 1, 1, 1).days(1) == 2


def test_a_search_among_what_is_no_number_ends_in_a_sentence():
    with pytest.raises(ValueError, match=r"^function is nan; it must be a number everywhere"):
        lowest(lambda x: math.nan if x > 100 else x, 1, 1e4)
    assert lowest(lambda x: math.inf if x > 100 else 1 / x, 1, 1e4) == pytest.approx(100, rel=1e-6)


def test_the_search_looks_nowhere_but_between_its_ends_and_then_round_the_lowest_of_its_scan():
    seen: list[float] = []

    def valley(x: float) -> float:
        seen.append(x)
        return math.log(x / 30) ** 2

    assert lowest(valley, 1, 1e4) == pytest.approx(30, rel=1e-7)
    scan, rest = seen[:201], seen[201:]
    assert scan == pytest.approx([10 ** (4 * k / 200) for k in range(201)])
    place = min(range(201), key=lambda k: abs(math.log(scan[k] / 30)))
    assert scan[place - 1] < min(rest)
    assert max(rest) < scan[place + 1]


@pytest.mark.parametrize(("off", "steep"), [(-0.95, -100), (0.95, 100)])
def test_the_search_stays_in_its_valley_wherever_the_wall_of_this_is_steep(off, steep):
    """The lowest of the scan is the 100th, and the bottom of the valley close to a neighbour."""
    seen: list[float] = []

    def valley(x: float) -> float:
        seen.append(math.log10(x) * 50)
        beyond = seen[-1] - (100 + off)
        return abs(beyond) * (100 if beyond * steep > 0 else 1)

    assert 50 * math.log10(lowest(valley, 1, 1e4)) == pytest.approx(100 + off, abs=1e-6)
    assert min(seen[201:]) > 99
    assert max(seen[201:]) < 101


def test_of_places_alike_the_search_keeps_the_first():
    assert lowest(lambda x: 1.0, 2, 200) == pytest.approx(2)


def test_tokens_read_once_or_less_are_worth_one_each_whatever_model_reads_them():
    short = DataConstrainedLaw(law(A=1, B=1e9), 10)  # 1e-8 parameters would be enough
    assert short.enough == pytest.approx(1e-8)
    assert short.effective(1, 10) == Allocation(1, 10)
    assert 1.9 < short.effective(2, 20).N < 2, "the second parameter is one too many"


def test_parameters_that_no_float_holds_are_enough_for_no_one():
    assert DataConstrainedLaw(law(alpha=1e-3), 1e10).enough == pytest.approx(math.exp(700))
