"""Approach 3: the five constants of a law, fitted to all runs at once, and how sure they are.

Minimised is the sum over runs of Huber(LSE(a - alpha ln N, b - beta ln D, e) - ln L), LSE being
ln of the sum of e to the power of each, a = ln A, b = ln B, e = ln E: relative errors, of which
those above delta count by their size and not by its square, so that a few bad runs do not rule.
Source: Hoffmann et al. 2022 (arXiv 2203.15556), equation 3 and section D.2.

All starts, and all resamples, are minimised together, as rows of one array: BFGS, whose estimate of
the curvature is 5 x 5 here, so that L-BFGS has nothing to save.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlsys.annotated import checked
from dlsys.checks import count, fraction, positive, refuse_what, whole
from dlsys.scaling_laws.columns import Array, Places, above_zero, alike, column
from dlsys.scaling_laws.plan import STEEPEST, ChinchillaLaw

STARTS = (range(0, 30, 5), range(0, 30, 5), (-1, -0.5, 0, 0.5, 1), *2 * ((0, 0.5, 1, 1.5, 2),))
"""Values of a, b, e, alpha and beta, all combinations of which are looked at: 4,500."""
FOLLOWED = 100
DELTA = 1e-3
STEPS, BLOCK, GAIN = 400, 500, 1e-8
"""At most so many steps; so many rows at once; less is no gain."""


@checked
def fit(
    N: Sequence[float], D: Sequence[float], loss: Sequence[float], delta: float = DELTA
) -> ChinchillaLaw:
    """The law of the least Huber loss on these runs: the best end of 100 starts of 4,500.

    - N, D, loss: parameters, tokens and loss of each run; at least five runs.
    - delta: relative error above which a run counts linearly.

    Raises ValueError for columns of different lengths, numbers not above zero, and runs that
    determine no law, such as those of a single size.
    """
    runs = _runs(N, D, loss)
    positive("delta", delta)
    once = np.ones((1, len(runs.target)))
    grid = runs.centered(np.array(list(itertools.product(*STARTS)), dtype=float))
    order = np.argsort(_value(grid, runs, once, delta)[0])
    ends, costs = _minimise(grid[order[:FOLLOWED]], runs, once, delta)
    return _law(_best(runs.uncentered(ends), costs))


@checked
def cost(
    law: ChinchillaLaw,
    N: Sequence[float],
    D: Sequence[float],
    loss: Sequence[float],
    delta: float = DELTA,
) -> float:
    """What `fit` minimises, for a law: the Huber losses of ln(predicted / measured), summed."""
    runs = _runs(N, D, loss, least=1)
    positive("delta", delta)
    point = runs.centered(_constants(law)[None])
    return float(_value(point, runs, np.ones((1, len(runs.target))), delta)[0][0])


@checked
def bootstrap(
    N: Sequence[float],
    D: Sequence[float],
    loss: Sequence[float],
    resamples: int = 1000,
    seed: int = 0,
    delta: float = DELTA,
) -> list[ChinchillaLaw]:
    """Laws fitted to as many runs drawn with replacement, `resamples` times.

    How far they differ says how far another such study might lie from this one. Each starts from
    the law of all runs.
    """
    runs = _runs(N, D, loss)
    positive("delta", delta)
    resamples = count("resamples", resamples, 1, 100_000)
    stream = np.random.default_rng(count("seed", whole("seed", seed), 0))
    each = len(runs.target)
    weights = stream.multinomial(each, np.full(each, 1 / each), resamples).astype(float)
    start = np.tile(_constants(fit(N, D, loss, delta)), (resamples, 1))
    ends, _ = _minimise(runs.centered(start), runs, weights, delta)
    return [_law(end) for end in runs.uncentered(ends) if _lawful(end)]


@checked
def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Where the middle `level` of the values lies: from quantile (1 - level)/2 to (1 + level)/2."""
    fraction("level", level)
    found = column("values", values)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# -- the runs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Runs:
    """ln N and ln D, from their means `middle`, and ln L.

    A point (a, b, e, alpha, beta) is minimised as the logarithms of the three terms at that middle,
    and the exponents: there a slope can change without its term, which otherwise takes thousands of
    steps along a narrow valley.
    """

    size: Array
    tokens: Array
    target: Array
    middle: tuple[float, float]

    def centered(self, points: Array) -> Array:
        """Points with a and b at the middle of the runs."""
        return self._moved(points, -1)

    def uncentered(self, points: Array) -> Array:
        """Points with a and b at N = D = 1."""
        return self._moved(points, 1)

    def _moved(self, points: Array, way: int) -> Array:
        moved = points.copy()
        moved[:, :2] += way * points[:, 3:] * self.middle
        return moved


def _runs(N: Sequence[float], D: Sequence[float], loss: Sequence[float], least: int = 5) -> _Runs:
    columns = [
        above_zero("N", N, least),
        above_zero("D", D, least),
        above_zero("loss", loss, least),
    ]
    alike(N=columns[0], D=columns[1], loss=columns[2])
    size, tokens, target = map(np.log, columns)
    if least > 1 and (np.ptp(size) < 1e-9 or np.ptp(tokens) < 1e-9):
        name = "N" if np.ptp(size) < 1e-9 else "D"
        refuse_what(name, "the same in all runs", "of at least two different values")
    middle = float(size.mean()), float(tokens.mean())
    return _Runs(size - middle[0], tokens - middle[1], target, middle)


def _constants(law: ChinchillaLaw) -> Array:
    """a, b, e, alpha, beta."""
    E = max(law.E, 1e-300)
    return np.array([np.log(law.A), np.log(law.B), np.log(E), law.alpha, law.beta])


def _law(constants: Array) -> ChinchillaLaw:
    A, B, E = np.exp(constants[:3])
    return ChinchillaLaw(float(E), float(A), float(B), float(constants[3]), float(constants[4]))


def _lawful(constants: Array) -> bool:
    """Whether these are the constants of a law that can be written."""
    exponents = constants[3:]
    inside = bool((exponents > 0).all() and (exponents <= STEEPEST).all())
    return inside and bool((np.abs(constants[:3]) < 300).all())


def _best(ends: Array, costs: Array) -> Array:
    """The end of the least cost among those that are laws."""
    lawful = [k for k in np.argsort(costs) if _lawful(ends[k])]
    if not lawful:
        refuse_what("loss", "such that no law fits", "one that falls as N and D grow")
    return ends[lawful[0]]


# -- the minimum -----------------------------------------------------------------------------------


def _value(points: Array, runs: _Runs, weights: Array, delta: float) -> tuple[Array, Array]:
    """The sum of Huber losses at each row of `points`, (rows,), and its gradient, (rows, 5)."""
    terms = np.stack(
        [
            points[:, :1] - points[:, 3:4] * runs.size,
            points[:, 1:2] - points[:, 4:5] * runs.tokens,
            np.broadcast_to(points[:, 2:3], (len(points), len(runs.size))),
        ]
    )
    top = terms.max(0)
    shares = np.exp(terms - top)
    whole = shares.sum(0)
    shares /= whole
    error = top + np.log(whole) - runs.target
    held = np.clip(error, -delta, delta)
    value = (weights * held * (error - held / 2)).sum(1)
    by_size, by_tokens, by_floor = weights * held * shares
    gradient = np.stack(
        [
            by_size.sum(1),
            by_tokens.sum(1),
            by_floor.sum(1),
            -(by_size @ runs.size),
            -(by_tokens @ runs.tokens),
        ],
        1,
    )
    return value, gradient


def _minimise(points: Array, runs: _Runs, weights: Array, delta: float) -> tuple[Array, Array]:
    """BFGS from each row of `points`: where each ends, and its value there.

    weights: how often each run counts, a row for all points or one for each.
    """
    ends, values = [], []
    for first in range(0, len(points), BLOCK):
        block = slice(first, first + BLOCK)
        mine = weights[block] if len(weights) > 1 else weights
        end, value = _bfgs(points[block], runs, mine, delta)
        ends.append(end)
        values.append(value)
    return np.concatenate(ends), np.concatenate(values)


def _bfgs(points: Array, runs: _Runs, weights: Array, delta: float) -> tuple[Array, Array]:
    """BFGS on all rows at once; a row is done when a step has gained it next to nothing."""
    points = points.copy()
    value, gradient = _value(points, runs, weights, delta)
    inverse = np.tile(np.eye(points.shape[1]), (len(points), 1, 1))
    on = np.arange(len(points))
    for _ in range(STEPS):
        mine = weights[on] if len(weights) > 1 else weights
        old = points[on], value[on], gradient[on]
        way = _downhill(inverse, on, old[2])
        new = _shortened(*old, way, runs, mine, delta)
        _learn(inverse, on, new[0] - old[0], new[2] - old[2])
        points[on], value[on], gradient[on] = new
        on = on[old[1] - new[1] > GAIN * old[1]]
        if not len(on):
            break
    return points, value


def _downhill(inverse: Array, on: Places, gradient: Array) -> Array:
    """The step that the curvature so far calls for, at most 2 long; downhill where it is not."""
    way = -np.einsum("nij,nj->ni", inverse[on], gradient)
    wrong = (way * gradient).sum(1) >= 0
    inverse[on[wrong]] = np.eye(gradient.shape[1])
    way[wrong] = -gradient[wrong]
    length = np.linalg.norm(way, axis=1, keepdims=True)
    return way / np.maximum(1, length / 2)


def _shortened(
    points: Array,
    value: Array,
    gradient: Array,
    way: Array,
    runs: _Runs,
    weights: Array,
    delta: float,
) -> tuple[Array, Array, Array]:
    """Each row's step, halved until it goes down far enough (Armijo); 30 times at most."""
    slope, length = (way * gradient).sum(1), np.ones(len(points))
    new = points.copy(), value.copy(), gradient.copy()
    left = np.arange(len(points))
    for _ in range(30):
        tried = points[left] + length[left, None] * way[left]
        mine = weights[left] if len(weights) > 1 else weights
        values, gradients = _value(tried, runs, mine, delta)
        good = values <= value[left] + 1e-4 * length[left] * slope[left]
        done = left[good]
        new[0][done], new[1][done], new[2][done] = tried[good], values[good], gradients[good]
        left = left[~good]
        if not len(left):
            break
        length[left] /= 2
    return new


def _learn(inverse: Array, on: Places, step: Array, change: Array) -> None:
    """The BFGS update of the inverse curvature (Nocedal and Wright 2006, equation 6.17)."""
    product = (step * change).sum(1)
    useful = product > 1e-16
    on, step, change, product = on[useful], step[useful], change[useful], product[useful]
    identity = np.eye(step.shape[1])
    left = identity - np.einsum("ni,nj->nij", step, change) / product[:, None, None]
    outer = np.einsum("ni,nj->nij", step, step) / product[:, None, None]
    inverse[on] = left @ inverse[on] @ left.transpose(0, 2, 1) + outer
