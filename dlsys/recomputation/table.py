"""The dynamic program behind the best plan: costs of the last layers by what is left for them.

Backward needs what a segment rebuilds on top of what all segments before it keep. So the best plan
of layers i and on depends on one number, the bytes that those before i leave of the budget. Fronts
of all such numbers would grow with the layers; here they are counted in steps of some bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from dlsys.recomputation.plan import KEEP, RECOMPUTE, SELECTIVE, Chain, Plan, Segment

CELLS, STEPS = 2**20, 2**14
"""Layers times steps of a table at most, and steps at most: what takes part of a second."""
Array = Any  # np.ndarray of floats, whatever its shape


def step_bytes(chain: Chain, budget: float) -> float:
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


class Table:
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
        """The least cost of the whole chain, with the whole budget."""
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
