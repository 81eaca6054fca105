"""Pictures of expert parallelism: every copy is where the plan and the router's drop have it."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
import torch

pytest.importorskip("matplotlib", reason="the book's tools are not installed")

from dlsys.expert_parallel import (
    animate_dispatch,
    count_copies,
    draw_dispatch,
    draw_hidden,
    draw_loads,
    draw_sorted,
    routing,
)
from dlsys.expert_parallel.draw import Table
from dlsys.expert_parallel.mixture import by_expert
from dlsys.palette import COLORS

CHOICES = [
    [[0, 2], [0, 3], [1, 0]],
    [[2, 1], [0, 1], [0, 2]],
    [[3, 0], [2, 3], [0, 1]],
    [[1, 3], [0, 3], [2, 0]],
]
CASES = {
    "two dropped": ([[[0], [0], [0]], [[1], [3], [2]]], 4, 1),
    "one dropped": (CHOICES, 4, 2),
    "none dropped": (CHOICES, 4, None),
    "eight experts": ([[[0, 7], [3, 5]], [[1, 2], [4, 6]]] * 2, 8, 1),
    "one rank": ([[[0, 1], [0, 1], [1, 0]]], 2, 2),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def kept(choices, experts, capacity):
    """The choices as the router drops beyond the capacity of each rank's tokens."""
    most = 99 if capacity is None else capacity
    return [routing.drop(torch.tensor(mine), experts, most).tolist() for mine in choices]


@cases
def test_what_is_drawn_at_the_experts_is_what_the_plan_counts(case):
    choices, experts, _ = case
    table, left = Table(*case), kept(*case)
    plan = count_copies(left, experts)
    placed = [copy for copy in table.copies if copy.place is not None]
    n = len(choices)
    drawn = Counter((copy.rank, copy.expert // table.held) for copy in placed)
    assert all(drawn[a, b] == plan.copies[a][b] for a in range(n) for b in range(n))
    assert len({table.there(copy) for copy in placed}) == len(placed), "one a cell"
    for copy in table.copies:
        assert (left[copy.rank][copy.token][copy.i] == experts) == (copy.place is None)
        assert copy.place is None or copy.place < table.places


@cases
def test_the_still_has_each_copy_twice_and_once_at_its_expert(case):
    table, (axes,) = Table(*case), draw_dispatch(*case).axes
    dropped = sum(copy.place is None for copy in table.copies)
    assert len(axes.lines) == 2 * dropped, "a stroke through each, as chosen and at the end"
    numbers = Counter(t.get_text() for t in axes.texts if t.get_ha() == "center" and t.get_text())
    expected = Counter()
    for copy in table.copies:
        expected[str(copy.expert)] += 2 + (copy.place is not None)
    assert numbers == expected


def test_copies_that_arrive_stand_sorted_as_dispatch_sorts_them():
    coming = torch.tensor([[1, 1], [2, 1], [0, 1], [1, 0]])  # from each rank, for each expert
    expert = torch.arange(2).repeat(4).repeat_interleave(coming.flatten())
    (axes,) = draw_sorted([[2, 3], [2, 2, 3], [3], [2]], of="rank").axes
    below = sorted((t.get_position(), t.get_text()) for t in axes.texts if t.get_position()[1] > 2)
    places = [words for _, words in below if words.startswith("place")]
    assert places == [f"place {place}" for place in expert.argsort(stable=True)]
    rank = torch.arange(4).repeat_interleave(coming.sum(1))[expert.argsort(stable=True)]
    assert [words for _, words in below if words.startswith("rank")] == [f"rank {r}" for r in rank]


def test_two_micro_batches_in_turn_hide_each_others_copies_and_one_alone_waits_for_all():
    parts = {"attention": 4.0, "dispatch": 1.0, "experts": 5.0, "combine": 2.0}
    alone, both = draw_hidden(**parts).axes
    shown = {
        axes: sorted((bar.get_y() > 0, bar.get_x(), bar.get_width()) for bar in axes.patches)
        for axes in (alone, both)
    }
    ends = {axes: [x + wide for _, x, wide in bars] for axes, bars in shown.items()}
    assert max(ends[alone]) == 2 * sum(parts.values())
    assert max(ends[both]) == 2 * 2 * (4.0 + 5.0) + 2.0  # all but the last combine is hidden
    for bars in shown.values():  # no lane does two things at once
        for (lane, x, wide), (next_lane, later, _) in itertools.pairwise(bars):
            assert lane != next_lane or later >= x + wide
    # An expert waits for its copies: in its lane it begins no earlier than they have come.
    went = [x + wide for network, x, wide in shown[alone] if network]
    began = [x for network, x, _ in shown[alone] if not network]
    assert began[1::2] == went[::2]
    assert began[2] == went[1]


def test_sorted_copies_stand_in_the_order_of_the_mechanism_under_the_places_they_had():
    chosen = [[3, 1], [1, 0], [3, 0]]
    order, _ = by_expert(torch.tensor(chosen), 4)
    (axes,) = draw_sorted(chosen).axes
    said = sorted((t.get_position(), t.get_text()) for t in axes.texts)
    tokens = [words for (_, y), words in said if y > 2 and words.startswith("token")]
    places = [words for (_, y), words in said if y > 2 and words.startswith("place")]
    assert places == [f"place {place}" for place in order]
    assert tokens == [f"token {token}" for token in (order // 2)]
    lines = sorted((line.get_xdata()[1], line.get_xdata()[0]) for line in axes.lines)
    assert lines == list(enumerate(order.tolist()))
    with pytest.raises(ValueError, match="14 copies could not be followed; 12 are the most"):
        draw_sorted([[0, 1]] * 7)


def moving(case):
    html = animate_dispatch(*case)._repr_html_()
    return html, ElementTree.fromstring(html).find("svg")


def corner(group):
    return tuple(map(float, re.match(r"M([\d.]+) ([\d.]+)", group.find("path").get("d")).groups()))


def windows(html):
    rule = r"keyframes plan-\w+-(\d+)\{([\d.]+)%\{visibility:visible\}([\d.]+)%\{visibility:hidden"
    return {f"w{name}": (float(a), float(b)) for name, a, b in re.findall(rule, html)}


@cases
def test_every_copy_ends_at_home_and_between_lies_at_its_expert(case):
    html, svg = moving(case)
    table, when = Table(*case), windows(html)
    resting = [
        (*when[g.get("class").split()[1]], g.find("text").text, corner(g))
        for g in svg.findall("g")
        if g.get("class").startswith("w ") and g.find("path").get("class") != "x"
    ]
    crossed = [g.find("text").text for g in svg.findall("g") if g[-1].get("class") == "x"]
    dropped = [str(copy.expert) for copy in table.copies if copy.place is None]
    assert crossed == dropped
    at = {round(100 * t / 6): [] for t in (0.5, 2.5, 5)}  # six rounds: start, three, two of end
    for share, seen in at.items():
        seen += sorted((text, where) for a, b, text, where in resting if a <= share < b)
    first, computed, last = at.values()
    assert len(first) == len(table.copies)
    assert Counter(last) <= Counter(first), "each where it was"
    assert Counter(text for text, _ in last) + Counter(dropped) == Counter(t for t, _ in first)
    assert Counter(text for text, _ in computed) == Counter(text for text, _ in last)
    assert not {where for _, where in computed} & {where for _, where in first}


@cases
def test_every_kept_copy_goes_out_and_the_same_way_back(case):
    _, svg = moving(case)
    ways = {"g g0": [], "g g2": []}
    for group in svg.findall("g"):
        if group.get("class") in ways:
            x, y = corner(group)
            u, v = map(float, re.findall(r"(-?[\d.]+)px", group.get("style")))
            ways[group.get("class")].append((group.find("text").text, x, y, x + u, y + v))
    out, back = ways.values()
    assert len(out) == sum(copy.place is not None for copy in Table(*case).copies)
    for (number, *there), (same, *home) in zip(out, back, strict=True):
        assert number == same
        assert there == pytest.approx([*home[2:], *home[:2]], abs=0.1)


def test_the_page_is_the_same_every_time_and_asks_for_nothing():
    html = moving(CASES["one dropped"])[0]
    assert html == moving(CASES["one dropped"])[0]
    assert not re.search(r"script|src=|http|@import|\bon\w+=", html)
    assert "animation:12s infinite" in html, "six rounds of two seconds"
    assert 'aria-label="24 copies of the tokens of 4 ranks go' in html
    before, _, after = html.partition("@media screen and (prefers-reduced-motion:no-preference){")
    assert ".moving{display:block}" not in before
    assert ".moving{display:block}" in after
    assert len(html) < 60_000


def test_bars_are_loads_over_their_mean_and_the_busiest_says_so():
    loads = {"even": [5, 5, 5, 5], "skewed": [2, 9, 1, 0]}
    even, skewed = draw_loads(loads, capacity_factor=1.25).axes
    assert [bar.get_height() for bar in even.patches] == [1, 1, 1, 1]
    assert [bar.get_height() for bar in skewed.patches] == pytest.approx([2 / 3, 3, 1 / 3, 0])
    assert [text.get_text() for text in skewed.texts] == ["3.00 times"]
    assert [line.get_ydata()[0] for line in skewed.lines] == [1, 1.25]
    assert skewed.patches[1].get_facecolor() != skewed.patches[0].get_facecolor()
    assert [bar.get_height() for bar in draw_loads({"none": [0, 0]}).axes[0].patches] == [0, 0]


def test_numbers_of_experts_read_on_their_colors():
    def light(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    from dlsys.palette import ON_COLORS

    for ground, ink in zip(COLORS, ON_COLORS, strict=True):
        low, high = sorted((light(ground), light(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: draw_dispatch([[[0]] * 5], 2), "2 experts and 5 tokens on each of 1 ranks could not be followed"),
        (lambda: animate_dispatch([[[0]]] * 5, 5), "1 tokens on each of 5 ranks could not"),
        (lambda: draw_dispatch([[[0]]] * 3, 4), "4 experts do not divide by a number of ranks of 3"),
        (lambda: draw_dispatch([[[4]]], 4), "an expert of choices is 4; it must be at most 3"),
        (lambda: draw_dispatch([[]], 4), "choices\\[0\\] is \\[\\]; it must have at least one"),
        (lambda: draw_dispatch([[[0]]], 4, 0), "capacity is 0; it must be a whole number"),
        (lambda: animate_dispatch(CHOICES, 4, seconds=0), "seconds"),
        (lambda: draw_loads({}), "loads is {}; it must have at least one"),
        (lambda: draw_loads({"a": [-1]}), "copies of a is -1"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
