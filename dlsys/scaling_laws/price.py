"""What choices cost: a size off the optimum, training for longer, a life of inference, dollars.

All ratios here are of two runs of one law, so that neither E nor A nor B nor the budget is in them.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse
from dlsys.scaling_laws.optimum import lowest
from dlsys.scaling_laws.plan import FLOPS, Allocation, ChinchillaLaw, from_log
from dlsys.units import HOUR

SERVED = 2
"""FLOPs for each parameter and token of inference: forward alone."""


class Law(Protocol):
    """Whatever predicts a loss from N and D."""

    def loss(self, N: float, D: float) -> float:
        """In nats a token."""
        ...


@checked
def numeric_optimum(law: Law, flops: float) -> Allocation:
    """The N and D of the lowest loss with 6 N D = `flops`, searched for from 1 parameter up."""
    if not callable(getattr(law, "loss", None)):
        refuse("law", law, "a law, such as PUBLISHED['hoffmann-2022'].law, with a loss(N, D)")
    positive("flops", flops)
    most = flops / FLOPS
    if most <= 1:
        refuse("flops", flops, f"above {FLOPS}, which one parameter takes on one token")
    size = lowest(lambda N: law.loss(N, max(1.0, most / N)), 1.0, most)
    return Allocation(size, most / size)


# -- off the optimum -------------------------------------------------------------------------------


@checked
def compute_wasted(law: ChinchillaLaw, factor: float) -> float:
    """Times as much compute as needed: of a model `factor` times the optimal size on one budget.

    An optimal run would have its loss with 1 / m of the budget, where
    m = ((beta k^-alpha + alpha k^beta) / (alpha + beta))^((alpha + beta) / (alpha beta)).
    """
    positive("factor", factor)
    a, b, log = law.alpha, law.beta, math.log(factor)
    most = max(-a * log, b * log)  # taken out, for its power may be beyond every float
    worse = (b * math.exp(-a * log - most) + a * math.exp(b * log - most)) / (a + b)
    return from_log("factor", factor, (a + b) / (a * b) * (most + math.log(worse)))


@checked
def compute_wasted_near(law: ChinchillaLaw, factor: float) -> float:
    """`compute_wasted` near the optimum: exp((alpha + beta) / 2 ln^2 k), the same both ways."""
    positive("factor", factor)
    return from_log("factor", factor, (law.alpha + law.beta) / 2 * math.log(factor) ** 2)


class Overtraining(NamedTuple):
    """A model of `factor` times the optimal size: tokens and FLOPs, over those of the optimum."""

    factor: float
    tokens: float
    flops: float


@checked
def overtraining(law: ChinchillaLaw, factor: float) -> Overtraining:
    """What it takes to have the loss of an optimal run with `factor` times its parameters.

    D / D* = (1 + beta/alpha (1 - k^-alpha))^(-1/beta), and k times that are the FLOPs. Raises
    ValueError where no data suffices, which is below `least_factor`.
    """
    positive("factor", factor)
    above = math.log(factor) - _log_least_factor(law)
    if above <= 0:
        least = f"above {least_factor(law):.4g}, below which no data suffices"
        refuse("factor", factor, least)
    # The same sum by its zero, the least factor: it stays exact there, and has no large power.
    left = -(1 + law.beta / law.alpha) * math.expm1(-law.alpha * above)
    tokens = from_log("factor", factor, -math.log(left) / law.beta)
    return Overtraining(factor, tokens, factor * tokens)


@checked
def least_factor(law: ChinchillaLaw) -> float:
    """(1 + alpha / beta)^(-1 / alpha) of the optimal size: smaller models never reach its loss."""
    return math.exp(_log_least_factor(law))


def _log_least_factor(law: ChinchillaLaw) -> float:
    return -math.log1p(law.alpha / law.beta) / law.alpha


# -- a life of inference ---------------------------------------------------------------------------


class Lifetime(NamedTuple):
    """A model of N parameters that trains on D tokens, and then reads and writes `served` ones."""

    N: float
    D: float
    served: float

    @property
    def training(self) -> float:
        """6 N D FLOPs."""
        return FLOPS * self.N * self.D

    @property
    def inference(self) -> float:
        """2 N FLOPs for each token served."""
        return SERVED * self.N * self.served

    @property
    def flops(self) -> float:
        """FLOPs of training and inference."""
        return self.training + self.inference


@checked
def lifetime_optimal(law: ChinchillaLaw, loss: float, served: float) -> Lifetime:
    """The model of this loss with the fewest FLOPs of training and of `served` tokens together.

    Where (alpha A / N^alpha) / (beta B / D^beta) = 1 + I / (3 D): tokens served count a third of
    tokens trained on. Found by bisection between the smallest N for the loss and the N that is
    optimal without inference. Source: Sardana et al. 2024 (arXiv 2401.00448), equations 2 and 3.
    """
    at_least("served", served, 0)
    best = law.optimal(law.flops_for(loss))
    if min(law.smallest(loss), best.D) < 1:
        refuse("loss", loss, "lower: one parameter on one token has it already")
    high = math.log(best.N)
    low = math.log(law.smallest(loss))
    for _ in range(100):
        middle = (low + high) / 2
        if _too_large(law, loss, served, math.exp(middle)):
            high = middle
        else:
            low = middle
    size = math.exp(high)
    return Lifetime(size, law.tokens(size, loss), served)


def _too_large(law: ChinchillaLaw, loss: float, served: float, N: float) -> bool:
    """Whether fewer parameters, and more tokens instead, cost less."""
    size = law.A * math.pow(N, -law.alpha)
    left = loss - law.E - size
    if left <= 0:
        return False
    tokens = (math.log(law.B) - math.log(left)) / law.beta
    saved = SERVED / FLOPS * served * math.exp(-tokens)
    return law.alpha * size < law.beta * left * (1 + saved)


# -- what a budget buys ----------------------------------------------------------------------------


class Purchase(NamedTuple):
    """What dollars buy: device-hours, FLOPs, and the optimal run on them with its loss."""

    device_hours: float
    flops: float
    N: float
    D: float
    loss: float

    def days(self, devices: int) -> float:
        """Days of wall-clock time on this many devices."""
        return self.device_hours / count("devices", devices) / 24


@checked
def purchase(
    law: ChinchillaLaw,
    dollars: float,
    dollars_per_hour: float,
    peak_flops: float,
    utilization: float,
) -> Purchase:
    """The run of the lowest loss that `dollars` buy, at a price of each device-hour.

    C = dollars / price x 3600 x peak FLOP/s x utilization. Raises ValueError for a utilization
    above 1.
    """
    positive("dollars", dollars)
    positive("dollars_per_hour", dollars_per_hour)
    positive("peak_flops", peak_flops)
    positive("utilization", utilization)
    if utilization > 1:
        refuse("utilization", utilization, "at most 1: no device does more than its peak")
    hours = dollars / dollars_per_hour
    flops = hours * HOUR * peak_flops * utilization
    if math.isinf(flops):
        refuse("peak_flops", peak_flops, "less: the FLOPs that are bought are beyond every number")
    best = law.optimal(flops)
    return Purchase(hours, flops, best.N, best.D, law.loss(max(1.0, best.N), max(1.0, best.D)))
