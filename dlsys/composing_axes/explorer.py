"""An explorer of plans: the fastest one that fits beside the fastest with other degrees.

The planner prices columns of plans in NumPy, so this explorer needs it where others need nothing.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.composing_axes.machines import machine
from dlsys.composing_axes.planner import plan
from dlsys.composing_axes.search import Plan, Search
from dlsys.exploring import Choices, Explorer, option
from dlsys.transformer import CATALOGUE
from dlsys.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARS = 5
"""Plans that are shown, each of other degrees."""
MACHINES = {"nodes of 8 A100": "a100", "nodes of 8 H100": "h100"}
AHEAD = {
    "memory": "memory",
    "flops": "FLOP/s",
    "memory_bandwidth": "memory bandwidth",
    "intra": "bandwidth inside nodes",
    "inter": "bandwidth between nodes",
}


class Row(NamedTuple):
    """A plan: its degrees in words, seconds of a step, and bytes of the fullest device."""

    degrees: str
    seconds: float
    held: float
    plan: Plan


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: what is trained, on what, in which batches, and what plans may do."""

    model: str = option(
        "Model",
        ("gpt2-xl", "llama2-7b", "llama2-13b", "mixtral-8x7b", "llama3-70b", "gpt3-175b"),
        "llama3-70b",
    )
    cluster: str = option("Cluster", MACHINES, "nodes of 8 H100")
    nodes: int = option("Nodes", (1, 2, 4, 8, 16, 32, 64), 16)
    length: int = option("Tokens of a sequence", (2048, 8192, 32768, 131072), 8192)
    batch: int = option("Sequences of a step", (64, 128, 256, 512, 1024), 512)

    def search(self) -> Search:
        """All plans."""
        return _search(self.model, MACHINES[self.cluster], self.nodes, self.length, self.batch)

    def rows(self) -> list[Row]:
        """The fastest plan that fits, and the fastest ones of other degrees."""
        search = self.search()
        found: dict[str, Row] = {}
        for place in search.fitting:
            each = search.at(int(place))
            row = Row(_words(each), each.seconds, sum(each.held.values()), each)
            found.setdefault(row.degrees, row)
            if len(found) == BARS:
                break
        if not found:
            each = search.at(int(search.total.argmin()))
            return [Row(_words(each), each.seconds, sum(each.held.values()), each)]
        return list(found.values())

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        search, (best, *others) = self.search(), self.rows()
        run = (
            f"{CATALOGUE[self.model].name} on {self.nodes} {self.cluster}, {self.batch:,} "
            f"sequences of {self.length:,} tokens a step: {len(search):,} plans"
        )
        if not len(search.fitting):
            return (
                f"{run}, and none fits. {best.degrees} holds least, {format_bytes(best.held)} of "
                f"{format_bytes(search.memory)}."
            )
        binding = search.binding()
        name = max(binding, key=lambda resource: binding[resource])
        words = f"{run}, of which {len(search.fitting):,} fit. Fastest: {best.plan}."
        if others:
            slower = others[-1].seconds / best.seconds
            words += f" The last one shown takes {slower:.2f} times as long."
        return (
            f"{words} Twice the {AHEAD[name]} would make it {binding[name]:.2f} times as fast, "
            f"twice the memory {binding['memory']:.2f} times."
        )

    def figure(self) -> Figure:
        """A bar for each row, by what its seconds are spent on, and one by what it holds."""
        from dlsys.composing_axes.draw import draw_plans

        return draw_plans({row.degrees: row.plan for row in self.rows()})


def _words(plan: Plan) -> str:
    named = [f"{name} {degree}" for name, degree in plan.axes.items() if degree > 1]
    return " x ".join(named) or "one device"


@cache
def _search(model: str, name: str, nodes: int, length: int, batch: int) -> Search:
    spec = dataclasses.replace(CATALOGUE[model], sequence=length)
    made = machine(name, nodes)
    return plan(spec, made, batch, reserve=made.cluster.device.memory / 10)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these: `explore(model="llama2-7b", nodes=1)`."""
    return Explorer(Choice(**choice))
