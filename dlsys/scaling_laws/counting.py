"""What counts as a parameter: why Kaplan's optimum grows with C^0.73, and Chinchilla's with C^0.5.

Kaplan et al. count N and C = 6 N D without embeddings, which are most of a small model. Of models
of one shape N without them grows with the cube of the width, and the embeddings with the width
itself: all parameters are N + omega N^(1/3). Source: Pearce and Song 2024 (arXiv 2406.12907).
"""

from __future__ import annotations

import math
from statistics import linear_regression

from dlsys.annotated import checked
from dlsys.checks import at_least, count, positive, refuse
from dlsys.scaling_laws.plan import Allocation, ChinchillaLaw, from_log

OMEGA = 47491.0
"""Fitted there to the models of Hoffmann et al. 2022 (a vocabulary of 32,000)."""


@checked
def with_embeddings(N: float, omega: float = OMEGA) -> float:
    """All parameters of a model that has N without embeddings: N + omega N^(1/3)."""
    at_least("N", N, 1)
    at_least("omega", omega, 0)
    return N + omega * N ** (1 / 3)


@checked
def optimum_without_embeddings(law: ChinchillaLaw, N: float, omega: float = OMEGA) -> Allocation:
    """The run for which N, without embeddings, is optimal where C counts no embeddings, either.

    `law` counts all parameters, T = N + omega N^(1/3). On a budget of 6 N D its loss is lowest
    where alpha A / T^alpha x d ln T / d ln N = beta B / D^beta.
    """
    total = with_embeddings(N, omega)
    slope = (N + omega / 3 * N ** (1 / 3)) / total
    share = math.log(law.alpha * slope) + math.log(law.A) - law.alpha * math.log(total)
    tokens = (math.log(law.beta) + math.log(law.B) - share) / law.beta
    return Allocation(N, from_log("N", N, tokens))


@checked
def apparent_exponent(
    law: ChinchillaLaw, smallest: float, largest: float, omega: float = OMEGA, points: int = 20
) -> float:
    """The a of N* ~ C^a that a study without embeddings finds, of models from one size to another.

    The slope of a line through ln N over ln(6 N D) of optimal runs, N in equal ratios.
    """
    points = count("points", points, 2, 10_000)
    at_least("smallest", smallest, 1)
    positive("largest", largest)
    if largest <= smallest:
        refuse("largest", largest, f"above smallest, {smallest:.6g}")
    ratio = (largest / smallest) ** (1 / (points - 1))
    runs = [optimum_without_embeddings(law, smallest * ratio**k, omega) for k in range(points)]
    sizes = [math.log(run.N) for run in runs]
    budgets = [math.log(run.N) + math.log(run.D) for run in runs]  # of C / 6: the slope is C's
    if math.isclose(min(budgets), max(budgets)):
        refuse("largest", largest, "further above smallest, for a slope between them")
    return linear_regression(budgets, sizes).slope
