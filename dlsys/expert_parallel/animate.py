"""Dispatch and combine as they go: copies leave for their experts' ranks, and come back."""

from __future__ import annotations

from collections.abc import Iterator

from dlsys.annotated import checked
from dlsys.checks import positive
from dlsys.expert_parallel.draw import Choices, Copy, Table, draw_dispatch
from dlsys.moving import ARRIVES, ROW, START, Animation, Stage, rect, text
from dlsys.palette import COLORS, INK, ON_COLORS

# In pixels: the whole, a cell's width, and where the first cell is.
WIDE, CELL, LEFT, TOP = 640, 22, 76, 58
DISPATCH, COMPUTE, COMBINE = START, START + 1, START + 2  # when each round begins
WORDS = {
    0: "start: each token has chosen its experts",
    DISPATCH: "dispatch: copies go to the ranks of their experts",
    COMPUTE: "compute: each expert reads its copies",
    COMBINE: "combine: copies go back, weighed and added up for each token",
    COMBINE + 1: "end",
}
KEY = "beside an expert: the rank that copies are from; outlined: computed; crossed out: dropped"

# x crosses out, and d is the outline of what has been computed.
_STYLE = f""".NAME .x{{stroke:{INK};fill:none}} .NAME .moving .d{{stroke:{INK};stroke-width:2}}
""" + "\n".join(
    f".NAME .c{i}{{fill:{color}}} .NAME .moving text.c{i}{{fill:{ink}}}"
    for i, (color, ink) in enumerate(zip(COLORS, ON_COLORS, strict=True))
)


@checked
def animate_dispatch(
    choices: Choices, experts: int, capacity: int | None = None, seconds: float = 2.0
) -> Animation:
    """What `draw_dispatch` draws, one round after another, each for so many `seconds`.

    Deterministic: the same choices give the same HTML. Raises ValueError as `draw_dispatch` does.
    """
    positive("seconds", seconds)
    table = Table(choices, experts, capacity)
    stage = _Stage(table)
    size = (WIDE, round(TOP + ROW * table.ranks * table.high + 10))
    return stage.animation(
        table.label(), size, stage.parts(), _STYLE, seconds,
        still=lambda: draw_dispatch(choices, experts, capacity),
    )  # fmt: skip


class _Stage(Stage):
    """Each rank is a row: its tokens on the left, its experts on the right."""

    def __init__(self, table: Table) -> None:
        super().__init__(3)
        self.table = table
        self.between = WIDE - LEFT - CELL * table.wide - 8  # tokens and experts

    def at(self, cell: tuple[float, float]) -> tuple[float, float]:
        """The left upper corner of a cell, in pixels."""
        column, row = cell
        right = self.between if column >= self.table.away else 0
        return LEFT + CELL * column + right, TOP + ROW * row

    def parts(self) -> Iterator[str]:
        """What happens when, in words; ranks, experts, copies that rest and copies that go."""
        ends = [*list(WORDS)[1:], self.last]
        for (begin, words), end in zip(WORDS.items(), ends, strict=True):
            yield text(f"h {self.showing(begin, end)}", 8, 18, words)
        for rank in range(self.table.ranks):
            _, y = self.at((0, rank * self.table.high))
            yield rect("b", 8, y - 24, WIDE - 16, ROW * self.table.high - 8)
            yield text("", 40, y + 13, f"rank {rank}")
        for number in range(self.table.experts):
            yield from self.expert(number)
        for copy in self.table.copies:
            yield rect("e", *self.at(self.table.home(copy)), CELL - 2)
        for copy in self.table.copies:
            yield from self.rests(copy)
        for copy in self.table.copies:
            if copy.place is not None:
                home, there = self.at(self.table.home(copy)), self.at(self.table.there(copy))
                yield self.goes("g g0", copy, home, there)
                yield self.goes("g g2", copy, there, home)
        _, y = self.at((0, self.table.ranks * self.table.high))
        yield text("k", 8, y - 6, KEY)

    def expert(self, number: int) -> Iterator[str]:
        """An expert with its empty cells, and from which rank each row of them is."""
        x, y = self.at(self.table.expert(number))
        yield text("k", x, y - 7, f"expert {number}")
        for rank in range(self.table.ranks):
            yield text("m", x - 9, y + ROW * rank + 13, f"{rank}")
            for place in range(self.table.places):
                yield rect("e", x + CELL * place, y + ROW * rank, CELL - 2)

    def rests(self, copy: Copy) -> Iterator[str]:
        """A copy at home, at its expert, and at home again; a dropped one stays."""
        home, there = self.at(self.table.home(copy)), self.at(self.table.there(copy))
        if copy.place is None:
            yield self.cell(self.showing(0, DISPATCH), copy, home)
            x, y = home
            cross = f'<path class="x" d="M{x:.5g} {y + 17:.5g}l20 -17"/>'
            shown = self.showing(DISPATCH, self.last)
            yield f'<g class="{shown}">{text("", x + 10, y + 13, str(copy.expert))}{cross}</g>'
            return
        arrived, left = DISPATCH + ARRIVES, COMBINE + ARRIVES
        yield self.cell(self.showing(0, DISPATCH), copy, home)
        yield self.cell(self.showing(arrived, COMPUTE + 0.5), copy, there)
        yield self.cell(self.showing(COMPUTE + 0.5, COMBINE), copy, there, " d")
        yield self.cell(self.showing(left, self.last), copy, home, " d")

    def cell(self, look: str, copy: Copy, at: tuple[float, float], done: str = "") -> str:
        """A copy as it rests."""
        (x, y), color = at, f"c{copy.expert % len(COLORS)}"
        inside = rect(color + done, x, y, CELL - 2) + text(color, x + 10, y + 13, f"{copy.expert}")
        return f'<g class="{look}">{inside}</g>\n'

    def goes(
        self, look: str, copy: Copy, start: tuple[float, float], stop: tuple[float, float]
    ) -> str:
        """A copy on its way."""
        way = f'" style="--to:{stop[0] - start[0]:.4g}px,{stop[1] - start[1]:.4g}px'
        return self.cell(look + way, copy, start, " d" * (look == "g g2"))
