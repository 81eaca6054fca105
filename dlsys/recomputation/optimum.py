"""The plan that runs least again among all that fit: dynamic programming from the last layer on.

Backward needs what a segment rebuilds on top of what all segments before it keep. So the best plan
of layers i and on depends on one number, the bytes that those before i leave of the budget. Fronts
of all such numbers would grow with the layers; here they are counted in steps of some bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.recomputation.plan import KEEP, RECOMPUTE, SELECTIVE, Chain, Plan, Segment, keep_all
from dlsys.recomputation.price import Price, price
from dlsys.units import format_bytes

CELLS, STEPS = 2**20, 2**14
"""Layers times steps of a table at most, and steps at most: what takes part of a second."""
MOST = 10_000
NOISE = 1e-12  # of a forward pass: what adding up costs in another order may change
Array = Any  # np.ndarray of floats, whatever its shape


@dataclass(frozen=True)
class Optimum:
    """A plan within a budget: its price, and the least that any plan there can run again.

    Sizes were counted in whole steps of `step_bytes`. The plan was priced exactly and does fit;
    `least` is a bound, which no plan within the budget goes below. Where what the plan runs again
    is no more, it is proven to be best.
    """

    plan: Plan
    price: Price
    least: float
    step_bytes: float

    @property
    def exact(self) -> bool:
        """Whether it is proven that no plan within the budget runs less again."""
        return self.price.recomputed <= self.least + NOISE * self.price.forward

    @property
    def error(self) -> float:
        """What a better plan could save at most, as a part of the step."""
        return 0.0 if self.exact else (self.price.recomputed - self.least) / self.price.model_cost


class Best(NamedTuple):
    """A point of the front: no plan has a lower peak and runs less again."""

    peak_bytes: float
    recomputed: float
    plan: Plan


@checked
def optimal(chain: Chain, budget: float, early_stop: bool = True) -> Optimum:
    """The plan of kept, selective and recomputed segments that runs least again in `budget` bytes.

    With K_g what segment g keeps when forward ends, and R_g what its backward rebuilds: the least
    sum of costs with K_1 + ... + K_g + R_g within the budget for every g, over all plans, whatever
    the layers. A step is the sizes' greatest common divisor where the table has room for it, which
    is exact; else about budget x layers / CELLS, and the result says what that may have lost: the
    bound is the better of the same table with all sizes rounded down, and of a price for each byte
    kept in the place of the budget.

    Raises ValueError that names the smallest budget that works. Beside it: Beaumont et al. 2019
    (arXiv 1911.13214) also lets backward keep other tensors than forward kept, which runs a layer
    more than twice; a segment here, as in today's frameworks, is run again once, as a whole.
    """
    positive("budget", budget)
    tightest = smallest(chain)
    needed = price(tightest, chain).peak_bytes
    if budget < needed:
        raise ValueError(
            f"budget is {budget:,.0f} bytes ({format_bytes(budget)}), and the smallest that works "
            f"is {needed:,.0f} ({format_bytes(needed)}): give that, or make the chain keep less, "
            "with a smaller micro-batch or a model that is cut into more parts."
        )
    if budget >= chain.saved_bytes:
        plan = keep_all(len(chain))
        return Optimum(plan, price(plan, chain, early_stop), 0.0, budget)
    step = _step(chain, budget)
    plan = _fitting(_Table(chain, budget, step, early_stop, down=False), tightest, chain, budget)
    bound = _Table(chain, budget, step, early_stop, down=True).least()
    cost = price(plan, chain, early_stop)
    if cost.recomputed > bound:
        bound = max(bound, _priced_bytes(chain, budget, early_stop))
    return Optimum(plan, cost, bound, step)


def _fitting(table: _Table, tightest: Plan, chain: Chain, budget: float) -> Plan:
    """The plan of the most steps that fits, for sizes were rounded to the nearest step."""
    plan, edges = tightest, table.edges()
    low, high = 0, len(edges)  # those below `low` fit, those from `high` on do not
    tried = high - 1  # where the sizes are whole steps this one fits
    while low < high:
        found = table.plan(edges[tried])
        if price(found, chain).peak_bytes <= budget:
            plan, low = found, tried + 1
        else:
            high = tried
        tried = (low + high) // 2
    return plan


def _priced_bytes(chain: Chain, budget: float, early_stop: bool) -> float:
    """A bound on what is run again: the best price of a kept byte, for which any may be kept.

    For every price p >= 0 it is min over plans of (cost + p x bytes kept) - p x budget, which is
    concave in p (a Lagrangian dual). A segment must fit into the budget by itself.
    """
    n, layers = len(chain), chain.layers
    saved = np.array([0.0, *accumulate(layer.saved_bytes for layer in layers)])
    runs = np.array([0.0, *accumulate(layer.forward for layer in layers)])
    ends = runs - np.array([0.0, *(layer.tail if early_stop else 0.0 for layer in layers)])
    stops = np.searchsorted(saved, saved[:-1] + budget, "right")
    cores = [layer.core - (layer.core_tail if early_stop else 0.0) for layer in layers]

    def bound(price: float) -> float:
        rest = np.zeros(n + 1)
        for i in reversed(range(n)):
            layer = layers[i]
            alone = price * layer.saved_bytes + min(
                0.0, cores[i] - price * layer.core_bytes if layer.core_bytes else 0.0
            )
            again = (ends[i + 1 : stops[i]] + rest[i + 1 : stops[i]]).min(initial=math.inf)
            again += price * layer.input_bytes - runs[i]
            rest[i] = min(alone + rest[i + 1], again)
        return float(rest[0]) - price * budget

    low, high = 0.0, chain.forward / max(1.0, budget) * n
    for _ in range(40):  # the highest point of a concave function is not beyond the lower third
        third = (high - low) / 3
        if bound(low + third) < bound(high - third):
            low += third
        else:
            high -= third
    return max(0.0, bound(low), bound(high))


@checked
def front(chain: Chain, points: int = 50, early_stop: bool = True) -> tuple[Best, ...]:
    """The front of peak bytes and what is run again, from the smallest peak to keeping everything.

    About as many `points` of it, all of one table, so that each is as exact as its steps are.
    """
    points = count("points", points, least=2, most=1000)
    tightest, whole = smallest(chain), chain.saved_bytes or 1.0
    table = _Table(chain, whole, _step(chain, whole), early_stop, down=False)
    edges = table.edges()
    chosen = {edges[i * (len(edges) - 1) // (points - 1)] for i in range(points)} if edges else ()
    plans = [tightest, *(table.plan(steps) for steps in sorted(chosen))]
    priced = [(price(plan, chain, early_stop), plan) for plan in plans]
    best: list[Best] = []
    for cost, plan in sorted(priced, key=lambda pair: (pair[0].peak_bytes, pair[0].recomputed)):
        if not best or cost.recomputed < best[-1].recomputed:
            best.append(Best(cost.peak_bytes, cost.recomputed, plan))
    return tuple(best)


@checked
def smallest(chain: Chain) -> Plan:
    """The plan of the lowest peak, whatever it runs again; exact.

    From the last layer on: the least of max(what a segment rebuilds, its input + what is after).
    """
    layers, n = chain.layers, len(chain)
    count("The number of layers", n, most=MOST)
    peak, choice = [0.0] * (n + 1), [Segment(0, 0, KEEP)] * n
    for i in reversed(range(n)):
        layer = layers[i]
        options = [(layer.saved_bytes + peak[i + 1], KEEP)]
        if layer.core_bytes:
            rest = layer.saved_bytes - layer.core_bytes + peak[i + 1]
            options.append((max(layer.rebuilt_bytes, rest), SELECTIVE))
        peak[i], mode = min(options)
        choice[i] = Segment(i, i + 1, mode)
        rebuilt = 0.0
        for j in range(i, n):
            rebuilt += layers[j].saved_bytes
            if rebuilt >= peak[i]:
                break
            whole = max(rebuilt, layer.input_bytes + peak[j + 1])
            if whole < peak[i]:
                peak[i], choice[i] = whole, Segment(i, j + 1, RECOMPUTE)
    return _joined(choice)


def _joined(choice: list[Segment]) -> Plan:
    """The plan that starts with the first choice, and goes on where each ends."""
    cut, i = [], 0
    while i < len(choice):
        cut.append(choice[i])
        i = cut[-1].stop
    return Plan(len(choice), tuple(cut))


def _step(chain: Chain, budget: float) -> float:
    """Bytes of a step: what divides all sizes, or what wastes least of them in rounding up."""
    parts = ((x.input_bytes, x.saved_bytes, x.saved_bytes - x.core_bytes) for x in chain.layers)
    counts: dict[float, int] = {}
    for size in (size for three in parts for size in three):
        counts[size] = counts.get(size, 0) + 1
    most = max(2, min(STEPS, CELLS // len(chain)))
    if all(float(size).is_integer() for size in counts):
        divisor = math.gcd(*map(int, counts))
        if divisor > 0 and budget <= divisor * most:
            return float(divisor)
    sizes, often = np.array(list(counts.items())).T
    steps = budget / np.arange(most // 2, most + 1)
    waste = [float(often @ (np.ceil(sizes / step) * step - sizes)) for step in steps]
    # A shade less, so that the steps of the whole budget are a whole number.
    return float(steps[int(np.argmin(waste))]) * (1 - 1e-12)


def _whole(sizes: Sequence[float], step: float, down: bool) -> list[int]:
    """Sizes in whole steps: rounded down, or equal ones so that their sum is to the nearest."""
    if down:
        return [math.floor(size / step) for size in sizes]
    met: dict[float, int] = {}
    whole = []
    for size in sizes:
        times = met[size] = met.get(size, 0) + 1
        whole.append(round(times * size / step) - round((times - 1) * size / step))
    return whole


class _Table:
    """cost[i][b]: the least that layers i and on run again with b steps left for them.

    Sizes are rounded down, and the costs are bounds, or so that errors cancel. A segment that is
    run again keeps the same wherever it stops, so its best stop is a minimum over a range of
    layers, as far as what is left reaches. `ranges` has the minima over 1, 2, 4, ... layers; two
    of them, which may overlap, are any range.
    """

    def __init__(self, chain: Chain, budget: float, step: float, early_stop: bool, down: bool):
        self.layers, self.step, self.early_stop = chain.layers, step, early_stop
        self.left = np.arange((math.ceil if down else math.floor)(budget / step) + 1)
        sizes = {
            KEEP: [layer.saved_bytes for layer in self.layers],
            SELECTIVE: [layer.saved_bytes - layer.core_bytes for layer in self.layers],
            RECOMPUTE: [layer.input_bytes for layer in self.layers],
        }
        self.kept = {mode: _whole(nbytes, step, down) for mode, nbytes in sizes.items()}
        rows = len(chain) + 1
        self.saved = np.array([0.0, *accumulate(layer.saved_bytes for layer in self.layers)])
        self.runs = np.array([0.0, *accumulate(layer.forward for layer in self.layers)])
        tails = [0.0, *(layer.tail if early_stop else 0.0 for layer in self.layers)]
        self.ends = self.runs - np.array(tails)
        self.cost = np.full((rows, len(self.left)), np.inf)
        self.cost[-1] = 0.0
        self.ranges = np.full((rows.bit_length(), rows, len(self.left)), np.inf)
        self.logs = np.array([0, *(n.bit_length() - 1 for n in range(1, rows + 1))])
        for i in reversed(range(rows)):
            if i < rows - 1:
                self.cost[i] = np.minimum(self._alone(i), self._again(i))
            self._add(i)

    def _alone(self, i: int) -> Array:
        """Cost by what is left, where layer i is kept or drops its core."""
        layer = self.layers[i]
        room, best = self.left * self.step, self._after(i + 1, self.kept[KEEP][i])
        best[room < layer.saved_bytes] = np.inf
        if layer.core_bytes:
            rest = self._after(i + 1, self.kept[SELECTIVE][i])
            rest[room < layer.rebuilt_bytes] = np.inf
            best = np.minimum(best, self._core(i) + rest)
        return best

    def _core(self, i: int) -> float:
        return self.layers[i].core - (self.layers[i].core_tail if self.early_stop else 0.0)

    def _after(self, i: int, steps: int) -> Array:
        """Cost of layers i and on by what was left before so many steps were taken."""
        taken = np.full(len(self.left), np.inf)
        taken[steps:] = self.cost[i, : max(0, len(self.left) - steps)]
        return taken

    def _again(self, i: int) -> Array:
        """Cost by what is left, where a segment that is run again starts at layer i."""
        stops = self._stops(i, self.left)
        taken = self.kept[RECOMPUTE][i]
        first = max(taken, int(np.searchsorted(stops, i, "right")))  # from there on one layer fits
        best = np.full(len(self.left), np.inf)
        stops, after = stops[first:], self.left[first:] - taken
        level = self.logs[stops - i]
        ends = stops + 1 - 2**level
        found = np.minimum(self.ranges[level, i + 1, after], self.ranges[level, ends, after])
        best[first:] = found - self.runs[i]
        return best

    def _stops(self, i: int, left: Array) -> Array:
        """Up to which layer, not included, a segment from i can be rebuilt in what is left."""
        return np.searchsorted(self.saved, self.saved[i] + left * self.step, "right") - 1

    def _add(self, i: int) -> None:
        """Row i as the stop of a segment, and as the first of longer and longer ranges."""
        self.ranges[0, i] = self.ends[i] + self.cost[i]
        for level in range(1, len(self.ranges)):
            other = i + 2 ** (level - 1)
            if other < self.ranges.shape[1]:
                a, b = self.ranges[level - 1, i], self.ranges[level - 1, other]
                np.minimum(a, b, out=self.ranges[level, i])

    def least(self) -> float:
        """Of the whole chain, with the whole budget."""
        return float(self.cost[0, -1])

    def edges(self) -> list[int]:
        """The numbers of steps from which on less is run again."""
        first = self.cost[0]
        lower = first[1:] < first[:-1]
        return [0] * bool(first[0] < np.inf) + [int(b) + 1 for b in np.flatnonzero(lower)]

    def plan(self, left: int = -1) -> Plan:
        """The plan of the least cost with so many steps, or with all."""
        i, b, cut = 0, int(self.left[left]), []
        while i < len(self.layers):
            segment, taken = self._choice(i, b)
            cut.append(segment)
            i, b = segment.stop, b - taken
        return Plan(len(self.layers), tuple(cut))

    def _choice(self, i: int, b: int) -> tuple[Segment, int]:
        """The best segment from layer i with b steps left, and the steps that it keeps."""
        layer = self.layers[i]
        options: list[tuple[float, Segment, int]] = []
        alone = [(KEEP, 0.0, layer.saved_bytes)]
        if layer.core_bytes:
            alone.append((SELECTIVE, self._core(i), layer.rebuilt_bytes))
        for mode, cost, room in alone:
            steps = self.kept[mode][i]
            if steps <= b and room <= b * self.step:
                whole = cost + float(self.cost[i + 1, b - steps])
                options.append((whole, Segment(i, i + 1, mode), steps))
        stop, steps = int(self._stops(i, b)), self.kept[RECOMPUTE][i]
        if stop > i and steps <= b:
            costs = self.ends[i + 1 : stop + 1] + self.cost[i + 1 : stop + 1, b - steps]
            j = int(np.argmin(costs))
            options.append((costs[j] - self.runs[i], Segment(i, i + 1 + j, RECOMPUTE), steps))
        _, segment, taken = min(options, key=lambda option: option[0])
        return segment, taken
