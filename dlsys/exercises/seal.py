"""Expected values that can be checked and not read: a salted, slow hash of the rounded value.

A seal keeps a reader from seeing an answer by accident. It is no lock: an answer of three digits
has few values, and trying them all takes minutes. That two digits will do makes this no faster,
since the hash is of all three; but a guess by hand is right ten times as often: one of 90 for each
power of ten. A count, a whole number that is asked for exactly, has no such tolerance.
"""

import hashlib
import json
import math
import secrets
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

from dlsys.annotated import checked
from dlsys.checks import at_least, count, shown

_ROUNDS = 20_000
DIGITS = 3
"""What a number is sealed with where its question states no precision. Then one less will do."""
LONGEST = 1000  # values in a sealed list, those of lists in it among them


@checked
def seal(
    value: Any, digits: int = DIGITS, *, is_count: bool = False, beside: str | None = None
) -> str:
    """The text to put into `sealed("...")` for an expected value: "digits$salt$hash$form".

    Numbers are rounded to `digits` significant digits, so 208e9 and 2.079e11 have the same seal at
    three digits; text, None and booleans are kept as they are; lists are sealed as a whole. A
    number sealed with three digits, and no other, may be answered with two, unless it `is_count`:
    then it is a whole number, and sealed with all its digits. What is not hidden is the form, such
    as "number" or "list4": it is part of the question.

    With the seal of the right answer as `beside`, a wrong value has its salt, so that one hash of
    what came is compared with all of them; each salt takes a hash of its own.
    """
    digits = count("digits", digits, most=17)
    if is_count:
        digits = max(digits, len(str(count("value", value, 0, most=10**17 - 1))))
    salt = secrets.token_hex(4) if beside is None else _salt_of(beside)
    return f"{digits}${salt}${_hash(value, digits, salt)}${'count' if is_count else form(value)}"


def form(value: Any) -> str:
    """How a value is built: "number", "text", "bool", "none", or "list4" for a list of four.

    A number that is a count is of the form "count", which the value alone does not tell.
    """
    if type(value) in (list, tuple):
        return f"list{len(value)}"
    names = {bool: "bool", int: "number", float: "number", str: "text"}
    return names.get(type(value), "none")


@dataclass(frozen=True)
class Sealed:
    """An expected value, known only by its hash, and by its form where the seal tells."""

    digits: int
    salt: str
    digest: str
    form: str = ""

    def matches(self, value: Any, rtol: float = 1e-9) -> bool:
        """Whether the plain `value` rounds to the sealed one, or would if moved by `rtol`.

        Where three digits are sealed, so does the sealed one, rounded to two.
        """
        return self.equals(value, rtol) or (self.digits == DIGITS and self.rounds_to(value))

    def equals(self, value: Any, rtol: float = 1e-9) -> bool:
        """The same, and two digits will not do: a single hash, where `rounds_to` takes many."""
        at_least("rtol", rtol, 0)
        # A value beside a rounding boundary may fall to either side, so both are tried.
        if is_long(value):
            return False  # before three copies of it are made
        try:
            moved = [_scaled(value, factor) for factor in (1.0, 1 - rtol, 1 + rtol)]
            candidates = {_canonical(each, self.digits) for each in moved}
        except (ValueError, OverflowError):  # a dict, an array, or a number beyond any float
            return False
        return any(_digest(text, self.salt) == self.digest for text in sorted(candidates))

    def rounds_to(self, value: Any) -> bool:
        """Whether the sealed number, with one digit less than is sealed, is `value`.

        The eleven numbers that round to `value` are tried, which takes a tenth of a second; below
        a power of ten, where numbers have one more decimal, six more.
        """
        if self.form != "number" or not _is_short(value, self.digits - 1):
            return False
        short = Decimal(repr(float(value)))
        step = Decimal(1).scaleb(short.adjusted() + 1 - self.digits)
        tried = {short + k * each for each in (step, step / 10) for k in range(-5, 6)}
        near = sorted(each for each in tried if self._half_a_digit(each, short))
        return any(self.equals(float(each)) for each in near)

    def _half_a_digit(self, number: Decimal, short: Decimal) -> bool:
        """Whether they are no farther apart than rounding takes them: 9.6 does not become 10."""
        return abs(number - short) <= Decimal(5).scaleb(number.adjusted() + 1 - self.digits)


@checked
def sealed(token: str) -> Sealed:
    """The expected value written by `seal`; raises ValueError for anything else."""
    parts = token.split("$")
    if len(parts) not in (3, 4) or not parts[0].isdigit():
        raise ValueError(f"{token!r} is not a seal; make one with seal(value, digits=3).")
    return Sealed(int(parts[0]), *parts[1:])


def significant(value: float) -> int:
    """The digits that a finite number is written with, without zeros at either end."""
    return len(Decimal(repr(float(value))).normalize().as_tuple().digits)


def is_long(value: Any) -> bool:
    """Whether a list, or a tuple, holds more than LONGEST values, those in lists in it counted."""
    left, found = [value], 0
    while left and found <= LONGEST:
        each = left.pop()
        if type(each) in (list, tuple):
            found += len(each)
            left += each[: LONGEST + 1]
    return found > LONGEST


def _is_short(value: Any, digits: int) -> bool:
    """Whether it is a number of so many digits at most, and not 0, which rounding gives nothing."""
    if type(value) not in (int, float) or not value:
        return False
    try:
        return math.isfinite(value) and significant(value) <= digits
    except OverflowError:  # a whole number beyond every float
        return False


def _scaled(value: Any, factor: float) -> Any:
    if type(value) in (int, float):
        return value * factor
    if type(value) is list:
        return [_scaled(item, factor) for item in value]
    return value


def _canonical(value: Any, digits: int) -> str:
    if is_long(value):
        raise ValueError(
            f"A list of {len(value):,} cannot be sealed; at most {LONGEST} can, those of lists in "
            "it counted as well."
        )
    if type(value) in (int, float):
        return f"{float(value) + 0.0:.{digits - 1}e}"  # + 0.0 turns -0.0 into 0.0
    if type(value) in (list, tuple):
        return "[" + ",".join(_canonical(item, digits) for item in value) + "]"
    if value is None or type(value) in (bool, str):
        return json.dumps(value)
    raise ValueError(
        f"value is {shown(value)}, which cannot be sealed: seal numbers, text or lists."
    )


def _salt_of(beside: str) -> str:
    try:
        return sealed(beside).salt
    except ValueError as error:
        raise ValueError(f"beside: {error}") from None


def _hash(value: Any, digits: int, salt: str) -> str:
    return _digest(_canonical(value, digits), salt)


def _digest(text: str, salt: str) -> str:
    key = text.encode()
    # HMAC does the same to a long key; here it keeps a student's megabytes out of the cache.
    return _stretched(hashlib.sha256(key).digest() if len(key) > 64 else key, salt)


@lru_cache(maxsize=10_000)  # many students give the same wrong answer
def _stretched(key: bytes, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", key, salt.encode(), _ROUNDS, 8).hex()
