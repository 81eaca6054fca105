"""The exercises on collectives: their figures are those of the package, and what holds for all."""

from dataclasses import replace

import pytest

from dlsys.collectives import hierarchical_all_reduce, ring_all_reduce, tree_all_reduce
from dlsys.collectives.choose import best, crossovers, plan_for
from dlsys.collectives.price import bus_factor
from dlsys.hardware import LINKS, dgx_a100, dgx_h100
from tests.exercises import contract
from tests.exercises.notebooks import model_answer, solved
from tests.exercises.points import passed
from tests.exercises.wrong_answers import Wrong


class TestForm(contract.Form): ...


class TestDraws(contract.Draws): ...


class TestWrongAnswers(contract.WrongAnswers): ...


class TestStructure(contract.Structure): ...


def test_the_figures_of_the_model_answer_on_tree_and_ring_are_right() -> None:
    text, ethernet = model_answer("collectives"), LINKS["ethernet-100g"]
    for plan, milliseconds, seconds in (
        (tree_all_reduce(64), 0.24, 9.6),
        (ring_all_reduce(64), 2.52, 1.58),
    ):
        assert plan.price(1e3, ethernet).seconds == pytest.approx(milliseconds / 1e3, rel=0.01)
        assert plan.price(10e9, ethernet).seconds == pytest.approx(seconds, rel=0.01)
        assert f"{milliseconds} ms" in text
        assert f"{seconds} s" in text
    assert len(ring_all_reduce(64).rounds) == 126
    assert len(tree_all_reduce(64).rounds) == 12
    sizes = {
        n: crossovers("all_reduce", ethernet, n, {"tree": tree_all_reduce(n), "ring": ring_all_reduce(n)})[1][0]
        for n in (64, 128)
    }  # fmt: skip
    assert sizes[64] == pytest.approx(2.84e6, rel=0.002)
    assert "2.84 MB" in text
    more_bytes = (12 - 2 * 63 / 64) * sizes[64]
    assert more_bytes / 12.5e9 == pytest.approx(114 * 20e-6, rel=0.002)
    assert sizes[128] > sizes[64]


def test_the_lines_of_the_measurement_are_what_their_links_carry() -> None:
    """Within 1 %, and the numbers in the question are those in the solution."""
    node, four, bound = dgx_a100(1), dgx_a100(4), solved("collectives")
    for (kind, ranks, nbytes, seconds), where in zip(
        bound["measured"], (node, four, four), strict=True
    ):
        assert plan_for(kind, ranks).price(nbytes, where).seconds == pytest.approx(
            seconds, rel=0.01
        )
    shares = [bus_factor(kind, n) for kind, n, _, _ in bound["measured"]]
    assert shares == [2 * 7 / 8, 31 / 32, 2 * 31 / 32]
    rates = [
        share * nbytes / seconds / 1e9
        for share, (_, _, nbytes, seconds) in zip(shares, bound["measured"], strict=True)
    ]
    assert rates == pytest.approx([300, 25, 0.73], rel=0.01)


def test_the_cards_allow_what_a_hierarchy_with_free_links_inside_reaches_and_no_plan_exceeds() -> (
    None
):
    answers, free = solved("collectives"), replace(dgx_h100(1).intra, latency=0.0, bandwidth=1e30)
    for nodes, name in ((2, "two_nodes"), (3, "three_nodes"), (16, "sixteen_nodes")):
        where = replace(dgx_h100(nodes), intra=free)
        reached = hierarchical_all_reduce(nodes, 8).price(1e12, where).busbw / 1e9
        assert reached == pytest.approx(answers[name], rel=1e-3)
        assert reached > 1.05 * 8 * where.inter.bandwidth / 1e9
        bound = best("all_reduce", 1e12, where).price(1e12, where).busbw / 1e9
        assert bound <= answers[name]


def test_the_orders_take_what_they_are_predicted_to_and_hold_a_surprise() -> None:
    """An isend before the work hides none of it: nobody has asked for its message by then."""
    answers = solved("collectives")
    first_other = answers["first_other"]
    assert first_other([0, 5, 3, 5, 5, 6, 5]) == "all seven as predicted"
    assert first_other([0, 5, 3, 3, 5, 6, 5]) == "order 4"


def test_to_send_all_to_all_beats_each_plan_of_few_rounds_on_a_small_vector() -> None:
    answers, nvlink = solved("collectives"), LINKS["nvlink4"]
    nbytes = 2048 * 4
    run = answers["on_token"](answers["token_sum"], 8, 2048, 1)
    others = [
        plan_for("all_reduce", 8, algorithm).price(nbytes, nvlink).seconds
        for algorithm in ("ring", "tree", "recursive_doubling", "halving_doubling", "naive")
    ]
    assert run.seconds < 0.5 * min(others)
    assert run.traffic.sent == [7 * nbytes] * 8


def test_a_plan_repaired_in_its_own_place_is_told_so() -> None:
    """A grader accepts it: there the plan is the one of the question."""
    solution = "repaired[1][1] = (1, 2, 0, 1, True)"
    message = contract._said_of(
        "collectives",
        "fault",
        lambda source: source.replace(solution, f"{solution}\nbroken = repaired"),
    )
    assert "you changed `broken` itself" in message


def test_a_broadcast_that_is_wrong_everywhere_earns_nothing_for_its_rounds_and_seconds() -> None:
    body = "return [[(1, 0, 0, 1)] for _ in range((ranks - 1).bit_length())]"
    assert not passed("collectives", "broadcast", Wrong("backwards", body, "").cell)
