"""Pictures that move in a page: an SVG that a style sheet sets going, and a still beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import TYPE_CHECKING

from dlsys import svg
from dlsys.palette import GRID, GROUND, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START, END, ARRIVES = 1, 2, 0.85  # in rounds: how long both ends last, and when what goes is there
ROW = 20  # pixels from cell to cell

# `w` comes and goes, `g` goes to where --to says.
_STYLE = f""".NAME svg{{display:block;min-width:540px;max-width:100%;height:auto}}
.NAME .moving,.NAME p{{display:none}}
.NAME .moving text{{font:12px sans-serif;text-anchor:middle;fill:{INK}}}
.NAME .moving .h{{font-size:14px;text-anchor:start}} .NAME .moving .k{{text-anchor:start}}
.NAME .moving .m{{fill:{MUTED}}} .NAME .e{{fill:{GRID}}} .NAME .l{{fill:{INK};stroke:{INK}}}
.NAME .b{{fill:{GROUND};stroke:{MUTED}}} .NAME .g path{{stroke:{GROUND}}}
.NAME .w,.NAME .g{{visibility:hidden;animation:DURATIONs infinite step-end}}
.NAME .g{{animation-name:NAME-go;animation-timing-function:ease-in-out}}
@media screen and (prefers-reduced-motion:no-preference){{
.NAME p{{display:block;margin:0;text-align:start}} .NAME label{{margin-right:1.5em}}
.NAME:has(.pause:checked) *{{animation-play-state:paused}}
.NAME:not(:has(.all:checked)) .moving{{display:block}}
.NAME:not(:has(.all:checked)) .still{{display:none}}}}"""
_PAGE = """<div class="moving-figure NAME" style="overflow-x:auto;color:{ink};background:{ground}">
<style>{style}</style>
{moving}
<div class="still">{still}</div>
<p><label><input type="checkbox" class="pause"/> Pause</label>
<label><input type="checkbox" class="all"/> All rounds side by side</label></p>
</div>"""


@dataclass(frozen=True)
class Animation:
    """Rounds in a page, one after another, again and again.

    It has no script and loads nothing. A reader may pause it, or see the rounds side by side, as
    paper shows them and as whoever asked for less motion sees them.
    """

    label: str
    html: str

    def __repr__(self) -> str:
        return f"<animation: {self.label}>"

    def _repr_html_(self) -> str:
        return self.html


class Stage:
    """What shows when, and what goes when, of so many rounds between a start and an end."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.last = rounds, START + rounds + END
        self.windows: dict[tuple[float, float], int] = {}  # from when to when something shows

    def showing(self, begin: float, end: float) -> str:
        """The classes of what shows from one time to another, in rounds."""
        return f"w w{self.windows.setdefault((begin, end), len(self.windows))}"

    def keyframes(self, seconds: float) -> Iterator[str]:
        """The rules of what shows when, and of how what has the class g0, g1, ... goes."""
        for (begin, end), number in self.windows.items():
            shows = {begin: "visibility:visible", end: "visibility:hidden"}
            yield f"\n.NAME .w{number}{{animation-name:NAME-{number}}}"
            yield f"@keyframes NAME-{number}{{{self.moments(shows)}}}"
        goes = {0: "none", 0.12: "none", ARRIVES: "translate(var(--to))"}
        moves = {at: f"visibility:visible;transform:{way}" for at, way in goes.items()}
        moves[ARRIVES + 0.01] = "visibility:hidden"
        yield f"\n@keyframes NAME-go{{{self.moments(moves)}}}"
        for index in range(self.rounds):
            delay = (START + index - self.last) * seconds
            yield f"\n.NAME .g{index}{{animation-delay:{delay:g}s}}"

    def moments(self, looks: dict[float, str]) -> str:
        """The steps of an animation, each given by when it begins: in rounds, then in percent."""
        return "".join(f"{100 * at / self.last:.4g}%{{{look}}}" for at, look in looks.items())

    def animation(
        self,
        label: str,
        size: tuple[int, int],
        parts: Iterable[str],
        style: str,
        seconds: float,
        still: Callable[[], Figure],
    ) -> Animation:
        """The page of `parts`, in pixels, with rules of their own, and the figure for paper."""
        wide, high = size
        told = f'role="img" aria-label="{label}" width="{wide}" viewBox="0 0 {wide} {high}"'
        moving = f'<svg class="plot moving" {told}>{"".join(parts)}</svg>'
        rules = f"{_STYLE}\n{style}".replace("DURATION", f"{self.last * seconds:g}")
        rules += "".join(self.keyframes(seconds))
        name = f"plan-{sha256((moving + rules).encode()).hexdigest()[:8]}"
        ground, ink, rules = (svg.by_role(part) for part in (GROUND, INK, rules))
        drawn = svg.inline(svg.drawn(still), label, name)
        page = _PAGE.format(ground=ground, ink=ink, style=rules, moving=moving, still=drawn)
        return Animation(label, page.replace("NAME", name))


def rect(look: str, left: float, top: float, wide: float, high: float = ROW - 3) -> str:
    """A rectangle of this class, from its left upper corner on."""
    return f'<path class="{look}" d="M{left:.5g} {top:.5g}h{wide:.5g}v{high:.5g}h-{wide:.5g}z"/>'


def text(look: str, x: float, y: float, words: str) -> str:
    """Words of this class, on a line at y."""
    return f'<text class="{look}" x="{x:.5g}" y="{y:.5g}">{words}</text>'


def cell(look: str, left: float, top: float, wide: float, words: str, high: float = ROW - 3) -> str:
    """A rectangle with words in its middle, both of this class."""
    return rect(look, left, top, wide, high) + text(
        look, left + wide / 2, top + high / 2 + 4.5, words
    )


def around(
    count: int, wide: float, high: float, first: float
) -> tuple[int, int, list[tuple[float, float]]]:
    """Width and height of a stage, and the middles of boxes that stand on an ellipse, clockwise.

    first: the angle of the first, -pi / 2 at the top. There is room for a line above and below.
    """
    turns = [first + 2 * math.pi * each / count for each in range(count)]
    points, size = [(1.9 * math.cos(turn), math.sin(turn)) for turn in turns], 60
    while any(
        abs(a[0] - b[0]) * size < wide + 110 and abs(a[1] - b[1]) * size < high + 60
        for a, b in combinations(points, 2)
    ):
        size += 5
    xs, ys = ([point[axis] * size for point in points] for axis in (0, 1))
    width = max(640, math.ceil(max(xs) - min(xs) + wide + 16))
    height = math.ceil(max(ys) - min(ys) + high + 72)
    right, down = (width - max(xs) - min(xs)) / 2, high / 2 + 34 - min(ys)
    return (
        width,
        height,
        [(round(x + right, 1), round(y + down, 1)) for x, y in zip(xs, ys, strict=True)],
    )


def arrow(begin: tuple[float, float], end: tuple[float, float]) -> str:
    """A line between the middles of two boxes; its head is halfway, where no box covers it, and a
    little beyond, so that the heads of two that swap are apart."""
    (x, y), (u, v) = begin, end
    half, turn = math.hypot(u - x, v - y) / 2, math.degrees(math.atan2(v - y, u - x))
    place = f"translate({(x + u) / 2:.5g} {(y + v) / 2:.5g}) rotate({turn:.4g})"
    return f'<path class="l" transform="{place}" d="M-{half:.5g} 0H{half:.5g}M14 0L3 5V-5z"/>'
