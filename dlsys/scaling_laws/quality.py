"""Data quality: what poor tokens, and those of another epoch, are worth; a term of the law.

A law turns a loss into the clean, new tokens that would have led to it. Divided by the tokens that
did, they say what one of these is worth, and then D' = worth x D takes the place of D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import mul

from dlsys.annotated import checked
from dlsys.checks import fraction, positive, refuse, refuse_what, some
from dlsys.plain_data import plain_data
from dlsys.scaling_laws.plan import ChinchillaLaw, sized


@checked
def tokens_worth(law: ChinchillaLaw, N: float, D: float, loss: float) -> float:
    """Clean, new tokens with which N parameters reach `loss`, for each of the D that they read.

    (B / (L - E - A / N^alpha))^(1/beta) / D. Raises ValueError where no number of them would.
    """
    sized(N, D)
    return law.tokens(N, loss) / D


@checked
@plain_data
@dataclass(frozen=True)
class QualityLaw:
    """A law for data of which a share is `clean`: D' = clean^k D.

    With k = 1 a spoilt token is as good as none; above that it does harm besides.
    """

    law: ChinchillaLaw
    k: float

    def __post_init__(self) -> None:
        positive("k", self.k)

    @checked
    def loss(self, N: float, D: float, clean: float = 1.0) -> float:
        """In nats a token of clean text."""
        sized(N, D)
        _share(clean)
        return self.law.loss(N, max(1.0, D * clean**self.k))


@checked
def fit_quality(
    law: ChinchillaLaw,
    N: Sequence[float],
    D: Sequence[float],
    clean: Sequence[float],
    loss: Sequence[float],
) -> QualityLaw:
    """The k of the least squares of ln worth - k ln clean, over runs on data that is partly spoilt.

    Raises ValueError where all of it is clean, or worth no less than clean data.
    """
    some("N", N)
    for name, column in {"D": D, "clean": clean, "loss": loss}.items():
        if len(column) != len(N):
            refuse_what(name, f"of {len(column)} runs", f"of as many as N, {len(N)}")
    for share in clean:
        _share(share)
    x = [math.log(share) for share in clean]
    if not any(x):
        refuse_what("clean", "1 in all runs", "less in one of them")
    y = [math.log(worth) for worth in map(tokens_worth, repeat(law), N, D, loss)]
    k = math.fsum(map(mul, x, y)) / math.fsum(map(mul, x, x))
    if k <= 0:
        refuse_what("loss", "no higher on spoilt data", "higher, for it to be worth less")
    return QualityLaw(law, k)


def _share(clean: float) -> None:
    fraction("clean", clean)
    if clean < 1e-6:
        refuse("clean", clean, "a share of at least one in a million")
