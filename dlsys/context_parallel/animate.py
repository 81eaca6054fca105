"""The ring in motion: keys and values go round, and in backward their gradients behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.context_parallel.draw import MOST_RANKS, draw_ring
from dlsys.moving import ARRIVES, END, START, Animation, Stage, around, arrow, cell, rect, text
from dlsys.palette import COLORS, INK, MUTED, ON_COLORS

WIDE, HIGH, SLOT = 152, 122, 65  # of a rank's box, and of a block in it
HERE, COMING = 8, 79  # from the left of the box on
KV, DKV, MET = 49, 77, 99  # from its top on

# n is not yet met, c is being met, o0, o1, ... are rank 0's, rank 1's, ...
_STYLE = f""".NAME path.n{{fill:none;stroke:{MUTED}}}
.NAME path.c{{fill:none;stroke:{INK};stroke-width:2}}""" + "".join(
    f"\n.NAME .o{i}{{fill:{color}}} .NAME .moving text.o{i}{{fill:{ink}}}"
    for i, (color, ink) in enumerate(zip(COLORS, ON_COLORS, strict=True))
)


@checked
def animate_ring(ranks: int = 4, seconds: float = 2.0) -> Animation:
    """Ring attention, forward and backward, each round for so many `seconds`.

    Raises ValueError for fewer ranks than two, and for more than can be followed.
    """
    n = count("ranks", ranks, least=2, most=MOST_RANKS)
    positive("seconds", seconds)
    stage, label = _Ring(n), f"ring attention on {n} ranks, forward and backward"
    size = (stage.width, stage.height)
    return stage.animation(label, size, stage.parts(), _STYLE, seconds, lambda: draw_ring(n))


class _Ring(Stage):
    """n rounds forward, one between, n backward, and one in which the last gradients travel.

    In a round each rank works on a block of keys and values, while the next comes.
    """

    def __init__(self, n: int) -> None:
        super().__init__(2 * n + 2)
        self.n, self.backward = n, START + n + 1  # when it begins
        self.width, high, self.at = around(n, WIDE, HIGH, -math.pi / 2 - math.pi / n)
        self.height = high + 18  # a second line below

    def parts(self) -> Iterator[str]:
        """The way round, over it the boxes and what they hold, then what travels."""
        yield from (arrow(self.at[me - 1], self.at[me]) for me in range(self.n))
        for each in (self.held, self.sent):
            for me, (x, y) in enumerate(self.at):
                place = f"translate({x - WIDE / 2:.5g} {y - HIGH / 2:.5g})"
                yield f'<g transform="{place}">{"".join(each(me))}</g>\n'
        yield from self.words()

    def held(self, me: int) -> Iterator[str]:
        """A rank's box, and what is in it from when to when."""
        n, last = self.n, self.last
        yield rect("b", 0, 0, WIDE, HIGH) + text("", WIDE / 2, 16, f"rank {me}")
        yield cell("e", HERE, 24, SLOT, f"queries {me}", 22)
        yield text("m", COMING + SLOT / 2, 39, "arriving") + text("m k", HERE, MET + 13, "met")
        for side in (HERE, COMING):
            yield rect("e", side, KV, SLOT, 22)
            yield self.during(self.backward, last, rect("e", side, DKV, SLOT))
        yield from (self.met("n", owner) for owner in range(n))
        for begin in (0, self.backward - 1):  # before each pass a rank has its own
            yield self.during(begin, begin + 1, self.kv(HERE, me))
        for first, end in ((START, self.backward), (self.backward, last)):
            for step in range(n):
                owner, coming, now = (me - step) % n, (me - step - 1) % n, first + step
                yield self.during(now, now + 1, self.kv(HERE, owner) + self.met("c", owner))
                yield self.during(now + 1, end, self.met(_color(owner), owner))
                if step < n - 1:
                    yield self.during(now + ARRIVES, now + 1, self.kv(COMING, coming))
                if first == self.backward:  # what was added in this round comes in the next
                    dkv = self.dkv(COMING, coming, step + 1)
                    yield self.during(now + 1 + ARRIVES, now + 2, dkv)
        yield self.during(last - END, last, self.dkv(HERE, me, n))

    def sent(self, me: int) -> Iterator[str]:
        """What a rank sends to the right, in its rounds."""
        n, (x, y), (u, v) = self.n, self.at[me], self.at[(me + 1) % self.n]
        to = f"--to:{u - x + COMING - HERE:.4g}px,{v - y:.4g}px"
        for step in range(n):
            owner = (me - step) % n
            sent = {n + 2 + step: self.dkv(HERE, owner, step + 1)}
            if step < n - 1:
                sent |= dict.fromkeys((step, n + 1 + step), self.kv(HERE, owner))
            for index, block in sent.items():
                yield f'<g class="g g{index}" style="{to}">{block}</g>'

    def words(self) -> Iterator[str]:
        """What happens, round by round, and what the signs mean."""
        n, said = self.n, ["start: each rank has the queries, keys and values of its tokens"]
        owners = ["its own keys", "the keys of its left neighbor"]
        for far in ("two", "three", "four", "five", "six", "seven"):
            owners.append(f"the keys {far} ranks to its left")
        for step, keys in enumerate(owners[:n]):
            on = ", and passes them on" if step < n - 1 else ", the last"
            said.append(f"round {step}: each rank attends to {keys}{on}")
        said.append("all have met all keys; for backward each rank has kept its own")
        for step, keys in enumerate(owners[:n]):
            said.append(f"backward, round {step}: each rank adds to dkv of {keys}")
        said += ["backward: the gradients make their last hop", "end: every gradient is home"]
        for begin, line in enumerate(said):
            end = begin + 1 if begin < len(said) - 1 else self.last
            yield text(f"h {self.showing(begin, end)}", 8, 18, line)
        signs = (
            "kv 1: keys and values of rank 1. met: the ranks to whose keys a rank has attended.",
            f"dkv 1 2/{n}: gradient of kv 1, a round behind it; 2 of {n} ranks have added to it.",
        )
        for line, up in zip(signs, (28, 10), strict=True):
            yield text("m k", 8, self.height - up, line)

    def during(self, begin: float, end: float, what: str) -> str:
        """What shows from one time to another."""
        return f'<g class="{self.showing(begin, end)}">{what}</g>'

    def kv(self, side: int, owner: int) -> str:
        """The keys and values of a rank."""
        return cell(_color(owner), side, KV, SLOT, f"kv {owner}", 22)

    def dkv(self, side: int, owner: int, added: int) -> str:
        """Their gradient, to which so many ranks have added."""
        return cell(_color(owner), side, DKV, SLOT, f"dkv {owner} {added}/{self.n}")

    def met(self, look: str, owner: int) -> str:
        """The mark of a rank's keys."""
        wide = 106 / self.n
        return cell(look, 38 + owner * wide, MET, wide - 2, str(owner))


def _color(owner: int) -> str:
    """The class of what is a rank's."""
    return f"o{owner % len(COLORS)}"
