"""Number formats as data: a sign, an exponent and a mantissa, and what one number becomes in them.

A floating-point number is (-1)^s 2^(E - bias) (1 + M / 2^m) for an exponent field E > 0, and
(-1)^s 2^(1 - bias) M / 2^m, a subnormal, for E = 0. So within a power of two the numbers stand at
equal distances q, and rounding is x / q rounded to a whole number, times q. Everything here is
exact, on Python's own numbers; `rounding.py` does the same to tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import ClassVar, Literal, SupportsFloat, get_args

from dlsys.annotated import checked
from dlsys.checks import count, counts, finite, flag, refuse
from dlsys.plain_data import plain_data

Mode = Literal["nearest", "toward zero", "stochastic"]
"""How a number between two of the format is rounded: to the nearer one, and to the even one of two
as near; to the one nearer to zero; up with a probability in proportion to how far up it lies."""


@plain_data
@checked
@dataclass(frozen=True)
class Format:
    """A floating-point format of 1 + `exponent` + `mantissa` bits.

    With `infinities`, IEEE 754's rule: the largest exponent field is kept for infinity (mantissa 0)
    and NaN (all others). Without, it holds numbers, and `nan` says whether the one pattern of all
    ones is NaN, or a number like the rest. Raises ValueError for what does not fit into FP32.
    Sources: IEEE 754-2019; OCP OFP8 and Microscaling (MX) specifications, both v1.0, 2023.
    """

    exponent: int
    mantissa: int
    infinities: bool = True
    nan: bool = True
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        counts(self, "exponent", least=2)
        counts(self, "mantissa", least=int(self.nan or self.infinities))
        counts(self, "exponent", most=8 if self.infinities else 7)
        counts(self, "mantissa", least=0, most=23)
        if self.infinities and not self.nan:
            refuse("nan", self.nan, "True in a format that has infinities")

    def __str__(self) -> str:
        return self.name or f"E{self.exponent}M{self.mantissa}"

    @property
    def bits(self) -> int:
        """1 + exponent + mantissa."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent field: 2^(exponent - 1) - 1."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number, and of all subnormals: 1 - bias."""
        return 1 - self.bias

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number: bias, or 1 more if no field is kept for infinity."""
        return self.bias + (not self.infinities)

    @property
    def max(self) -> float:
        """The largest number: a mantissa of ones, or the one below where that would be NaN."""
        ones = 2 - (2 if self.nan and not self.infinities else 1) * self.epsilon
        return math.ldexp(ones, self.largest_exponent)

    @property
    def min_normal(self) -> float:
        """The smallest number above zero of full precision: 2^(1 - bias)."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def min_subnormal(self) -> float:
        """The smallest number above zero: 2^(1 - bias - mantissa)."""
        return math.ldexp(1.0, self.least_exponent - self.mantissa)

    @property
    def epsilon(self) -> float:
        """From 1 to the next number: 2^-mantissa. Rounding to nearest is off by half of it."""
        return math.ldexp(1.0, -self.mantissa)

    @property
    def digits(self) -> float:
        """Decimal digits that a number carries: (mantissa + 1) log10 2, for its leading 1 too."""
        return (self.mantissa + 1) * math.log10(2)

    def values(self) -> tuple[float, ...]:
        """All its finite numbers in order, zero once; of a format of at most 16 bits."""
        if self.bits > 16:
            raise ValueError(f"values of {self} are {2**self.bits:,}; list at most 16 bits.")
        found = {self.decode(pattern) for pattern in range(2**self.bits)}
        return tuple(sorted(value for value in found if math.isfinite(value)))

    @checked
    def spacing(self, x: float) -> float:
        """q: how far apart numbers lie round x; 2^(floor(log2 |x|) - mantissa), at least
        `min_subnormal`."""
        finite("x", x)
        return math.ldexp(1.0, self._exponent_of(x) - self.mantissa)

    @checked
    def round(
        self,
        x: SupportsFloat,
        mode: Mode = "nearest",
        random: float | None = None,
        saturate: bool = False,
    ) -> float:
        """x as a number of the format: x / q rounded to a whole number, times q.

        Stochastic rounding goes away from zero where `random`, from [0, 1), is below the fraction
        of x / q. What is then beyond `max` becomes it where `saturate` is true or the format has
        neither infinities nor NaN, otherwise infinity, or NaN where there is none. NaN stays NaN.
        Toward zero, only infinity lies beyond.
        """
        number, way = _number("x", x), _way(mode, random)
        flag("saturate", saturate)
        if math.isnan(number):
            return number
        if math.isinf(number):
            return math.copysign(self._beyond(saturate), number)
        q = self.spacing(number)
        rounded = q * _whole(abs(number) / q, way)
        if rounded > self.max:
            rounded = self.max if mode == "toward zero" else self._beyond(saturate)
        return math.copysign(rounded, number)

    @checked
    def encode(
        self,
        x: SupportsFloat,
        mode: Mode = "nearest",
        random: float | None = None,
        saturate: bool = False,
    ) -> int:
        """The bits of x rounded, as a whole number: sign, exponent field, mantissa.

        Raises ValueError for NaN in a format that has none.
        """
        value = self.round(x, mode, random, saturate)
        sign = int(math.copysign(1, value) < 0) << (self.bits - 1)
        if math.isnan(value):
            return sign | self.nan_pattern
        if math.isinf(value):
            return sign | self.infinity_pattern
        exponent = self._exponent_of(value)
        # A normal number's leading 1 has no bit: it adds 1 to the exponent field.
        whole = int(abs(value) / math.ldexp(1.0, exponent - self.mantissa))
        return sign | ((exponent - self.least_exponent) << self.mantissa) + whole

    def decode(self, pattern: int) -> float:
        """The number whose bits are those of the whole number `pattern`."""
        pattern = count("pattern", pattern, 0, 2**self.bits - 1)
        sign, magnitude = divmod(pattern, 2 ** (self.bits - 1))
        if self.infinities and magnitude == self.infinity_pattern:
            value = math.inf
        elif magnitude > self._last_pattern:
            value = math.nan
        else:
            stored, fraction = divmod(magnitude, 2**self.mantissa)
            leading = 2**self.mantissa if stored else 0
            value = math.ldexp(
                leading + fraction, max(stored, 1) - 1 + self.least_exponent - self.mantissa
            )
        return math.copysign(value, -1 if sign else 1)

    @property
    def infinity_pattern(self) -> int:
        """The bits of plus infinity: an exponent field of ones."""
        if not self.infinities:
            raise ValueError(f"{self} has no infinities.")
        return ((1 << self.exponent) - 1) << self.mantissa

    @property
    def nan_pattern(self) -> int:
        """The bits of NaN as it is made: infinity's and the first of the mantissa, or all ones."""
        if not self.nan:
            raise ValueError(f"x is NaN, and {self} has no bits for it.")
        if self.infinities:
            return self.infinity_pattern | 1 << (self.mantissa - 1)
        return (1 << (self.bits - 1)) - 1

    @property
    def _last_pattern(self) -> int:
        if self.infinities:
            return self.infinity_pattern
        return (1 << (self.bits - 1)) - 1 - self.nan

    def _exponent_of(self, x: float) -> int:
        """floor(log2 |x|), at least that of the subnormals."""
        return max(math.frexp(x)[1] - 1, self.least_exponent) if x else self.least_exponent

    def _beyond(self, saturate: bool) -> float:
        if saturate or not self.nan:
            return self.max
        return math.inf if self.infinities else math.nan


@plain_data
@checked
@dataclass(frozen=True)
class Integer:
    """Whole numbers from -(2^(bits-1) - 1) to as far above zero, which a scale turns into others.

    The pattern that two's complement has left over, -2^(bits-1), stays unused, as in symmetric
    quantisation. Raises ValueError for fewer than 2 or more than 16 bits.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        counts(self, "bits", least=2)
        counts(self, "bits", most=16)

    def __str__(self) -> str:
        return f"INT{self.bits}"

    @property
    def max(self) -> float:
        """2^(bits-1) - 1."""
        return float(2 ** (self.bits - 1) - 1)

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number, 127 being nearly 2^7: bits - 2."""
        return self.bits - 2

    @checked
    def round(self, x: float, mode: Mode = "nearest", random: float | None = None) -> float:
        """x as a whole number, at most `max` in size."""
        finite("x", x)
        return math.copysign(min(_whole(abs(x), _way(mode, random)), self.max), x)


@plain_data
@dataclass(frozen=True)
class PowerOfTwo:
    """E8M0, a scale of 8 bits: 2^(E - 127) for E from 0 to 254, and NaN; no sign and no zero.

    Source: OCP Microscaling (MX) specification v1.0, section 5.4.1.
    """

    bits: ClassVar[int] = 8
    bias: ClassVar[int] = 127

    def __str__(self) -> str:
        return "E8M0"

    def decode(self, pattern: int) -> float:
        """2^(pattern - 127); 255 is NaN."""
        pattern = count("pattern", pattern, 0, 255)
        return math.nan if pattern == 255 else math.ldexp(1.0, pattern - self.bias)


FP32 = Format(8, 23, name="FP32")
TF32 = Format(8, 10, name="TF32")
"""What tensor cores read of an FP32 number; it is stored in 32 bits."""
BF16 = Format(8, 7, name="BF16")
FP16 = Format(5, 10, name="FP16")
FP8_E5M2 = Format(5, 2, name="FP8 E5M2")
FP8_E4M3 = Format(4, 3, infinities=False, name="FP8 E4M3")
FP6_E3M2 = Format(3, 2, infinities=False, nan=False, name="FP6 E3M2")
FP6_E2M3 = Format(2, 3, infinities=False, nan=False, name="FP6 E2M3")
FP4_E2M1 = Format(2, 1, infinities=False, nan=False, name="FP4 E2M1")
INT8 = Integer(8)
E8M0 = PowerOfTwo()


def _number(name: str, x: SupportsFloat) -> float:
    """x as a float, infinite or NaN as it may be."""
    if isinstance(x, bool) or not isinstance(x, Real):
        refuse(name, x, "a number")
    try:
        return float(x)
    except OverflowError:
        refuse(name, x, "a number that a float can hold")


def _way(mode: Mode, random: float | None) -> tuple[Mode, float]:
    """A mode and its random number, as they may be."""
    if mode not in get_args(Mode):
        refuse("mode", mode, " or ".join(map(repr, get_args(Mode))))
    if random is None and mode != "stochastic":
        return mode, 0.0
    if random is None or not 0 <= _number("random", random) < 1:
        refuse("random", random, "a number from 0 to 1, below 1")
    return mode, random


def _whole(steps: float, way: tuple[Mode, float]) -> float:
    """A number of steps above zero as a whole one."""
    mode, random = way
    if mode == "nearest":
        return float(round(steps))  # Python's rounds a half to even
    # The fraction is exact, and 0 is never above a random number: whole steps stay as they are.
    return math.floor(steps) + float(mode == "stochastic" and random < steps % 1)
