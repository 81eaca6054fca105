"""Scaling laws as data: formulas that predict loss from parameters and tokens, and their optimum.

N counts parameters, D tokens that are trained on, loss is nats a token, and a run of N and D takes
C = 6 N D FLOPs. Each law says by `optimal(flops)` which N and D have the lowest loss of all that
cost so much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dlsys.annotated import checked
from dlsys.checks import at_least, positive, refuse
from dlsys.plain_data import plain_data

FLOPS = 6
"""FLOPs for each parameter and token: 2 forward, 4 backward."""
STEEPEST = 10.0
"""The largest exponent that a law may have; those of language models are below 1."""


@plain_data
class Allocation(NamedTuple):
    """What a budget goes into: N parameters and D tokens."""

    N: float
    D: float

    @property
    def flops(self) -> float:
        """6 N D."""
        return FLOPS * self.N * self.D

    @property
    def tokens_per_parameter(self) -> float:
        """D / N."""
        return self.D / self.N


@checked
@plain_data
@dataclass(frozen=True)
class ChinchillaLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta.

    E is what no model of any size on any data gets below; A / N^alpha is the price of too few
    parameters, B / D^beta of too few tokens. Raises ValueError for constants that are not above
    zero, an E below zero, and exponents above 10.
    Source: Hoffmann et al. 2022 (arXiv 2203.15556), equation 2.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        at_least("E", self.E, 0)
        positive("A", self.A)
        positive("B", self.B)
        exponent("alpha", self.alpha)
        exponent("beta", self.beta)

    @checked
    def loss(self, N: float, D: float) -> float:
        """E + A / N^alpha + B / D^beta, in nats a token."""
        sized(N, D)
        return self.E + self.A * math.pow(N, -self.alpha) + self.B * math.pow(D, -self.beta)

    @property
    def exponent(self) -> float:
        """a = beta / (alpha + beta), with which the optimal N grows: N* ~ C^a, D* ~ C^(1-a)."""
        return self.beta / (self.alpha + self.beta)

    @checked
    def optimal(self, flops: float) -> Allocation:
        """The N and D of the lowest loss with 6 N D = `flops`.

        N* = (alpha A / (beta B))^(1 / (alpha + beta)) (C / 6)^(beta / (alpha + beta)): where the
        two terms fall alike, alpha A / N^alpha = beta B / D^beta. Source: equation 4.
        """
        positive("flops", flops)
        balance = math.log(self.alpha / self.beta) + math.log(self.A) - math.log(self.B)
        size = (balance + self.beta * math.log(flops / FLOPS)) / (self.alpha + self.beta)
        return allocation(size, flops)

    @checked
    def flops_for(self, loss: float) -> float:
        """The fewest FLOPs with which `loss` can be reached.

        At the optimum alpha A / N^alpha = beta B / D^beta = G with G (1/alpha + 1/beta) = L - E.
        Raises ValueError for a loss of E or less.
        """
        share = self._excess(loss) / (1 / self.alpha + 1 / self.beta)
        size = math.log(self.alpha * self.A / share) / self.alpha
        tokens = math.log(self.beta * self.B / share) / self.beta
        return from_log("loss", loss, math.log(FLOPS) + size + tokens)

    @checked
    def smallest(self, loss: float) -> float:
        """(A / (L - E))^(1 / alpha): with fewer parameters no data suffices for this loss."""
        return from_log("loss", loss, math.log(self.A / self._excess(loss)) / self.alpha)

    @checked
    def tokens(self, N: float, loss: float) -> float:
        """The tokens on which N parameters reach `loss`: (B / (L - E - A / N^alpha))^(1 / beta).

        Raises ValueError where no number of tokens suffices.
        """
        at_least("N", N, 1)
        excess = self._excess(loss)
        left = excess - self.A * math.pow(N, -self.alpha)
        if left <= 0:
            least = self.E + self.A * math.pow(N, -self.alpha)
            refuse("loss", loss, f"above {least:.6g}, which {N:.4g} parameters never reach")
        return from_log("loss", loss, math.log(self.B / left) / self.beta)

    def _excess(self, loss: float) -> float:
        positive("loss", loss)
        if loss <= self.E:
            refuse("loss", loss, f"above {self.E:.6g}, the law's E, which nothing reaches")
        return loss - self.E


@checked
@plain_data
@dataclass(frozen=True)
class KaplanLaw:
    """L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D; N without embeddings.

    No floor: with enough of both the loss goes to zero. Raises ValueError for constants that are
    not above zero. Source: Kaplan et al. 2020 (arXiv 2001.08361), equation 1.5.
    """

    N_c: float
    D_c: float
    alpha_N: float  # noqa: N815
    alpha_D: float  # noqa: N815

    def __post_init__(self) -> None:
        positive("N_c", self.N_c)
        positive("D_c", self.D_c)
        exponent("alpha_N", self.alpha_N)
        exponent("alpha_D", self.alpha_D)

    @checked
    def loss(self, N: float, D: float) -> float:
        """In nats a token."""
        sized(N, D)
        # By logarithms, for one of the two may be beyond every float where exponents differ much.
        size = self.alpha_N * (math.log(self.N_c) - math.log(N))
        data = self.alpha_D * (math.log(self.D_c) - math.log(D))
        low, high = sorted((size, data))
        more = math.log1p(math.exp((low - high) / self.alpha_D))
        return from_log("N", N, high + self.alpha_D * more)

    @property
    def exponent(self) -> float:
        """alpha_D / (alpha_N + alpha_D), with which the optimal N grows."""
        return self.alpha_D / (self.alpha_N + self.alpha_D)

    @checked
    def optimal(self, flops: float) -> Allocation:
        """The N and D of the lowest loss with 6 N D = `flops`.

        N* = (r N_c^r C / (6 D_c))^(1 / (r + 1)) with r = alpha_N / alpha_D.
        """
        positive("flops", flops)
        r = self.alpha_N / self.alpha_D
        bought = math.log(flops / FLOPS) - math.log(self.D_c)
        return allocation((math.log(r) + r * math.log(self.N_c) + bought) / (r + 1), flops)


@checked
@plain_data
@dataclass(frozen=True)
class Frontier:
    """The optimum alone, without a loss: N* = `coefficient` C^`exponent`, and D* = C / (6 N*)."""

    coefficient: float
    exponent: float

    def __post_init__(self) -> None:
        positive("coefficient", self.coefficient)
        exponent("exponent", self.exponent)

    @checked
    def optimal(self, flops: float) -> Allocation:
        """N* and D* of a budget."""
        positive("flops", flops)
        return allocation(math.log(self.coefficient) + self.exponent * math.log(flops), flops)


def exponent(name: str, value: float) -> None:
    """Check the exponent of a power law: above zero, and at most 10."""
    positive(name, value)
    if value > STEEPEST:
        refuse(name, value, f"at most {STEEPEST:g}, as exponents of a law are")


def sized(N: float, D: float) -> None:
    """Check parameters and tokens: at least one of each."""
    at_least("N", N, 1)
    at_least("D", D, 1)


def allocation(log_size: float, flops: float) -> Allocation:
    """e^`log_size` parameters, and the tokens that 6 N D = `flops` leaves."""
    size = from_log("flops", flops, log_size)
    return Allocation(size, from_log("flops", flops, math.log(flops / FLOPS) - log_size))


def from_log(name: str, value: float, log: float) -> float:
    """e^`log`, unless no float holds it: then the sentence says so of `value`, given as `name`."""
    if not -700 < log < 700:
        refuse(name, value, f"one whose result, e^({log:.4g}), is a number that can be held")
    return math.exp(log)
