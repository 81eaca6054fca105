"""An explorer of formats: their numbers, a value rounded in each mode, the noise of rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from dlsys.exploring import Choices, Explorer, option
from dlsys.precision.number_line import errors, numbers_between, sample
from dlsys.precision.plan import Format, Mode
from dlsys.precision.price import Distribution, expected_signal_to_noise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPECIAL = {"infinities and NaN": (True, True), "one NaN": (False, True), "none": (False, False)}
VALUES = (0.001, 0.1, 1 / 3, 0.7, 1.3, 2.7, 5.2, 20.0, 300.0)
DEVIATIONS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
MODES: tuple[Mode, ...] = get_args(Mode)
NUMBERS: tuple[Distribution, ...] = get_args(Distribution)
SIZE = 2000
"""Numbers that are rounded to see their errors."""
BINS = 24


class Number(NamedTuple):
    """A number of the format near the value, on the number line."""

    value: float


class Rounding(NamedTuple):
    """Where a mode puts the value: `low` or `high`, and how often it is the second."""

    mode: Mode
    low: float
    high: float
    up: float


class Bin(NamedTuple):
    """The share of all numbers whose error lies from `low` to `high` spacings, in one mode."""

    mode: Mode
    low: float
    high: float
    share: float


class Noise(NamedTuple):
    """Signal to noise in decibels: of these numbers, and computed in advance (nearest alone)."""

    mode: Mode
    measured: float
    expected: float | None


Row = Number | Rounding | Bin | Noise


@dataclass(frozen=True)
class Choice(Choices):
    """One setting. Raises ValueError for what no option has."""

    exponent: int = option("Exponent bits", range(2, 8), 4)
    mantissa: int = option("Mantissa bits", range(1, 11), 3)
    special: str = option("Special values", SPECIAL, "one NaN")
    value: float = option("Value", VALUES, 2.7)
    mode: str = option("Rounding", MODES, "nearest")
    numbers: str = option("Numbers", NUMBERS, "normal")
    deviation: float = option("Deviation", DEVIATIONS, 1.0)

    @cached_property
    def format(self) -> Format:
        """The format of these bits."""
        infinities, nan = SPECIAL[self.special]
        return Format(self.exponent, self.mantissa, infinities, nan)

    def rows(self) -> list[Row]:
        """Numbers round the value, the value rounded in each mode, errors and noise by mode."""
        fmt, around = self.format, 6 * self._spacing
        line = numbers_between(fmt, max(0.0, self.value - around), self.value + around) or (
            fmt.max,
        )
        rows: list[Row] = [Number(x) for x in line]
        rows += [self._rounding(mode) for mode in MODES]
        return rows + _errors(fmt, cast(Distribution, self.numbers), self.deviation)

    def summary(self) -> str:
        """What the figure shows, in a few sentences."""
        fmt, rows = self.format, self.rows()
        (rounding,) = (r for r in rows if isinstance(r, Rounding) and r.mode == self.mode)
        (noise,) = (r for r in rows if isinstance(r, Noise) and r.mode == self.mode)
        became = f"{rounding.low:.6g}"
        if 0 < rounding.up < 1:
            became = f"{rounding.high:.6g} in {rounding.up:.0%} of cases, otherwise {became}"
        expected = f" (computed: {noise.expected:.1f})" if noise.expected is not None else ""
        return (
            f"{fmt}, {fmt.bits} bits, holds numbers up to {fmt.max:.6g}; the smallest above zero "
            f"is {fmt.min_subnormal:.3g}, and from 1 the next is {fmt.epsilon:.3g} away. "
            f"{self.value:.6g} becomes {became} ({self.mode}). Of {self.numbers} numbers of "
            f"deviation {self.deviation:g} rounding leaves {noise.measured:.1f} dB of signal to "
            f"noise{expected}."
        )

    def figure(self) -> Figure:
        """Above, the number line with the value; below, how often each error occurs."""
        from dlsys.precision.draw_explorer import draw_choice

        return draw_choice(self.rows(), self.value, self.mode)

    @property
    def _spacing(self) -> float:
        return self.format.spacing(min(self.value, self.format.max))

    def _rounding(self, mode: Mode) -> Rounding:
        """Both numbers that rounding may give, from random numbers as low and as high as can be."""
        fmt, x = self.format, self.value
        high, low = (fmt.round(x, mode, r, saturate=True) for r in (0.0, 1 - 2**-53))
        up = (x - low) / (high - low) if high != low else 1.0
        return Rounding(mode, low, high, up)


def explore(**choice: Any) -> Explorer:
    """An explorer that starts at a Choice of these fields: `explore(exponent=5, mantissa=2)`."""
    return Explorer(Choice(**choice))


@lru_cache(maxsize=64)
def _errors(fmt: Format, numbers: Distribution, deviation: float) -> list[Row]:
    """Errors and noise by mode, which are the same for every value."""
    values, rows = sample(numbers, deviation, SIZE), list[Row]()
    steps, signal = [fmt.spacing(x) for x in values], sum(x * x for x in values)
    expected = expected_signal_to_noise(fmt, numbers, deviation)
    for mode in MODES:
        found = errors(fmt, values, mode)
        noise = sum((e * q) ** 2 for e, q in zip(found, steps, strict=True))
        measured = 10 * math.log10(signal / noise) if noise else math.inf
        rows += [
            *_bins(mode, found),
            Noise(mode, measured, expected if mode == "nearest" else None),
        ]
    return rows


def _bins(mode: Mode, found: list[float]) -> list[Bin]:
    """Shares of errors from -1 to 1; what saturated, further off, is in the outer ones."""
    counts = [0] * BINS
    for error in found:
        counts[min(max(int((error + 1) / 2 * BINS), 0), BINS - 1)] += 1
    edges = [2 * i / BINS - 1 for i in range(BINS + 1)]
    return [
        Bin(mode, low, high, number / len(found))
        for low, high, number in zip(edges, edges[1:], counts, strict=False)
    ]
