"""The ring in motion shows what the ring does: which block is where, and who has attended to it."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch

pytest.importorskip("matplotlib", reason="the book's tools are not installed")

from dlsys import world
from dlsys.context_parallel import animate_ring, draw_lanes, layout
from dlsys.context_parallel import ring as mechanism


class Picture:
    """The animation, read back: what a reader sees at a time, in rounds from the start on."""

    def __init__(self, n):
        self.n, self.rounds = n, range(2 * n + 2)
        self.html = animate_ring(n).html
        self.svg = ElementTree.fromstring(self.html).find("svg")
        groups = self.svg.findall("g[@transform]")
        self.boxes, self.sent = groups[:n], groups[n:]
        rule = r"-(\d+)\{([\d.]+)%\{visibility:visible\}([\d.]+)%\{visibility:hidden\}\}"
        shown = re.findall(rule, self.html)
        self.windows = {f"w{name}": (float(a), float(b)) for name, a, b in shown}

    def visible(self, element, time):
        first, stop = self.windows[element.get("class").split()[-1]]
        return first <= 100 * (1 + time) / (self.rounds.stop + 3) < stop

    def seen(self, me, time):
        """What is visible in the box of a rank at a time: (class, words, corner) of each cell."""
        groups = [g for g in self.boxes[me].findall("g") if self.visible(g, time)]
        for path, text in ((a, b) for g in groups for a, b in zip(g[::2], g[1::2], strict=False)):
            yield path.get("class"), text.text, corner(path)

    def blocks(self, me, time):
        return {words: at for _, words, at in self.seen(me, time) if "kv" in words}

    def works_on(self, me, time):
        """The block beside the queries, while one of the marks is framed."""
        if any(look == "c" for look, *_ in self.seen(me, time)):
            return min(self.blocks(me, time), key=self.blocks(me, time).get)
        return None

    def sends(self, me, index):
        return [g for g in self.sent[me] if g.get("class") == f"g g{index}"]

    def story(self, me):
        """What a rank sends, works on, and has at the end."""
        for index in self.rounds:
            yield from (("sends", g.find("text").text) for g in self.sends(me, index))
            if block := self.works_on(me, index + 0.5):
                yield "works on", block
        yield "has", *self.blocks(me, self.rounds.stop + 1)


def numbers(pattern, words):
    return tuple(map(float, re.findall(pattern, words)))


def corner(path):
    return numbers(r"[M ]([\d.]+)", path.get("d"))


def run(n, monkeypatch):
    """The same, of ranks that run: a block's numbers say whose it is, and how many have added."""
    told, shares = [[] for _ in range(n)], layout(2 * n, n)

    def name(x):
        added, number = divmod(int(x.flatten()[0]), 100)
        return f"dkv {number // added} {added}/{n}" if added else f"kv {number}"

    def pass_on(comm, x, tokens, then=mechanism.pass_on):
        told[comm.rank].append(("sends", name(x)))
        return then(comm, x, tokens)

    def absorb(_, me, owner, q, kv, *rest):
        assert name(kv) == f"kv {owner}"
        told[me].append(("works on", name(kv)))
        return torch.full_like(kv, 100 + owner)

    for function in (pass_on, absorb):
        monkeypatch.setattr(mechanism, function.__name__, function)
    monkeypatch.setattr(mechanism, "absorb_backward", absorb)

    def program(comm):
        x = torch.full((1, 2, 1, 1), float(comm.rank))
        out, lse = mechanism.ring_forward(comm, shares, x, x, x)
        _, dk, _ = mechanism.ring_backward(comm, shares, x, x, x, out, lse, out)
        told[comm.rank].append(("has", name(dk)))

    world.simulate(program, ranks=n)
    return told


@pytest.mark.parametrize("n", [2, 3, 4])
def test_each_rank_sends_works_on_and_ends_with_what_it_does_in_a_run(n, monkeypatch):
    picture = Picture(n)
    assert [[*picture.story(me)] for me in range(n)] == run(n, monkeypatch)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_lanes_have_what_rank_0_does_in_the_rounds_of_a_backward_pass(n, monkeypatch):
    told = run(n, monkeypatch)[0][:-1]
    works = [i for i, (what, _) in enumerate(told) if what == "works on"]
    step, expected = 0, set()
    for what, words in told[works[n - 1] + 1 :]:
        expected.add((what == "works on", step, " ".join(words.split()[:2])))
        step += what == "works on"
    (axes,) = draw_lanes(n).axes
    drawn = [(text.get_position(), text.get_text()) for text in axes.texts]
    assert {(y < 1, int(x), words) for (x, y), words in drawn} == expected


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_mark_is_filled_when_its_keys_are_done_not_when_they_come(n):
    picture = Picture(n)

    def filled(me, time):
        return {
            words for look, words, _ in picture.seen(me, time) if words.isdigit() and look != "c"
        }

    for me in range(n):
        for first in (0, n + 1):
            done = set()
            for index in range(first, first + n):
                assert filled(me, index + 0.99) == done
                done.add(picture.works_on(me, index + 0.5).removeprefix("kv "))
            assert filled(me, first + n + 0.01) == done == {str(owner) for owner in range(n)}


@pytest.mark.parametrize("n", [2, 3, 8])
def test_what_travels_lands_where_it_then_stands(n):
    picture = Picture(n)
    places = [numbers(r"(-?[\d.]+)[ )]", g.get("transform")) for g in picture.boxes]
    for me in range(n):
        right = (me + 1) % n
        for index in picture.rounds:
            for g in picture.sends(me, index):
                path, words, way = g[0], g[1].text, numbers(r"(-?[\d.]+)px", g.get("style"))
                landed = zip(places[me], corner(path), way, places[right], strict=True)
                there = picture.blocks(right, index + 0.95)[words]
                assert [a + b + c - d for a, b, c, d in landed] == pytest.approx(there, abs=0.2)


def test_one_line_at_a_time_tells_the_round_and_fits():
    picture = Picture(8)
    lines = [each for each in picture.svg.findall("text") if each.get("class").startswith("h ")]
    for time in (-0.5, *(index + 0.5 for index in picture.rounds), picture.rounds.stop + 1):
        (line,) = (each.text for each in lines if picture.visible(each, time))
        assert len(line) < 85
    assert lines[2].text.startswith("round 1: each rank attends to the keys of its left neighbor")


def test_the_page_asks_for_nothing_and_has_the_rounds_side_by_side():
    picture = Picture(4)
    assert picture.html == animate_ring(4).html, "the same every time"
    assert len(picture.html) < 60_000
    assert not re.search(r"script|src=|http|@import|\bon\w+=", picture.html)
    still = ElementTree.fromstring(picture.html).find("div[@class='still']")
    texts = [text.text for text in still.iter("text")]
    assert texts.count("round 3") == 2
    assert [texts.count(f"dkv 2 {added}/4") for added in (1, 2, 3, 4)] == [1, 1, 1, 2]
    assert texts.count("kv 2") == 8
    assert texts.count("2") == 4 + 3 + 2 + 1


def test_rings_that_could_not_be_followed_are_refused():
    with pytest.raises(ValueError, match="ranks is 9; it must be at most 8"):
        animate_ring(9)
    with pytest.raises(ValueError, match="ranks is 1; it must be a whole number of at least 2"):
        animate_ring(1)
    with pytest.raises(ValueError, match="seconds"):
        animate_ring(4, seconds=0)
