"""Turn an answer into plain values, without calling any method the answer brings along.

An object with an obliging `__eq__` would be equal to everything, so nothing is compared before it
is plain: exact types are checked, and subclasses, whose methods are the student's, are refused.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

from dlsys.annotated import checked
from dlsys.exercises.usual import usual

MOST_VALUES = 100_000  # in an answer; a grader compares them in a tenth of a second
DEEPEST = 20
# Types whose values are not there before they are asked for, and are gone then.
_LAZY = {"generator", "map", "zip", "filter", "enumerate", "reversed", "range"}
_KINDS = {"b": "boolean", "i": "integer", "u": "integer", "f": "floating", "U": "text"}


class NotPlain(TypeError):  # noqa: N818  (it is a property of the answer, named as one)
    """An answer that is not made of plain values; the message says which part and what to do."""


@dataclass(frozen=True)
class Array:
    """A NumPy array or torch tensor as plain data: dtype kind, shape, nested lists of values."""

    kind: str
    shape: tuple[int, ...]
    values: Any


@checked
def plain(value: Any, where: str = "the answer") -> Any:
    """`value` as bool, int, float, str, None, list, dict or `Array`; tuples, ranges and views of
    dictionaries become lists, fractions and decimals numbers.

    Raises NotPlain, with `where` naming the part, for every other type (complex numbers, sets,
    generators, functions, classes of one's own, subclasses of the plain types), and for more than
    MOST_VALUES values.
    """
    made = _plain(value, where, 0)
    _check_length(_count(made), where)
    return made


def _count(made: Any) -> int:
    """How many values there are in a plain one; empty lists count, for they take time as well."""
    if isinstance(made, Array):
        return math.prod(made.shape)
    inside = made.values() if isinstance(made, dict) else made if isinstance(made, list) else ()
    return 1 + sum(map(_count, inside))


def _plain(value: Any, where: str, depth: int) -> Any:
    value = usual(value)
    kind = type(value)
    if value is None or value is ... or kind in (bool, int, float, str):
        return value
    if depth > DEEPEST:
        raise NotPlain(f"{where} is nested more than {DEEPEST} levels deep.")
    if kind is list or kind is tuple:
        _check_length(len(value), where)
        return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        _check_length(len(value), where)
        keys = [_key(key, where, depth) for key in value]
        items = zip(keys, value.values(), strict=True)
        return {key: _plain(item, f"{where}[{_written(key)}]", depth + 1) for key, item in items}
    array = _numpy(value, where) or _torch(value, where)
    if array is None:
        raise NotPlain(_sentence(kind, where))
    return array.values if array.shape == () else array


def _key(key: Any, where: str, depth: int) -> Any:
    if type(key) in (bool, int, float, str) or key is None:
        return key
    if depth > DEEPEST:
        raise NotPlain(f"{where} has a key that is nested more than {DEEPEST} levels deep.")
    if type(key) is tuple:
        return tuple(_key(part, where, depth + 1) for part in key)
    raise NotPlain(f"{where} has a key of type {type(key).__name__}; keys are numbers or text.")


def _written(key: Any) -> str:
    try:
        return repr(key)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a long number"


def _check_length(length: int, where: str) -> None:
    if length > MOST_VALUES:
        raise NotPlain(f"{where} holds {length:,} values; at most {MOST_VALUES:,} are compared.")


def _numpy(value: Any, where: str) -> Array | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if type(value) in set(numpy.sctypeDict.values()):
        value = numpy.asarray(value)
    if type(value) is not numpy.ndarray:
        return None
    if value.dtype.kind not in _KINDS:
        raise NotPlain(f"{where} is an array of {value.dtype}; use numbers, booleans or text.")
    _check_length(value.size, where)
    if value.dtype.kind == "f":  # Python has no number for a wider float
        value = value.astype(numpy.float64)
    values = numpy.ndarray.tolist(value)
    return Array(_KINDS[value.dtype.kind], tuple(value.shape), values)


def _torch(value: Any, where: str) -> Array | None:
    torch = sys.modules.get("torch")
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if value.is_meta:
        raise NotPlain(f"{where} is a meta tensor: it has a shape but no values to compare.")
    if value.is_complex() or value.layout is not torch.strided:
        raise NotPlain(f"{where} is a {value.dtype} tensor; use dense real numbers or booleans.")
    _check_length(value.numel(), where)
    kind = "boolean" if value.dtype is torch.bool else "integer"
    try:
        if value.is_floating_point():
            kind, value = "floating", value.to(torch.float64)
        return Array(kind, tuple(value.shape), value.detach().cpu().tolist())
    except RuntimeError:  # of a few bits, nested, quantized
        raise NotPlain(
            f"{where} is a {value.dtype} tensor whose numbers cannot be read; use a dense tensor "
            "of an ordinary dtype."
        ) from None


def _sentence(kind: type, where: str) -> str:
    name = kind.__name__
    advice = "Give numbers, text, lists, tuples, dictionaries, NumPy arrays or torch tensors."
    for base in (bool, int, float, str, list, tuple, dict):
        if issubclass(kind, base):
            advice = f"Turn it into a plain {base.__name__} with {base.__name__}(...)."
    if issubclass(kind, set | frozenset):
        advice = "Turn it into a list with sorted(...)."
    if name in _LAZY:
        advice = "Turn it into a list with list(...)."
    return f"{where} is of type {name}, which cannot be compared. {advice}"
