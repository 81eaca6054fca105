"""The sketches of collectives, held against what a rank can compute and what plans send."""

from itertools import product

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Annotation

from dlsys.collectives import (
    draw_products,
    draw_two_levels,
    hierarchical_all_reduce,
    ring_all_reduce,
)
from dlsys.collectives.sketch import ADDENDS, CASES, SLOW

ALL = set(product(range(2), repeat=2))  # the quarters of a matrix, (row, column)


def quarters(blocks, rank):
    """What a rank holds of a matrix that is drawn as these blocks."""
    held = set()
    for left, low, width, height, who in blocks:
        for row, column in ALL if who in (str(rank), "both") else ():
            x, y = 0.25 + column / 2, 0.75 - row / 2
            if left < x < left + width and low < y < low + height:
                held.add((row, column))
    return held


def computed(a, b):
    """How many of the two addends of each quarter of C a rank can compute."""
    return {(i, j): sum((i, k) in a and (k, j) in b for k in range(2)) for i, j in ALL}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[3])
def test_a_rank_gets_as_far_alone_and_with_what_is_sent_as_the_sketch_says(case, rank):
    a, b, before, sent, _, after = case
    mine, other = quarters(a, rank), quarters(b, rank)
    alone = computed(mine, other)
    if before is ADDENDS:
        assert set(alone.values()) == {1}
        assert sent == "all-reduce of C"
        assert quarters(after, rank) == ALL
        return
    assert quarters(before, rank) == {place for place, addends in alone.items() if addends == 2}
    mine, other = ALL if sent.endswith("A") else mine, ALL if sent.endswith("B") else other
    then = computed(mine, other)
    assert quarters(after, rank) == {place for place, addends in then.items() if addends == 2}


def test_the_sketch_of_products_says_what_each_case_sends():
    words = [text.get_text() for text in draw_products().axes[0].texts]
    assert [word for word in words if word in [case[3] for case in CASES]] == [c[3] for c in CASES]


def test_as_many_messages_leave_the_nodes_as_in_a_round_of_the_plans():
    plans = ring_all_reduce(16), hierarchical_all_reduce(2, 8)
    for axes, plan, both in zip(draw_two_levels().axes, plans, (1, 2), strict=True):
        arrows = [text.arrow_patch for text in axes.texts if isinstance(text, Annotation)]
        slow = [each for each in arrows if each and to_hex(each.get_edgecolor()) == SLOW.lower()]
        crossing = max(sum((t.src < 8) != (t.dst < 8) for t in r) for r in plan.rounds)
        assert both * len(slow) == crossing
