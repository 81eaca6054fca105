"""The pictures of a plan that moves: what stands where, and from when to when it shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from dlsys.collectives.draw import Panel
from dlsys.collectives.plan import REDUCING, Plan, Transfer

MOST_STILLS = 8
START, END, ARRIVES = 1, 2, 0.85  # in rounds: how long both ends last, and when a cell changes
ROW, LANE = 20, 20  # pixels from cell to cell, and from arrow to arrow between the same two ranks
Point = tuple[float, float]


class Stage:
    """The ranks stand on an ellipse, where none is between two others: arrows are straight."""

    def __init__(self, plan: Plan, states: Sequence[Panel]) -> None:
        self.plan, self.states, self.n = plan, states, plan.ranks
        self.slots = self.n if plan.kind in REDUCING else 1
        self.slot = 42 if self.slots == 1 else 14 if self.n <= 4 else 11
        self.margin = 40 if plan.kind == "all_to_all" else 24  # for the chunks' names
        self.wide, self.high = self.margin + self.slots * self.slot + 8, plan.chunks * ROW + 28
        first = math.pi if self.n == 2 else -math.pi / 2  # two stand side by side
        turns = [first + 2 * math.pi * rank / self.n for rank in range(self.n)]
        around, size = [(1.9 * math.cos(turn), math.sin(turn)) for turn in turns], 60
        while any(
            abs(a[0] - b[0]) * size < self.wide + 110 and abs(a[1] - b[1]) * size < self.high + 60
            for a, b in combinations(around, 2)
        ):
            size += 5
        xs, ys = ([point[axis] * size for point in around] for axis in (0, 1))
        self.width = max(640, math.ceil(max(xs) - min(xs) + self.wide + 16))
        self.height = math.ceil(max(ys) - min(ys) + self.high + 72)
        right, down = (self.width - max(xs) - min(xs)) / 2, self.high / 2 + 34 - min(ys)
        self.at = [(x + right, y + down) for x, y in zip(xs, ys, strict=True)]
        self.windows: dict[tuple[float, float], int] = {}  # from when to when something shows
        self.last = START + len(plan.rounds) + END

    def showing(self, begin: float, end: float) -> str:
        """The classes of what shows from one time to another, in rounds."""
        return f"w w{self.windows.setdefault((begin, end), len(self.windows))}"

    def moving(self) -> Iterator[str]:
        """The boxes, what is in them from when to when, and over them each round's messages."""
        for rank, (x, y) in enumerate(self.at):
            cells = [self.cell(rank, chunk) for chunk in range(self.plan.chunks)]
            yield _path("b", _box(x - self.wide / 2, y - self.high / 2, self.wide, self.high))
            yield _path("e", *(_box(*cell, self.slots * self.slot) for cell in cells))
            yield _text("", x, y - self.high / 2 + 16, f"rank {rank}")
            for chunk, cell in enumerate(cells):
                yield _text("m", cell[0] - self.margin / 2, cell[1] + 13, self.name(chunk))
                held = [state.held[rank].get(chunk, 0) for state in self.states]
                changes = [i for i in range(1, len(held)) if held[i] != held[i - 1]]
                for begin, end in pairwise([0, *changes, len(held)]):
                    since = START + begin - 1 + ARRIVES if begin else 0
                    until = START + end - 1 + ARRIVES if end < len(held) else self.last
                    if held[begin]:
                        yield f'<g class="{self.showing(since, until)}">'
                        yield f"{self.held(held[begin], *cell)}</g>"
        yield _text(f"h {self.showing(0, START)}", 8, 18, "start")
        kinds = set()
        for index, (before, state) in enumerate(pairwise(self.states)):
            words = sorted({"added" if t.reduce else "stored" for t in state.transfers})
            kinds.update(words)
            told = f"{state.title}: what arrives is {' or '.join(words)}" if words else state.title
            yield f'<g class="{self.showing(START + index, START + index + 1)}">'
            yield _text("h", 8, 18, told)
            ways = [(t, *self.way(t, lane)) for t, lane in _lanes(state.transfers)]
            yield from (_arrow(t.reduce, *ends) for t, *ends in ways)
            yield "</g>"
            for t, *ends in ways:
                yield self.message(index, t, before.held[t.src][t.first], *ends)
        yield _text(f"h {self.showing(self.last - END, self.last)}", 8, 18, "end")
        yield from self.key({f"{kind} on arrival": kind for kind in sorted(kinds)})

    def cell(self, rank: int, chunk: float) -> Point:
        """The left upper corner of a chunk's cell."""
        x, y = self.at[rank]
        return x - self.wide / 2 + self.margin, y - self.high / 2 + 24 + chunk * ROW

    def held(self, mask: int, left: float, top: float) -> str:
        """What a cell holds: a slot for each rank whose contribution is in it, with its number."""
        ranks = [r for r in range(self.n) if mask >> r & 1]
        slots = range(1) if self.slots == 1 else ranks
        boxes = [_box(left + slot * self.slot, top, self.slot) for slot in slots]
        middles = " ".join(f"{left + (slot + 0.5) * self.slot:g}" for slot in slots)
        return _path(self.looks(mask), *boxes) + _text(
            self.looks(mask), middles, top + 13, "".join(map(str, ranks))
        )

    def looks(self, mask: int) -> str:
        """The class of a cell: empty, a part of what it is to be, or in full."""
        whole = mask.bit_count() == self.slots
        return "f" if whole else "p" if mask else "e"

    def name(self, chunk: int) -> str:
        """A chunk as a reader calls it: in an all-to-all by whom it is from and for."""
        every_pair = self.plan.kind == "all_to_all"
        return f"{chunk // self.n}→{chunk % self.n}" if every_pair else str(chunk)

    def way(self, t: Transfer, lane: float) -> tuple[Point, Point]:
        """Where an arrow begins and ends: at the two boxes, and beside the line between them."""
        (x, y), (u, v) = self.at[t.src], self.at[t.dst]
        far = math.hypot(u - x, v - y)
        dx, dy = (u - x) / far, (v - y) / far
        aside = (-dy * lane, dx * lane) if t.src < t.dst else (dy * lane, -dx * lane)

        def out(ahead: float) -> float:  # how far from the middle of a box its edge is
            sides = zip((dx, dy), (self.wide, self.high), aside, strict=True)
            return min(
                (side / 2 - math.copysign(1, ahead * d) * off) / abs(d)
                for d, side, off in sides
                if abs(d) > 1e-9
            )

        near, there = out(1) + 4, out(-1) + 4
        return (
            (x + aside[0] + dx * near, y + aside[1] + dy * near),
            (u + aside[0] - dx * there, v + aside[1] - dy * there),
        )

    def message(
        self,
        index: int,
        t: Transfer,
        mask: int,
        begin: tuple[float, float],
        end: tuple[float, float],
    ) -> str:
        """What moves from a cell along the arrow to the other cell: the chunks' numbers."""
        last = t.stop - 1
        names = f"chunk {self.name(t.first)}"
        if last > t.first:
            names = f"chunks {self.name(t.first)}–{self.name(last)}"
        wide, half = 10 + 6.2 * len(names), self.slots * self.slot / 2
        (x, y), (u, v) = (self.cell(rank, (t.first + last) / 2) for rank in (t.src, t.dst))
        stops = [(begin[0] - x - half, begin[1] - y - 9), (end[0] - x - half, end[1] - y - 9)]
        steps = zip("bcd", [*stops, (u - x, v - y)], strict=True)
        style = ";".join(f"--{step}:{dx:.4g}px,{dy:.4g}px" for step, (dx, dy) in steps)
        shown = _path(self.looks(mask), _box(x + half - wide / 2, y, wide))
        shown += _text(self.looks(mask), x + half, y + 13, names)
        return f'<g class="g g{index}" style="{style}">{shown}</g>\n'

    def still(self) -> Iterator[str]:
        """The rounds side by side: columns are ranks, rows chunks, and what is new has a frame."""
        count = min(len(self.states), MOST_STILLS)
        every = max(1, count - 1)
        shown = [self.states[round(i * (len(self.states) - 1) / every)] for i in range(count)]
        margin = self.margin + 32  # for what the rows and columns are
        wide, high = self.n * 38 + margin + 16, self.plan.chunks * ROW + 48
        scale, columns = max(
            (min(self.width / wide / k, (self.height - 30) / high / math.ceil(count / k), 1), k)
            for k in range(1, count + 1)
        )
        for index, state in enumerate(shown):
            x, y = index % columns * wide * scale, index // columns * high * scale
            yield f'<g transform="translate({x:.4g},{y:.4g}) scale({scale:.3g})">'
            yield _text("h", margin, 16, state.title)
            yield _text("m", margin / 2, 34, "rank")
            yield from (_text("m", margin + 38 * r + 17, 34, f"{r}") for r in range(self.n))
            for chunk in range(self.plan.chunks):
                top = 40 + chunk * ROW
                yield _text("m", margin / 2, top + 13, f"chunk {self.name(chunk)}")
                for rank in range(self.n):
                    left, mask = margin + 38 * rank, state.held[rank].get(chunk, 0)
                    new = any(t.dst == rank and t.first <= chunk < t.stop for t in state.transfers)
                    yield _path(self.looks(mask), _box(left, top, 34))
                    yield _text(self.looks(mask), left + 17, top + 13, self.whose(mask))
                    yield _path("n", _box(left, top, 34)) if new else ""
            yield "</g>"
        yield from self.key({"has just arrived": "n"})

    def whose(self, mask: int) -> str:
        """Whose contributions, where there is room for a few; otherwise how many."""
        ranks = [str(r) for r in range(self.n) if mask >> r & 1]
        if len(ranks) == self.slots > 1:
            return "all"
        return ",".join(ranks) if len(ranks) <= 3 else f"{len(ranks)}/{self.n}"

    def key(self, more: dict[str, str]) -> Iterator[str]:
        """What the colors mean, and frames or arrows: their words and kinds are in `more`."""
        sums = {"sum of the ranks named": "p", "complete sum": "f"}
        x, y = 8, self.height - 24
        for words, kind in {
            **(sums if self.slots > 1 else {"from the rank named": "f"}),
            **more,
        }.items():
            arrow = kind in {"added", "stored"}
            yield (
                _arrow(kind == "added", (x, y + 9), (x + 26, y + 9))
                if arrow
                else _path(kind, _box(x, y, 26))
            )
            yield _text("h k", x + 32, y + 13, words)
            x += 50 + round(5.9 * len(words))


def _lanes(transfers: Sequence[Transfer]) -> Iterator[tuple[Transfer, float]]:
    """Every message with how far its arrow lies beside the line between the two ranks."""
    between: dict[frozenset[int], list[Transfer]] = {}
    for t in transfers:
        between.setdefault(frozenset((t.src, t.dst)), []).append(t)
    for together in between.values():
        for index, t in enumerate(together):
            yield t, (index - (len(together) - 1) / 2) * LANE


def _arrow(reduce: bool, begin: Point, end: Point) -> str:
    """Solid where the receiver adds, dashed where it stores."""
    (x, y), (u, v) = begin, end
    far = math.hypot(u - x, v - y)
    dx, dy = 8 * (u - x) / far, 8 * (v - y) / far
    head = f"M{u:.5g} {v:.5g}L{u - dx - dy / 2:.5g} {v - dy + dx / 2:.5g}L"
    head += f"{u - dx + dy / 2:.5g} {v - dy - dx / 2:.5g}z"
    line = f"M{x:.5g} {y:.5g}L{u - dx:.5g} {v - dy:.5g}"
    return _path("l" if reduce else "l s", line) + _path("t", head)


def _box(left: float, top: float, wide: float, high: float = ROW - 3) -> str:
    return f"M{left:.5g} {top:.5g}h{wide:.5g}v{high:.5g}h-{wide:.5g}z"


def _path(look: str, *ways: str) -> str:
    return f'<path class="{look}" d="{"".join(ways)}"/>'


def _text(look: str, x: float | str, y: float, words: str) -> str:
    at = x if isinstance(x, str) else f"{x:.5g}"
    return f'<text class="{look}" x="{at}" y="{y:.5g}">{words}</text>' if words else ""
