"""The numbers of a format on a line, and where rounding puts others: plain numbers for pictures."""

from __future__ import annotations

import math
from statistics import NormalDist

from dlsys.checks import at_least, count, refuse
from dlsys.precision.plan import Format, Mode
from dlsys.precision.price import Distribution


def numbers_between(
    fmt: Format, low: float, high: float, most: int = 400
) -> tuple[float, ...] | None:
    """The format's numbers from `low` (at least 0) to `high`; None where they are over `most`.

    From a number of the format the next lies its spacing away. Raises ValueError for high <= low.
    """
    at_least("low", low, 0)
    at_least("high", high, 0)
    most = count("most", most)
    if high <= low:
        refuse("high", high, f"above low, {low:g}")
    x = fmt.round(low, "toward zero")
    x += fmt.spacing(x) if x < low else 0.0
    found: list[float] = []
    while x <= min(high, fmt.max):
        if len(found) == most:
            return None
        found.append(x)
        x += fmt.spacing(x)
    return tuple(found)


def sample(distribution: Distribution, deviation: float, size: int) -> list[float]:
    """Numbers at the middles of `size` equally likely parts of a distribution of mean 0."""
    at_least("deviation", deviation, 0)
    places = [(i + 0.5) / size for i in range(count("size", size))]
    return [deviation * _QUANTILES[distribution](place) for place in places]


def errors(fmt: Format, values: list[float], mode: Mode) -> list[float]:
    """(rounded - x) / q for each x, q being the spacing at x; beyond the largest number, saturated.

    Uniform on [-1/2, 1/2] to nearest and, toward zero, on [-1, 1] by x's sign; a triangle on
    [-1, 1] where rounding is stochastic. For random numbers stand multiples of the golden ratio,
    less their whole part, which are spread evenly, so that few values show it.
    """
    golden = (math.sqrt(5) - 1) / 2
    rounded = (fmt.round(x, mode, i * golden % 1, True) for i, x in enumerate(values))
    return [(r - x) / fmt.spacing(x) for r, x in zip(rounded, values, strict=True)]


def _laplace(place: float) -> float:
    size = -math.log(2 * min(place, 1 - place)) / math.sqrt(2)
    return math.copysign(size, place - 0.5)


def _uniform(place: float) -> float:
    return math.sqrt(3) * (2 * place - 1)


_QUANTILES = {"normal": NormalDist().inv_cdf, "laplace": _laplace, "uniform": _uniform}
