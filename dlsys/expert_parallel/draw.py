"""Pictures of expert parallelism: copies at their experts, and how unequally experts are loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlsys.annotated import checked
from dlsys.checks import at_least, count, divisor, positive, some
from dlsys.figures import area, block, closed_figure, lanes, time_unit
from dlsys.palette import COLORS, GRID, GROUND, INK, MUTED
from dlsys.streams import Overlap, Streams
from dlsys.units import format_seconds

MOST_RANKS, MOST_TOKENS, MOST_EXPERTS, MOST_COPIES = 4, 4, 8, 12
Choices = Sequence[Sequence[Sequence[int]]]


class Copy(NamedTuple):
    """The i-th copy of a rank's token, and its place among those of its rank that its expert reads;
    None where it is dropped."""

    rank: int
    token: int
    i: int
    expert: int
    place: int | None


class Table:
    """Where copies lie, as (column, row) of cells: at home, and at their experts, a row of cells
    for each rank that they are from. Ranks stand under each other."""

    def __init__(self, choices: Choices, experts: int, capacity: int | None) -> None:
        some("choices", choices)
        some("choices[0]", choices[0])
        self.ranks, self.experts = len(choices), count("experts", experts)
        self.tokens = max(map(len, choices))
        if self.ranks > MOST_RANKS or self.tokens > MOST_TOKENS or self.experts > MOST_EXPERTS:
            raise ValueError(
                f"{self.experts} experts and {self.tokens} tokens on each of {self.ranks} ranks "
                f"could not be followed: draw 4 experts and 3 tokens on 4 ranks, say; "
                f"{MOST_EXPERTS} experts and {MOST_TOKENS} tokens on {MOST_RANKS} ranks are the "
                "most."
            )
        self.held = experts // divisor("number of ranks", self.ranks, {"experts": experts})
        self.k = max(len(token) for tokens in choices for token in tokens)
        most = None if capacity is None else count("capacity", capacity)
        self.copies = [*self._copies(choices, most)]
        asked = Counter((copy.rank, copy.expert) for copy in self.copies)
        needed = max(asked.values(), default=1)
        self.places = needed if most is None else min(most, max(needed, self.tokens))
        self.high = 1.8 + max(self.k, self.ranks)  # rows of a rank, with what is around them
        self.apart = 1.25  # from token to token
        self.away = self.tokens * self.apart + 1.5  # the column where experts begin
        self.step = max(2, self.places) + 1.3  # from expert to expert
        self.wide = self.away + self.held * self.step

    def _copies(self, choices: Choices, most: int | None) -> Iterator[Copy]:
        """Each copy; an expert keeps the first `most` of each rank's, as `routing.drop` does."""
        for rank, tokens in enumerate(choices):
            read = [0] * self.experts
            for token, chosen in enumerate(tokens):
                for i, given in enumerate(chosen):
                    expert = count("an expert of choices", given, 0, self.experts - 1)
                    place = None if most is not None and read[expert] >= most else read[expert]
                    read[expert] += place is not None
                    yield Copy(rank, token, i, expert, place)

    def home(self, copy: Copy) -> tuple[float, float]:
        """Its cell on its own rank: a column for each token."""
        return self.apart * copy.token, self.high * copy.rank + copy.i

    def expert(self, number: int) -> tuple[float, float]:
        """The first cell of an expert."""
        rank, place = divmod(number, self.held)
        return self.away + place * self.step, self.high * rank

    def there(self, copy: Copy) -> tuple[float, float]:
        """Its cell at its expert."""
        column, row = self.expert(copy.expert)
        return column + (copy.place or 0), row + copy.rank

    def label(self) -> str:
        """The picture in words."""
        dropped = sum(copy.place is None for copy in self.copies)
        return (
            f"{len(self.copies)} copies of the tokens of {self.ranks} rank{'s' * (self.ranks > 1)} "
            f"go to {self.experts} experts and come back, but for {dropped} dropped"
        )


@checked
def draw_dispatch(choices: Choices, experts: int, capacity: int | None = None) -> Figure:
    """Copies as they were chosen, at their experts, and back: choices[rank][token] are experts.

    A copy has the number and the color of its expert. An expert has a row for each rank that copies
    come from. `capacity`: the most that it reads of each rank's, the first ones; others, crossed
    out, are dropped. Raises ValueError as `count_copies` does, and for more than can be followed.
    """
    table = Table(choices, experts, capacity)
    last = max(table.wide + 0.7, table.away + 6)  # the column where what has come back begins
    across, down = last + table.tokens * table.apart + 0.3, table.ranks * table.high
    figure, (axes,) = closed_figure(0.25 * (across + 4), 0.25 * (down + 1.8))
    for rank in range(table.ranks):
        top = rank * table.high - 1.1
        block(axes, (-0.5, top), across + 0.5, table.high - 0.3, "", facecolor="none")
        axes.text(-0.8, top + table.high / 2, f"rank {rank}", ha="right", va="center")
    for expert in range(table.experts):
        _expert(axes, table, expert)
    for copy in table.copies:
        (x, y), at = table.home(copy), table.there(copy)
        _cell(axes, (x, y), copy)
        _cell(axes, (x + last, y), copy, back=True)
        if copy.place is not None:
            _cell(axes, at, copy)
    for x, words in ((0, "chosen"), (table.away, "at the experts"), (last, "back")):
        axes.text(x, -1.8, words, va="center")
    axes.set_xlim(-3.7, across + 0.2)
    axes.set_ylim(down - 1.2, -2.4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def _expert(axes: Axes, table: Table, number: int) -> None:
    """An expert with its empty cells, and from which rank each row of them is."""
    x, y = table.expert(number)
    axes.text(x, y - 0.5, f"expert {number}", va="center", fontsize="small")
    for rank in range(table.ranks):
        at = x - 0.2, y + rank + 0.5
        axes.text(*at, str(rank), ha="right", va="center", color=MUTED, fontsize="small")
        for place in range(table.places):
            block(axes, (x + place, y + rank), 1, 1, "", facecolor=GRID, edgecolor=GROUND)


def _cell(axes: Axes, corner: tuple[float, float], copy: Copy, back: bool = False) -> None:
    """A copy: outlined once it has been computed, crossed out where it is dropped."""
    dropped = copy.place is None
    look = {"facecolor": GRID, "color": INK} if dropped else area(copy.expert)
    edge = {"edgecolor": INK, "lw": 1.5, "zorder": 2} if back and not dropped else {}
    style = {"edgecolor": GROUND, **look, **edge}
    block(axes, corner, 1, 1, str(copy.expert), **style)
    if dropped:
        x, y = corner
        axes.plot([x, x + 1], [y + 1, y], color=INK, linewidth=1)


@checked
def draw_sorted(chosen: Sequence[Sequence[int]], of: Literal["token", "rank"] = "token") -> Figure:
    """Copies in the order of their tokens, and under them sorted: chosen[token] are experts.

    A copy has the number of its token and the color of its expert. Under each stands its place in
    the order of tokens. With `of` the "rank", chosen[rank] are the experts of the copies that
    arrive from a rank. Raises ValueError for more than can be followed.
    """
    some("chosen", chosen)
    copies = [(token, expert) for token, experts in enumerate(chosen) for expert in experts]
    if len(copies) > MOST_COPIES:
        raise ValueError(f"{len(copies)} copies could not be followed; {MOST_COPIES} are the most.")
    order = sorted(range(len(copies)), key=lambda place: copies[place][1])
    figure, (axes,) = closed_figure(7, 2.6)
    for row, places in ((0, range(len(copies))), (2, order)):
        for column, place in enumerate(places):
            token, expert = copies[place]
            look = area(count("an expert of chosen", expert, 0, MOST_EXPERTS - 1))
            block(axes, (column - 0.4, row), 0.8, 0.6, f"{of} {token}", **look)
            under = f"place {place}" if row else f"expert {expert}\nplace {place}"
            axes.text(column, row + 0.68, under, ha="center", va="top", fontsize="small")
            if row:
                line = {"color": look["facecolor"], "linewidth": 1.5}
                axes.plot([place, column], [1.42, row - 0.05], **line)
    axes.set(xlim=(-0.5, len(copies) - 0.5), ylim=(3.1, -0.1), xticks=[])
    axes.set_yticks([0.3, 2.3], [f"in the order\nof {of}s", "sorted\nby expert"])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


@checked
def draw_loads(loads: Mapping[str, Sequence[int]], capacity_factor: float | None = None) -> Figure:
    """A panel for each name: a bar for each expert, its copies over the mean.

    loads: by the name that stands above, copies by expert. The busiest bar has its height, which is
    how much longer all wait. A dashed line is at so many times the mean.
    """
    some("loads", loads)
    if capacity_factor is not None:
        positive("capacity_factor", capacity_factor)
    figure, panels = closed_figure(7, 1.6 * len(loads) + 0.4, len(loads))
    for axes, (name, counts) in zip(panels, loads.items(), strict=True):
        some(f"loads[{name!r}]", counts)
        copies = [count(f"copies of {name}", number, 0) for number in counts]
        mean = sum(copies) / len(copies) or 1
        shares = [number / mean for number in copies]
        most = max(range(len(shares)), key=shares.__getitem__)
        colors = [COLORS[i == most] for i in range(len(shares))]
        axes.bar(range(len(shares)), shares, 0.85, color=colors)
        axes.axhline(1, color=MUTED, linewidth=1)
        if capacity_factor is not None:
            axes.axhline(capacity_factor, color=INK, linewidth=1, linestyle="--", label="capacity")
        axes.annotate(
            f"{shares[most]:.2f} times", (most, shares[most]), (0, 2),
            textcoords="offset points", ha="center", va="bottom", fontsize="small",
        )  # fmt: skip
        axes.set_title(name, fontsize="medium", loc="left")
        axes.margins(x=0.01, y=0.3)
        axes.set_ylabel("times the mean")
    panels[-1].set_xlabel("expert")
    if capacity_factor is not None:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right")
    return figure


@checked
def draw_hidden(attention: float, dispatch: float, experts: float, combine: float) -> Figure:
    """Two layers on one device, of one micro-batch and of two in turn: seconds of each part.

    attention: with all else that is computed and waits for no copy.
    """
    for name, seconds in locals().items():
        at_least(name, seconds, 0)
    steps = [_in_turn(attention, dispatch, experts, combine, number) for number in (1, 2)]
    figure, panels = closed_figure(7, 3.6, 2)
    for number, (axes, step) in enumerate(zip(panels, steps, strict=True), 1):
        lanes(axes, step, max(each.seconds for each in steps) or 1.0)
        one = format_seconds(step.seconds / 2 / number)
        axes.set_title(f"{one} for a layer of a micro-batch", fontsize="medium", loc="left")
    return figure


def _in_turn(
    attention: float, dispatch: float, experts: float, combine: float, batches: int
) -> Overlap:
    """Two layers of so many micro-batches: each waits for its copies, and computes meanwhile what
    the others have."""
    streams, home = Streams(), [0.0] * batches
    for _ in range(2):
        there = []
        for b, name in zip(range(batches), "ab", strict=False):
            streams.wait(home[b])
            streams.compute((f"att.\n{name}", b), streams.now + attention)
            there.append(streams.carry((f"disp.\n{name}", b), dispatch))
        for b, name in zip(range(batches), "ab", strict=False):
            streams.wait(there[b])
            streams.compute((f"exp.\n{name}", b), streams.now + experts)
            home[b] = streams.carry((f"comb.\n{name}", b), combine)
    return streams.overlap()


def draw_exchanges(seconds: Mapping[str, tuple[float, float, float, float]]) -> Figure:
    """A bar for each name: seconds of two exchanges, and between them what the busiest computes.

    seconds: of the one and the other exchange, of the busiest rank and of the mean one.
    """
    unit, scale = time_unit(
        max(first + second + most for first, second, most, _ in seconds.values())
    )
    figure, (axes,) = closed_figure(7, 1.1 + 0.4 * len(seconds))
    parts = {
        "dispatch, or an all-reduce": [first for first, *_ in seconds.values()],
        "compute, were all balanced": [mean for *_, mean in seconds.values()],
        "waiting for the busiest": [most - mean for *_, most, mean in seconds.values()],
        "combine, or an all-reduce": [second for _, second, *_ in seconds.values()],
    }
    colors, hatches = (COLORS[0], "#BDBDBD", COLORS[1], COLORS[4]), ("", "", "///", "...")
    left = [0.0] * len(seconds)
    for (label, values), color, hatch in zip(parts.items(), colors, hatches, strict=True):
        wide = [scale * value for value in values]
        axes.barh([*seconds], wide, 0.7, left, color=color, hatch=hatch, label=label)
        left = [a + b for a, b in zip(left, wide, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(f"a layer, forward ({unit})")
    figure.legend(loc="outside upper center", ncols=2, fontsize="small")
    return figure
