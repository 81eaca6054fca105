"""Plans that move: every message moves, every cell ends as the plan does, and the page needs nothing else."""

from __future__ import annotations

import functools
import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="the book's tools are not installed")

from dlsys.collectives import (
    halving_doubling_all_reduce,
    naive_all_reduce,
    pairwise_all_to_all,
    plan_for,
    ring_all_reduce,
    ring_broadcast,
    tree_all_reduce,
)
from dlsys.collectives.check import states

PLANS = [
    ring_all_reduce(4),
    halving_doubling_all_reduce(4),
    tree_all_reduce(4),
    ring_broadcast(4),
    naive_all_reduce(3),
    pairwise_all_to_all(4),
    plan_for("gather", 6, root=2),
    ring_all_reduce(2),
    ring_all_reduce(5),
    ring_all_reduce(1),
]


@functools.cache
def shown(plan, **options):
    return plan.draw(animate=True, **options)._repr_html_()


def parts(html):
    """The page as XML, and its two pictures: what moves, and the rounds side by side."""
    root = ElementTree.fromstring(html)
    moving, still = root.find("svg"), root.find("div[@class='still']")
    return root, moving, still


def windows(html):
    """From which to which share of the whole each class of what comes and goes is visible."""
    rule = (
        r"keyframes plan-\w+-(\d+)\{([\d.]+)%\{visibility:visible\}([\d.]+)%\{visibility:hidden\}\}"
    )
    return {f"w{name}": (float(first), float(last)) for name, first, last in re.findall(rule, html)}


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_every_message_moves_once_in_its_round_under_its_chunks_numbers(plan):
    _, moving, _ = parts(shown(plan))
    moved = [
        (g.get("class").split()[1], g.find("text").text)
        for g in moving.findall("g")
        if g.get("class").startswith("g ")
    ]

    def name(chunk):
        n = plan.ranks
        return f"{chunk // n}→{chunk % n}" if plan.kind == "all_to_all" else str(chunk)

    assert sorted(moved) == sorted(
        (
            f"g{k}",
            f"chunk {name(t.first)}"
            if t.stop == t.first + 1
            else f"chunks {name(t.first)}–{name(t.stop - 1)}",
        )
        for k, transfers in enumerate(plan.rounds)
        for t in transfers
    )


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_at_every_time_the_cells_hold_what_the_plan_gives_them(plan):
    html = shown(plan)
    _, moving, _ = parts(html)
    when, last = windows(html), 1 + len(plan.rounds) + 2
    cells = [
        (*when[g.get("class").split()[1]], "".join(text.text for text in g.findall("text")))
        for g in moving.findall("g")
        if g.get("class").startswith("w ") and g[0].get("class") in "pf"
    ]
    looks = {path.get("class") for path in moving.iter("path")}
    assert ("p" in looks) == (plan.kind == "all_reduce" and plan.ranks > 1), "a part of a sum"
    for index, held in enumerate(states(plan)):
        now = 100 * (index + 0.95) / last  # everything of the round before has arrived
        seen = sorted(text for first, stop, text in cells if first <= now < stop)
        masks = [mask for mine in held for mask in mine.values()]
        assert seen == sorted(
            "".join(str(r) for r in range(plan.ranks) if mask >> r & 1) for mask in masks
        )


def test_a_message_goes_from_the_cell_that_sends_it_to_the_cell_that_takes_it():
    # Ranks 0 to 3 stand at the top, on the right, below and on the left.
    _, moving, _ = parts(shown(ring_all_reduce(4)))
    to = [g.get("style") for g in moving.findall("g") if g.get("class") == "g g0"]
    messages = [g for g in moving.findall("g") if g.get("class").startswith("g ")]
    assert [g.find("path").get("class") for g in messages] == 12 * ["p"] + 12 * ["f"]
    ways = [tuple(map(float, re.findall(r"(-?[\d.]+)px", style))) for style in to]
    assert [(x > 0, y > 0) for x, y in ways] == [(1, 1), (0, 1), (0, 0), (1, 0)]
    boxes = [path.get("d") for path in moving.findall("path") if path.get("class") == "b"]
    at = [tuple(map(float, re.match(r"M([\d.]+) ([\d.]+)", way).groups())) for way in boxes]
    for rank, way in enumerate(ways):
        across = [b - a for a, b in zip(at[rank], at[(rank + 1) % 4], strict=True)]
        assert way == pytest.approx(across, abs=0.1)


def test_beside_it_stand_the_rounds_as_they_are_drawn():
    _, _, still = parts(shown(ring_all_reduce(4)))
    texts = [text.text for text in still.iter("text")]
    assert [each for each in texts if each.startswith(("start", "round"))] == [
        "start",
        *(f"round {k}" for k in range(6)),
    ]
    assert texts.count("all") == 4 + 8 + 12 + 16


@pytest.mark.parametrize("plan", PLANS, ids=repr)
def test_the_page_asks_for_nothing_and_names_nothing_that_another_figure_has(plan):
    html = shown(plan)
    assert plan.ranks > 4 or html == shown.__wrapped__(plan), "the same every time"
    root, *_ = parts(html)
    assert not re.search(r"script|src=|http|@import|\bon\w+=", html)
    (name,) = set(re.findall(r"plan-[0-9a-f]{8}", html))
    for own in re.findall(r'\bid="([^"]*)"|url\(#([^)]*)\)|href="#([^"]*)"', html):
        assert "".join(own).startswith(name)
    sheet = root.find("style").text
    rules = re.sub(r"@keyframes [^\n]*|@media[^\n]*", "", sheet)
    for selectors in re.findall(r"([^{}]+)\{", rules):
        assert all(f".{name}" in each for each in re.sub(r"\([^)]*\)", "", selectors).split(","))
    assert all(name in frames for frames in re.findall(r"@keyframes (\S+)\{", sheet))


def test_other_plans_and_other_speeds_have_other_names():
    pages = [
        shown(ring_all_reduce(4)),
        shown(tree_all_reduce(4)),
        shown(tree_all_reduce(4), seconds=1),
    ]
    assert len({re.search(r"plan-\w+", page).group() for page in pages}) == 3
    assert "animation:10.5s infinite" in pages[1], "four rounds, one before and two after them"
    assert "animation:7s infinite" in pages[2]
    assert len(pages[0]) < 60_000


def test_it_moves_only_on_a_screen_whose_reader_has_not_asked_for_less_motion():
    html = shown(ring_all_reduce(4))
    before, _, after = html.partition("@media screen and (prefers-reduced-motion:no-preference){")
    assert re.search(r"\.moving,\.plan-\w+ p\{display:none\}", before)
    assert ".moving{display:block}" not in before
    assert after.index(".moving{display:block}") < after.index("</style>")
    assert "animation-play-state:paused" in after


def test_a_page_gives_it_its_own_description():
    figures = pytest.importorskip("dlsys.notebook.book.figures", reason="only the book has pages")
    html = shown(ring_all_reduce(3))
    assert 'aria-label="ring all-reduce among 3 ranks, 4 rounds"' in html
    assert figures._MOVING.sub(r"\1told", html).count('aria-label="told"') == 1


def test_a_plan_too_large_to_follow_is_refused_with_the_limits():
    with pytest.raises(
        ValueError, match=r"of 9 ranks, 9 chunks and 16 .* 8 ranks, 16 chunks and 32"
    ):
        ring_all_reduce(9).draw(animate=True)
    with pytest.raises(ValueError, match="of 4 ranks, 17 chunks"):
        ring_broadcast(4, chunks=17).draw(animate=True)
    with pytest.raises(ValueError, match="seconds"):
        ring_all_reduce(4).draw(animate=True, seconds=0)
