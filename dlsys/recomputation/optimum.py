"""The optimal plan within a budget: the least recomputation, and how much less any could do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from dlsys.annotated import checked
from dlsys.checks import count, positive
from dlsys.recomputation.fitting import smallest
from dlsys.recomputation.plan import Chain, Plan, keep_all
from dlsys.recomputation.price import Price, price
from dlsys.recomputation.table import Table, step_bytes
from dlsys.units import format_bytes

NOISE = 1e-12  # of a forward pass: what adding up costs in another order may change


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
    step = step_bytes(chain, budget)
    plan = _fitting(Table(chain, budget, step, early_stop, down=False), tightest, chain, budget)
    bound = Table(chain, budget, step, early_stop, down=True).least()
    cost = price(plan, chain, early_stop)
    if cost.recomputed > bound:
        bound = max(bound, _priced_bytes(chain, budget, early_stop))
    return Optimum(plan, cost, bound, step)


def _fitting(table: Table, tightest: Plan, chain: Chain, budget: float) -> Plan:
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
    table = Table(chain, whole, step_bytes(chain, whole), early_stop, down=False)
    edges = table.edges()
    chosen = {edges[i * (len(edges) - 1) // (points - 1)] for i in range(points)} if edges else ()
    plans = [tightest, *(table.plan(steps) for steps in sorted(chosen))]
    priced = [(price(plan, chain, early_stop), plan) for plan in plans]
    best: list[Best] = []
    for cost, plan in sorted(priced, key=lambda pair: (pair[0].peak_bytes, pair[0].recomputed)):
        if not best or cost.recomputed < best[-1].recomputed:
            best.append(Best(cost.peak_bytes, cost.recomputed, plan))
    return tuple(best)
