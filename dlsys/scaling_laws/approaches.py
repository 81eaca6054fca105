"""Approaches 1 (envelope) and 2 (IsoFLOP): the optimum read off the runs, and a line through it.

Both find for each budget the N of the lowest loss, and then N* = k C^a by a straight line through
logarithms. Approach 1 takes it from the envelope of training curves, 2 from the bottom of a
parabola through the runs of one budget. Source: Hoffmann et al. 2022, sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlsys.annotated import checked
from dlsys.checks import count, refuse, refuse_what
from dlsys.scaling_laws.columns import Array, Places, above_zero, alike, column
from dlsys.scaling_laws.plan import Frontier

SAME = 1e-3
"""Budgets nearer than this, relatively, are one."""


class Parabola(NamedTuple):
    """y = `value` + `curvature` (x - `at`)^2."""

    at: float
    value: float
    curvature: float

    def __call__(self, x: float) -> float:
        """Its y at an x."""
        return self.value + self.curvature * (x - self.at) ** 2


class Approach(NamedTuple):
    """A frontier, and the budgets and optimal sizes that it was drawn through."""

    frontier: Frontier
    budgets: tuple[float, ...]
    sizes: tuple[float, ...]


@checked
def fit_parabola(x: Sequence[float], y: Sequence[float]) -> Parabola:
    """The parabola of the least squares through the points, which has a bottom.

    Raises ValueError for fewer than three different x, and where the points open downward.
    """
    across, up = column("x", x, 3), column("y", y, 3)
    alike(x=across, y=up)
    if len(np.unique(across)) < 3:
        refuse("x", x, "numbers of which at least three differ")
    middle, width = across.mean(), np.ptp(across)
    bend, slope, level = np.polyfit((across - middle) / width, up, 2)
    if not bend > 0:
        refuse_what(
            "y", "lowest at an end", "lowest inside, as a valley's, for it to have a bottom"
        )
    at = -slope / (2 * bend)
    bottom = level - slope**2 / (4 * bend)
    return Parabola(float(middle + width * at), float(bottom), float(bend / width**2))


@checked
def fit_power_law(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """k and a of y = k x^a: a straight line of the least squares through ln y over ln x."""
    across, up = above_zero("x", x, 2), above_zero("y", y, 2)
    alike(x=across, y=up)
    log = np.log(across)
    if np.ptp(log) < 1e-9:
        refuse("x", x, "numbers that differ")
    slope, level = np.polyfit(log - log.mean(), np.log(up), 1)
    return float(np.exp(level - slope * log.mean())), float(slope)


@checked
def isoflop(N: Sequence[float], flops: Sequence[float], loss: Sequence[float]) -> Approach:
    """Approach 2: a parabola in ln N through the runs of each budget, and a line through bottoms.

    Raises ValueError for fewer than two budgets, and a budget whose runs have no bottom.
    """
    size, budget = above_zero("N", N, 6), above_zero("flops", flops, 6)
    height = above_zero("loss", loss, 6)
    alike(N=size, flops=budget, loss=height)
    sizes, budgets = [], []
    for group in _groups(budget):
        bottom = fit_parabola(np.log(size[group]).tolist(), height[group].tolist())
        sizes.append(float(np.exp(bottom.at)))
        budgets.append(float(np.exp(np.log(budget[group]).mean())))
    return _through(budgets, sizes)


@checked
def envelope(
    N: Sequence[float],
    flops: Sequence[float],
    loss: Sequence[float],
    points: int = 100,
) -> Approach:
    """Approach 1: of the curves of all sizes, which is lowest at each of many budgets.

    - N, flops, loss: a row for each point of each curve; curves are told by their N.
    - points: how many budgets are looked at, in equal ratios from the least FLOPs to the most.

    Between points of a curve ln loss is straight over ln FLOPs. Budgets at which the smallest or
    the largest size of all is lowest are left out: there the optimum lies beyond what was trained.
    """
    size, spent = above_zero("N", N, 6), above_zero("flops", flops, 6)
    height = above_zero("loss", loss, 6)
    alike(N=size, flops=spent, loss=height)
    points = count("points", points, 2, 10_000)
    known = np.unique(size)
    if len(known) < 3:
        refuse("N", N, "the sizes of at least three curves")
    at = np.geomspace(spent.min(), spent.max(), points)
    heights = np.stack([_curve(at, spent[size == n], height[size == n]) for n in known])
    lowest = heights.argmin(0)
    inside = np.isfinite(heights).any(0) & (lowest > 0) & (lowest < len(known) - 1)
    if len(np.unique(lowest[inside])) < 2:
        refuse_what("loss", "lowest for one size", "lowest for different sizes at different FLOPs")
    return _through(at[inside].tolist(), known[lowest[inside]].tolist())


def _curve(at: Array, spent: Array, height: Array) -> Array:
    """Loss at these FLOPs; infinite where the curve has not begun, or has ended."""
    order = np.argsort(spent)
    logs = np.log(spent[order]), np.log(height[order])
    return np.exp(np.interp(np.log(at), *logs, left=np.inf, right=np.inf))


def _groups(budget: Array) -> list[Places]:
    """Places of the runs of each budget."""
    order = np.argsort(budget)
    breaks = np.flatnonzero(np.diff(np.log(budget[order])) > SAME) + 1
    groups = np.split(order, breaks)
    if len(groups) < 2:
        refuse_what("flops", "one budget", "at least two budgets, for a line through their optima")
    return groups


def _through(budgets: list[float], sizes: list[float]) -> Approach:
    coefficient, exponent = fit_power_law(budgets, sizes)
    if not (exponent > 0 and 0 < coefficient < 1e300):
        refuse_what("loss", "such that optimal N falls", "such that it grows with the budget")
    return Approach(Frontier(coefficient, exponent), tuple(budgets), tuple(sizes))
