"""Repeated data: what tokens are worth that a model reads again, and how large it should be.

Reading the same tokens R more times is worth less each time, as if R grew to R* (1 - e^(-R/R*)) and
no further; and so are parameters beyond what the data there is would call for.
Source: Muennighoff et al. 2023 (arXiv 2305.16264), equations 5 and 6, and section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsys.annotated import checked
from dlsys.checks import at_least, positive, refuse
from dlsys.plain_data import plain_data
from dlsys.scaling_laws.plan import Allocation, ChinchillaLaw, sized
from dlsys.scaling_laws.price import numeric_optimum

R_TOKENS, R_PARAMETERS = 15.387756, 5.309743
"""R* of tokens and of parameters, as fitted there: after R* repetitions 1 - 1/e of all is won."""


@checked
def effective_tokens(D: float, unique: float, R: float = R_TOKENS) -> float:
    """What D tokens are worth of which `unique` are new, in new ones: U + U R* (1 - e^(-R/R*)).

    R = D / U - 1 counts repetitions. Up to U tokens each is worth one.
    """
    at_least("D", D, 1)
    at_least("unique", unique, 1)
    positive("R", R)
    return _saturated(D, unique, R)


@checked
@plain_data
@dataclass(frozen=True)
class DataConstrainedLaw:
    """A law for `unique` tokens and as many epochs on them as D takes: loss(N', D').

    D' as in `effective_tokens`, and N' in the same way from the N that is optimal for the unique
    tokens, R_N above it. Raises ValueError for numbers that are not above zero.
    """

    law: ChinchillaLaw
    unique: float
    R_D: float = R_TOKENS
    R_N: float = R_PARAMETERS

    def __post_init__(self) -> None:
        at_least("unique", self.unique, 1)
        positive("R_D", self.R_D)
        positive("R_N", self.R_N)

    @property
    def enough(self) -> float:
        """The parameters for which the unique tokens are the optimal number."""
        law = self.law
        log = math.log(law.alpha / law.beta) + math.log(law.A) - math.log(law.B)
        return math.exp(min(700.0, (log + law.beta * math.log(self.unique)) / law.alpha))

    @checked
    def effective(self, N: float, D: float) -> Allocation:
        """N' and D': what the parameters and the tokens are worth."""
        sized(N, D)
        enough = max(1.0, self.enough)
        return Allocation(_saturated(N, enough, self.R_N), _saturated(D, self.unique, self.R_D))

    @checked
    def loss(self, N: float, D: float) -> float:
        """In nats a token."""
        return self.law.loss(*self.effective(N, D))

    @checked
    def tokens(self, N: float, loss: float) -> float:
        """The tokens, epochs counted, on which N parameters reach `loss`.

        D = U (1 - R* ln(1 - (D'/U - 1) / R*)) for the D' that `law` asks of N'. Raises ValueError
        where no number of epochs suffices.
        """
        worth = self.law.tokens(self.effective(N, 1.0).N, loss)
        repeated = max(0.0, worth / self.unique - 1) / self.R_D
        if repeated >= 1:
            never = f"higher: {N:.4g} parameters never reach it on {self.unique:.4g} unique tokens"
            refuse("loss", loss, never)
        return min(worth, self.unique) - self.unique * self.R_D * math.log1p(-repeated)

    @checked
    def optimal(self, flops: float) -> Allocation:
        """The N and D, epochs counted, of the lowest loss with 6 N D = `flops`; searched for."""
        return numeric_optimum(self, flops)


def _saturated(amount: float, unique: float, R: float) -> float:
    repetitions = max(0.0, amount / unique - 1)
    return min(amount, unique) * (1 - R * math.expm1(-repetitions / R))
