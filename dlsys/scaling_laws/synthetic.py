"""Runs that a known law generates, with noise: what a way of fitting has to be tried on first."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse, some, whole
from dlsys.scaling_laws.plan import FLOPS, ChinchillaLaw


class Runs(NamedTuple):
    """Columns of a table of runs: parameters, tokens, final loss."""

    N: tuple[float, ...]
    D: tuple[float, ...]
    loss: tuple[float, ...]

    @property
    def flops(self) -> tuple[float, ...]:
        """6 N D of each run."""
        return tuple(FLOPS * n * d for n, d in zip(self.N, self.D, strict=True))


@checked
def isoflop_runs(
    law: ChinchillaLaw,
    budgets: Sequence[float],
    sizes: int = 9,
    span: float = 16.0,
    noise: float = 0.0,
    seed: int = 0,
    skew: float = 1.0,
) -> Runs:
    """Each budget spent on `sizes` models, N in equal ratios round the optimum.

    The largest has `span` times the parameters of the smallest; their middle is `skew` times the
    optimal N, so that no fit is told where it lies. `noise` is the standard deviation of ln loss.
    """
    some("budgets", budgets)
    sizes = count("sizes", sizes, 2, 1000)
    positive("span", span)
    positive("skew", skew)
    points = []
    for budget in budgets:
        positive("budgets", budget)
        middle = law.optimal(budget).N * skew
        for k in range(sizes):
            N = middle * span ** (k / (sizes - 1) - 0.5)
            points.append((N, budget / FLOPS / N))
    return _noisy(law, points, noise, seed)


@checked
def curve_runs(
    law: ChinchillaLaw,
    sizes: Sequence[float],
    shortest: float,
    longest: float,
    points: int = 20,
    noise: float = 0.0,
    seed: int = 0,
) -> Runs:
    """A model of each size, its loss at `points` numbers of tokens in equal ratios.

    Every point is the end of a run of its own: a point on the way of a longer one has a learning
    rate that has not come down yet, and a higher loss.
    """
    some("sizes", sizes)
    points = count("points", points, 2, 1000)
    at_least("shortest", shortest, 1)
    at_least("longest", longest, 1)
    if longest <= shortest:
        refuse("longest", longest, f"above shortest, {shortest:.6g}")
    ratios = [(longest / shortest) ** (k / (points - 1)) for k in range(points)]
    grid = [(_size(N), shortest * ratio) for N in sizes for ratio in ratios]
    return _noisy(law, grid, noise, seed)


@checked
def hoffmann_like(law: ChinchillaLaw, bad: int = 5, noise: float = 0.005, seed: int = 0) -> Runs:
    """240 runs of the sizes and budgets of Hoffmann et al.'s figure 4, and `bad` ones at the end.

    The good: 44 million to 16 billion parameters on 6e18 to 3e21 FLOPs. The bad: large models
    that have seen so few tokens that the law does not hold yet, and their loss lies 8 to 24 %
    above it.
    """
    bad = count("bad", bad, 0, 1000)
    stream = random.Random(whole("seed", seed))
    points: list[tuple[float, float]] = []
    while len(points) < 240:
        N = math.exp(stream.uniform(math.log(44e6), math.log(16e9)))
        D = math.exp(stream.uniform(math.log(6e18), math.log(3e21))) / FLOPS / N
        if 1 <= D / N <= 400:
            points.append((N, D))
    good = _noisy(law, points, noise, seed)
    few = [(math.exp(stream.uniform(math.log(1e9), math.log(8e9))), 0.1) for _ in range(bad)]
    worse = [(N, N * ratio) for N, ratio in few]
    raised = [
        law.loss(N, max(1.0, D)) * (1.08 + 0.16 * k / max(1, bad - 1))
        for k, (N, D) in enumerate(worse)
    ]
    return Runs(
        good.N + tuple(N for N, _ in worse),
        good.D + tuple(D for _, D in worse),
        good.loss + tuple(raised),
    )


def _size(N: float) -> float:
    at_least("sizes", N, 1)
    return N


def _noisy(
    law: ChinchillaLaw, points: Sequence[tuple[float, float]], noise: float, seed: int
) -> Runs:
    at_least("noise", noise, 0)
    if noise > 1:
        refuse("noise", noise, "at most 1, the deviation of ln loss")
    stream = random.Random(whole("seed", seed))
    losses = [law.loss(max(1.0, N), max(1.0, D)) for N, D in points]
    losses = [loss * math.exp(stream.gauss(0, noise)) for loss in losses]
    return Runs(tuple(N for N, _ in points), tuple(D for _, D in points), tuple(losses))
