"""Plans that move: an SVG that its style sheet sets going; on paper stands what `draw` draws."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.collectives.check import states
from dlsys.collectives.draw import draw, title
from dlsys.collectives.plan import REDUCING, Plan, Transfer
from dlsys.moving import ARRIVES, END, ROW, START, Animation, Stage, around, arrow, cell, rect, text
from dlsys.palette import LINES, ON_DARK, ON_LIGHT

MOST_RANKS, MOST_CHUNKS, MOST_ROUNDS = 8, 16, 32

# p is a part of a sum, f what is complete.
_STYLE = f""".NAME .p{{fill:{LINES[0][0]}}} .NAME .moving text.p{{fill:{ON_DARK}}}
.NAME .f{{fill:{LINES[5][0]}}} .NAME .moving text.f{{fill:{ON_LIGHT}}}"""


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
    stage, label = _Stage(plan), f"{title(plan)}, {len(plan.rounds)} rounds"
    size = (stage.width, stage.height)
    return stage.animation(label, size, stage.parts(), _STYLE, seconds, lambda: draw(plan))


class _Stage(Stage):
    """The ranks stand on an ellipse, each a box with a cell for each chunk.

    In a reduction a cell has a slot for each rank, in which its contribution appears.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__(len(plan.rounds))
        self.plan, self.n = plan, plan.ranks
        self.states = [[dict(mine) for mine in held] for held in states(plan)]
        self.slots = self.n if plan.kind in REDUCING else 1
        self.slot = 42 if self.slots == 1 else 14 if self.n <= 4 else 11
        self.margin = 40 if plan.kind == "all_to_all" else 24  # for the chunks' names
        self.wide, self.high = self.margin + self.slots * self.slot + 8, plan.chunks * ROW + 28
        first = math.pi if self.n == 2 else -math.pi / 2  # two stand side by side
        self.width, self.height, self.at = around(self.n, self.wide, self.high, first)

    def parts(self) -> Iterator[str]:
        """The arrows of every round, over them the boxes and what they hold, then the messages."""
        for each in (self.arrows, self.boxes, self.messages, self.key):
            yield from each()

    def arrows(self) -> Iterator[str]:
        """What happens when, in words, and the way of each message."""
        yield text(f"h {self.showing(0, START)}", 8, 18, "start")
        for index, transfers in enumerate(self.plan.rounds):
            words = sorted({"added" if t.reduce else "stored" for t in transfers})
            yield f'<g class="{self.showing(START + index, START + index + 1)}">'
            yield text("h", 8, 18, f"round {index}: what arrives is {' or '.join(words)}")
            yield from (arrow(self.at[t.src], self.at[t.dst]) for t in transfers)
            yield "</g>"
        yield text(f"h {self.showing(self.last - END, self.last)}", 8, 18, "end")

    def boxes(self) -> Iterator[str]:
        """The ranks, and in each cell whose contributions it holds from when to when."""
        for rank, (x, y) in enumerate(self.at):
            yield rect("b", x - self.wide / 2, y - self.high / 2, self.wide, self.high)
            yield text("", x, y - self.high / 2 + 16, f"rank {rank}")
            for chunk in range(self.plan.chunks):
                left, top = self.cell(rank, chunk)
                yield rect("e", left, top, self.slots * self.slot)
                yield text("m", left - self.margin / 2, top + 13, self.name(chunk))
                held = [state[rank].get(chunk, 0) for state in self.states]
                changes = [i for i in range(1, len(held)) if held[i] != held[i - 1]]
                for begin, end in pairwise([0, *changes, len(held)]):
                    since = START + begin - 1 + ARRIVES if begin else 0
                    until = START + end - 1 + ARRIVES if end < len(held) else self.last
                    if held[begin]:
                        yield f'<g class="{self.showing(since, until)}">'
                        yield from self.held(held[begin], left, top)
                        yield "</g>"

    def held(self, mask: int, left: float, top: float) -> Iterator[str]:
        """A slot for each rank whose contribution is in a cell, with its number."""
        for rank in (rank for rank in range(self.n) if mask >> rank & 1):
            x = left + (rank * self.slot if self.slots > 1 else 0)
            yield cell(self.looks(mask), x, top, self.slot, f"{rank}")

    def messages(self) -> Iterator[str]:
        """What goes from a cell to another, under its chunks' numbers."""
        for index, transfers in enumerate(self.plan.rounds):
            for t in transfers:
                (x, y), (u, v) = (self.cell(r, (t.first + t.stop - 1) / 2) for r in (t.src, t.dst))
                look, name = self.looks(self.states[index][t.src][t.first]), self.chunks(t)
                wide, middle = 10 + 6.2 * len(name), x + self.slots * self.slot / 2
                yield f'<g class="g g{index}" style="--to:{u - x:.4g}px,{v - y:.4g}px">'
                yield cell(look, middle - wide / 2, y, wide, name) + "</g>\n"

    def cell(self, rank: int, chunk: float) -> tuple[float, float]:
        """The left upper corner of a chunk's cell."""
        x, y = self.at[rank]
        return x - self.wide / 2 + self.margin, y - self.high / 2 + 24 + chunk * ROW

    def looks(self, mask: int) -> str:
        """The class of what is a part of a sum, or complete."""
        return "f" if mask.bit_count() == self.slots else "p"

    def name(self, chunk: int) -> str:
        """A chunk as a reader calls it: in an all-to-all by whom it is from and for."""
        every_pair = self.plan.kind == "all_to_all"
        return f"{chunk // self.n}→{chunk % self.n}" if every_pair else str(chunk)

    def chunks(self, t: Transfer) -> str:
        first, last = self.name(t.first), self.name(t.stop - 1)
        return f"chunk {first}" if t.stop == t.first + 1 else f"chunks {first}–{last}"

    def key(self) -> Iterator[str]:
        """What the colors mean."""
        sums = {"p": "sum of the ranks named", "f": "complete sum"}
        x, y = 8.0, self.height - 24
        for look, words in (sums if self.slots > 1 else {"f": "from the rank named"}).items():
            yield rect(look, x, y, 26) + text("k", x + 32, y + 13, words)
            x += 50 + 6.5 * len(words)
