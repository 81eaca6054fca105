"""The exercises on scaling laws: their figures are those of the package, and what holds for all."""

import math
from itertools import pairwise, product

import pytest

from dlsys.scaling_laws import (
    PUBLISHED,
    ChinchillaLaw,
    bootstrap,
    compute_wasted,
    compute_wasted_near,
    cost,
    effective_tokens,
    fit,
    fit_parabola,
    fit_power_law,
    interval,
    lifetime_optimal,
    overtraining,
)
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


LAWS = [ChinchillaLaw(1.7, 300, 2500, 0.32, 0.41), ChinchillaLaw(2.0, 700, 90, 0.5, 0.2)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("flops", [1e18, 3e24])
def test_the_optimum_of_the_exercises_is_the_packages_at_six_flops_each(
    law: ChinchillaLaw, flops: float
) -> None:
    optimal = solved("scaling_laws")["optimal"]
    constants = (law.A, law.B, law.alpha, law.beta)
    assert optimal(*constants, flops, 6) == pytest.approx(tuple(law.optimal(flops)))
    # Eight each leave three quarters of N D.
    assert optimal(*constants, flops, 8) == pytest.approx(tuple(law.optimal(flops * 6 / 8)))


def test_ratios_of_the_first_question_are_those_of_the_package() -> None:
    a, law = solved("scaling_laws"), ChinchillaLaw(1.7, 400, 400, 0.5, 0.3)
    assert a["grows"] == pytest.approx(law.optimal(1e22).N / law.optimal(1e20).N)
    assert a["with_eight"] == pytest.approx(law.optimal(6e20).N / law.optimal(8e20).N)
    assert a["wasted"] == pytest.approx(compute_wasted(law, 5))
    assert a["tokens"] == pytest.approx(overtraining(law, 0.4).tokens)


def test_bottoms_of_the_exercises_are_those_of_the_packages_parabolas() -> None:
    a, found = solved("scaling_laws"), []
    for flops, sizes, losses in a["STUDY"]:
        parabola, at = (
            fit_parabola([math.log(N) for N in sizes], losses),
            a["vertex"](sizes, losses),
        )
        if math.log(min(sizes)) < parabola.at < math.log(max(sizes)):
            assert at == pytest.approx((math.exp(parabola.at), parabola.value))
            found.append((flops, at[0]))
        else:
            assert at == "none"
    assert len(found) == 3
    k, exponent = fit_power_law(*zip(*found, strict=True))
    assert a["frontier"](a["STUDY"]) == pytest.approx((k, exponent))
    assert a["exponent"] == pytest.approx(exponent)
    truth = ChinchillaLaw(1.7, 380.0, 900.0, 0.33, 0.31).exponent
    assert abs(a["exponent"] - truth) < 0.01 < 0.07 < a["lowest_exponent"] - truth


@pytest.mark.parametrize("seed", [0, 180])
def test_the_objective_of_the_exercises_is_the_packages_and_has_its_minimum(seed: int) -> None:
    a = solved("scaling_laws")
    runs = a["runs_with_faults"](seed)
    for law in (ChinchillaLaw(1.75, 520, 1450, 0.36, 0.34), *LAWS):
        point = [math.log(x) for x in (law.A, law.B, law.E)] + [law.alpha, law.beta]
        for delta in (1e-3, 0.1):
            came = a["objective"](point, *runs, delta)
            assert came == pytest.approx(cost(law, *runs, delta=delta), rel=1e-9)
    fitted, own = a["fitted"](a["objective"], runs, 1e-3), fit(*runs)
    assert cost(fitted, *runs) == pytest.approx(cost(own, *runs), rel=1e-3)
    assert fitted.exponent == pytest.approx(own.exponent, abs=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_constants_are_recovered_from_any_runs_of_which_three_are_wrong(seed: int) -> None:
    a = solved("scaling_laws")
    assert a["recovered"](a["objective"], seed) == "the constants are found"
    squares = a["fitted"](a["objective"], a["runs_with_faults"](seed), 10.0)
    assert abs(squares.alpha - 0.36) > 0.1


def test_repeated_tokens_are_worth_what_the_package_says() -> None:
    a = solved("scaling_laws")
    for epochs, worth in ((8, 0.6), (20, 0.35), (3, 0.95)):
        R = a["constant_of"](epochs, worth)
        assert effective_tokens(epochs * 1e6, 1e6, R) == pytest.approx(worth * epochs * 1e6)
    added = [effective_tokens(n * 1e6, 1e6, 15.4) / 1e6 for n in range(1, 40)]
    gains = [1.0] + [after - before for before, after in pairwise(added)]
    first = next(n for n, gain in enumerate(gains, 1) if gain < 0.5)
    assert a["below_half"] == first
    R = a["constant_of"](8, 0.6)
    assert effective_tokens(1e12, 1e6, R) / 1e6 == pytest.approx(a["at_most"])
    assert effective_tokens(a["epochs_for_four"] * 1e6, 1e6, R) == pytest.approx(4e6)


def test_the_design_of_a_life_discounts_and_prices_as_the_package_does() -> None:
    a = solved("scaling_laws")
    for one in a["every"]:
        unique = one["trillions"] * 1e12
        tokens = effective_tokens(unique * one["epochs"], unique, 15.4)
        assert a["loss"](one) == pytest.approx(a["LAW"].loss(one["billions"] * 1e9, tokens))
    near = [x for x in map(a["loss"], a["every"]) if abs(x - 2.05) < 5e-4]
    assert not near, "chance decides"
    fewest, next_best = sorted(map(a["cost"], a["enough"]))[:2]
    assert fewest == a["cost"](a["design"]) < 0.95 * next_best
    assert a["dollars"](a["design"])["training"] == pytest.approx(
        6 * 5e9 * 6.4e12 / (0.4 * 1e15) / 3600 * 2 / 1e6
    )
    assert a["dollars"](a["design"])["serving"] == pytest.approx(
        2 * 5e9 * 30e12 / (0.1 * 1e15) / 3600 * 2 / 1e6
    )
    assert len(a["every"]) == len(list(product(*a["CHOICES"].values())))


def test_each_study_has_the_fault_that_the_solution_names_and_no_other() -> None:
    a = solved("scaling_laws")
    for name, word in a["faults"].items():
        rows = a["STUDIES"][name]
        off = [abs(had / said - 1) for *_, had, said in rows]
        assert (max(C / (6 * N * D) for C, N, D, *_ in rows) > 1.1) == (word == "embeddings")
        assert any(new < D for _, _, D, new, *_ in rows) == (word == "repeats")
        if word in ("nothing", "squares"):
            third = sorted(off)[-3]  # two runs are bad
            assert (third > 0.03) if word == "squares" else (third < 0.005)
        elif word != "repeats":
            assert max(off) < 0.006
        if word == "repeats":
            assert max(x for x, row in zip(off, rows, strict=True) if row[2] == row[3]) < 0.005
            assert min(x for x, row in zip(off, rows, strict=True) if row[2] > 10 * row[3]) > 0.03
        else:
            assert ends(rows) == (word == "edge")


def ends(rows: list[tuple[float, ...]]) -> bool:
    """Whether the lowest run of each budget is of the largest size, bad ones apart."""
    found = []
    for flops in {row[0] for row in rows}:
        of = [row for row in rows if row[0] == flops and abs(row[4] / row[5] - 1) < 0.1]
        found.append(min(of, key=lambda row: row[4])[1] == max(row[1] for row in of))
    return all(found)


def test_squares_are_what_the_fit_of_the_last_study_took() -> None:
    a = solved("scaling_laws")
    rows = a["STUDIES"]["E"]
    _, N, D, _, had, said = zip(*rows, strict=True)
    robust = fit(N, D, had)
    squares = [
        sum((x - h) ** 2 for x, h in zip(of, had, strict=True))
        for of in (said, [robust.loss(n, d) for n, d in zip(N, D, strict=True)])
    ]
    assert squares[0] < squares[1]


def test_advice_costs_what_the_package_says_and_the_safest_lies_between() -> None:
    a = solved("scaling_laws")
    for truth in a["TRUTHS"]:
        law = PUBLISHED[truth].law
        for advice in a["ADVISERS"]:
            k = PUBLISHED[advice].law.optimal(5e23).N / law.optimal(5e23).N
            assert a["regret"](truth, advice, 5e23) == pytest.approx(compute_wasted(law, k))
    both = [PUBLISHED[key].law.optimal(a["same_size"]).N for key in a["TRUTHS"]]
    assert both[0] == pytest.approx(both[1])
    worst = {key: a["worst_of"](key) for key in a["ADVISERS"]}
    assert sorted(worst.values())[1] > 1.05 > worst[a["safest"]]


def test_what_a_smaller_sweep_says_changes_its_exponent_more_than_its_prediction() -> None:
    a = solved("scaling_laws")
    found = [a["held_back"](most) for most in (2.1e10, 5e10, 1e12)]
    (small, _), (middle, too_low), (whole, _) = found
    assert small - 0.05 > middle > whole + 0.05
    assert max(abs(off) for _, off in found) < 0.03
    # Of the sweep that the answers are about the fraction is below zero, above its E as well.
    assert too_low < 0 > a["above_E"]
    assert a["times_compute"] < a["times_tokens"] < 1
    _, N, D, had = a["HELD"]
    law = fit(*zip(*[run[1:] for run in a["ROWS"] if run[0] <= 5e10], strict=True))
    best = law.optimal(a["times_compute"] * 6 * N * D)
    assert law.loss(*best) == pytest.approx(had, rel=1e-4)
    assert law.loss(N, a["times_tokens"] * D) == pytest.approx(had, rel=1e-4)


def test_a_limit_of_the_sweep_is_the_flops_of_one_of_its_runs() -> None:
    a = solved("scaling_laws")
    limit = 9037479936.0
    assert limit in [flops for flops, *_ in a["ROWS"]]
    with_it, without = a["held_back"](limit), a["held_back"](limit - 1)
    assert with_it[1] > 0.01 > -0.01 > without[1]


def test_a_fit_of_the_runs_is_told_from_the_law_that_made_them_at_two_digits() -> None:
    a = solved("scaling_laws")
    truth = ChinchillaLaw(1.75, 520, 1450, 0.36, 0.34)
    for found, had in (
        (a["robust_exponent"], truth.exponent),
        (a["squares_exponent"], truth.exponent),
        (a["robust_billions"], truth.optimal(1e24).N / 1e9),
        (a["squares_billions"], truth.optimal(1e24).N / 1e9),
    ):
        assert f"{found:.1e}" != f"{had:.1e}"
    assert a["recovered"](a["objective"], 180) == "the constants are found"


PROPOSED = ChinchillaLaw(1.75, 520, 1450, 0.36, 0.34)


def test_the_figures_of_the_model_answer_are_right() -> None:
    text, best = model_answer("scaling_laws"), PROPOSED.optimal(4e24)
    assert (round(best.N / 1e9, 1), round(best.D / 1e12, 2)) == (93.5, 7.13)
    assert PROPOSED.loss(*best) == pytest.approx(1.870, abs=5e-4)
    assert pytest.approx(1.78e12, rel=2e-3) == best.D / 4
    assert 4e24 / 2e19 == 200_000
    assert "0.01 in the exponent of the optimum" in text
    assert "makes 13 % of $N$" in text
    assert pytest.approx(1.13, abs=2e-3) == 200_000**0.01
    assert "20 % off costs about 1 %" in text
    assert compute_wasted(PROPOSED, 1.2) == pytest.approx(1.012, abs=1e-3)
    assert "a factor of two some 18 %" in text
    assert [round(compute_wasted(PROPOSED, k), 2) for k in (0.5, 2)] == [1.18, 1.18]
    assert compute_wasted_near(PROPOSED, 2) == pytest.approx(1.18, abs=5e-3)
    assert "3.73 readings' worth, or 93 %" in text
    assert effective_tokens(4e12, 1e12) / 1e12 == pytest.approx(3.73, abs=5e-3)
    assert "0.94 times as much as the training" in text
    assert pytest.approx(0.94, abs=5e-3) == 2 * 20 / (6 * best.D / 1e12)
    life = lifetime_optimal(PROPOSED, PROPOSED.loss(*best), 20e12)
    assert "56 billion parameters on 13.4 trillion tokens saves 13 %" in text
    assert (round(life.N / 1e9), round(life.D / 1e12, 1)) == (56, 13.4)
    assert 1 - life.flops / (4e24 + 2 * best.N * 20e12) == pytest.approx(0.13, abs=5e-3)
    assert "more than seven epochs" in text
    assert 7 < life.D / 1.78e12 < 8


def test_an_error_of_a_hundredth_in_the_exponent_is_that_of_a_good_fit() -> None:
    runs = solved("scaling_laws")["runs_with_faults"](0)
    low, high = interval([each.exponent for each in bootstrap(*runs, resamples=60)])
    assert 0.003 < (high - low) / 2 < 0.1
