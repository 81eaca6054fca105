"""Compare a plain answer with what is expected, and say what is likely wrong with it.

Nothing here knows notebooks or frames, so a grader can judge in a process of its own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlsys.exercises.plain import Array
from dlsys.exercises.seal import DIGITS, Sealed, is_long, significant
from dlsys.exercises.structure import built_otherwise, kind, rearranged

UNANSWERED = "Not answered yet: put your answer in the place of the three dots."
RETURNED_NONE = "None came: not answered yet, or a function ends without `return`."
# Ratios that give a slip away. Names of units are part of what these exercises teach.
_RATIOS = {
    2**30 / 1e9: "GiB and GB are mixed up: 1 GiB is 2**30 bytes, 1 GB is 10**9.",
    8.0: "Bits and bytes are mixed up: a byte has 8 bits.",
    1e3: "A unit prefix is off (kilo, mega, giga, ...).",
    1e6: "A unit prefix is off (kilo, mega, giga, ...).",
    1e9: "A unit prefix is off (kilo, mega, giga, ...).",
    100.0: "A percentage and a fraction are mixed up.",
}
HINT_RTOL = 1e-3


def difference(came: Any, expected: Any, rtol: float = 1e-9, atol: float = 0.0) -> str | None:
    """What is wrong with `came` (made by `plain`), as a sentence; None where nothing is.

    Whole numbers and text are compared exactly, floats by |came - expected| <= max(rtol *
    max(|came|, |expected|), atol); lists, tuples and arrays element by element. A list may be
    answered by an array of its shape. `expected` is plain or `Sealed`.
    """
    if isinstance(expected, Sealed):
        came = bare(came)
        right = expected.matches(came, rtol)
        differs = built_otherwise(came, expected) or "It differs from the sealed value."
        return None if right else differs
    wrong = _difference(came, expected, rtol, atol, "")
    is_array = isinstance(expected, Array)  # whose shape is told
    return wrong and ((not is_array and rearranged(bare(came), bare(expected))) or wrong)


def _difference(came: Any, expected: Any, rtol: float, atol: float, where: str) -> str | None:
    at = f"At {where}: " if where else ""
    if isinstance(expected, Array):
        if not isinstance(came, Array):
            return f"{at}an array of shape {expected.shape} is expected; {kind(came)} came."
        if came.shape != expected.shape:
            return f"{at}the shape is {came.shape}; {expected.shape} is expected."
        if came.kind != expected.kind:
            return f"{at}the values are {came.kind}; {expected.kind} ones are expected."
        return _difference(came.values, expected.values, rtol, atol, where)
    if isinstance(came, Array):
        came = came.values
    if kind(came) != kind(expected):
        otherwise = built_otherwise(came, expected)
        return f"{at}{otherwise or f'{kind(expected)} is expected; {kind(came)} came.'}"
    if isinstance(expected, list | tuple):
        if len(came) != len(expected):
            return f"{at}{len(expected)} values are expected; {len(came)} came."
        pairs = [
            (f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(came, expected, strict=True))
        ]
    elif isinstance(expected, dict):
        if came.keys() != expected.keys():
            return f"{at}the keys are {show(list(came))}; {show(list(expected))} are expected."
        pairs = [(f"{where}[{key!r}]", came[key], value) for key, value in expected.items()]
    else:
        if close(came, expected, rtol, atol):
            return None
        return f"{at}{show(expected)} is expected; {show(came)} came."
    found = (_difference(a, b, rtol, atol, place) for place, a, b in pairs)
    return next((text for text in found if text), None)


def unanswered(came: Any) -> str | None:
    """That a wrong answer is the placeholder still, or nothing but None; None where it is more."""
    parts = came if isinstance(came, list) else [came]
    if any(part is ... for part in parts):
        return UNANSWERED
    return RETURNED_NONE if parts and all(part is None for part in parts) else None


def approval(question: str, came: Any, rtol: float = 1e-9) -> str:
    """What to say of a right answer: the question, and the value where it is short.

    Six digits of a float are told, since the last ones differ from processor to processor, and four
    where the tolerance says that more than the last ones do.
    """
    digits = 6 if rtol <= 1e-6 else 4
    told = _rounded(bare(came), digits)
    text = f"{told:.6g}" if type(told) is float else show(told)
    return question if len(text) > 40 or text == question else f"{question} = {text}"


def _rounded(value: Any, digits: int) -> Any:
    if type(value) is list:
        return [_rounded(each, digits) for each in value]
    if type(value) is dict:
        return {key: _rounded(each, digits) for key, each in value.items()}
    return float(f"{value:.{digits}g}") if type(value) is float else value


def complaint(
    question: str, came: Any, expected: Any, wrong: str, hint: Any = None, rtol: float = 1e-9
) -> str:
    """What to say of a wrong answer: what came, what is expected, and what is likely the mistake.

    `wrong` is what `difference` says of the two, and `rtol` the tolerance it was asked with.
    """
    if missing := unanswered(came):
        return f"{question}: {missing}"
    lines = [f"{question} is not right.", f"  came:      {show(came)}"]
    lines += [f"  expected:  {_shown(expected, came)}"]
    scalars = type(expected) in (bool, int, float, str, Sealed) and not built_otherwise(
        bare(came), expected
    )
    mistake = likely_mistake(came, expected, hint, rtol)
    if not scalars and mistake != wrong:
        lines += [f"  where:     {wrong}"]
    return "\n".join([*lines, f"  likely:    {mistake}"] if mistake else lines)


def close(came: Any, expected: Any, rtol: float, atol: float) -> bool:
    """Whether two plain scalars agree: exactly, or for floats within the tolerance; NaN is NaN."""
    if float in (type(came), type(expected)):
        if came != came or expected != expected:
            return came != came and expected != expected
        try:
            return math.isclose(came, expected, rel_tol=rtol, abs_tol=atol)
        except OverflowError:  # a whole number beyond every float
            return False
    return bool(came == expected)


def likely_mistake(came: Any, expected: Any, hint: Any = None, rtol: float = 1e-9) -> str | None:
    """The hint for this wrong answer.

    `hint` is one text for every wrong answer; or {wrong value: text}, or [(wrong value, text)]
    where the wrong values are lists, with the key None for any other. Wrong values may be
    `Sealed`, and numbers are recognised to three digits. An answer of another structure than
    expected is told so, and has no other hint: what is in it is not looked at. A number that is
    right but has fewer digits than `rtol` or the seal asks for is told that. Without a hint, the
    ratio of two numbers gives some slips of unit away.
    """
    if isinstance(hint, str):
        return _too_short(came, expected, rtol) or hint
    pairs = list(hint.items()) if isinstance(hint, Mapping) else list(hint or [])
    if (foreseen := _foreseen(came, pairs)) is not None:
        return foreseen
    if pairs and (otherwise := built_otherwise(bare(came), expected)):
        return otherwise
    if short := _too_short(came, expected, rtol):
        return short
    return next((text for wrong, text in pairs if wrong is None), None) or _ratio(came, expected)


def _foreseen(came: Any, pairs: Sequence[tuple[Any, Any]]) -> str | None:
    """The text beside this wrong value, or else beside a sealed one that it has two digits of."""
    value = bare(came)
    known = () if is_long(value) else [(wrong, text) for wrong, text in pairs if wrong is not None]

    def is_it(wrong: Any) -> bool:
        if isinstance(wrong, Sealed):
            return wrong.equals(value, HINT_RTOL)
        return difference(came, wrong, HINT_RTOL) is None

    def rounds_to_it(wrong: Any) -> bool:
        return isinstance(wrong, Sealed) and wrong.matches(value)

    found = (text for fits in (is_it, rounds_to_it) for wrong, text in known if fits(wrong))
    return next(map(str, found), None)


def _too_short(came: Any, expected: Any, rtol: float) -> str | None:
    """That a number is right in its digits, two or more, and has too few; None where it is not so.

    Two whole numbers are compared exactly: 150 is not 148 in fewer digits, but a wrong count.
    """
    if type(came) not in (int, float) or not _is_finite(came) or (digits := significant(came)) < 2:
        return None
    if isinstance(expected, Sealed):
        is_one_short = digits == expected.digits - 1 and expected.rounds_to(came)
        wanted = f"{expected.digits} digits" if is_one_short else ""
    elif type(expected) not in (int, float) or {type(came), type(expected)} == {int}:
        return None
    else:
        few = _is_finite(expected) and float(f"{expected:.{digits - 1}e}") == came
        exact = "every digit" if type(expected) is int else f"{_digits_of(rtol)} digits"
        wanted = exact if few else ""
    return f"Right, but rounded to {digits} digits: give {wanted}." if wanted else None


def _digits_of(rtol: float) -> int:
    """How many digits a number needs at most to be within the tolerance."""
    return 1 + math.ceil(-math.log10(rtol)) if 0 < rtol < 1 else 17


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False


def _ratio(came: Any, expected: Any) -> str | None:
    if kind(came) != "a number" or kind(expected) != "a number" or not came or not expected:
        return None
    try:
        ratio = abs(came / expected)
    except OverflowError:
        return None
    for known, text in _RATIOS.items():
        if any(math.isclose(ratio, each, rel_tol=1e-6) for each in (known, 1 / known)):
            return text
    return "The sign is wrong." if came == -expected else None


def _shown(expected: Any, came: Any) -> str:
    """`expected` in a line; of a seal, how many digits count, unless whole numbers are counted."""
    if not isinstance(expected, Sealed) or expected.form in ("text", "bool", "none"):
        return show(expected)
    if expected.form == "count":
        return f"{show(expected)}; a whole number"
    parts = bare(came) if isinstance(bare(came), list) else [came]
    has_numbers = expected.form == "number" or any(type(part) is float for part in parts)
    digits = f"; numbers are compared to {expected.digits} digits" if has_numbers else ""
    if expected.form == "number" and expected.digits == DIGITS:
        digits += f", and {DIGITS - 1} will do"
    return show(expected) + digits


def show(value: Any, most: int = 200) -> str:
    """A plain value in a line: numbers with separators, long things cut."""
    if isinstance(value, Sealed):
        return "not shown"
    try:
        if type(value) is int or (type(value) is float and abs(value) < 1e16):
            text = f"{value:,}"
        else:
            text = repr(bare(value))
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a number too long to show"
    return text if len(text) <= most else text[: most - 4] + " ..."


def bare(value: Any) -> Any:
    """The value with each array in it as lists."""
    if isinstance(value, Array):
        return value.values
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items()}
    return [bare(item) for item in value] if isinstance(value, list) else value
