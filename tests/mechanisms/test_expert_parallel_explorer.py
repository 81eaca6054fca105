"""The explorer of expert parallelism: rows held against prices, its words and its figure."""

from __future__ import annotations

import re

import pytest

from dlsys.collectives import best
from dlsys.expert_parallel import drawn, explore, k_to_overtake, price, width_to_hide
from dlsys.expert_parallel.explorer import NODES, ONCE, RATE, STRAIGHT, Choice
from dlsys.hardware import LINKS, dgx_h100
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes, format_seconds

CASES = [
    (Choice(), dgx_h100(8), LINKS["nvlink4"]),
    (Choice(ranks=16, skew=0.5, most_nodes="all", tp=4), dgx_h100(2), LINKS["nvlink4"]),
    (Choice(model="mixtral-8x7b", tokens=256), dgx_h100(1), LINKS["nvlink4"]),
    (Choice(link="nvlink5", ranks=64), LINKS["nvlink5"], LINKS["nvlink5"]),
]


@pytest.mark.parametrize(("choice", "where", "inside"), CASES)
def test_rows_are_the_prices_of_its_dispatch_and_of_an_all_reduce(choice, where, inside):
    spec, dispatch = CATALOGUE[choice.model], choice.dispatch()
    *ways, reduced = choice.rows()
    nodes = len(dispatch.nodes[0])
    assert [row.way for row in ways] == [STRAIGHT, ONCE][: 1 + (nodes > 1)]
    width = spec.moe.ffn_hidden or spec.ffn_hidden
    for row in ways:
        priced = price(
            dispatch, where, spec.hidden, once_a_node=row.way == ONCE, width=width, rate=RATE
        )
        assert row[1:4] == (priced.dispatch, priced.combine, priced.compute)
        assert row.sent == priced.dispatch_bytes + priced.combine_bytes
        flops = choice.tokens * spec.moe.experts_per_token * 6 * spec.hidden * width
        assert row.mean == pytest.approx(flops / RATE, rel=2e-3)
    nbytes = choice.tp * choice.tokens * spec.hidden * 2  # a group's ranks have the same tokens
    one = best("all_reduce", nbytes, inside, choice.tp).price(nbytes, inside)
    assert reduced[1:3] == (one.seconds, one.seconds)
    assert reduced.sent == pytest.approx(4 * (choice.tp - 1) / choice.tp * nbytes)


def test_its_dispatch_is_what_many_tokens_are_drawn_to_be():
    choice = Choice(model="llama4-scout", ranks=16, skew=0.5, most_nodes="1")
    expected, many = choice.dispatch(), drawn(1000, 16, 1, 16, 0.5, 8, 1)
    expected.check()
    scale = choice.tokens * 16 / 16000
    assert expected.read == pytest.approx([scale * n for n in many.read], rel=0.15)
    even = Choice(model="mixtral-8x7b").dispatch()
    assert even.copies == ((1024,) * 8,) * 8


@pytest.mark.parametrize("most", ["1", "2", "4"])
def test_a_limit_on_nodes_reaches_no_more_and_sends_the_same_copies(most):
    free, limited = (Choice(skew=1.0, most_nodes=m).dispatch() for m in ("all", most))
    k = 8 * 4096
    for dispatch in (free, limited):
        dispatch.check()
        assert sum(dispatch.copies[0]) == pytest.approx(k, rel=1e-3)
    assert sum(limited.nodes[0]) <= int(most) * 4096 + 8
    assert sum(limited.nodes[0]) <= sum(free.nodes[0])


def test_a_skew_lets_the_busiest_rank_compute_longer():
    busy = [Choice(skew=skew).rows()[0].busiest for skew in (0.0, 0.5, 1.0)]
    means = [Choice(skew=skew).rows()[0].mean for skew in (0.0, 0.5, 1.0)]
    assert busy[0] == pytest.approx(means[0])
    assert busy[0] < busy[1] < busy[2]
    assert means == pytest.approx([means[0]] * 3, rel=1e-3)


@pytest.mark.parametrize(("choice", "where", "inside"), CASES)
def test_words_say_what_the_rows_hold_and_which_takes_longer(choice, where, inside):
    words, (*ways, reduced) = choice.summary(), choice.rows()
    for row in ways:
        said = f"dispatch {format_seconds(row.first)}, combine {format_seconds(row.second)}"
        assert f"{said}; a device sends {format_bytes(row.sent)}" in words
    copies, both = min(r.first + r.second for r in ways), reduced.first + reduced.second
    assert ("Dispatch and combine take longer:" in words) == (copies > both)
    assert f"longer: {max(copies / both, both / copies):.2f} times" in words
    busiest, mean = ways[0].busiest, ways[0].mean
    assert f"computes {format_seconds(busiest)}, {busiest / mean:.2f} times the mean" in words
    n, slow = choice.n, LINKS["infiniband-ndr"] if choice.n > 8 else inside
    slow = inside if choice.link != NODES else slow
    law = choice.tp * k_to_overtake(n, choice.tp, slow.bandwidth / inside.bandwidth)
    needed = width_to_hide(RATE, slow.bandwidth, n)
    assert f"take longer from {law:.2g} experts a token on" in words
    assert f"would need {needed:,.0f} neurons; it has {choice.width:,}" in words


def test_ranks_are_no_more_than_experts_and_tensor_parallelism_may_take_longer():
    few = explore(model="mixtral-8x7b", ranks=64).choice
    assert few.n == 8
    assert "on each of 8 ranks" in few.summary()
    alone = Choice(model="llama4-scout", link="nvlink4", ranks=16, tp=8)
    assert re.search(r"The all-reduces take longer: 1\d\.\d+ times", alone.summary())


def test_bars_of_the_figure_are_as_long_as_the_rows():
    pytest.importorskip("matplotlib", reason="the book's tools are not installed")
    choice = Choice(skew=0.5)
    (axes,) = choice.figure().axes
    rows = choice.rows()
    parts = [
        [row.first for row in rows],
        [row.mean for row in rows],
        [row.busiest - row.mean for row in rows],
        [row.second for row in rows],
    ]
    lengths = [bar.get_width() for bar in axes.patches]
    assert lengths == pytest.approx([1e3 * value for part in parts for value in part])
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.way for row in rows]
