"""Plans that move: one SVG that its own style sheet sets going, and that stands still on paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from itertools import islice

from dlsys import svg
from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.collectives.draw import Panel, panels, title
from dlsys.collectives.motion import ARRIVES, START, Stage
from dlsys.collectives.plan import Plan, Transfer
from dlsys.palette import GRID, GROUND, INK, LINES, MUTED, ON_DARK, ON_LIGHT

MOST_RANKS, MOST_CHUNKS, MOST_ROUNDS = 8, 16, 32

_LOOK = f"""text{{font:12px sans-serif;text-anchor:middle;fill:{INK}}} .h{{text-anchor:start}}
.m{{fill:{MUTED}}} .p{{fill:{LINES[0][0]}}} .f{{fill:{LINES[5][0]}}} .e{{fill:{GRID}}}
text.p{{fill:{ON_DARK}}} text.f{{fill:{ON_LIGHT}}} text.h{{font-size:14px}} text.k{{font-size:11px}}
.b{{fill:{GROUND};stroke:{MUTED}}} .n,.l{{fill:none;stroke:{INK};stroke-width:2}}
.l{{stroke-width:1.3}} .s{{stroke-dasharray:5 3}} .t{{fill:{INK}}} .g path{{stroke:{GROUND}}}
.w,.g{{visibility:hidden;animation:DURATION infinite step-end}}"""
_SWITCH = """.NAME svg{display:block;min-width:540px;max-width:100%;height:auto}
.NAME p{display:none}
@media screen and (prefers-reduced-motion:no-preference){
.NAME p{display:block;margin:0;text-align:start} .NAME label{margin-right:1.5em}
.NAME:has(.pause:checked) *{animation-play-state:paused}
.NAME:not(:has(.all:checked)) .moving{display:inline}
.NAME:not(:has(.all:checked)) .still{display:none}}"""
_PAGE = """<div class="moving-figure NAME" style="overflow-x:auto;color:{ink};background:{ground}">
<style>{style}</style>
{drawn}
<p><label><input type="checkbox" class="pause"/> Pause</label>
<label><input type="checkbox" class="all"/> All rounds side by side</label></p>
</div>"""


@dataclass(frozen=True)
class Animation:
    """The rounds of a plan as an SVG in a page, which plays by itself, again and again.

    It has no script and loads nothing. A reader may pause it, or see the rounds side by side, as
    paper shows them and as whoever asked for less motion sees them.
    """

    label: str
    svg: str
    style: str

    def __repr__(self) -> str:
        return f"<animation: {self.label}>"

    def _repr_html_(self) -> str:
        ground, ink, style = (svg.by_role(part) for part in (GROUND, INK, self.style))
        page = _PAGE.format(ground=ground, ink=ink, style=style, drawn=self.svg)
        return page.replace("NAME", f"plan-{sha256(page.encode()).hexdigest()[:8]}")


@checked
def animate(plan: Plan, seconds: float = 1.5) -> Animation:
    """The rounds of `plan` one after another, each for so many `seconds`.

    Deterministic: the same plan gives the same HTML. Raises ValueError for a plan too large to be
    followed, PlanError for one that cannot be executed.
    """
    positive("seconds", seconds)
    sizes = (plan.ranks, plan.chunks, len(plan.rounds))
    most = (MOST_RANKS, MOST_CHUNKS, MOST_ROUNDS)
    if any(size > limit for size, limit in zip(sizes, most, strict=True)):
        raise ValueError(
            "An animation of {} ranks, {} chunks and {} rounds could not be followed: animate the "
            "same algorithm with 4 ranks, say; {} ranks, {} chunks and {} rounds are the "
            "most.".format(*sizes, *most)
        )
    stage = Stage(plan, panels(plan, most=MOST_ROUNDS + 2))
    told = f"{title(plan)}, {len(plan.rounds)} rounds"
    words = escape(". ".join(_words(state) for state in stage.states[1:]))
    still, moving = "".join(stage.still()), "".join(stage.moving())
    drawn = (
        f'<svg class="plot" role="img" aria-label="{told}" width="{stage.width}" '
        f'viewBox="0 0 {stage.width} {stage.height}"><desc>{words}</desc>\n'
        f'<g class="still">{still}</g>\n<g class="moving" display="none">{moving}</g></svg>'
    )
    return Animation(told, drawn, "\n".join(_sheet(stage, seconds)))


def _sheet(stage: Stage, seconds: float) -> Iterator[str]:
    """The styles; a moment is a share of the whole, after which all begins anew."""
    look = _LOOK.replace("DURATION", f"{stage.last * seconds:g}s").replace("\n", " ")
    for rule in look.split("} "):
        yield ".NAME " + rule.replace(",", ",.NAME ").removesuffix("}") + "}"
    for (begin, end), number in stage.windows.items():
        shows = {begin: "visibility:visible", end: "visibility:hidden"}
        yield f".NAME .w{number}{{animation-name:NAME-{number}}}"
        yield f"@keyframes NAME-{number}{{{_moments(stage, shows)}}}"
    ways = {0: "none", 0.12: "none", 0.3: "translate(var(--b))", 0.68: "translate(var(--c))"}
    moves = {at: f"visibility:visible;transform:{way}" for at, way in ways.items()}
    moves[ARRIVES] = "visibility:visible;transform:translate(var(--d))"
    moves[ARRIVES + 0.01] = "visibility:hidden"
    yield ".NAME .g{animation-name:NAME-go;animation-timing-function:ease-in-out}"
    yield f"@keyframes NAME-go{{{_moments(stage, moves)}}}"
    for index in range(len(stage.plan.rounds)):
        yield f".NAME .g{index}{{animation-delay:{(START + index - stage.last) * seconds:g}s}}"
    yield _SWITCH


def _moments(stage: Stage, looks: dict[float, str]) -> str:
    """The steps of an animation, each given by when it begins, in rounds."""
    return "".join(f"{100 * at / stage.last:.4g}%{{{look}}}" for at, look in looks.items())


def _words(panel: Panel) -> str:
    """A round in words, for readers who hear the picture."""
    told = [
        f"{t.src} sends {_chunks(t)} to {t.dst}{', which adds' * t.reduce}"
        for t in islice(panel.transfers, 8)
    ]
    more = len(panel.transfers) - len(told)
    return f"{panel.title}: {'; '.join(told)}{f'; and {more} more' if more else ''}"


def _chunks(t: Transfer) -> str:
    return f"chunk {t.first}" if t.stop == t.first + 1 else f"chunks {t.first} to {t.stop - 1}"
