"""An explorer of scaling laws: what a budget buys, with the data at hand, for the load to come."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from dlsys.exploring import Choices, Explorer, option
from dlsys.scaling_laws.optimum import lowest
from dlsys.scaling_laws.plan import FLOPS, Allocation, ChinchillaLaw
from dlsys.scaling_laws.price import SERVED, Lifetime, lifetime_optimal
from dlsys.scaling_laws.published import PUBLISHED
from dlsys.scaling_laws.repetition import DataConstrainedLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAWS = ("besiroglu-2024", "hoffmann-2022", "muennighoff-2023")
BUDGETS = {f"1e{power}": 10.0**power for power in range(19, 28)}
UNLIMITED, NONE = "unlimited", "none"
DATA = {UNLIMITED: 1e30, "10 billion": 1e10, "100 billion": 1e11, "1 trillion": 1e12} | {
    "15 trillion": 15e12
}
LOADS = {NONE: 0.0, "100 billion": 1e11, "1 trillion": 1e12, "10 trillion": 1e13} | {
    "100 trillion": 1e14
}
FACTORS = {"1/10": 0.1, "1/4": 0.25, "1/2": 0.5, "1": 1.0, "2": 2.0, "4": 4.0, "10": 10.0}
STEPS = 33


class Row(NamedTuple):
    """A model on the budget: N, D, how often each token is read, loss, and FLOPs of its life."""

    N: float
    D: float
    epochs: float
    loss: float
    flops: float


@dataclasses.dataclass(frozen=True)
class Choice(Choices):
    """One setting: a budget of training FLOPs, a law, unique tokens, and tokens served later on.

    `size` is the model's, over that of the optimum. Raises ValueError for what no option has.
    """

    law: str = option("Law", LAWS, "besiroglu-2024")
    budget: str = option("FLOPs", BUDGETS, "1e24")
    data: str = option("Tokens at hand", DATA, UNLIMITED)
    load: str = option("Tokens served", LOADS, NONE)
    size: str = option("Size over the optimum's", FACTORS, "1")

    def chinchilla(self) -> ChinchillaLaw:
        """The law of new tokens alone."""
        law = PUBLISHED[self.law].law
        assert isinstance(law, ChinchillaLaw)
        return law

    def constrained(self) -> DataConstrainedLaw:
        """The law of as many new tokens as there are."""
        return DataConstrainedLaw(self.chinchilla(), DATA[self.data])

    def optimum(self) -> Allocation:
        """The N and D of the lowest loss on the budget."""
        if self.data == UNLIMITED:
            return self.chinchilla().optimal(BUDGETS[self.budget])
        return self.constrained().optimal(BUDGETS[self.budget])

    def row(self, N: float | None = None) -> Row:
        """A model of N parameters on the budget; of the chosen size by default."""
        if N is None:
            N = self.optimum().N * FACTORS[self.size]
        D = BUDGETS[self.budget] / FLOPS / N
        loss = self.constrained().loss(N, D)
        flops = BUDGETS[self.budget] + SERVED * N * LOADS[self.load]
        return Row(N, D, max(1.0, D / DATA[self.data]), loss, flops)

    def rows(self) -> list[Row]:
        """Models from a sixteenth to sixteen times the optimal size, in equal ratios."""
        best = self.optimum().N
        return [self.row(best * 256 ** (k / (STEPS - 1) - 0.5)) for k in range(STEPS)]

    def lifetime(self) -> Lifetime:
        """The model of the optimum's loss, on the same tokens at hand, whose life costs least."""
        best, served = self.optimum(), LOADS[self.load]
        law, loss = self.constrained(), self.row(best.N).loss
        if self.data == UNLIMITED:
            return lifetime_optimal(law.law, loss, served)
        # Far into repetition the loss is at its floor in all digits, and no N would reach it.
        loss *= 1 + 1e-9

        def life(N: float) -> Lifetime:
            try:
                return Lifetime(N, law.tokens(N, loss), served)
            except ValueError:  # no number of epochs suffices
                return Lifetime(N, math.inf, served)

        return life(lowest(lambda N: life(N).flops, law.law.smallest(loss), best.N))

    def wasted(self) -> float:
        """How many times the least budget for its loss a model of the chosen size spends."""
        law, loss = self.constrained(), self.row().loss
        low, high = 1e-6, 1.0
        for _ in range(40 if loss > law.loss(*self.optimum()) else 0):
            middle = (low * high) ** 0.5
            part = dataclasses.replace(self, size="1")._best(middle)
            low, high = (low, middle) if part <= loss else (middle, high)
        return 1 / high

    def _best(self, share: float) -> float:
        """The lowest loss on a share of the budget."""
        law, flops = self.constrained(), BUDGETS[self.budget] * share
        best = self.chinchilla().optimal(flops)
        return law.loss(*(best if law.unique >= best.D else law.optimal(flops)))

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        best, row, life = self.optimum(), self.row(), self.lifetime()
        optimal = self.row(best.N)
        words = (
            f"{PUBLISHED[self.law].name} on {self.budget} FLOPs: {many(best.N)} parameters on "
            f"{many(best.D)} tokens, {best.tokens_per_parameter:.3g} for each parameter, reach a "
            f"loss of {optimal.loss:.4f}. "
        )
        if self.data != UNLIMITED:
            words += f"Each of the {self.data} tokens is read {optimal.epochs:.3g} times. "
        if self.size != "1":
            words += (
                f"A model of {self.size} times the size, {many(row.N)} parameters on {many(row.D)} "
                f"tokens, reaches {row.loss:.4f}, which the best could have had for "
                f"1/{self.wasted():.3g} of the budget. "
            )
        if LOADS[self.load]:
            words += (
                f"With {self.load} tokens served the same loss comes cheapest from {many(life.N)} "
                f"parameters that read {many(life.D)} tokens: {life.flops:.3g} FLOPs in all, where "
                f"the optimum of training takes {optimal.flops:.3g}. "
            )
        return words.strip()

    def figure(self) -> Figure:
        """Loss over size on the budget, and over parameters and tokens."""
        from dlsys.scaling_laws.draw import draw_choice

        return draw_choice(self)


def many(number: float) -> str:
    """A count in words, to three digits: 243 billion."""
    sizes = {"trillion": 1e12, "billion": 1e9, "million": 1e6}
    words = (f"{number / size:.3g} {word}" for word, size in sizes.items() if number >= size)
    return next(words, f"{number:.3g}")


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(budget="1e25", size="2")`."""
    return Explorer(Choice(**choice))
