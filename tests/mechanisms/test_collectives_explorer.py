"""The explorer of collectives: its rows and rounds held against runs, its words and its figure."""

from __future__ import annotations

import pytest
import torch

from dlsys import world
from dlsys.collectives.draw import draw_choice
from dlsys.collectives.explorer import FASTEST, Choice
from dlsys.collectives.plan import KINDS

SIZE = 10**5  # as 25,000 elements, which eight ranks share without a rest
EVERY = [(kind, name) for kind in KINDS for name in Choice(kind=kind, nodes=2, devices=4).plans()]


@pytest.mark.parametrize(("kind", "algorithm"), EVERY)
def test_a_run_takes_the_rows_seconds_and_carries_the_rounds_bytes(kind, algorithm):
    choice = Choice(kind=kind, algorithm=algorithm, nbytes=SIZE, nodes=2, devices=4)
    elements = SIZE // 4 // (8 if "gather" in kind else 1)
    plan = choice.plans()[algorithm]
    given = torch.zeros(elements)
    run = world.simulate(lambda comm: plan.run(comm, given), cluster=choice.cluster())
    messages = run.traffic.messages
    (row,) = (row for row in choice.rows() if row[:2] == (algorithm, SIZE))
    assert row == choice.shown()
    assert max(m.end for m in messages) == pytest.approx(row.seconds, rel=1e-12)
    crossing = sum(m.nbytes for m in messages if (m.src < 4) != (m.dst < 4))
    inside, between = map(sum, zip(*choice.rounds(), strict=True))
    assert crossing == pytest.approx(between)
    assert sum(m.nbytes for m in messages) - crossing == pytest.approx(inside)


def test_rounds_of_two_levels_keep_to_the_nodes_but_for_those_in_the_middle():
    choice = Choice(algorithm="hierarchical", nbytes=10**6, nodes=2, devices=4)
    rounds = choice.rounds()
    # Three rounds of eight quarters inside, two between of eight eighths, three inside.
    assert [round(r.inside / 1e6, 3) for r in rounds] == [2, 2, 2, 0, 0, 2, 2, 2]
    assert [round(r.between / 1e6, 3) for r in rounds] == [0, 0, 0, 1, 1, 0, 0, 0]


def test_there_is_a_row_for_each_algorithm_and_size_and_one_node_has_no_two_levels():
    rows = Choice(kind="all_gather", nodes=1, devices=4).rows()
    assert [row.algorithm for row in rows] == ["ring"] * 9 + ["doubling"] * 9
    assert [row.nbytes for row in rows[:9]] == [10**power for power in range(2, 11)]


def test_an_algorithm_that_a_collective_does_not_have_gives_way_to_the_fastest():
    fastest = Choice(kind="all_to_all")
    assert Choice(kind="all_to_all", algorithm="tree").shown() == fastest.shown()
    assert fastest.shown() == min(fastest.ranking(), key=lambda row: row.seconds)
    assert fastest.algorithm == FASTEST
    with pytest.raises(ValueError, match="did you mean 'tree'"):
        Choice(algorithm="trees")


def test_it_says_what_binds_and_which_algorithm_is_faster():
    # A ring of sixteen goes through one card of 50 GB/s at each node; two levels use all eight.
    words = Choice(algorithm="ring").summary()
    assert "all_reduce of 1 GB, ring, on 2 nodes of 8 devices takes 37.6 ms" in words
    assert "bus bandwidth of 49.9 GB/s" in words
    assert "NVLink 4 carries 450 GB/s and InfiniBand NDR carries 50 GB/s" in words
    # 2 (16 - 1) rounds of 16 messages of 1/16 GB, two of which cross.
    assert "Its 30 rounds carry 26.2 GB inside nodes and 3.75 GB between them." in words
    assert words.endswith("is halving_doubling, 5.87 times as fast.")
    assert (
        Choice(nodes=1).summary().endswith("No other algorithm here is faster by half a percent.")
    )
    assert (
        Choice(kind="all_to_all")
        .summary()
        .endswith("The next, pairwise, takes 1.57 times as long.")
    )
    alone = Choice(kind="scatter", nodes=1).summary()
    assert "1 node of 8 devices" in alone
    assert "InfiniBand" not in alone
    assert alone.endswith("It is the only algorithm here.")


def test_the_figure_has_its_rows_the_mark_of_the_shown_one_and_its_rounds():
    choice = Choice(kind="all_gather", algorithm="ring", nbytes=10**6)
    rows, shown, rounds = choice.rows(), choice.shown(), choice.rounds()
    left, right = draw_choice(rows, shown, rounds).axes
    names = list(choice.plans())
    for name, line in zip(names, left.lines, strict=False):
        assert list(line.get_xdata()) == [10**power for power in range(2, 11)]
        assert list(line.get_ydata()) == [row.seconds for row in rows if row.algorithm == name]
    mark = left.lines[len(names)]
    assert (*mark.get_xdata(), *mark.get_ydata()) == (10**6, shown.seconds)
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        name.replace("_", "-") for name in names
    ]
    heights = [bar.get_height() * 1e9 for bar in right.patches]
    assert heights == pytest.approx([*(r.inside for r in rounds), *(r.between for r in rounds)])
    tops = [bar.get_y() * 1e9 for bar in right.patches[len(rounds) :]]
    assert tops == pytest.approx([r.inside for r in rounds])
